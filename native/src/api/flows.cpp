#include "api/unavailable.h"
#include "daqiri/daqiri.h"

namespace daqiri {

namespace {
constexpr std::string_view MISSING =
    "this build cannot change flows while it runs; list the flow under rx.flows of the interface";
}

Status add_rx_flow_async(int, const FlowRuleConfig&, FlowOpId*) {
  return api::unavailable("add_rx_flow_async", MISSING);
}

Status add_rx_flows_async(int, const std::vector<FlowRuleConfig>&, FlowOpId*) {
  return api::unavailable("add_rx_flows_async", MISSING);
}

Status delete_flow_async(FlowId, FlowOpId*) {
  return api::unavailable("delete_flow_async", MISSING);
}

Status poll_flow_op(FlowOpResult*) { return api::unavailable("poll_flow_op", MISSING); }

}  // namespace daqiri

// Flows that are added and deleted while the engine is running.
#include <optional>
#include <utility>
#include <vector>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "session/flow_changes.h"

namespace daqiri {

using api::fail;
using api::with_session;

namespace {

Status add(const char* call, int port, std::vector<FlowRuleConfig> flows, FlowOpType type,
           FlowOpId* op_id) noexcept {
  return with_session(call, [&](const Session& session) {
    if (op_id == nullptr) return fail(Status::NULL_PTR, call, "op_id is null");
    *op_id = session.flow_changes().begin_add(port, std::move(flows), type);
    return Status::SUCCESS;
  });
}

}  // namespace

Status add_rx_flow_async(int port, const FlowRuleConfig& flow, FlowOpId* op_id) {
  return add(__func__, port, {flow}, FlowOpType::ADD_RX, op_id);
}

Status add_rx_flows_async(int port, const std::vector<FlowRuleConfig>& flows, FlowOpId* op_id) {
  return add(__func__, port, flows, FlowOpType::ADD_RX_BATCH, op_id);
}

Status delete_flow_async(FlowId flow_id, FlowOpId* op_id) {
  const char* call = __func__;
  return with_session(call, [&](const Session& session) {
    if (op_id == nullptr) return fail(Status::NULL_PTR, call, "op_id is null");
    *op_id = session.flow_changes().begin_delete(flow_id);
    return Status::SUCCESS;
  });
}

Status poll_flow_op(FlowOpResult* result) {
  const char* call = __func__;
  return with_session(call, [&](const Session& session) {
    if (result == nullptr) return fail(Status::NULL_PTR, call, "result is null");
    std::optional<EndedFlowOp> ended = session.flow_changes().poll();
    if (!ended) return api::decline(Status::NOT_READY, call, "no operation has ended");
    *result = std::move(ended->result);
    // The reason was logged already.
    if (!ended->reason.empty()) api::decline(result->status_, call, ended->reason);
    return Status::SUCCESS;
  });
}

}  // namespace daqiri

// Add flows while the engine runs, receive by them, and delete them. Usage: dynamic_flows CONFIG
#include <vector>

#include "program.h"

namespace {

daqiri::FlowRuleConfig rule(std::uint16_t port) {
  daqiri::FlowRuleConfig flow;
  flow.name_ = "udp_" + std::to_string(port);
  flow.action_.type_ = daqiri::FlowType::QUEUE;
  flow.action_.id_ = 0;
  flow.match_.type_ = daqiri::FlowMatchType::IPV4_UDP;
  flow.match_.udp_dst_ = port;
  return flow;
}

daqiri::FlowOpResult completed(daqiri::FlowOpId op, daqiri::FlowOpType type) {
  daqiri::FlowOpResult result;
  wait_for("the operation", [&] {
    const auto status = daqiri::poll_flow_op(&result);
    if (status != daqiri::Status::NOT_READY) check(status, "poll_flow_op");
    return status == daqiri::Status::SUCCESS;
  });
  expect(result.op_id_ == op && result.type_ == type, "the operation that was begun");
  check(result.status_, "the operation");
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  const int port_id = daqiri::get_port_id("camera");
  daqiri::FlowOpId op = 0;
  check(daqiri::add_rx_flow_async(port_id, rule(5001), &op), "add_rx_flow_async");
  const daqiri::FlowId one = completed(op, daqiri::FlowOpType::ADD_RX).flow_id_;
  check(daqiri::add_rx_flows_async(port_id, {rule(5002), rule(5003)}, &op), "add_rx_flows_async");
  const std::vector<daqiri::FlowId> two = completed(op, daqiri::FlowOpType::ADD_RX_BATCH).flow_ids_;
  expect(two.size() == 2 && two[0] != 0 && two[1] != 0, "ids of both");

  auto* sent = tx_burst(sending_port(port_id), 0, 3, 1);
  for (int i = 0; i < 3; i++) write_frame(sent, i, "data", 4, static_cast<uint16_t>(5001 + i));
  check(daqiri::send_tx_burst(sent), "send_tx_burst");
  for (int received = 0; received < 3;) {
    auto* burst = rx_burst(port_id);
    for (int i = 0; i < daqiri::get_num_packets(burst); i++, received++) {
      expect(daqiri::get_packet_flow_id(burst, i) == (received == 0 ? one : two[received - 1]),
             "the flow of the packet");
    }
    daqiri::free_all_packets_and_burst_rx(burst);
  }
  check(daqiri::delete_flow_async(one, &op), "delete_flow_async");
  expect(completed(op, daqiri::FlowOpType::DELETE).flow_id_ == one, "the flow that was deleted");
  expect(daqiri::delete_flow_async(one, &op) == daqiri::Status::INVALID_PARAMETER,
         "deleted already");
  daqiri::shutdown();
  std::puts("done");
}

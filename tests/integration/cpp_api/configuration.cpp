// Build a configuration in code, start with it, and see that the engine does what it says.
// Usage: configuration
#include <arpa/inet.h>

#include <string>

#include "program.h"

namespace {

daqiri::MemoryRegionConfig region(const std::string& name) {
  daqiri::MemoryRegionConfig region;
  region.name_ = name;
  region.kind_ = daqiri::MemoryKind::HOST;
  region.access_ = daqiri::MEM_ACCESS_LOCAL;
  region.num_bufs_ = 256;
  region.buf_size_ = 2048;
  return region;
}

daqiri::RxQueueConfig rx_queue(int id, const std::string& name) {
  daqiri::RxQueueConfig queue;
  queue.common_.name_ = name;
  queue.common_.id_ = id;
  queue.common_.batch_size_ = 4;
  queue.common_.cpu_core_ = "any";
  queue.common_.mrs_ = {"rx"};
  queue.timeout_us_ = 1000;
  queue.poll_mode_ = daqiri::QueuePollMode::INDIRECT;
  return queue;
}

daqiri::FlowConfig flow(daqiri::FlowId id, std::uint16_t queue, std::uint16_t port) {
  daqiri::FlowConfig flow;
  flow.name_ = "port_" + std::to_string(port);
  flow.id_ = id;
  flow.action_.type_ = daqiri::FlowType::QUEUE;
  flow.action_.id_ = queue;
  flow.match_.type_ = daqiri::FlowMatchType::IPV4_UDP;
  flow.match_.udp_dst_ = port;
  flow.match_.ipv4_src_ = inet_addr("10.0.0.1");
  return flow;
}

daqiri::NetworkConfig network() {
  daqiri::NetworkConfig config;
  config.common_.version = 1;
  config.common_.master_core_ = 0;
  config.common_.stream_type = daqiri::StreamType::RAW;
  config.common_.engine = daqiri::EngineType::DEFAULT;
  config.common_.loopback_ = daqiri::LoopbackType::LOOPBACK_TYPE_SW;
  config.log_level_ = daqiri::LogLevel::ERROR;
  config.tx_meta_buffers_ = daqiri::DEFAULT_TX_META_BUFFERS;
  config.rx_meta_buffers_ = daqiri::DEFAULT_RX_META_BUFFERS;
  config.mrs_.emplace("rx", region("rx"));
  config.mrs_["tx"] = region("tx");

  daqiri::InterfaceConfig interface;
  interface.name_ = "camera";
  interface.address_ = "loopback";
  interface.rx_.flow_isolation_ = true;
  interface.rx_.queues_ = {rx_queue(0, "images"), rx_queue(1, "events")};
  interface.rx_.flows_ = {flow(7, 0, 5000), flow(8, 1, 5001)};
  daqiri::TxQueueConfig tx;
  tx.common_.name_ = "tx";
  tx.common_.batch_size_ = 4;
  tx.common_.cpu_core_ = "any";
  tx.common_.mrs_ = {"tx"};
  tx.common_.offloads_ = {"tx_eth_src"};
  interface.tx_.queues_.push_back(tx);
  config.ifs_.push_back(interface);
  return config;
}

}  // namespace

int main() {
  auto config = network();
  check(daqiri::daqiri_init(config), "daqiri_init");
  const int port_id = daqiri::get_port_id("camera");
  expect(daqiri::get_num_rx_queues(port_id) == 2, "get_num_rx_queues");
  auto* sent = tx_burst(port_id, 0, 4, 1);
  // Two for each queue; with flow_isolation, nothing else would arrive.
  for (int i = 0; i < 4; i++) write_frame(sent, i, "data", 4, i % 2 == 0 ? 5000 : 5001);
  check(daqiri::send_tx_burst(sent), "send_tx_burst");
  for (int queue = 0; queue < 2; queue++) {
    daqiri::BurstParams* burst = nullptr;
    wait_for("a burst", [&] {
      return daqiri::get_rx_burst(&burst, port_id, queue) == daqiri::Status::SUCCESS;
    });
    expect(daqiri::get_num_packets(burst) == 2, "packets of the queue");
    expect(daqiri::get_packet_flow_id(burst, 0) == 7U + static_cast<unsigned>(queue),
           "the flow of the queue");
    daqiri::free_all_packets_and_burst_rx(burst);
  }
  daqiri::shutdown();

  // A mistake is told with its place.
  auto wrong = network();
  wrong.ifs_[0].rx_.flows_[1].action_.id_ = 9;
  expect(daqiri::daqiri_init(wrong) == daqiri::Status::INVALID_PARAMETER, "a wrong queue id");
  std::printf("%s\ndone\n", daqiri::last_error());
}

// VLAN tags and tunnels: what the flows of a port put in front of packets, and take off again.
// Usage: transforms CONFIG OVERHEAD
//
// CONFIG transforms what is sent, and takes it off where the port is 5000. OVERHEAD: bytes by which
// packets grow.
#include <cstring>
#include <string>

#include "program.h"

namespace {

constexpr int PACKETS = 8;
constexpr std::uint32_t HEADERS = sizeof(daqiri::UDPIPV4Pkt);
constexpr std::uint16_t TAKEN_OFF = 5000;
constexpr std::uint16_t LEFT = 5001;

std::string data_of(int idx) { return std::string(100, static_cast<char>('a' + idx)); }

void send(int port_id, std::uint16_t port) {
  auto* burst = tx_burst(port_id, 0, PACKETS, 1);
  for (int i = 0; i < PACKETS; i++) write_frame(burst, i, data_of(i).data(), 100, port);
  check(daqiri::send_tx_burst(burst), "send_tx_burst");
}

/// Packets with `overhead` bytes in front of what was sent.
void receive(int port_id, daqiri::FlowId flow, std::uint32_t overhead, std::uint16_t port) {
  for (int received = 0; received < PACKETS;) {
    auto* burst = rx_burst(port_id);
    for (int i = 0; i < daqiri::get_num_packets(burst); i++, received++) {
      expect(daqiri::get_packet_flow_id(burst, i) == flow, "the flow of the packet");
      const std::uint32_t length = daqiri::get_packet_length(burst, i);
      expect(length == HEADERS + 100 + overhead, "the length of the packet");
      const auto* end = static_cast<const char*>(daqiri::get_packet_ptr(burst, i)) + length;
      expect(std::memcmp(end - 100, data_of(received).data(), 100) == 0, "the data");
      daqiri::UDPIPV4Pkt packet;
      std::memcpy(&packet, end - 100 - HEADERS, sizeof packet);
      expect(ntohs(packet.udp.dest) == port, "the UDP port");
    }
    daqiri::free_all_packets_and_burst_rx(burst);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto overhead = static_cast<std::uint32_t>(std::stoi(argv[2]));
  daqiri::NetworkConfig config;
  check(daqiri::parse_network_config(argv[1], config), "parse_network_config");
  check(daqiri::daqiri_init(config), "daqiri_init");
  const int camera = daqiri::get_port_id("camera");
  const int sender = sending_port(camera);

  send(sender, TAKEN_OFF);
  receive(camera, 7, 0, TAKEN_OFF);
  send(sender, LEFT);
  receive(camera, 0, overhead, LEFT);

  // A flow that is added takes the same off.
  daqiri::FlowRuleConfig rule;
  rule.name_ = "added";
  rule.actions_ = config.ifs_[0].rx_.flows_[0].actions_;
  rule.match_.udp_dst_ = LEFT;
  daqiri::FlowOpId op = 0;
  check(daqiri::add_rx_flow_async(camera, rule, &op), "add_rx_flow_async");
  daqiri::FlowOpResult added;
  wait_for("the operation",
           [&] { return daqiri::poll_flow_op(&added) == daqiri::Status::SUCCESS; });
  check(added.status_, "the operation");
  send(sender, LEFT);
  receive(camera, added.flow_id_, 0, LEFT);

  daqiri::print_stats();
  daqiri::shutdown();
  std::puts("done");
}

// Several receive queues: a flow for one of them, and a flow that is spread over all (RSS).
// Usage: multi_queue CONFIG
#include <map>

#include "program.h"

namespace {

constexpr int SOURCES = 64;
constexpr int EACH = 8;
constexpr std::uint16_t SPREAD = 5000;
constexpr std::uint16_t ONE_QUEUE = 5001;

/// A packet of each source port.
void send(int port_id, std::uint16_t port) {
  auto* burst = tx_burst(port_id, 0, SOURCES, 1);
  for (int i = 0; i < SOURCES; i++) {
    write_frame(burst, i, "data", 4, port);
    check(daqiri::set_udp_header(burst, i, 4, static_cast<std::uint16_t>(4000 + i), port),
          "set_udp_header");
  }
  check(daqiri::send_tx_burst(burst), "send_tx_burst");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  const int camera = daqiri::get_port_id("camera");
  const int queues = daqiri::get_num_rx_queues(camera);
  expect(queues > 1, "several queues");
  const int sender = sending_port(camera);
  for (int i = 0; i < EACH; i++) {
    send(sender, SPREAD);
    send(sender, ONE_QUEUE);
  }

  std::map<std::uint16_t, int> queue_of;
  std::map<int, int> spread;
  int alone = 0;
  int received = 0;
  wait_for("all packets", [&] {
    for (int queue = 0; queue < queues; queue++) {
      daqiri::BurstParams* burst = nullptr;
      const auto status = daqiri::get_rx_burst(&burst, camera, queue);
      if (status == daqiri::Status::NULL_PTR) continue;
      check(status, "get_rx_burst");
      expect(daqiri::get_q_id(burst) == queue, "the queue");
      for (int i = 0; i < daqiri::get_num_packets(burst); i++, received++) {
        const auto* packet =
            static_cast<const daqiri::UDPIPV4Pkt*>(daqiri::get_packet_ptr(burst, i));
        const bool one = ntohs(packet->udp.dest) == ONE_QUEUE;
        expect(daqiri::get_packet_flow_id(burst, i) == (one ? 8U : 7U), "the flow");
        if (one) {
          expect(queue == 1, "the only queue");
          alone++;
          continue;
        }
        spread[queue]++;
        const auto source = ntohs(packet->udp.source);
        expect(queue_of.emplace(source, queue).first->second == queue, "the queue of the source");
      }
      daqiri::free_all_packets_and_burst_rx(burst);
    }
    return received == 2 * SOURCES * EACH;
  });
  expect(alone == SOURCES * EACH, "the packets of one queue");
  expect(queue_of.size() == SOURCES, "all sources");
  expect(static_cast<int>(spread.size()) == queues, "packets on every queue");

  daqiri::print_stats();
  daqiri::shutdown();
  std::puts("done");
}

// Send frames with the header helpers, receive them, read them, and free them in each way.
// Usage: send_and_receive CONFIG
#include <cstring>

#include "program.h"

namespace {

constexpr int PACKETS = 8;
constexpr int SIZE = 64;
constexpr int WAYS = 4;

void send(int port_id, int first) {
  auto* burst = tx_burst(port_id, 0, PACKETS, 1);
  for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
    char data[SIZE] = {};
    const int number = first + i;
    std::memcpy(data, &number, sizeof number);
    write_frame(burst, i, data, SIZE, 5000);
    check(daqiri::set_packet_tx_time(burst, i, 0), "set_packet_tx_time");
  }
  check(daqiri::send_tx_burst(burst), "send_tx_burst");
}

daqiri::BurstParams* receive(int port_id, int overload) {
  daqiri::BurstParams* burst = nullptr;
  wait_for("a burst", [&] {
    const auto status = overload == 0   ? daqiri::get_rx_burst(&burst, port_id, 0)
                        : overload == 1 ? daqiri::get_rx_burst(&burst, port_id)
                                        : daqiri::get_rx_burst(&burst);
    expect(status == daqiri::Status::SUCCESS || status == daqiri::Status::NULL_PTR,
           "a burst, or none yet");
    return status == daqiri::Status::SUCCESS;
  });
  return burst;
}

void read(daqiri::BurstParams* burst, int first) {
  expect(daqiri::get_num_packets(burst) == PACKETS, "packets of the burst");
  for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
    void* pkt = daqiri::get_packet_ptr(burst, i);
    uint32_t len = daqiri::get_packet_length(burst, i);
    uint16_t flow = daqiri::get_packet_flow_id(burst, i);
    uint64_t rx_ts_ns = 0;
    check(daqiri::get_packet_rx_timestamp(burst, i, &rx_ts_ns), "get_packet_rx_timestamp");
    int number = -1;
    std::memcpy(&number, static_cast<char*>(pkt) + sizeof(daqiri::UDPIPV4Pkt), sizeof number);
    expect(number == first + i, "the packet that was sent");
    expect(len == sizeof(daqiri::UDPIPV4Pkt) + SIZE && flow == 7 && rx_ts_ns > 0,
           "what is known of the packet");
  }
}

void give_back(daqiri::BurstParams* burst, int way) {
  switch (way) {
    case 0:
      daqiri::free_all_packets_and_burst_rx(burst);
      break;
    case 1:
      for (int i = 0; i < PACKETS; i++) daqiri::free_packet(burst, i);
      daqiri::free_rx_burst(burst);
      break;
    case 2:
      for (int i = 0; i < PACKETS; i++) daqiri::free_packet_segment(burst, 0, i);
      daqiri::free_rx_metadata(burst);
      break;
    default:
      daqiri::free_all_segment_packets(burst, 0);
      daqiri::free_rx_burst(burst);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  const int port_id = daqiri::get_port_id("camera");
  char mac[6];
  check(daqiri::get_mac_addr(port_id, mac), "get_mac_addr");
  // More often than there are buffers: those of every burst come back.
  for (int burst = 0; burst < 400; burst++) {
    send(port_id, burst * PACKETS);
    auto* received = receive(port_id, burst % 3);
    read(received, burst * PACKETS);
    give_back(received, burst % WAYS);
  }
  daqiri::print_stats();
  daqiri::shutdown();
  std::puts("done");
}

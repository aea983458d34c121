// Header-data split: headers in the first segment, data in the second; in several sessions.
// Usage: header_data_split CONFIG DIRECTORY [alone]
//
// alone: only one session can have the interfaces.
#include <cstring>
#include <string>

#include "program.h"

namespace {

constexpr int PACKETS = 8;
constexpr uint32_t PAYLOAD = 64;
constexpr uint32_t HEADERS = sizeof(daqiri::UDPIPV4Pkt);

void send(int port_id, int queue_id) {
  const int batch_size = PACKETS;
  const int num_segments = 2;
  auto burst = daqiri::create_tx_burst_params();
  daqiri::set_header(burst, port_id, queue_id, batch_size, num_segments);
  while (!daqiri::is_tx_burst_available(burst)) std::this_thread::yield();
  auto status = daqiri::get_tx_packet_burst(burst);
  expect(status == daqiri::Status::SUCCESS, "get_tx_packet_burst");
  char dst_mac[6];
  daqiri::format_eth_addr(dst_mac, "02:00:00:00:00:99");
  char payload[PAYLOAD];
  for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
    std::memset(payload, 'a' + i, sizeof payload);
    expect(daqiri::set_eth_header(burst, i, dst_mac) == daqiri::Status::SUCCESS, "set_eth_header");
    daqiri::set_ipv4_header(burst, i, PAYLOAD + 8, IPPROTO_UDP, 0x0A000001, 0x0A000002);
    daqiri::set_udp_header(burst, i, PAYLOAD, 4000, 5000);
    expect(daqiri::set_udp_payload(burst, i, payload, PAYLOAD) == daqiri::Status::SUCCESS,
           "set_udp_payload");
    expect(daqiri::set_packet_lengths(burst, i, {HEADERS, PAYLOAD}) == daqiri::Status::SUCCESS,
           "set_packet_lengths");
    daqiri::set_packet_tx_time(burst, i, 0);
  }
  daqiri::set_all_packet_lengths(burst, {HEADERS, PAYLOAD});
  expect(daqiri::send_tx_burst(burst) == daqiri::Status::SUCCESS, "send_tx_burst");
}

daqiri::BurstParams* receive(int port_id, int queue_id) {
  for (int attempt = 0; attempt < 100'000; ++attempt) {
    daqiri::BurstParams* burst;
    auto status = attempt % 3 == 0   ? daqiri::get_rx_burst(&burst, port_id, queue_id)
                  : attempt % 3 == 1 ? daqiri::get_rx_burst(&burst, port_id)
                                     : daqiri::get_rx_burst(&burst);
    if (status == daqiri::Status::SUCCESS) return burst;
    expect(status == daqiri::Status::NULL_PTR || status == daqiri::Status::NOT_READY,
           "get_rx_burst");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  expect(false, "nothing was received for 10 s");
  return nullptr;
}

void read(daqiri::BurstParams* burst, int queue_id) {
  expect(daqiri::get_num_packets(burst) == PACKETS, "number of packets");
  expect(daqiri::get_q_id(burst) == queue_id, "queue");
  expect(daqiri::get_burst_tot_byte(burst) == PACKETS * (HEADERS + PAYLOAD), "bytes");
  expect(burst->event == nullptr, "event");
  for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
    void* hdr = daqiri::get_segment_packet_ptr(burst, 0, i);
    void* pay = daqiri::get_segment_packet_ptr(burst, 1, i);
    uint32_t hdr_len = daqiri::get_segment_packet_length(burst, 0, i);
    uint32_t pay_len = daqiri::get_segment_packet_length(burst, 1, i);
    expect(hdr == daqiri::get_packet_ptr(burst, i), "the first segment is the packet's");
    expect(hdr_len == HEADERS && pay_len == PAYLOAD, "lengths of segments");
    expect(daqiri::get_packet_length(burst, i) == hdr_len + pay_len, "length");
    expect(*static_cast<char*>(pay) == 'a' + i, "payload");
    expect(ntohs(static_cast<daqiri::UDPIPV4Pkt*>(hdr)->udp.dest) == 5000, "header");
    uint16_t flow = daqiri::get_packet_flow_id(burst, i);
    expect(flow == 7, "flow");
    uint64_t rx_ts_ns = 0;
    expect(daqiri::get_packet_rx_timestamp(burst, i, &rx_ts_ns) == daqiri::Status::SUCCESS &&
               rx_ts_ns > 0,
           "timestamp");
  }
  expect((burst->hdr.hdr.burst_flags & daqiri::DAQIRI_BURST_FLAG_REORDERED) == 0U &&
             (burst->hdr.hdr.burst_flags & daqiri::DAQIRI_BURST_FLAG_REORDER_TIMEOUT) == 0U,
         "an ordinary burst");
  daqiri::ReorderBurstInfo info{};
  expect(daqiri::get_reorder_burst_info(burst, &info) == daqiri::Status::NOT_SUPPORTED,
         "get_reorder_burst_info");
}

void write(daqiri::BurstParams* burst, const std::string& directory) {
  auto st = daqiri::daqiri_write_raw_to_file(burst, directory, "packet_group_0", HEADERS);
  expect(st == daqiri::Status::SUCCESS, "daqiri_write_raw_to_file");
  daqiri::FileWriteHandle* handle = nullptr;
  st = daqiri::daqiri_write_pcap_to_file_async(burst, directory, "split", &handle);
  daqiri::FileWriteStatus status{};
  expect(st == daqiri::Status::SUCCESS, "daqiri_write_pcap_to_file_async");
  st = daqiri::daqiri_file_write_wait(handle, &status);
  daqiri::daqiri_file_write_destroy(handle);
  expect(st == daqiri::Status::SUCCESS && status.completed_packets == PACKETS, "what was written");
}

/// The ways to give a burst back.
void free_in_one_way(daqiri::BurstParams* burst, int way) {
  switch (way) {
    case 0:
      daqiri::free_all_packets_and_burst_rx(burst);
      break;
    case 1:
      for (int i = 0; i < PACKETS; i++) daqiri::free_packet(burst, i);
      daqiri::free_rx_burst(burst);
      break;
    case 2:
      for (int i = 0; i < PACKETS; i++) daqiri::free_packet_segment(burst, 1, i);
      daqiri::free_all_segment_packets(burst, 0);
      daqiri::free_rx_metadata(burst);
      break;
    default:
      daqiri::free_segment_packets_and_burst(burst, 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool alone = argc > 3;
  daqiri::NetworkConfig config;
  expect(daqiri::parse_network_config(argv[1], config) == daqiri::Status::SUCCESS, "parse");
  auto status = daqiri::daqiri_init(argv[1]);
  expect(status == daqiri::Status::SUCCESS, "daqiri_init");
  expect(daqiri::daqiri_init(config) == daqiri::Status::INTERNAL_ERROR, "a second init");
  expect(daqiri::get_engine_type() == config.common_.engine_type, "get_engine_type");

  int port = daqiri::get_port_id("camera");
  expect(port == 0 && daqiri::get_port_id("nobody") == -1, "get_port_id");
  expect(daqiri::get_num_rx_queues(port) == 1, "get_num_rx_queues");
  char mac[6];
  expect(daqiri::get_mac_addr(port, mac) == daqiri::Status::SUCCESS, "get_mac_addr");
  for (int way = 0; way < 4; way++) {
    send(sending_port(port), 0);
    auto* burst = receive(port, 0);
    read(burst, 0);
    if (way == 0) write(burst, argv[2]);
    free_in_one_way(burst, way);
  }
  daqiri::drop_all_traffic(port);
  daqiri::allow_all_traffic(port);
  daqiri::flush_port_queue(port, 0);

  // The same beside it.
  daqiri::SessionId other = 0;
  if (!alone) {
    expect(daqiri::session_open(config, &other) == daqiri::Status::SUCCESS, "session_open");
    const daqiri::SessionScope scope(other);
    send(sending_port(port), 0);
    auto* burst = receive(port, 0);
    read(burst, 0);
    daqiri::free_rx_burst(burst);
  }
  if (!alone) expect(daqiri::session_close(other) == daqiri::Status::SUCCESS, "session_close");

  daqiri::print_stats();
  daqiri::shutdown();
  expect(daqiri::get_engine_type() == daqiri::EngineType::UNKNOWN, "shutdown");
  std::printf("daqiri %s, abi %d: done\n", daqiri::version_string(), daqiri::abi_version());
  return 0;
}

// Receive aggregates: packets of a batch at their places, whatever order they come in.
// Usage: reorder CONFIG
#include <cstdint>
#include <cstring>

#include "program.h"

namespace {

constexpr int PACKETS = 8;
constexpr int SIZE = 64;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  const int port_id = daqiri::get_port_id("camera");
  auto* sent = tx_burst(port_id, 0, PACKETS, 1);
  for (int i = 0; i < PACKETS; i++) {
    // The sequence number is the first payload byte; they come backwards.
    char data[SIZE];
    std::memset(data, PACKETS - 1 - i, sizeof data);
    write_frame(sent, i, data, SIZE, 5000);
  }
  check(daqiri::send_tx_burst(sent), "send_tx_burst");

  auto* burst = rx_burst(port_id);
  const auto& header = burst->hdr.hdr;
  expect((header.burst_flags & daqiri::DAQIRI_BURST_FLAG_REORDERED) != 0U, "an aggregate");
  expect((header.burst_flags & daqiri::DAQIRI_BURST_FLAG_REORDER_TIMEOUT) == 0U, "a full one");
  expect(header.num_pkts == 1 && header.max_pkt == PACKETS, "packets of the aggregate");
  daqiri::ReorderBurstInfo info{};
  check(daqiri::get_reorder_burst_info(burst, &info), "get_reorder_burst_info");
  expect(info.batch_id == 0 && info.source_packet_count == PACKETS, "the batch");
  expect(info.packets_per_batch == PACKETS && info.payload_len == SIZE, "sizes");
  expect(info.num_column_values == 2 + PACKETS, "columns of the plan");
  expect(info.columns[0] == 0, "number of the first packet");
  for (std::uint64_t i = 0; i < PACKETS; i++)
    expect(info.columns[1 + i] == i, "numbers of packets");
  expect(info.columns[1 + PACKETS] == PACKETS * (PACKETS - 1) / 2, "sum");
  const auto* bytes = static_cast<unsigned char*>(daqiri::get_packet_ptr(burst, 0));
  for (int i = 0; i < PACKETS; i++) expect(bytes[i * SIZE] == i, "packets at their places");
  daqiri::free_all_packets_and_burst_rx(burst);
  daqiri::shutdown();
  std::puts("done");
}

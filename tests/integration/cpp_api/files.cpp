// Write received bursts to files, at once and in the background. Usage: files CONFIG DIRECTORY
#include <cstring>
#include <string>

#include "program.h"

namespace {

constexpr int PACKETS = 8;
constexpr std::uint64_t HEADERS = sizeof(daqiri::UDPIPV4Pkt);

void finish(daqiri::FileWriteHandle* handle, bool poll, std::uint64_t bytes) {
  daqiri::FileWriteStatus status{};
  if (poll) {
    auto st = daqiri::Status::NOT_READY;
    wait_for("the write", [&] {
      st = daqiri::daqiri_file_write_poll(handle, &status);
      return st != daqiri::Status::NOT_READY;
    });
    check(st, "daqiri_file_write_poll");
  } else {
    check(daqiri::daqiri_file_write_wait(handle, &status), "daqiri_file_write_wait");
  }
  check(daqiri::daqiri_file_write_destroy(handle), "daqiri_file_write_destroy");
  expect(status.completed_packets == PACKETS && status.failed_packets == 0, "packets written");
  expect(status.bytes_written == bytes, "bytes written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string directory = argv[2];
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  const int port_id = daqiri::get_port_id("camera");
  auto* sent = tx_burst(port_id, 0, PACKETS, 1);
  for (int i = 0; i < PACKETS; i++) {
    const std::string data = "packet " + std::to_string(i);
    write_frame(sent, i, data.data(), static_cast<int>(data.size()), 5000);
  }
  check(daqiri::send_tx_burst(sent), "send_tx_burst");
  auto* burst = rx_burst(port_id);
  expect(daqiri::get_num_packets(burst) == PACKETS, "packets of the burst");

  check(daqiri::daqiri_write_raw_to_file(burst, directory, "now", HEADERS),
        "daqiri_write_raw_to_file");
  check(daqiri::daqiri_write_pcap_to_file(burst, directory, "all"), "daqiri_write_pcap_to_file");
  daqiri::FileWriteHandle* handle = nullptr;
  check(daqiri::daqiri_write_raw_to_file_async(burst, directory, "later", HEADERS, &handle),
        "daqiri_write_raw_to_file_async");
  finish(handle, false, PACKETS * 8);
  // Behind what is there.
  check(daqiri::daqiri_write_pcap_to_file_async(burst, directory, "all", &handle),
        "daqiri_write_pcap_to_file_async");
  finish(handle, true, PACKETS * (16 + HEADERS + 8));
  expect(daqiri::daqiri_write_raw_to_file(burst, "relative", "x", 0) ==
             daqiri::Status::INVALID_PARAMETER,
         "a relative path");
  daqiri::free_all_packets_and_burst_rx(burst);
  daqiri::shutdown();
  std::puts("done");
}

// Sends packets of one size over TCP through the C++ interface of the engine, without filling the
// buffers.
//
// usage: ours_tcp_send PORT SIZE REGION_BYTES; then a line `SECONDS` a trial; answers with when it
// began.

#include <daqiri/daqiri.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "arguments.h"
#include "peers/program.h"

namespace {

constexpr std::uint64_t MAX_BATCH = 1024;

daqiri::NetworkConfig configuration(std::uint16_t port, std::uint64_t size,
                                    std::uint64_t region_bytes) {
  using namespace daqiri;
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::ERROR;
  MemoryRegionConfig region;
  region.name_ = "packets";
  region.num_bufs_ = std::max<std::uint64_t>(region_bytes / size, 16);
  region.buf_size_ = size;
  config.mrs_ = {{region.name_, region}};
  InterfaceConfig interface;
  interface.name_ = "sender";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  interface.socket_.mode_ = SocketMode::CLIENT;
  interface.socket_.remote_addr_ = "tcp://127.0.0.1:" + std::to_string(port);
  TxQueueConfig queue;
  queue.common_.name_ = "tx0";
  queue.common_.cpu_core_ = "any";
  queue.common_.batch_size_ = static_cast<int>(std::min(region.num_bufs_ / 8, MAX_BATCH));
  queue.common_.mrs_ = {region.name_};
  interface.tx_.queues_ = {queue};
  config.ifs_ = {interface};
  return config;
}

/// False if all buffers or bursts are in use.
bool send_burst(int packets, std::int64_t size) {
  daqiri::BurstParams* burst = daqiri::create_tx_burst_params();
  if (burst == nullptr) return false;
  daqiri::set_header(burst, 0, 0, packets, 1);
  if (daqiri::get_tx_packet_burst(burst) != daqiri::Status::SUCCESS) {
    daqiri::free_tx_burst(burst);
    return false;
  }
  daqiri::set_all_packet_lengths(burst, {size});
  const daqiri::Status status = daqiri::send_tx_burst(burst);
  // With these results, the engine has taken or freed the burst.
  if (status != daqiri::Status::SUCCESS && status != daqiri::Status::NO_SPACE_AVAILABLE &&
      status != daqiri::Status::CONNECT_FAILURE)
    daqiri::free_tx_burst(burst);
  return status == daqiri::Status::SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: ours_tcp_send PORT SIZE REGION_BYTES\n", stderr);
    return 2;
  }
  const auto size = bench::number<std::int64_t>(argv[2]);
  daqiri::NetworkConfig config =
      configuration(bench::number<std::uint16_t>(argv[1]), static_cast<std::uint64_t>(size),
                    bench::number<std::uint64_t>(argv[3]));
  if (daqiri::daqiri_init(config) != daqiri::Status::SUCCESS) {
    std::fprintf(stderr, "%s\n", daqiri::last_error());
    return 1;
  }
  const int batch = config.ifs_[0].tx_.queues_[0].common_.batch_size_;
  bench::print_line("{}");
  double seconds = 0;
  while (std::cin >> seconds) {
    const std::uint64_t begun = bench::now_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    while (bench::now_ns() < end) {
      // The thread of the engine runs on the same core; do not make it wait.
      if (!send_burst(batch, size)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    bench::print_line(R"({"begun": )" + std::to_string(begun) + "}");
  }
  daqiri::shutdown();
  return 0;
}

// A program that receives through the engine's C++ interface: takes bursts, counts, gives them
// back. SIZE is that of a packet buffer.
//
// usage: ours_receive udp|tcp SIZE REGION_BYTES; answers each line with its counters.

#include <daqiri/daqiri.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <sstream>
#include <string_view>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

constexpr std::uint64_t MAX_BATCH = 1024;

std::atomic<std::uint64_t> packets{0};
std::atomic<std::uint64_t> bytes{0};
/// When the latest packet was counted, ns.
std::atomic<std::uint64_t> latest{0};

daqiri::NetworkConfig configuration(daqiri::SocketProtocol protocol, std::uint16_t port,
                                    std::uint64_t size, std::uint64_t region_bytes) {
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
  interface.name_ = "receiver";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  interface.socket_.mode_ = SocketMode::SERVER;
  interface.socket_.local_addr_ =
      (protocol == SocketProtocol::TCP ? "tcp://127.0.0.1:" : "udp://127.0.0.1:") +
      std::to_string(port);
  RxQueueConfig queue;
  queue.common_.name_ = "rx0";
  queue.common_.cpu_core_ = "any";
  queue.common_.batch_size_ = static_cast<int>(std::min(region.num_bufs_ / 8, MAX_BATCH));
  queue.common_.mrs_ = {region.name_};
  interface.rx_.queues_ = {queue};
  config.ifs_ = {interface};
  return config;
}

std::uint16_t free_port(int type) {
  const int fd = bench::bound_socket(type, 0);
  const std::uint16_t port = bench::port_of(fd);
  close(fd);
  return port;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: ours_receive udp|tcp SIZE REGION_BYTES\n", stderr);
    return 2;
  }
  const bool tcp = std::string_view(argv[1]) == "tcp";
  const std::uint16_t port = free_port(tcp ? SOCK_STREAM : SOCK_DGRAM);
  daqiri::NetworkConfig config =
      configuration(tcp ? daqiri::SocketProtocol::TCP : daqiri::SocketProtocol::UDP, port,
                    bench::number<std::uint64_t>(argv[2]), bench::number<std::uint64_t>(argv[3]));
  if (daqiri::daqiri_init(config) != daqiri::Status::SUCCESS) {
    std::fprintf(stderr, "%s\n", daqiri::last_error());
    return 1;
  }
  bench::answer_lines([] {
    std::ostringstream line;
    line << R"({"packets": )" << packets << R"(, "bytes": )" << bytes << R"(, "latest": )" << latest
         << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line(R"({"port": )" + std::to_string(port) + "}");
  std::uint64_t count = 0, size = 0;
  while (true) {
    daqiri::BurstParams* burst = nullptr;
    // The engine's thread has the same core and is not to wait for us.
    if (daqiri::wait_rx_burst(&burst, 0, 0, 100'000) != daqiri::Status::SUCCESS) continue;
    count += static_cast<std::uint64_t>(daqiri::get_num_packets(burst));
    size += daqiri::get_burst_tot_byte(burst);
    daqiri::free_all_packets_and_burst_rx(burst);
    packets.store(count, std::memory_order_relaxed);
    bytes.store(size, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
}

// Receives through the C++ interface of the engine: receives bursts, counts and releases them. SIZE
// is the size of a packet buffer.
//
// usage: ours_receive udp|tcp SIZE REGION_BYTES
//        ours_receive af_packet|af_xdp|dpdk SIZE REGION_BYTES DEVICE PORT: UDP frames to a port; of
//        a network interface, or of a device of DPDK
// Answers each line with its counters.

#include <daqiri/daqiri.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

constexpr std::uint64_t MAX_BATCH = 1024;

std::atomic<std::uint64_t> packets{0};
std::atomic<std::uint64_t> bytes{0};
/// Time when the latest packet was counted, in ns.
std::atomic<std::uint64_t> latest{0};

/// One interface with one receive queue.
daqiri::NetworkConfig one_queue(std::uint64_t size, std::uint64_t region_bytes) {
  using namespace daqiri;
  NetworkConfig config;
  config.log_level_ = LogLevel::ERROR;
  MemoryRegionConfig region;
  region.name_ = "packets";
  region.num_bufs_ = std::max<std::uint64_t>(region_bytes / size, 16);
  region.buf_size_ = size;
  config.mrs_ = {{region.name_, region}};
  RxQueueConfig queue;
  queue.common_.name_ = "rx0";
  queue.common_.cpu_core_ = "any";
  queue.common_.batch_size_ = static_cast<int>(std::min(region.num_bufs_ / 8, MAX_BATCH));
  queue.common_.mrs_ = {region.name_};
  InterfaceConfig interface;
  interface.name_ = "receiver";
  interface.rx_.queues_ = {queue};
  config.ifs_ = {interface};
  return config;
}

daqiri::NetworkConfig server(daqiri::NetworkConfig config, const std::string& scheme,
                             std::uint16_t port) {
  using namespace daqiri;
  config.common_.stream_type = StreamType::SOCKET;
  InterfaceConfig& interface = config.ifs_.front();
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  interface.socket_.mode_ = SocketMode::SERVER;
  interface.socket_.local_addr_ = scheme + "://127.0.0.1:" + std::to_string(port);
  return config;
}

daqiri::NetworkConfig frames(daqiri::NetworkConfig config, std::string_view path,
                             const char* device, std::uint16_t port) {
  using namespace daqiri;
  config.common_.stream_type = StreamType::RAW;
  config.common_.engine = path == "dpdk" ? EngineType::DPDK : EngineType::PACKET;
  InterfaceConfig& interface = config.ifs_.front();
  interface.address_ = device;
  if (path != "dpdk")
    interface.rx_.receive_path_ = path == "af_xdp" ? ReceivePath::XDP : ReceivePath::PACKET;
  interface.rx_.flow_isolation_ = true;
  interface.rx_.queues_.front().timeout_us_ = 10'000;
  FlowConfig flow;
  flow.name_ = "stream";
  flow.id_ = 1;
  flow.match_.udp_dst_ = port;
  interface.rx_.flows_ = {flow};
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
  const std::string_view what = argc > 1 ? argv[1] : "";
  const bool raw = what == "af_packet" || what == "af_xdp" || what == "dpdk";
  if (argc != (raw ? 6 : 4)) {
    std::fputs(
        "usage: ours_receive udp|tcp SIZE REGION_BYTES\n"
        "       ours_receive af_packet|af_xdp|dpdk SIZE REGION_BYTES DEVICE PORT\n",
        stderr);
    return 2;
  }
  const std::uint16_t port = raw ? bench::number<std::uint16_t>(argv[5])
                                 : free_port(what == "tcp" ? SOCK_STREAM : SOCK_DGRAM);
  daqiri::NetworkConfig config =
      one_queue(bench::number<std::uint64_t>(argv[2]), bench::number<std::uint64_t>(argv[3]));
  config = raw ? frames(std::move(config), what, argv[4], port)
               : server(std::move(config), std::string(what), port);
  const daqiri::Status opened = daqiri::daqiri_init(config);
  if (what == "dpdk" && opened == daqiri::Status::NOT_SUPPORTED) {
    bench::print_line(R"({"missing": "this build has no engine dpdk, or it has no such device"})");
    return 0;
  }
  if (opened != daqiri::Status::SUCCESS) {
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
    // The thread of the engine runs on the same core; do not make it wait.
    if (daqiri::wait_rx_burst(&burst, 0, 0, 100'000) != daqiri::Status::SUCCESS) continue;
    count += static_cast<std::uint64_t>(daqiri::get_num_packets(burst));
    size += daqiri::get_burst_tot_byte(burst);
    daqiri::free_all_packets_and_burst_rx(burst);
    packets.store(count, std::memory_order_relaxed);
    bytes.store(size, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
}

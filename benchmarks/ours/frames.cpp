// Receives frames, or the same packets without reordering, through the C++ interface of the engine:
// receives bursts, counts and releases them. Packets are those of peers_udp_send, with payloads of
// 1024 or 8192 bytes; about 1 MiB of them make a frame. MOVERS threads move the payloads; with 0,
// the poller does. KIND: frames; packets; copied: packets, whose payloads the receiver copies one
// after the other into frames.
//
// usage: ours_frames udp PAYLOAD KIND MOVERS; answers each line with its counters.
//        ours_frames loopback PAYLOAD KIND MOVERS; then a line `SECONDS` a trial: sends as fast as
//        it can to itself, and answers with what arrived.

#include <daqiri/daqiri.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <sstream>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

constexpr std::uint32_t HEADER = 48;
constexpr std::uint32_t ETHERNET = 42;
constexpr std::uint64_t FRAME = 1 << 20;
constexpr std::uint64_t REGION = 64 << 20;
constexpr int BATCH = 256;
/// Number of frames, and of frames that a loopback has in flight.
constexpr std::uint64_t FRAMES = 64;
constexpr std::uint64_t AT_ONCE = 48;
/// Frames into which a receiver of packets copies, in turn.
constexpr std::uint64_t COPIES = 4;

std::atomic<std::uint64_t> packets{0};
/// Time when the latest packet was counted, in ns.
std::atomic<std::uint64_t> latest{0};

struct Options {
  bool loopback;
  std::uint32_t payload;
  bool frames;
  bool copied;
  unsigned movers;
  std::uint16_t port;

  [[nodiscard]] std::uint32_t size() const { return payload + HEADER + (loopback ? ETHERNET : 0); }
  /// As many as in the heaps of the sender.
  [[nodiscard]] std::uint32_t packets() const {
    return static_cast<std::uint32_t>(FRAME / (payload + HEADER));
  }
};

daqiri::MemoryRegionConfig region(const char* name, std::uint64_t count, std::uint64_t size) {
  daqiri::MemoryRegionConfig region;
  region.name_ = name;
  region.num_bufs_ = count;
  region.buf_size_ = size;
  return region;
}

daqiri::ReorderConfig plan(const Options& options) {
  using namespace daqiri;
  ReorderConfig plan;
  plan.name_ = "frames";
  plan.reorder_type_ = "cpu";
  plan.memory_region_ = "frames";
  plan.flow_ids_ = {1};
  plan.payload_base_ = ReorderBase::UDP_PAYLOAD;
  plan.payload_byte_offset_ = HEADER;
  plan.timeout_us_ = 0;
  plan.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  ReorderBatchPacketNumberConfig& by = plan.batch_packet_number_;
  const auto field = [](std::uint32_t offset, std::uint32_t width) {
    ReorderBitFieldConfig made;
    made.bit_offset_ = offset;
    made.bit_width_ = width;
    made.base_ = ReorderBase::UDP_PAYLOAD;
    return made;
  };
  // The number of the heap, and the offset in it, which counts payloads without its low bits.
  by.batch_number_ = field(96, 32);
  by.packet_number_ = field(224, options.payload == 8192 ? 19 : 22);
  by.packets_per_batch_ = options.packets();
  plan.cpu_cores_.assign(options.movers, "any");
  return plan;
}

daqiri::NetworkConfig configuration(const Options& options) {
  using namespace daqiri;
  NetworkConfig config;
  config.common_.stream_type = options.loopback ? StreamType::RAW : StreamType::SOCKET;
  if (options.loopback) config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.log_level_ = LogLevel::ERROR;
  const std::uint64_t count = REGION / options.size();
  config.mrs_ = {{"packets", region("packets", count, options.size())}};
  if (options.frames) config.mrs_.emplace("frames", region("frames", FRAMES, FRAME));
  InterfaceConfig interface;
  interface.name_ = "receiver";
  interface.address_ = options.loopback ? "loopback" : "127.0.0.1";
  if (!options.loopback) {
    interface.has_socket_ = true;
    interface.socket_.mode_ = SocketMode::SERVER;
    interface.socket_.local_addr_ = "udp://127.0.0.1:" + std::to_string(options.port);
  }
  RxQueueConfig queue;
  queue.common_.name_ = "rx0";
  queue.common_.cpu_core_ = "any";
  queue.common_.batch_size_ = BATCH;
  queue.common_.mrs_ = {"packets"};
  queue.timeout_us_ = options.loopback ? 1000 : 0;
  interface.rx_.queues_ = {queue};
  if (options.frames) {
    FlowConfig flow;
    flow.name_ = "all";
    flow.id_ = 1;
    flow.action_.type_ = FlowType::QUEUE;
    flow.action_.id_ = 0;
    flow.actions_ = {flow.action_};
    interface.rx_.flows_ = {flow};
    interface.rx_.reorder_configs_ = {plan(options)};
  }
  if (options.loopback) {
    config.mrs_.emplace("sent", region("sent", 4 * BATCH, options.size()));
    TxQueueConfig tx;
    tx.common_.name_ = "tx0";
    tx.common_.cpu_core_ = "any";
    tx.common_.batch_size_ = BATCH;
    tx.common_.mrs_ = {"sent"};
    interface.tx_.queues_ = {tx};
  }
  config.ifs_ = {interface};
  return config;
}

std::uint16_t free_port() {
  const int fd = bench::bound_socket(SOCK_DGRAM, 0);
  const std::uint16_t port = bench::port_of(fd);
  close(fd);
  return port;
}

std::string counters() {
  std::ostringstream line;
  line << R"({"packets": )" << packets << R"(, "latest": )" << latest << R"(, "cpu": )"
       << bench::cpu_seconds() << "}";
  return line.str();
}

/// Receives bursts forever.
void receive(const Options& options) {
  const bool frames = options.frames;
  std::vector<std::uint8_t> copies(options.copied ? COPIES * FRAME : 0, 1);
  std::uint64_t count = 0;
  while (true) {
    daqiri::BurstParams* burst = nullptr;
    if (daqiri::wait_rx_burst(&burst, 0, 0, 100'000) != daqiri::Status::SUCCESS) continue;
    if (frames) {
      daqiri::ReorderBurstInfo info;
      if (daqiri::get_reorder_burst_info(burst, &info) == daqiri::Status::SUCCESS)
        count += info.source_packet_count;
    } else {
      const auto n = static_cast<int>(daqiri::get_num_packets(burst));
      for (int i = 0; options.copied && i < n; ++i) {
        const std::uint64_t place = count + static_cast<std::uint64_t>(i);
        const auto* packet = static_cast<const std::uint8_t*>(daqiri::get_packet_ptr(burst, i));
        std::memcpy(copies.data() + place * options.payload % copies.size(),
                    packet + options.size() - options.payload, options.payload);
      }
      count += static_cast<std::uint64_t>(n);
    }
    daqiri::free_all_packets_and_burst_rx(burst);
    packets.store(count, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
}

void store_be32(std::uint8_t* at, std::uint64_t value) {
  const std::uint32_t swapped = __builtin_bswap32(static_cast<std::uint32_t>(value));
  std::memcpy(at, &swapped, sizeof swapped);
}

/// Sends packets and writes only their headers.
class Sender {
 public:
  explicit Sender(const Options& options) : options_(options) {
    ethernet_[12] = 0x08;
    ethernet_[14] = 0x45;
    ethernet_[23] = 17;
    const std::uint32_t udp = options.payload + HEADER + 8;
    const std::uint32_t ip = udp + 20;
    ethernet_[16] = static_cast<std::uint8_t>(ip >> 8U);
    ethernet_[17] = static_cast<std::uint8_t>(ip);
    ethernet_[38] = static_cast<std::uint8_t>(udp >> 8U);
    ethernet_[39] = static_cast<std::uint8_t>(udp);
  }

  std::string run(double seconds) {
    const std::uint64_t before = packets;
    const std::uint64_t begun = bench::now_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t sent = 0;
    // Complete frames only.
    while (bench::now_ns() < end || next_ != 0) {
      // Not more than there are free frames: a loopback does not wait for frames.
      if (sent - (packets - before) < AT_ONCE * options_.packets() && send()) {
        sent += BATCH;
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
    while (packets - before < sent && bench::now_ns() < end + 5'000'000'000) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    std::ostringstream line;
    line << R"({"sent": )" << sent << R"(, "packets": )" << packets - before << R"(, "ns": )"
         << latest - begun << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  }

 private:
  bool send() {
    daqiri::BurstParams* burst = daqiri::create_tx_burst_params();
    if (burst == nullptr) return false;
    daqiri::set_header(burst, 0, 0, BATCH, 1);
    if (daqiri::get_tx_packet_burst(burst) != daqiri::Status::SUCCESS) {
      daqiri::free_tx_burst(burst);
      return false;
    }
    for (int i = 0; i < BATCH; ++i) {
      auto* packet = static_cast<std::uint8_t*>(daqiri::get_packet_ptr(burst, i));
      std::memcpy(packet, ethernet_, sizeof ethernet_);
      store_be32(packet + ETHERNET + 12, heap_);
      store_be32(packet + ETHERNET + 28, std::uint64_t{next_} * options_.payload);
      if (++next_ < options_.packets()) continue;
      next_ = 0;
      ++heap_;
    }
    daqiri::set_all_packet_lengths(burst, {static_cast<std::int64_t>(options_.size())});
    return daqiri::send_tx_burst(burst) == daqiri::Status::SUCCESS;
  }

  const Options& options_;
  std::uint8_t ethernet_[ETHERNET]{};
  std::uint64_t heap_{0};
  std::uint32_t next_{0};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: ours_frames udp|loopback PAYLOAD frames|packets|copied MOVERS\n", stderr);
    return 2;
  }
  const Options options{
      std::string_view(argv[1]) == "loopback", bench::number<std::uint32_t>(argv[2]),
      std::string_view(argv[3]) == "frames",   std::string_view(argv[3]) == "copied",
      bench::number<unsigned>(argv[4]),        free_port()};
  daqiri::NetworkConfig config = configuration(options);
  if (daqiri::daqiri_init(config) != daqiri::Status::SUCCESS) {
    std::fprintf(stderr, "%s\n", daqiri::last_error());
    return 1;
  }
  if (!options.loopback) {
    bench::answer_lines(counters);
    bench::print_line(R"({"port": )" + std::to_string(options.port) + "}");
    receive(options);
  }
  std::thread([&] { receive(options); }).detach();
  bench::print_line("{}");
  Sender sender(options);
  double seconds = 0;
  while (std::cin >> seconds) bench::print_line(sender.run(seconds));
  std::_Exit(0);
}

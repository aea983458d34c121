// Packets of several queues into the frames of one plan, by as many pollers: threads hand packets
// of their own module to the plan, like the pollers of a session, and wait when they are ahead of
// another by half of the window. For comparison: as many threads copy the same payloads alone.
//
// usage: bench_pollers; then a line `WHAT THREADS PAYLOAD SECONDS` a measurement: frames, copies

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "reorder/running_plan.h"
#include "session/session.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

/// Two numbers of 32 bits: that of the frame, and that of the packet.
constexpr std::uint32_t HEADER = 8;
constexpr std::uint32_t MODULE_BYTES = 1 << 20;
/// Frames whose packets are in memory, and frames of which a thread may be ahead of another.
constexpr std::uint32_t PACKET_FRAMES = 16;
constexpr std::uint32_t AHEAD = 4;
/// Buffers for frames; a thread may be ahead of the receiver by half of them.
constexpr std::uint32_t BUFFERS = 32;
/// Packets in one call.
constexpr std::size_t CALL = 64;

MemoryRegionConfig region(const char* name, std::uint64_t buffers, std::uint64_t size) {
  MemoryRegionConfig config;
  config.name_ = name;
  config.num_bufs_ = buffers;
  config.buf_size_ = size;
  return config;
}

NetworkConfig configuration(std::uint32_t threads, std::uint32_t payload) {
  NetworkConfig config;
  config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.log_level_ = LogLevel::OFF;
  config.mrs_["packets"] = region("packets", 64 * threads, payload + HEADER);
  config.mrs_["frames"] = region("frames", BUFFERS, std::uint64_t{MODULE_BYTES} * threads);
  InterfaceConfig port;
  port.name_ = "port0";
  port.address_ = "loopback";
  ReorderConfig plan;
  plan.name_ = "frames";
  plan.reorder_type_ = "cpu";
  plan.memory_region_ = "frames";
  plan.payload_byte_offset_ = HEADER;
  plan.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  const auto field = [](std::uint32_t at, std::uint32_t bits) {
    ReorderBitFieldConfig made{at, bits};
    made.byte_order_ = ReorderByteOrder::LITTLE;
    return made;
  };
  plan.batch_packet_number_ = {field(0, 32), field(32, 32), MODULE_BYTES / payload * threads};
  if (threads > 1) plan.flow_stride_ = MODULE_BYTES / payload;
  for (std::uint32_t i = 0; i < threads; ++i) {
    RxQueueConfig queue;
    queue.common_.name_ = "rx" + std::to_string(i);
    queue.common_.id_ = static_cast<int>(i);
    queue.common_.cpu_core_ = i == 0 ? "any" : std::to_string(i % 2);
    queue.common_.batch_size_ = 64;
    queue.common_.mrs_ = {"packets"};
    port.rx_.queues_.push_back(queue);
    FlowConfig flow;
    flow.name_ = "flow" + std::to_string(i);
    flow.id_ = static_cast<FlowId>(i + 1);
    const auto udp = static_cast<std::uint16_t>(5000 + i);
    flow.match_.udp_dst_ = {udp, udp};
    flow.action_.id_ = static_cast<std::uint16_t>(i);
    flow.actions_ = {flow.action_};
    port.rx_.flows_.push_back(flow);
    plan.flow_ids_.push_back(flow.id_);
  }
  port.rx_.reorder_configs_.push_back(plan);
  config.ifs_.push_back(port);
  return config;
}

/// The packets of a module, and memory to copy them to.
struct Module {
  explicit Module(std::uint32_t payload)
      : packets(memory::MemoryRegion::allocate(region(
            "module", std::uint64_t{MODULE_BYTES} / payload * PACKET_FRAMES, payload + HEADER))),
        copy(std::size_t{PACKET_FRAMES} * MODULE_BYTES) {
    std::memset(packets->address(0), 1, packets->extent().bytes);
  }
  [[nodiscard]] std::uint8_t* packet(std::uint64_t frame, std::uint32_t i,
                                     std::uint32_t of_frame) const {
    const std::uint64_t at = frame % PACKET_FRAMES * of_frame + i;
    return static_cast<std::uint8_t*>(packets->address(static_cast<std::uint32_t>(at)));
  }
  std::unique_ptr<memory::MemoryRegion> packets;
  std::vector<std::uint8_t> copy;
  alignas(64) std::atomic<std::uint64_t> frames{0};
};

/// Runs `work(module, its number, frame)` in a thread for each module, and returns a line of JSON.
template <typename Work>
std::string measure(std::deque<Module>& modules, double seconds,
                    const std::atomic<std::uint64_t>* received, Work work) {
  for (Module& module : modules) module.frames = 0;
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  const std::uint64_t begun = monotonic_ns();
  for (std::uint32_t i = 0; i < modules.size(); ++i) {
    threads.emplace_back([&, i] {
      Module& own = modules[i];
      const auto is_ahead = [&](std::uint64_t frame) {
        if (received != nullptr && *received + BUFFERS / 2 <= frame) return true;
        return std::ranges::any_of(
            modules, [&](const Module& other) { return other.frames + AHEAD <= frame; });
      };
      for (std::uint64_t frame = 0; !stops; own.frames = ++frame) {
        while (is_ahead(frame) && !stops) std::this_thread::yield();
        work(own, i, frame);
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  std::uint64_t frames = 0;
  for (const Module& module : modules) frames += module.frames;
  const std::uint64_t ns = monotonic_ns() - begun;
  stops = true;
  for (std::thread& thread : threads) thread.join();
  std::ostringstream line;
  line << R"({"ns": )" << ns << R"(, "bytes": )" << frames * MODULE_BYTES;
  return line.str();
}

}  // namespace

int main() {
  std::puts("{}");
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    std::uint32_t threads = 0;
    std::uint32_t payload = 0;
    double seconds = 0;
    if (!(words >> what >> threads >> payload >> seconds)) return 2;
    const std::uint32_t packets = MODULE_BYTES / payload;
    std::deque<Module> modules;
    for (std::uint32_t i = 0; i < threads; ++i) modules.emplace_back(payload);
    std::string answer;
    if (what == "copies") {
      answer =
          measure(modules, seconds, nullptr, [&](Module& own, std::uint32_t, std::uint64_t frame) {
            std::uint8_t* to = own.copy.data() + frame % PACKET_FRAMES * MODULE_BYTES;
            for (std::uint32_t i = 0; i < packets; ++i)
              std::memcpy(to + std::size_t{i} * payload, own.packet(frame, i, packets) + HEADER,
                          payload);
          });
    } else {
      const auto session = Session::open(configuration(threads, payload));
      RunningPlan& plan = session->reorder_plans(0).front();
      std::atomic<std::uint64_t> received{0};
      std::jthread receiver([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          const WaitQueue::Ticket ticket = plan.frames().prepare();
          Burst* burst = plan.receive();
          if (burst == nullptr) plan.frames().wait(ticket, 1'000'000);
          if (burst == nullptr) continue;
          burst->release();
          ++received;
        }
      });
      answer = measure(modules, seconds, &received,
                       [&](Module& own, std::uint32_t flow, std::uint64_t frame) {
                         Packet call[CALL];
                         const auto number = static_cast<std::uint32_t>(frame);
                         for (std::uint32_t at = 0; at < packets; at += CALL) {
                           const std::uint32_t n = std::min<std::uint32_t>(CALL, packets - at);
                           for (std::uint32_t i = 0; i < n; ++i) {
                             std::uint8_t* const packet = own.packet(frame, at + i, packets);
                             const std::uint32_t numbers[]{number, at + i};
                             std::memcpy(packet, numbers, sizeof numbers);
                             call[i] = {packet, payload + HEADER, flow, 1, nullptr, 0};
                           }
                           plan.take({call, n}, monotonic_ns(), true);
                         }
                       });
      const ReorderSnapshot counters = plan.counters();
      std::ostringstream counted;
      counted << R"(, "complete": )" << counters.complete << R"(, "late": )" << counters.late
              << R"(, "lost": )" << counters.lost;
      answer += counted.str();
      receiver.request_stop();
    }
    std::puts((answer + "}").c_str());
    std::fflush(stdout);
  }
  return 0;
}

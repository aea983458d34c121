/// What both programs over a device of DPDK do with every packet, and how they count.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "arguments.h"
#include "peers/program.h"

namespace bench {

/// Of each queue, to receive and as many to send.
inline constexpr std::uint32_t BUFFERS = 8192;
/// Most packets between the sender and the receiver of a queue: there are buffers for all.
inline constexpr std::uint32_t IN_FLIGHT = BUFFERS / 2;
/// UDP port of the packets of the first queue; the others have the next ones.
inline constexpr std::uint16_t FIRST_PORT = 5000;
/// Ethernet, IPv4 and UDP.
inline constexpr std::size_t HEADER_BYTES = 42;

/// Devices receive frames with tags, too.
constexpr std::uint32_t buffer_size(std::uint32_t size) { return size < 2048 ? 2048 : size + 256; }

inline void pin_to(unsigned core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  check(sched_setaffinity(0, sizeof cores, &cores), "sched_setaffinity");
}

/// "1,2,3".
inline std::vector<unsigned> cores_of(const char* text) {
  std::vector<unsigned> cores;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    cores.push_back(number<unsigned>(word.c_str()));
  return cores;
}

/// Written to each packet before it is sent.
inline void write_header(void* to, const std::vector<std::uint8_t>& frame) {
  std::memcpy(to, frame.data(), HEADER_BYTES);
}

/// Read from each packet that was received: the UDP port.
inline std::uint32_t read_header(const void* packet) {
  std::uint16_t port = 0;
  std::memcpy(&port, static_cast<const std::uint8_t*>(packet) + 36, sizeof port);
  return port;
}

/// What a thread has done.
struct alignas(64) Work {
  std::atomic<std::uint64_t> packets{0};
  /// Of what was read from headers.
  std::atomic<std::uint64_t> sum{0};

  /// One thread.
  void count(std::uint64_t more, std::uint64_t read) noexcept {
    packets.store(packets.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    sum.store(sum.load(std::memory_order_relaxed) + read, std::memory_order_relaxed);
  }
};

/// The counters of all queues, as JSON.
template <typename Queues>
std::string counters_of(const Queues& queues) {
  std::uint64_t packets = 0, sum = 0;
  for (const auto& queue : queues) {
    packets += queue.work.packets;
    sum += queue.work.sum;
  }
  std::ostringstream line;
  line << R"({"packets": )" << packets << R"(, "sum": )" << sum << R"(, "now": )" << now_ns()
       << "}";
  return line.str();
}

}  // namespace bench

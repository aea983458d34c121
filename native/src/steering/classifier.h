/// Steering: which queue and flow id a packet gets.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "daqiri/config.h"
#include "metrics/counters.h"

namespace daqiri::steering {

/// What rules look at, in host byte order.
struct PacketKey {
  bool ipv4_udp{false};
  /// UDP over IPv6: only rules that name no IPv4 field match.
  bool ipv6_udp{false};
  std::uint16_t udp_src{0};
  std::uint16_t udp_dst{0};
  std::uint16_t ipv4_len{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
};

/// Key of an Ethernet frame (untagged IPv4/UDP, first fragment; anything else: ipv4_udp false).
PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length) noexcept;

/// What rules are matched against: the key, and the packet's bytes where they are known.
struct PacketView {
  PacketKey key;
  /// From the first byte of the frame on, or of what a socket passes on; empty: not known.
  std::span<const std::uint8_t> bytes{};

  static PacketView of_frame(const std::uint8_t* frame, std::uint32_t length) noexcept {
    return {parse_frame(frame, length), {frame, length}};
  }
};

/// Verdict::position of packets that no flow matches.
inline constexpr std::uint16_t NO_FLOW = std::numeric_limits<std::uint16_t>::max();

/// What is to be done with a packet. What it points to is the program's.
struct Verdict {
  bool matched{false};
  /// Queue id on the interface.
  std::uint16_t queue{0};
  /// 0: no flow matched.
  FlowId flow{0};
  /// Of the flow that matched, in the configuration of the interface.
  std::uint16_t position{NO_FLOW};
  /// Queues among which a hash of the packet chooses; empty: it goes to `queue`.
  std::span<const std::uint16_t> rss{};
  /// What is done to the packet on the way, in order.
  std::span<const FlowAction> actions{};
};

/// The flows of one interface, compiled. In file order: the first that matches wins. Unmatched
/// packets go to the interface's first queue with flow id 0, unless flow_isolation is set
/// (`matched` is then false and the caller counts the packet as filtered).
class Program {
 public:
  Program() = default;
  /// Throws Error NOT_SUPPORTED naming the flow and the feature for rules that no software here
  /// runs (RSS, transforms, flex items, eCPRI).
  explicit Program(const InterfaceConfig& config);

  [[nodiscard]] Verdict classify(const PacketView& packet) const noexcept;
  /// No rules: every packet has the same verdict.
  [[nodiscard]] bool empty() const noexcept { return rules_.empty(); }
  [[nodiscard]] std::size_t num_flows() const noexcept { return rules_.size(); }
  /// Unmatched packets are filtered.
  [[nodiscard]] bool isolated() const noexcept { return isolated_; }

 private:
  struct Rule {
    /// Addresses in host byte order, as in PacketKey.
    FlowMatch match;
    std::uint16_t queue;
    FlowId flow;
  };
  std::vector<Rule> rules_;
  /// For each UDP destination port, the first rule that can match it.
  std::vector<std::uint16_t> first_rule_;
  Verdict unmatched_;
  bool isolated_{false};
};

/// What one thread has steered, by flow. It counts each packet once, before the queue does, with
/// the bytes that the queue counts.
class FlowTally {
 public:
  explicit FlowTally(std::size_t num_flows) : counts_(num_flows) {}

  /// Packets with the same Verdict::position; NO_FLOW: none of them counts.
  void count(std::uint16_t position, std::uint64_t packets, std::uint64_t bytes) noexcept {
    if (position < counts_.size()) counts_[position].add({packets, bytes});
  }
  /// Packets and bytes. Any thread.
  [[nodiscard]] std::array<std::uint64_t, 2> read(std::size_t position) const noexcept {
    if (position >= counts_.size()) return {};
    return counts_[position].read();
  }

 private:
  std::vector<CounterGroup<2>> counts_;
};

/// Packets one by one, counted together as long as they are of the same flow.
class FlowRun {
 public:
  explicit FlowRun(FlowTally& tally) : tally_(tally) {}

  /// Another packet; `position`: Verdict::position.
  void add(std::uint16_t position) noexcept {
    if (position != position_) end();
    position_ = position;
    ++packets_;
  }
  /// Of the latest packet.
  void add_bytes(std::uint32_t bytes) noexcept { bytes_ += bytes; }
  void end() noexcept {
    tally_.count(position_, std::exchange(packets_, 0), std::exchange(bytes_, 0));
  }

 private:
  FlowTally& tally_;
  std::uint16_t position_{NO_FLOW};
  std::uint64_t packets_{0};
  std::uint64_t bytes_{0};
};

/// The program in force. Whoever steers holds a Reader, and is on the latest program from its next
/// `refresh` on; a program lives until no reader is on it.
class Steering {
 public:
  Steering() : program_(std::make_shared<const Program>()) {}

  /// Puts another program in force. Any thread.
  void publish(std::shared_ptr<const Program> program) noexcept;

  /// For a thread that steers; as long-lived as this. It has the flows of the program in force now.
  /// Throws std::bad_alloc.
  [[nodiscard]] FlowTally& add_tally() const;
  /// What all threads together have steered to a flow. Any thread.
  [[nodiscard]] FlowSnapshot counts(std::size_t position) const;

  /// One thread. Costs a load unless the program has changed.
  class Reader {
   public:
    explicit Reader(const Steering& steering) : steering_(steering) { take(); }
    /// Once per poll pass, and before verdicts that are kept beyond it.
    const Program& refresh() noexcept {
      if (steering_.version_.load(std::memory_order_acquire) != version_) take();
      return *program_;
    }
    [[nodiscard]] const Program& program() const noexcept { return *program_; }

   private:
    void take() noexcept;

    const Steering& steering_;
    std::uint64_t version_{0};
    std::shared_ptr<const Program> program_;
  };

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Program> program_;
  mutable std::deque<FlowTally> tallies_;
  std::atomic<std::uint64_t> version_{1};
};

}  // namespace daqiri::steering

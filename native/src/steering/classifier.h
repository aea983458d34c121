/// Steering: selects the queue and the flow id of a packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daqiri/config.h"
#include "steering/lookup.h"
#include "steering/packet_key.h"
#include "steering/tunnels.h"

namespace daqiri::steering {

/// Result of the classification of a packet.
struct Verdict {
  bool matched{false};
  /// Queue id on the interface.
  std::uint16_t queue{0};
  /// 0: no flow matched.
  FlowId flow{0};
  /// Position of the matching flow's counters; see FlowTally.
  std::uint16_t position{NO_FLOW};
  /// Whether headers are removed on receive; `remains` is the rest (see take_off).
  bool transformed{false};
  /// Whether the flow decapsulates, but the packet cannot be decapsulated: drop it.
  bool malformed{false};
  Remains remains{};

  /// Length of a packet of `length` bytes when it reaches the queue.
  [[nodiscard]] std::uint32_t length_of(std::uint32_t length) const noexcept {
    return transformed ? remains.length() : length;
  }
};

/// A flow that no packet reaches, because an earlier one matches them all. Positions in `rx.flows`.
struct Unreachable {
  std::size_t flow;
  std::size_t taken_by;
};
/// In file order.
std::vector<Unreachable> find_unreachable(const RxConfig& config);

/// A flow and the position of its counters.
struct Ranked {
  const FlowConfig* flow;
  std::uint16_t position;
};

/// The compiled flows of one interface, in order: the first one that matches is used. A flow
/// matches frames with as many VLAN tags (priority tags do not count) as it has vlan_pop actions,
/// and, with a tunnel, the packet inside. If a flow has several queues, the Toeplitz hash of
/// addresses and ports selects one. Unmatched packets go to the interface's first queue with flow
/// id 0, unless flow_isolation is set
/// (`matched` is then false and the caller counts the packet as filtered).
class Program {
 public:
  Program() = default;
  /// Uses the flows of the configuration, with positions in file order. Throws Error
  /// NO_SPACE_AVAILABLE if there are more flows than positions.
  explicit Program(const InterfaceConfig& config);
  /// Uses these flows instead. `unreachable`: receives those that no packet reaches, as indices of
  /// `flows`.
  Program(const InterfaceConfig& config, std::span<const Ranked> flows,
          std::vector<Unreachable>* unreachable = nullptr);

  [[nodiscard]] Verdict classify(const PacketView& packet) const noexcept;
  /// Whether there are no rules: every packet has the same verdict.
  [[nodiscard]] bool empty() const noexcept { return rules_.empty(); }
  /// Whether it matches the payloads of packets: `PacketView::bytes` has up to MOST_FLEX_BYTES.
  [[nodiscard]] bool reads_payloads() const noexcept { return flex_bytes_ > 0; }
  /// Whether a longer frame with these first bytes has the verdict of PacketView::of_beginning.
  [[nodiscard]] bool decides(const std::uint8_t* frame, std::uint32_t captured) const noexcept {
    return rules_.empty() ||
           (tunnels_.empty() && has_key(frame, captured, matches_udp_, flex_bytes_));
  }
  /// Whether the verdict depends only on Ethernet, VLAN tags, IP and UDP headers, or those of
  /// eCPRI.
  [[nodiscard]] bool matches_headers_only() const noexcept {
    return !reads_payloads() && tunnels_.empty();
  }
  /// Differs from that of all other programs.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }
  /// Upper bound of the positions of its flows.
  [[nodiscard]] std::size_t num_positions() const noexcept { return num_positions_; }
  /// Whether unmatched packets are filtered.
  [[nodiscard]] bool isolated() const noexcept { return isolated_; }

 private:
  struct Rule {
    std::uint16_t queue;
    /// Number of queues to select from; 0: only `queue`.
    std::uint16_t num_queues;
    /// Index of the first of them in queues_.
    std::uint32_t first_queue;
    FlowId flow;
    std::uint16_t position;
    /// Whether VLAN tags are removed, for flows without a tunnel: all, because it matches only
    /// packets with exactly these.
    bool untags;
  };
  [[nodiscard]] std::uint16_t queue_of(const Rule& rule, const PacketKey& key) const noexcept;
  static std::uint64_t new_serial() noexcept;

  /// In the order of the flows.
  std::vector<Rule> rules_;
  std::vector<std::uint16_t> queues_;
  Lookup lookup_;
  Tunnels tunnels_;
  Verdict unmatched_;
  bool isolated_{false};
  bool matches_udp_{false};
  /// Of UDP payloads that rules match.
  std::uint32_t flex_bytes_{0};
  std::size_t num_positions_{0};
  std::uint64_t serial_{new_serial()};
};

}  // namespace daqiri::steering

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

/// What is to be done with a packet.
struct Verdict {
  bool matched{false};
  /// Queue id on the interface.
  std::uint16_t queue{0};
  /// 0: no flow matched.
  FlowId flow{0};
  /// Where the flow that matched is counted; see FlowTally.
  std::uint16_t position{NO_FLOW};
  /// Headers come off on the way, and this is left: take_off.
  bool transformed{false};
  /// The flow would take it out of a tunnel, and cannot: drop it.
  bool malformed{false};
  Remains remains{};

  /// Of what reaches the queue of a packet of `length` bytes.
  [[nodiscard]] std::uint32_t length_of(std::uint32_t length) const noexcept {
    return transformed ? remains.length() : length;
  }
};

/// A flow that no packet reaches, since one before it takes them all. Positions in `rx.flows`.
struct Unreachable {
  std::size_t flow;
  std::size_t taken_by;
};
/// In file order.
std::vector<Unreachable> find_unreachable(const RxConfig& config);

/// A flow, and where it is counted.
struct Ranked {
  const FlowConfig* flow;
  std::uint16_t position;
};

/// The flows of one interface, compiled. In their order: the first that matches wins. A flow sees
/// frames with as many VLAN tags as it has vlan_pop actions, and what is in its tunnel where it has
/// one. Where a flow has several queues, the Toeplitz hash of addresses and ports chooses.
/// Unmatched packets go to the interface's first queue with flow id 0, unless flow_isolation is set
/// (`matched` is then false and the caller counts the packet as filtered).
class Program {
 public:
  Program() = default;
  /// Of the flows of the configuration, counted in file order. Throws Error NO_SPACE_AVAILABLE
  /// where there are more flows than positions.
  explicit Program(const InterfaceConfig& config);
  /// Of these instead. `unreachable`: gets those that no packet reaches, as indices of `flows`.
  Program(const InterfaceConfig& config, std::span<const Ranked> flows,
          std::vector<Unreachable>* unreachable = nullptr);

  [[nodiscard]] Verdict classify(const PacketView& packet) const noexcept;
  /// No rules: every packet has the same verdict.
  [[nodiscard]] bool empty() const noexcept { return rules_.empty(); }
  /// Its flows are counted at places below.
  [[nodiscard]] std::size_t num_positions() const noexcept { return num_positions_; }
  /// Unmatched packets are filtered.
  [[nodiscard]] bool isolated() const noexcept { return isolated_; }

 private:
  struct Rule {
    std::uint16_t queue;
    /// Of queues to choose from; 0: there is only `queue`.
    std::uint16_t num_queues;
    /// The first of them in queues_.
    std::uint32_t first_queue;
    FlowId flow;
    std::uint16_t position;
    /// That it takes off, of flows without a tunnel.
    unsigned tags;
  };
  [[nodiscard]] std::uint16_t queue_of(const Rule& rule, const PacketKey& key) const noexcept;

  /// In their order.
  std::vector<Rule> rules_;
  std::vector<std::uint16_t> queues_;
  Lookup lookup_;
  Tunnels tunnels_;
  Verdict unmatched_;
  bool isolated_{false};
  std::size_t num_positions_{0};
};

}  // namespace daqiri::steering

/// Receive flows that decapsulate tunnels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daqiri/flows.h"
#include "net/transforms.h"
#include "steering/lookup.h"
#include "steering/packet_key.h"

namespace daqiri::steering {

/// Flows with a tunnel_decap action, by their tunnels. A flow sees the packet in the tunnel, with
/// the VLAN tags that it takes off behind it. Which tunnels a packet may be of is found by a search
/// for its type, port or protocol and network; those that differ in outer addresses only are tried
/// one by one.
///
/// Flows are added in file order, then `finish` makes them ready.
class Tunnels {
 public:
  /// Whether a flow is one of these.
  static bool has(const FlowConfig& flow);
  /// As Lookup::add, among flows of the same tunnel.
  std::optional<std::uint16_t> add(std::uint16_t position, const FlowConfig& flow);
  void finish();
  [[nodiscard]] bool empty() const noexcept { return tunnels_.empty(); }

  struct Found {
    /// NO_FLOW: none.
    std::uint16_t position{NO_FLOW};
    /// The packet cannot be taken out of its tunnel: it is a fragment, or its lengths are wrong.
    /// The flow is the first of the tunnel; nothing below is known.
    bool malformed{false};
    /// Of the packet in the tunnel.
    PacketKey key;
    Remains remains;
  };
  /// The flow of the lowest position, below `before`.
  [[nodiscard]] Found find(const PacketView& packet, std::uint16_t before) const noexcept;

 private:
  /// Outer fields that are compared. Addresses, port and flow id 0: any.
  struct Outer {
    std::uint64_t identity{0};
    MacAddress eth_src{};
    MacAddress eth_dst{};
    std::uint32_t ipv4_src{0};
    std::uint32_t ipv4_dst{0};
    std::uint16_t udp_src{0};
    std::uint8_t flow_id{0};

    bool operator==(const Outer&) const = default;
    [[nodiscard]] bool takes(const TunnelHeaders& headers,
                             const std::uint8_t* frame) const noexcept;
  };
  struct Tunnel {
    Outer outer;
    /// Of its flows.
    std::uint16_t first;
    Lookup flows{};
  };

  static std::uint64_t identity_of(TunnelType type, unsigned tags, std::uint16_t port,
                                   std::uint32_t network) noexcept;
  static Outer outer_of(const FlowConfig& flow);

  /// By identity.
  std::vector<Tunnel> tunnels_;
};

/// Tags that a flow takes off: all, or behind its tunnel.
unsigned tags_of(const FlowConfig& flow);

}  // namespace daqiri::steering

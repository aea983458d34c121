/// Receive flows that decapsulate tunnels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daqiri/flows.h"
#include "net/transforms.h"
#include "steering/lookup.h"
#include "steering/packet_key.h"

namespace daqiri::steering {

/// Flows with a tunnel_decap action, by tunnel. A flow matches the packet in the tunnel, with the
/// VLAN tags that it removes after decapsulation. The tunnels of a packet are found by a search for
/// type, port or protocol, and network; tunnels that differ only in outer addresses are tried one
/// by one.
///
/// Flows are added in file order; then `finish` builds the tables.
class Tunnels {
 public:
  /// Whether a flow has a tunnel.
  static bool has(const FlowConfig& flow);
  /// Like Lookup::add, for flows of the same tunnel.
  std::optional<std::uint16_t> add(std::uint16_t position, const FlowConfig& flow);
  void finish();
  [[nodiscard]] bool empty() const noexcept { return tunnels_.empty(); }

  struct Found {
    /// NO_FLOW: none.
    std::uint16_t position{NO_FLOW};
    /// The packet cannot be decapsulated: it is a fragment, or its lengths are wrong. `position` is
    /// the first flow of the tunnel; the members below are not set.
    bool malformed{false};
    /// Key of the packet in the tunnel.
    PacketKey key;
    Remains remains;
  };
  /// The matching flow with the lowest position below `before`.
  [[nodiscard]] Found find(const PacketView& packet, std::uint16_t before) const noexcept;

 private:
  /// Outer fields to compare. Addresses, port and flow id 0: any.
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
    /// Lowest position of its flows.
    std::uint16_t first;
    Lookup flows{};
  };

  static std::uint64_t identity_of(TunnelType type, unsigned tags, std::uint16_t port,
                                   std::uint32_t network) noexcept;
  static Outer outer_of(const FlowConfig& flow);

  /// Sorted by identity.
  std::vector<Tunnel> tunnels_;
};

/// The tunnel_decap action of a flow; the end of its actions: it has none.
std::vector<FlowAction>::const_iterator tunnel_of(const FlowConfig& flow);
/// Number of VLAN tags that these actions remove.
unsigned count_pops(std::vector<FlowAction>::const_iterator first,
                    std::vector<FlowAction>::const_iterator last);
/// Number of VLAN tags that a flow removes: all, or those in its tunnel.
unsigned tags_of(const FlowConfig& flow);
/// Outer addresses of a tunnel's configuration; IPv4 in host byte order. 0: any.
std::uint32_t address_of(const std::string& text);
MacAddress mac_of(const std::string& text);

}  // namespace daqiri::steering

/// What flows match, as headers with values and masks: the form in which network cards take rules.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/flows.h"

namespace daqiri::steering {

enum class Header : std::uint8_t { ETHERNET, VLAN, IPV4, IPV6, UDP, VXLAN, GRE, NVGRE, ECPRI };

/// A header, and the bits of its first bytes that are compared.
struct HeaderMatch {
  Header header;
  /// As in the packet; 0 where `mask` is.
  std::array<std::uint8_t, 20> value{};
  std::array<std::uint8_t, 20> mask{};

  bool operator==(const HeaderMatch&) const = default;
};

/// Consecutive headers, from the outermost.
using Pattern = std::vector<HeaderMatch>;

struct FlowPatterns {
  /// A packet of the flow matches one of them.
  std::vector<Pattern> any;
  /// Why patterns cannot express the flow; `any` is then empty.
  std::string reason;
};

/// Patterns match the packets of the flow, on their own: earlier flows may match some of them.
/// Different from the flow, a pattern
/// - misses fragments, VLAN tags with id 0, IPv6 extension headers, and packets in tunnels that
///   cannot be decapsulated,
/// - may match packets whose lengths are wrong, and a tag with id 0 as one of those that the flow
///   removes.
FlowPatterns patterns_of(const FlowConfig& flow);

}  // namespace daqiri::steering

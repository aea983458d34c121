#include "steering/transmit_flows.h"

#include <algorithm>
#include <string>

namespace daqiri::steering {

namespace {

/// A number that is the same for all packets of a connection: from addresses and ports, or from the
/// Ethernet header.
std::uint32_t entropy_of(const PacketView& packet) noexcept {
  const PacketKey& key = packet.key;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  if (key.ipv4_udp) {
    low = std::uint64_t{key.ipv4_src} << 32U | key.ipv4_dst;
    high = std::uint64_t{key.udp_src} << 16U | key.udp_dst;
  } else {
    std::memcpy(&low, packet.bytes.data(), sizeof low);
    std::memcpy(&high, packet.bytes.data() + ETHERNET_SIZE - sizeof high, sizeof high);
  }
  // Constants as in Lookup; the highest bits are mixed best.
  std::uint64_t mixed = low ^ (high * 0x9E37'79B9'7F4A'7C15U);
  mixed = (mixed ^ mixed >> 32U) * 0xFF51'AFD7'ED55'8CCDU;
  return static_cast<std::uint32_t>(mixed >> 32U);
}

}  // namespace

TransmitFlows::TransmitFlows(const InterfaceConfig& config) {
  const std::vector<FlowConfig>& flows = config.tx_.flows_;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const auto position = static_cast<std::uint16_t>(i);
    const Prefix& prefix = prefixes_.emplace_back(flows[i].actions_);
    most_headers_ = std::max(most_headers_, prefix.size());
    most_overhead_ = std::max(most_overhead_, prefix.overhead());
    if (flows[i].match_ == FlowMatch{}) {
      all_ = std::min(all_, position);
    } else {
      lookup_.add(position, flows[i].match_, 0, {});
    }
  }
  lookup_.finish();
}

int TransmitFlows::transform(const Burst& burst, std::uint32_t packet, std::uint8_t* headers,
                             Pieces& out) const noexcept {
  out.set(burst, packet);
  return empty() ? 0 : put_in_front(headers, out);
}

int TransmitFlows::put_in_front(std::uint8_t* headers, Pieces& packet) const noexcept {
  std::array<std::uint8_t, MOST_KEY_BYTES> room;
  const PacketView view = PacketView::of_pieces(packet, room);
  const std::uint16_t position = std::min(lookup_.find(view), all_);
  if (position == NO_FLOW) return 0;
  const Prefix& prefix = prefixes_[position];
  const std::uint32_t entropy = packet.length < ETHERNET_SIZE ? 0 : entropy_of(view);
  const int error = prefix.write(view.bytes.data(), packet.length, entropy, headers);
  if (error != 0) return error;
  Pieces sent;
  sent.add(headers, prefix.size());
  sent.add(packet, prefix.replaces(), packet.length);
  packet = sent;
  return 0;
}

}  // namespace daqiri::steering

// Bytes of a frame: headers that receive flows remove, and headers that transmit flows add.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "frames.h"
#include "net/transforms.h"
#include "require.h"
#include "steering/classifier.h"

using namespace daqiri;
using namespace daqiri::test;
using fuzz::require;
using steering::PacketView;
using steering::Verdict;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr TunnelType TUNNELS[] = {TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE};

std::vector<FlowAction> tags(FlowType type, std::size_t count) {
  return {count, type == FlowType::VLAN_PUSH ? push_of(9, 0x88A8) : action_of(type)};
}

/// Lists of actions: tags, with tunnels of each kind between them.
std::vector<std::vector<FlowAction>> lists_of(FlowType tag, FlowType tunnel) {
  std::vector<std::vector<FlowAction>> lists{tags(tag, 1), tags(tag, 2)};
  for (const TunnelType type : TUNNELS) {
    for (std::size_t both = 0; both < 9; ++both) {
      std::vector<FlowAction> list = tags(tag, both % 3);
      list.push_back(action_of(tunnel, tunnel_of(type)));
      if (tunnel == FlowType::TUNNEL_DECAP) {
        TunnelConfig& any = list.back().tunnel_;
        any = {.type_ = type, .vni_ = 77, .gre_protocol_ = 0x6558, .tni_ = 77};
      }
      const auto others = tags(tag, both / 3);
      list.insert(list.end(), others.begin(), others.end());
      lists.push_back(list);
    }
  }
  FlowAction bare = action_of(tunnel, tunnel_of(TunnelType::GRE));
  bare.tunnel_.gre_protocol_ = 0x0800;
  if (tunnel == FlowType::TUNNEL_DECAP)
    bare.tunnel_ = {.type_ = TunnelType::GRE, .gre_protocol_ = 0x0800};
  lists.push_back({bare});
  return lists;
}

InterfaceConfig receiver() {
  InterfaceConfig interface = interface_with_queues(3);
  FlowId id = 0;
  for (const auto& list : lists_of(FlowType::VLAN_POP, FlowType::TUNNEL_DECAP)) {
    add_flow(interface, id + 1, static_cast<std::uint16_t>(id % 3), list).match_.udp_dst_ = {1, 9};
    add_flow(interface, id + 2, static_cast<std::uint16_t>(id % 3), list);
    id += 2;
  }
  return interface;
}

bool same(const Verdict& a, const Verdict& b) {
  return a.matched == b.matched && a.queue == b.queue && a.flow == b.flow &&
         a.malformed == b.malformed && a.transformed == b.transformed &&
         a.remains.addresses == b.remains.addresses && a.remains.payload == b.remains.payload &&
         a.remains.end == b.remains.end && a.remains.eth_type == b.remains.eth_type;
}

/// The frame as an engine delivers it.
Bytes delivered(Bytes frame, const Verdict& verdict) {
  const Remains& remains = verdict.remains;
  require(remains.payload >= ETHERNET_SIZE + VLAN_TAG_SIZE, "something comes off");
  require(remains.payload <= remains.end && remains.end <= frame.size(),
          "what is left lies in the frame");
  const std::uint8_t* begin = take_off(frame.data(), remains);
  return {begin, begin + remains.length()};
}

void receive(const steering::Program& program, const Bytes& frame) {
  const auto length = static_cast<std::uint32_t>(frame.size());
  const Verdict verdict = program.classify(PacketView::of_frame(frame.data(), length));
  require(!(verdict.malformed && verdict.transformed), "a frame is dropped or taken off");
  require(verdict.matched || !(verdict.malformed || verdict.transformed), "for a flow");
  PacketView beginning =
      PacketView::of_frame(frame.data(), std::min(length, steering::MOST_KEY_BYTES));
  beginning.length = length;
  require(same(verdict, program.classify(beginning)), "the beginning of a frame decides");
  if (!verdict.transformed) return;
  const Bytes packet = delivered(frame, verdict);
  const auto key = steering::parse_frame(packet.data(), static_cast<std::uint32_t>(packet.size()));
  require(key.udp() && key.tags.vlans == 0, "a flow takes UDP, without tags");
  require(verdict.flow % 2 == 0 || (key.udp_dst >= 1 && key.udp_dst <= 9),
          "the packet that is left is what its flow matches");
}

void send(const std::vector<FlowAction>& actions, const Bytes& packet) {
  const Prefix prefix(actions);
  Bytes frame(prefix.size());
  const auto length = static_cast<std::uint32_t>(packet.size());
  if (prefix.write(packet.data(), length, length, frame.data()) != 0) return;
  frame.insert(frame.end(), packet.begin() + prefix.replaces(), packet.end());
  require(frame.size() == packet.size() + prefix.overhead(), "it grows by what is said");
  const auto tunnel = std::ranges::find(actions, FlowType::TUNNEL_ENCAP, &FlowAction::type_);
  const auto inner_tags = static_cast<unsigned>(tunnel - actions.begin());
  Bytes inner = frame;
  if (tunnel != actions.end()) {
    const TunnelHeaders headers =
        read_tunnel(frame.data(), static_cast<std::uint32_t>(frame.size()),
                    static_cast<std::uint32_t>(frame.size()));
    require(headers.whole && headers.type == tunnel->tunnel_.type_, "the tunnel is read again");
    require(headers.tags == actions.end() - tunnel - 1, "with the tags in front of it");
    const std::uint8_t* begin = take_off(inner.data(), headers.inner);
    inner = {begin, begin + headers.inner.length()};
  }
  const Remains remains =
      without_tags(inner.data(), static_cast<std::uint32_t>(inner.size()), inner_tags);
  const std::uint8_t* begin = take_off(inner.data(), remains);
  // Without an Ethernet header in the tunnel, the addresses are the outer ones.
  const std::uint32_t same_from =
      prefix.replaces() == ETHERNET_SIZE ? ADDRESSES_SIZE : std::uint32_t{0};
  require(remains.length() == length &&
              std::equal(begin + same_from, begin + length, packet.begin() + same_from),
          "what was put in front comes off again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const steering::Program program(receiver());
  static const auto sent = lists_of(FlowType::VLAN_PUSH, FlowType::TUNNEL_ENCAP);
  // With the exact size.
  const Bytes frame(data, data + size);
  receive(program, frame);
  for (const auto& actions : sent) send(actions, frame);
  return 0;
}

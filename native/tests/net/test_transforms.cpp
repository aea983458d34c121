// Headers that are removed from frames and added to them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <random>

#include "frames.h"
#include "net/transforms.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// On the heap with the exact size, so that the address sanitizer detects reads beyond the end.
TunnelHeaders read_exact(const Bytes& frame, std::size_t captured) {
  const auto copy = std::make_unique<std::uint8_t[]>(captured);
  std::copy_n(frame.begin(), captured, copy.get());
  return read_tunnel(copy.get(), static_cast<std::uint32_t>(captured),
                     static_cast<std::uint32_t>(frame.size()));
}
TunnelHeaders read_exact(const Bytes& frame) { return read_exact(frame, frame.size()); }

Bytes taken_off(Bytes frame, const Remains& remains) {
  const std::uint8_t* begin = take_off(frame.data(), remains);
  return {begin, begin + remains.length()};
}

/// The packet as a transmit flow sends it; empty if errno was `error`.
Bytes sent(const std::vector<FlowAction>& actions, const Bytes& packet, int error = 0,
           std::uint32_t entropy = 5) {
  const Prefix prefix(actions);
  Bytes out(prefix.size());
  const auto first = std::make_unique<std::uint8_t[]>(std::min<std::size_t>(packet.size(), 14));
  std::copy_n(packet.begin(), std::min<std::size_t>(packet.size(), 14), first.get());
  const auto length = static_cast<std::uint32_t>(packet.size());
  REQUIRE(prefix.write(first.get(), length, entropy, out.data()) == error);
  if (error != 0) return {};
  out.insert(out.end(), packet.begin() + prefix.replaces(), packet.end());
  CHECK(out.size() == packet.size() + prefix.overhead());
  return out;
}

FlowAction encap(TunnelType type, std::uint16_t protocol = 0x6558) {
  TunnelConfig tunnel = tunnel_of(type);
  tunnel.gre_protocol_ = protocol;
  return action_of(FlowType::TUNNEL_ENCAP, tunnel);
}

std::uint16_t plain_sum(const std::uint8_t* bytes, std::size_t size) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < size; i += 2) sum += load_be16(bytes + i);
  while (sum > 0xFFFF) sum = (sum & 0xFFFFU) + (sum >> 16U);
  return static_cast<std::uint16_t>(sum);
}

}  // namespace

TEST_CASE("a packet comes out of its tunnel as it went in", "[transforms]") {
  const Bytes inner = make_frame({});
  OuterFields outer;
  outer.type = GENERATE(TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE);
  outer.header_words = GENERATE(std::uint8_t{5}, std::uint8_t{15});
  const auto tags = GENERATE(std::size_t{0}, std::size_t{2});
  Bytes frame = tagged(in_tunnel(inner, outer), std::vector<std::uint16_t>(tags, 0x8100));
  frame.resize(frame.size() + 7, 0x99);  // padding
  const TunnelHeaders headers = read_exact(frame);
  CHECK(headers.type == outer.type);
  REQUIRE(headers.whole);
  CHECK(headers.tags == tags);
  CHECK(headers.ipv4_src == outer.src);
  CHECK(headers.ipv4_dst == outer.dst);
  if (outer.type != TunnelType::GRE) CHECK(headers.network == 77);
  if (outer.type == TunnelType::VXLAN) CHECK(headers.udp_dst == 4789);
  CHECK(taken_off(frame, headers.inner) == inner);
}

TEST_CASE("GRE fields that are there by choice are skipped", "[transforms]") {
  OuterFields outer;
  outer.type = TunnelType::GRE;
  outer.gre_flags =
      GENERATE(as<std::uint16_t>(), 0, 0x8000, 0x2000, 0x1000, 0xA000, 0x9000, 0x3000, 0xB000);
  const bool nvgre = outer.gre_flags == 0x2000;
  const Bytes inner = make_frame({});
  const TunnelHeaders headers = read_exact(in_tunnel(inner, outer));
  CHECK(headers.type == (nvgre ? TunnelType::NVGRE : TunnelType::GRE));
  REQUIRE(headers.whole);
  CHECK(taken_off(in_tunnel(inner, outer), headers.inner) == inner);

  // Without an Ethernet header, it gets the addresses of the outer one.
  outer.protocol = 0x0800;
  const Bytes packet(inner.begin() + 14, inner.end());
  const Bytes frame = in_tunnel(packet, outer);
  const TunnelHeaders bare = read_exact(frame);
  REQUIRE(bare.whole);
  Bytes expected(frame.begin(), frame.begin() + 12);
  expected.insert(expected.end(), inner.begin() + 12, inner.end());
  CHECK(taken_off(frame, bare.inner) == expected);
}

TEST_CASE("what cannot be taken out whole is told", "[transforms]") {
  OuterFields outer;
  const Bytes inner = make_frame({});
  SECTION("more fragments") { outer.fragment = 0x2000; }
  SECTION("the IPv4 length beyond the frame") { outer.ipv4_length = 1; }
  SECTION("the UDP length beyond that of IPv4") { outer.udp_length = 1; }
  SECTION("the UDP length without room for an Ethernet header") {
    outer.udp_length = -static_cast<int>(inner.size()) + 13;
  }
  SECTION("the UDP length 0") { outer.udp_length = -static_cast<int>(inner.size()) - 16; }
  SECTION("an IPv4 length that ends within the UDP datagram") { outer.ipv4_length = -1; }
  SECTION("GRE without room for an Ethernet header") {
    outer.type = TunnelType::NVGRE;
    outer.ipv4_length = -static_cast<int>(inner.size()) + 13;
  }
  SECTION("GRE with source routes") {
    outer.type = TunnelType::GRE;
    outer.gre_flags = 0x4000;
  }
  const TunnelHeaders headers = read_exact(in_tunnel(inner, outer));
  CHECK(headers.type != TunnelType::NONE);
  CHECK_FALSE(headers.whole);
}

TEST_CASE("what is no tunnel is none", "[transforms]") {
  OuterFields outer;
  Bytes frame = in_tunnel(make_frame({}), outer);
  SECTION("a later fragment") { put16(frame, 20, 1); }
  SECTION("VXLAN without a VNI") { frame[42] = 0; }
  SECTION("another protocol") { frame[23] = 6; }
  SECTION("IPv6") { put16(frame, 12, 0x86DD); }
  SECTION("another version of GRE") {
    outer.type = TunnelType::GRE;
    frame = in_tunnel(make_frame({}), outer);
    frame[35] |= 1;
  }
  CHECK(read_exact(frame).type == TunnelType::NONE);
}

TEST_CASE("no byte beyond those that were captured is read", "[transforms]") {
  for (const TunnelType type : {TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE}) {
    OuterFields outer;
    outer.type = type;
    outer.header_words = 15;
    const Bytes frame = tagged(in_tunnel(make_frame({}), outer), {0x88A8, 0x8100});
    for (std::size_t captured = 0; captured <= frame.size(); ++captured) {
      const TunnelHeaders headers = read_exact(frame, captured);
      if (headers.whole && headers.type != TunnelType::NONE)
        CHECK(headers.inner.payload <= captured);
    }
  }
}

TEST_CASE("random bytes behind an Ethernet header are read safely", "[transforms]") {
  std::mt19937 random(13);
  int whole = 0;
  for (int i = 0; i < 200'000; ++i) {
    OuterFields outer;
    outer.type = static_cast<TunnelType>(1 + random() % 3);
    Bytes frame = in_tunnel(make_frame({}), outer);
    for (auto changes = random() % 4; changes > 0; --changes)
      frame[12 + random() % 50] = static_cast<std::uint8_t>(random());
    frame.resize(random() % (frame.size() + 1));
    const TunnelHeaders headers = read_exact(frame);
    if (headers.type == TunnelType::NONE || !headers.whole) continue;
    ++whole;
    const Remains& inner = headers.inner;
    REQUIRE(inner.payload >= 14);
    REQUIRE(inner.payload <= inner.end);
    REQUIRE(inner.end <= frame.size());
    REQUIRE(inner.addresses + 12 <= frame.size());
  }
  CHECK(whole > 1000);
}

TEST_CASE("tags come off from the outermost", "[transforms]") {
  const Bytes inner = make_frame({});
  const Bytes frame = tagged(inner, {0x88A8, 0x8100});
  const auto length = static_cast<std::uint32_t>(frame.size());
  CHECK(taken_off(frame, without_tags(frame.data(), length, 2)) == inner);
  Bytes one = tagged(inner, {0x8100});
  put16(one, 14, 101);  // the id of the inner tag
  CHECK(taken_off(frame, without_tags(frame.data(), length, 1)) == one);
}

TEST_CASE("tags are pushed outside of those that are there", "[transforms]") {
  const Bytes packet = make_frame({});
  const Bytes out = sent({push_of(5), push_of(6, 0x88A8)}, packet);
  Bytes expected = tagged(packet, {0x88A8, 0x8100});
  put16(expected, 14, 3U << 13U | 1U << 12U | 6U);
  put16(expected, 18, 3U << 13U | 1U << 12U | 5U);
  CHECK(out == expected);
}

TEST_CASE("outer headers have right lengths and checksums", "[transforms]") {
  const auto type = GENERATE(TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE);
  const auto payload = GENERATE(std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{8000});
  FrameFields fields;
  fields.payload = payload;
  const Bytes packet = make_frame(fields);
  const Bytes out = sent({encap(type)}, packet);
  // Built independently, apart from the fields that the reading code ignores.
  OuterFields outer;
  outer.type = type;
  outer.udp_src = 49152 + 5;
  Bytes expected = in_tunnel(packet, outer);
  REQUIRE(out.size() == expected.size());
  CHECK(plain_sum(&out[14], 20) == 0xFFFF);
  expected[15] = 0;             // type of service
  put32(expected, 18, 0x4000);  // identification, don't fragment
  expected[22] = 64;            // time to live
  put16(expected, 24, load_be16(&out[24]));
  if (type == TunnelType::VXLAN) put16(expected, 40, 0);  // UDP checksum
  CHECK(out == expected);
}

TEST_CASE("keys of the tunnel are in its headers", "[transforms]") {
  FlowAction action = encap(TunnelType::VXLAN);
  action.tunnel_.outer_udp_src_ = 1234;
  action.tunnel_.outer_udp_dst_ = 4790;
  action.tunnel_.vni_ = 0xFFFFFF;
  action.tunnel_.outer_ipv4_ttl_ = 9;
  action.tunnel_.outer_ipv4_tos_ = 0xB8;
  Bytes out = sent({action}, make_frame({}));
  CHECK(load_be16(&out[34]) == 1234);
  CHECK(load_be16(&out[36]) == 4790);
  CHECK(load_be32(&out[46]) == 0xFFFFFF00);
  CHECK(out[15] == 0xB8);
  CHECK(out[22] == 9);
  CHECK(plain_sum(&out[14], 20) == 0xFFFF);
  action = encap(TunnelType::NVGRE);
  action.tunnel_.flow_id_ = 3;
  out = sent({action}, make_frame({}));
  CHECK(load_be32(&out[38]) == (77U << 8U | 3U));
}

TEST_CASE("GRE of another protocol takes packets of it without Ethernet header", "[transforms]") {
  const Bytes packet = make_frame({});
  const Bytes out = sent({encap(TunnelType::GRE, 0x0800)}, packet);
  CHECK(out.size() == packet.size() + 24);
  CHECK(load_be16(&out[36]) == 0x0800);
  CHECK(Bytes(out.begin() + 38, out.end()) == Bytes(packet.begin() + 14, packet.end()));
  FrameFields ipv6;
  ipv6.ethertype = 0x86DD;
  sent({encap(TunnelType::GRE, 0x0800)}, make_frame(ipv6), EPROTO);
}

TEST_CASE("packets that no headers fit are refused", "[transforms]") {
  sent({encap(TunnelType::VXLAN)}, Bytes(13), EINVAL);
  sent({push_of(1)}, Bytes(13), EINVAL);
  sent({push_of(1)}, Bytes(14));
  sent({encap(TunnelType::VXLAN)}, Bytes(65535 - 36));
  sent({encap(TunnelType::VXLAN)}, Bytes(65536 - 36), EMSGSIZE);
  sent({encap(TunnelType::GRE)}, Bytes(65536 - 24), EMSGSIZE);
}

TEST_CASE("what was put in front comes off again", "[transforms]") {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    FrameFields fields;
    fields.payload = static_cast<std::uint16_t>(random() % 1500);
    const Bytes packet = make_frame(fields);
    std::vector<FlowAction> actions;
    for (auto n = random() % 3; n > 0; --n) actions.push_back(push_of(1));
    const auto inner_tags = actions.size();
    const auto type = static_cast<TunnelType>(1 + random() % 3);
    actions.push_back(encap(type));
    const auto outer_tags = random() % 3;
    for (auto n = outer_tags; n > 0; --n) actions.push_back(push_of(2, 0x88A8));
    const Bytes frame = sent(actions, packet, 0, static_cast<std::uint32_t>(random()));
    const TunnelHeaders headers = read_exact(frame);
    REQUIRE(headers.type == type);
    REQUIRE(headers.whole);
    REQUIRE(headers.tags == outer_tags);
    const Bytes inner = taken_off(frame, headers.inner);
    const auto length = static_cast<std::uint32_t>(inner.size());
    REQUIRE(taken_off(inner, without_tags(inner.data(), length,
                                          static_cast<unsigned>(inner_tags))) == packet);
    if (type != TunnelType::VXLAN) continue;
    REQUIRE(headers.udp_src >= 49152);
  }
}

TEST_CASE("parts of packets in pieces", "[transforms]") {
  Bytes bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  Pieces packet;
  packet.add(bytes.data(), 10);
  packet.add(bytes.data() + 10, 0);
  packet.add(bytes.data() + 10, 50);
  packet.add(bytes.data() + 60, 40);
  REQUIRE(packet.length == 100);
  for (std::uint32_t from = 0; from <= 100; from += 5) {
    for (std::uint32_t to = from; to <= 100; to += 5) {
      Pieces part;
      part.add(packet, from, to);
      REQUIRE(part.length == to - from);
      Bytes out(part.length);
      part.copy(0, part.length, out.data());
      REQUIRE(std::equal(out.begin(), out.end(), bytes.begin() + from));
      packet.copy(from, to - from, out.data());
      REQUIRE(std::equal(out.begin(), out.end(), bytes.begin() + from));
    }
  }
}

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>

#include "frames.h"
#include "steering/classifier.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketKey;
using steering::parse_frame;

namespace {

/// On the heap with the exact size, so that the address sanitizer detects reads beyond the end.
PacketKey parse_exact(const std::vector<std::uint8_t>& frame, std::size_t length) {
  const auto copy = std::make_unique<std::uint8_t[]>(length);
  std::copy_n(frame.begin(), length, copy.get());
  return parse_frame(copy.get(), static_cast<std::uint32_t>(length));
}

}  // namespace

TEST_CASE("a UDP frame gives its addresses, ports and length in host order", "[steering]") {
  FrameFields fields;
  fields.src = 0x0A0B0C0D;
  fields.dst = 0xC0A80117;
  fields.udp_src = 0x1234;
  fields.udp_dst = 0xFEDC;
  const auto frame = make_frame(fields);
  const PacketKey key = parse_exact(frame, frame.size());
  CHECK(key.ipv4_udp);
  CHECK(key.ipv4_src == 0x0A0B0C0D);
  CHECK(key.ipv4_dst == 0xC0A80117);
  CHECK(key.udp_src == 0x1234);
  CHECK(key.udp_dst == 0xFEDC);
  CHECK(key.ipv4_len == ipv4_length(fields));
}

TEST_CASE("IPv4 options move the ports", "[steering]") {
  FrameFields fields;
  fields.header_words = 15;
  const auto frame = make_frame(fields);
  const PacketKey key = parse_exact(frame, frame.size());
  CHECK(key.ipv4_udp);
  CHECK(key.udp_src == fields.udp_src);
  CHECK(key.udp_dst == fields.udp_dst);
}

TEST_CASE("anything but IPv4/UDP with its UDP header has no key", "[steering]") {
  const auto refused = [](const FrameFields& fields) {
    const auto frame = make_frame(fields);
    return !parse_exact(frame, frame.size()).ipv4_udp;
  };
  FrameFields fields;
  SECTION("TCP") { fields.protocol = 6; }
  SECTION("header shorter than 20 bytes") { fields.header_words = 4; }
  SECTION("second fragment") { fields.fragment = 1; }
  SECTION("last fragment") { fields.fragment = 0x1FFF; }
  CHECK(refused(fields));
}

TEST_CASE("headers are found behind VLAN tags, which are counted", "[steering]") {
  const std::vector<std::uint16_t> tags =
      GENERATE(std::vector<std::uint16_t>{0x8100}, std::vector<std::uint16_t>{0x88A8, 0x8100},
               std::vector<std::uint16_t>{0x9100, 0x8100}, std::vector<std::uint16_t>(4, 0x8100));
  FrameFields fields;
  fields.header_words = static_cast<std::uint8_t>(GENERATE(5, 15));
  const auto frame = tagged(make_frame(fields), tags);
  const PacketKey key = parse_exact(frame, frame.size());
  CHECK(key.ipv4_udp);
  CHECK(key.tags.all == tags.size());
  CHECK(key.tags.vlans == tags.size());
  CHECK(key.udp_dst == fields.udp_dst);
  CHECK(key.payload_at == 14 + 4 * tags.size() + fields.header_words * 4U + 8);
  CHECK(key.payload_end == frame.size());
  for (std::size_t length = 0; length < key.payload_at; ++length)
    CHECK_FALSE(parse_exact(frame, length).ipv4_udp);
}

TEST_CASE("priority tags are no tags of a VLAN", "[steering]") {
  const auto [ids, vlans] = GENERATE(table<std::vector<std::uint16_t>, unsigned>({{{0}, 0},
                                                                                  {{0, 0}, 0},
                                                                                  {{0, 7}, 1},
                                                                                  {{7, 0}, 1},
                                                                                  {{7, 0, 8}, 2},
                                                                                  {{0, 0, 0, 0}, 0},
                                                                                  {{4095}, 1}}));
  const auto frame = tagged_with_ids(make_frame({}), ids);
  const PacketKey key = parse_exact(frame, frame.size());
  CHECK(key.ipv4_udp);
  CHECK(key.tags.all == ids.size());
  CHECK(key.tags.vlans == vlans);
  CHECK(key.payload_at == 42 + 4 * ids.size());
}

TEST_CASE("UDP over IPv6 gives its ports, and no IPv4 field", "[steering]") {
  const auto extensions = GENERATE(std::vector<Ipv6Extension>{}, std::vector<Ipv6Extension>{{0}},
                                   std::vector<Ipv6Extension>{{0}, {43, 3}, {60, 1}},
                                   std::vector<Ipv6Extension>{{44, 0, 0x0001}},  // the first
                                   std::vector<Ipv6Extension>{{44, 0, 0}},       // the only one
                                   std::vector<Ipv6Extension>(8, Ipv6Extension{60}),
                                   std::vector<Ipv6Extension>{{60, 10}});
  FrameFields fields;
  fields.udp_src = 0x1234;
  fields.udp_dst = 0xFEDC;
  const auto frame = tagged_with_ids(make_ipv6_frame(fields, extensions), {5});
  const PacketKey key = parse_exact(frame, frame.size());
  CHECK(key.ipv6_udp);
  CHECK_FALSE(key.ipv4_udp);
  CHECK(key.udp_src == 0x1234);
  CHECK(key.udp_dst == 0xFEDC);
  CHECK(key.ipv4_len == 0);
  CHECK(key.ipv4_src == 0);
  CHECK(key.ipv4_dst == 0);
  CHECK(key.tags.vlans == 1);
  CHECK(key.payload_end == frame.size());
  CHECK(key.payload_at == frame.size() - fields.payload);
  for (std::size_t length = 0; length < frame.size(); ++length)
    CHECK(parse_exact(frame, length).ipv6_udp == (length >= key.payload_at));
  auto padded = frame;
  padded.resize(frame.size() + 20);
  CHECK(parse_exact(padded, padded.size()).payload_end == frame.size());
}

TEST_CASE("IPv6 packets without the header of UDP have no key", "[steering]") {
  FrameFields fields;
  std::vector<Ipv6Extension> extensions;
  SECTION("TCP") { fields.protocol = 6; }
  SECTION("a later fragment") { extensions = {{44, 0, 0x0009}}; }
  SECTION("the last fragment") { extensions = {{0}, {44, 0, 0xFFF8}}; }
  SECTION("more extension headers than are read") { extensions.resize(9); }
  SECTION("longer extension headers than are read") { extensions = {{60, 11}}; }
  SECTION("encrypted") { extensions = {{50}}; }
  const auto frame = make_ipv6_frame(fields, extensions);
  CHECK_FALSE(parse_exact(frame, frame.size()).udp());
}

TEST_CASE("IPv6 versions and lengths that contradict themselves have no key", "[steering]") {
  auto frame = make_ipv6_frame({}, {{60}});
  SECTION("version 4 after the IPv6 EtherType") { frame[14] = 0x45; }
  SECTION("a length without UDP") { put16(frame, 18, 15); }
  SECTION("a length that ends in the extension headers") { put16(frame, 18, 7); }
  SECTION("no length (a jumbogram)") { put16(frame, 18, 0); }
  CHECK_FALSE(parse_exact(frame, frame.size()).udp());
}

TEST_CASE("more tags than are read hide what is behind them", "[steering]") {
  const auto frame = tagged(make_frame({}), std::vector<std::uint16_t>(5, 0x8100));
  CHECK_FALSE(parse_exact(frame, frame.size()).ipv4_udp);
}

TEST_CASE("the payload ends with the IPv4 packet, or where the frame was cut", "[steering]") {
  const auto frame = make_frame({});
  auto padded = frame;
  padded.resize(frame.size() + 20);
  CHECK(parse_exact(padded, padded.size()).payload_end == frame.size());
  CHECK(parse_exact(frame, frame.size() - 3).payload_end == frame.size() - 3);
}

TEST_CASE("an eCPRI frame gives type and id", "[steering]") {
  const std::vector<std::uint16_t> tags(GENERATE(0U, 1U, 2U), 0x8100);
  const auto frame = tagged(ecpri_frame(2, 0xBEEF), tags);
  const PacketKey key = parse_exact(frame, frame.size());
  CHECK(key.ecpri);
  CHECK_FALSE(key.ipv4_udp);
  CHECK(key.tags.all == tags.size());
  CHECK(key.ecpri_type == 2);
  CHECK(key.ecpri_has_id);
  CHECK(key.ecpri_id == 0xBEEF);
}

TEST_CASE("an eCPRI message has an id where its type and its length say so", "[steering]") {
  const auto has_id = [](const std::vector<std::uint8_t>& frame, std::size_t length) {
    const PacketKey key = parse_exact(frame, length);
    CHECK(key.ecpri == (length >= 18));
    return key.ecpri_has_id;
  };
  for (const int type : {0, 1, 2}) {
    const auto frame = ecpri_frame(static_cast<std::uint8_t>(type), 7);
    for (std::size_t length = 0; length <= frame.size(); ++length)
      CHECK(has_id(frame, length) == (length >= 20));
    const auto empty = ecpri_frame(static_cast<std::uint8_t>(type), 7, 1);
    CHECK_FALSE(has_id(empty, empty.size()));
  }
  auto generic = ecpri_frame(3, 7);
  CHECK_FALSE(has_id(generic, 21));
  CHECK(has_id(generic, 22));
  CHECK(parse_exact(generic, 22).ecpri_id == 0x70000);
  for (const int type : {4, 5, 255}) {
    const auto frame = ecpri_frame(static_cast<std::uint8_t>(type), 7);
    CHECK_FALSE(has_id(frame, frame.size()));
  }
}

TEST_CASE("a first fragment has a key", "[steering]") {
  FrameFields fields;
  SECTION("more fragments follow") { fields.fragment = 0x2000; }
  SECTION("don't fragment") { fields.fragment = 0x4000; }
  const auto frame = make_frame(fields);
  CHECK(parse_exact(frame, frame.size()).ipv4_udp);
}

TEST_CASE("IPv4 versions and lengths that contradict themselves have no key", "[steering]") {
  auto frame = make_frame({});
  SECTION("version 6 behind the IPv4 EtherType") { frame[14] = 0x65; }
  SECTION("total length without room for UDP") { put16(frame, 16, 27); }
  CHECK_FALSE(parse_exact(frame, frame.size()).ipv4_udp);
}

TEST_CASE("every prefix of a frame is parsed within its length", "[steering]") {
  FrameFields fields;
  fields.header_words = static_cast<std::uint8_t>(GENERATE(range(5, 16)));
  const auto frame = make_frame(fields);
  const std::size_t headers = 14U + fields.header_words * 4U + 8U;
  for (std::size_t length = 0; length <= frame.size(); ++length) {
    INFO("length " << length << " of " << frame.size());
    CHECK(parse_exact(frame, length).ipv4_udp == (length >= headers));
  }
}

TEST_CASE("random bytes never make the parser read beyond the frame", "[steering]") {
  std::mt19937 random(20260701);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint8_t> frame(random() % 120);
    for (auto& byte : frame) byte = static_cast<std::uint8_t>(random());
    // Similar enough to real frames to reach the later checks.
    if (frame.size() > 14) {
      constexpr std::uint16_t TYPES[] = {0x0800, 0x0800, 0xAEFE, 0x86DD};
      const std::uint16_t type = TYPES[random() % 4];
      put16(frame, 12, type);
      frame[14] = static_cast<std::uint8_t>((type == 0x86DD ? 0x60U : 0x40U) | (random() & 0x0FU));
      constexpr std::uint8_t KINDS[] = {17, 0, 43, 44, 60};
      if (type == 0x86DD) {
        for (std::size_t at = 20; at < frame.size(); at += at == 20 ? 34 : 8) {
          frame[at] = KINDS[random() % 5];
          if (at + 1 < frame.size()) frame[at + 1] = random() % 2;
        }
        if (frame.size() > 18) frame[18] = 0;
      }
    }
    if (frame.size() > 23 && frame[12] == 0x08) frame[23] = 17;
    if (frame.size() > 14 && random() % 2 == 0)
      frame = tagged(frame, std::vector<std::uint16_t>(random() % 6, 0x8100));
    const PacketKey key = parse_exact(frame, frame.size());
    if (!key.udp()) continue;
    REQUIRE(key.payload_at >= 42U + 4U * key.tags.all);
    REQUIRE(key.payload_at <= key.payload_end);
    REQUIRE(key.payload_end <= frame.size());
  }
}

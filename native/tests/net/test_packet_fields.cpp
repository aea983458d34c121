#include <algorithm>
#include <random>

#include "net/headers.h"
#include "storage/bursts.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t LINK_TYPES[] = {1, 101, 113, 228, 229, 276, 147};

/// Ethernet, one VLAN tag, IPv6, hop-by-hop options, an atomic fragment header, TCP, 5 bytes.
Bytes tagged_ipv6() {
  Bytes frame(12, 0x11);
  const auto append = [&](std::initializer_list<int> bytes) {
    for (const int byte : bytes) frame.push_back(static_cast<std::uint8_t>(byte));
  };
  append({0x88, 0xA8, 0xF1, 0x23, 0x86, 0xDD});
  append({0x60, 0, 0, 0, 0, 41, 0, 33});
  frame.resize(frame.size() + 32, 0x22);
  append({44, 0, 0, 0, 0, 0, 0, 0});
  append({6, 0, 0, 0, 1, 2, 3, 4});
  append({0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 0, 0, 0, 0, 0x51, 0x02, 0, 0, 0, 0, 0, 0});
  append({'h', 'e', 'l', 'l', 'o'});
  return frame;
}

}  // namespace

TEST_CASE("Fields behind tags and extension headers", "[storage][fields]") {
  Bytes frame = tagged_ipv6();
  const auto size = static_cast<std::uint32_t>(frame.size());
  const PacketFields fields = parse_packet(frame.data(), size, 1);
  CHECK(fields.eth_type == 0x86DD);
  CHECK(fields.vlan == 0x123);
  CHECK(fields.ip_version == 6);
  CHECK(fields.ip_protocol == 6);
  CHECK(fields.ip_ttl == 33);
  CHECK(fields.ip_length == 81);
  CHECK(fields.transport == 6);
  CHECK(fields.src_port == 0x1234);
  CHECK(fields.dst_port == 0x5678);
  CHECK(fields.tcp_seq == 0x01020304);
  CHECK(fields.tcp_flags == 0x102);
  CHECK(fields.payload_length == 5);
  CHECK(fields.payload_at == size - 5);

  SECTION("a later fragment has no ports") {
    frame[18 + 40 + 8 + 3] = 8;
    const PacketFields later = parse_packet(frame.data(), size, 1);
    CHECK(later.ip_protocol == 6);
    CHECK(later.transport == 0);
    CHECK(later.src_port == 0);
    CHECK(later.payload_length == 25);
  }
  SECTION("padding is no payload") {
    frame.resize(frame.size() + 20);
    CHECK(parse_packet(frame.data(), size + 20, 1).payload_length == 5);
  }
  SECTION("cut anywhere") {
    for (std::uint32_t cut = 0; cut < size; ++cut) {
      const Bytes exact(frame.begin(), frame.begin() + cut);
      const PacketFields less = parse_packet(exact.data(), cut, 1);
      if (less.payload_at + less.payload_length > cut) FAIL("cut at " << cut);
      if (cut < size - 25 && less.transport != 0) FAIL("cut at " << cut);
    }
  }
}

TEST_CASE("Any bytes are taken apart within themselves", "[storage][fields][property]") {
  std::mt19937 random(20'252);
  const Bytes whole = tagged_ipv6();
  for (int round = 0; round < 100'000; ++round) {
    Bytes packet = whole;
    if (round % 2 == 0) packet.erase(packet.begin(), packet.begin() + 18);
    for (unsigned m = random() % 6; m > 0; --m)
      packet[random() % packet.size()] = static_cast<std::uint8_t>(random());
    packet.resize(random() % (packet.size() + 1));
    // The exact size, so that a sanitizer detects reads beyond the end.
    const Bytes exact(packet.begin(), packet.end());
    const std::uint32_t type = LINK_TYPES[random() % std::size(LINK_TYPES)];
    const PacketFields fields =
        parse_packet(exact.data(), static_cast<std::uint32_t>(exact.size()), type);
    if (std::size_t{fields.payload_at} + fields.payload_length > exact.size())
      FAIL("round " << round);
    if (!has_fields(type) && fields.payload_length != exact.size()) FAIL("round " << round);
  }
  SUCCEED();
}

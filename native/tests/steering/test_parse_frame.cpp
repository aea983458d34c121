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

/// On the heap at its exact size, so that the address sanitizer sees a read beyond it.
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

TEST_CASE("anything but untagged IPv4/UDP with its UDP header has no key", "[steering]") {
  const auto refused = [](const FrameFields& fields) {
    const auto frame = make_frame(fields);
    return !parse_exact(frame, frame.size()).ipv4_udp;
  };
  FrameFields fields;
  SECTION("tagged") { fields.ethertype = 0x8100; }
  SECTION("IPv6") { fields.ethertype = 0x86DD; }
  SECTION("TCP") { fields.protocol = 6; }
  SECTION("header shorter than 20 bytes") { fields.header_words = 4; }
  SECTION("second fragment") { fields.fragment = 1; }
  SECTION("last fragment") { fields.fragment = 0x1FFF; }
  CHECK(refused(fields));
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
    // Enough likeness that the deeper checks are reached.
    if (frame.size() > 14) {
      frame[12] = 0x08;
      frame[13] = 0x00;
      frame[14] = static_cast<std::uint8_t>(0x40U | (random() & 0x0FU));
    }
    if (frame.size() > 23) frame[23] = 17;
    const PacketKey key = parse_exact(frame, frame.size());
    if (key.ipv4_udp) REQUIRE(frame.size() >= 14U + (frame[14] & 0x0FU) * 4U + 8U);
  }
}

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

#include "frames.h"
#include "io/session_memory.h"
#include "net/headers.h"
#include "steering/classifier.h"

using namespace daqiri;
using namespace daqiri::steering;

namespace {

/// A transmit burst of one packet with one buffer per segment, filled with 0xAA.
struct OnePacket {
  explicit OnePacket(const std::vector<std::uint32_t>& sizes)
      : memory(std::make_shared<SessionMemory>()), segments(static_cast<int>(sizes.size())) {
    memory->tx_pool = std::make_unique<BurstPool>(1, 1, segments, true);
    burst = memory->tx_pool->take();
    for (int s = 0; s < segments; ++s) {
      MemoryRegionConfig config;
      config.name_ = "segment" + std::to_string(s);
      config.num_bufs_ = 1;
      config.buf_size_ = sizes[static_cast<std::size_t>(s)];
      auto& region = memory->regions[config.name_];
      region = memory::MemoryRegion::allocate(config);
      region->take(burst->buffers[s], 1);
      burst->owners[s] = region.get();
      burst->pkts[s][0] = region->address(burst->buffers[s][0]);
      burst->pkt_lens[s][0] = 0;
      std::memset(burst->pkts[s][0], 0xAA, sizes[static_cast<std::size_t>(s)]);
    }
    burst->owned = 1;
    burst->hdr.hdr.num_pkts = 1;
  }
  OnePacket(const OnePacket&) = delete;
  OnePacket& operator=(const OnePacket&) = delete;
  ~OnePacket() { burst->release(); }

  std::shared_ptr<SessionMemory> memory;
  int segments;
  Burst* burst;
};

constexpr MacAddress DESTINATION{0xDA, 1, 2, 3, 4, 5};
constexpr MacAddress SOURCE{0x02, 6, 7, 8, 9, 10};

/// The simplest form of RFC 1071: big-endian words, an odd byte is padded.
std::uint16_t plain_sum(const std::vector<std::uint8_t>& bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    sum += static_cast<std::uint32_t>(bytes[i]) << 8U | (i + 1 < bytes.size() ? bytes[i + 1] : 0U);
    sum = (sum & 0xFFFFU) + (sum >> 16U);
  }
  return static_cast<std::uint16_t>(sum);
}

std::vector<std::uint8_t> bytes_of(const PacketBytes& packet, std::uint32_t offset,
                                   std::uint32_t size) {
  std::vector<std::uint8_t> bytes(size);
  packet.read(offset, bytes.data(), size);
  return bytes;
}

/// The check of a receiver: pseudo header and datagram sum up to all ones.
bool udp_checksum_holds(const PacketBytes& packet, std::uint32_t payload) {
  auto bytes = bytes_of(packet, 26, 8);
  const auto datagram = bytes_of(packet, UDP_AT, UDP_SIZE + payload);
  bytes.insert(bytes.end(), {0, 17, datagram[4], datagram[5]});
  bytes.insert(bytes.end(), datagram.begin(), datagram.end());
  return plain_sum(bytes) == 0xFFFF;
}

bool write_all(PacketBytes& packet, const std::vector<std::uint8_t>& payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  return write_ethernet(packet, DESTINATION, SOURCE) &&
         write_ipv4(packet, {UDP_SIZE + size, 17, 0x0A000001, 0x0A000002, 0x1234}) &&
         write_udp(packet, {size, 4000, 5000}) && write_udp_payload(packet, payload.data(), size);
}

std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  return bytes;
}

}  // namespace

TEST_CASE("headers fill every field of a recycled buffer", "[headers]") {
  OnePacket one({256});
  PacketBytes packet(*one.burst, 0);
  const auto payload = counting(100);
  REQUIRE(write_all(packet, payload));
  const auto frame = bytes_of(packet, 0, 142);
  const std::vector<std::uint8_t> ethernet{0xDA, 1, 2, 3, 4, 5, 0x02, 6, 7, 8, 9, 10, 0x08, 0x00};
  CHECK(std::vector<std::uint8_t>(frame.begin(), frame.begin() + 14) == ethernet);
  const std::vector<std::uint8_t> ipv4{0x45, 0, 0, 128, 0x12, 0x34, 0x40, 0, 64, 17};
  CHECK(std::vector<std::uint8_t>(frame.begin() + 14, frame.begin() + 24) == ipv4);
  CHECK(plain_sum(bytes_of(packet, IPV4_AT, IPV4_SIZE)) == 0xFFFF);
  CHECK(udp_checksum_holds(packet, 100));
  CHECK(std::vector<std::uint8_t>(frame.begin() + 42, frame.end()) == payload);

  const PacketKey key = parse_frame(frame.data(), 142);
  CHECK(key.ipv4_udp);
  CHECK(key.ipv4_len == 128);
  CHECK(key.ipv4_src == 0x0A000001);
  CHECK(key.ipv4_dst == 0x0A000002);
  CHECK(key.udp_src == 4000);
  CHECK(key.udp_dst == 5000);
}

TEST_CASE("the UDP checksum is none until the payload is there", "[headers]") {
  OnePacket one({256});
  PacketBytes packet(*one.burst, 0);
  const auto checksum = [&] { return bytes_of(packet, UDP_AT + 6, 2); };
  const std::vector<std::uint8_t> none{0, 0};
  const auto payload = counting(50);
  REQUIRE(write_all(packet, payload));
  CHECK(checksum() != none);
  SECTION("a new IPv4 header voids it") {
    REQUIRE(write_ipv4(packet, {58, 17, 1, 2, 3}));
    CHECK(checksum() == none);
  }
  SECTION("a new UDP header voids it") {
    REQUIRE(write_udp(packet, {50, 1, 2}));
    CHECK(checksum() == none);
  }
  SECTION("a payload of another length than announced leaves none") {
    REQUIRE(write_udp(packet, {51, 1, 2}));
    REQUIRE(write_udp_payload(packet, payload.data(), 50));
    CHECK(checksum() == none);
  }
  SECTION("a payload written in place is covered on request") {
    REQUIRE(write_udp(packet, {50, 1, 2}));
    auto* place = static_cast<std::uint8_t*>(one.burst->pkts[0][0]) + HEADERS_SIZE;
    std::memset(place, 0x77, 50);
    REQUIRE(write_udp_payload(packet, place, 50));
    CHECK(place[0] == 0x77);
    CHECK(udp_checksum_holds(packet, 50));
  }
  SECTION("other protocols keep the bytes behind IPv4") {
    const auto before = checksum();
    REQUIRE(write_ipv4(packet, {58, 6, 1, 2, 3}));
    CHECK(checksum() == before);
  }
}

TEST_CASE("a UDP checksum that computes to 0 is sent as all ones", "[headers]") {
  OnePacket one({64});
  PacketBytes packet(*one.burst, 0);
  std::vector<std::uint8_t> payload{0, 0};
  REQUIRE(write_all(packet, payload));
  // With the checksum as payload, the sum of everything else is all ones.
  payload = bytes_of(packet, UDP_AT + 6, 2);
  REQUIRE(write_all(packet, payload));
  CHECK(bytes_of(packet, UDP_AT + 6, 2) == std::vector<std::uint8_t>{0xFF, 0xFF});
}

TEST_CASE("any split over segments gives the same bytes", "[headers]") {
  const auto payload = counting(201);
  const std::uint32_t total = HEADERS_SIZE + 201;
  OnePacket whole({512});
  PacketBytes one(*whole.burst, 0);
  REQUIRE(write_all(one, payload));
  const auto expected = bytes_of(one, 0, total);
  for (std::uint32_t first = 1; first < total; first += 7) {
    for (std::uint32_t second = 1; first + second < total; second += 31) {
      OnePacket split({512, 512, 512});
      split.burst->pkt_lens[0][0] = first;
      split.burst->pkt_lens[1][0] = second;
      split.burst->pkt_lens[2][0] = total - first - second;
      PacketBytes packet(*split.burst, 0);
      REQUIRE(write_all(packet, payload));
      INFO("segments end at " << first << " and " << first + second);
      REQUIRE(bytes_of(packet, 0, total) == expected);
      REQUIRE(std::memcmp(split.burst->pkts[0][0], expected.data(), first) == 0);
      REQUIRE(std::memcmp(split.burst->pkts[1][0], expected.data() + first, second) == 0);
    }
  }
}

TEST_CASE("before lengths are set, the first of several segments holds the headers", "[headers]") {
  OnePacket one({128, 512});
  PacketBytes packet(*one.burst, 0);
  CHECK(packet.capacity() == 128 + 512);
  const auto payload = counting(300);
  REQUIRE(write_all(packet, payload));
  CHECK(std::memcmp(one.burst->pkts[1][0], payload.data(), payload.size()) == 0);
  CHECK(static_cast<const std::uint8_t*>(one.burst->pkts[0][0])[HEADERS_SIZE] == 0xAA);
}

TEST_CASE("a packet may fill all of its buffers, whatever its headers leave of the first",
          "[headers]") {
  constexpr std::uint32_t FIRST = 64;
  constexpr std::uint32_t SECOND = 1000;
  constexpr std::uint32_t ROOM = FIRST + SECOND - HEADERS_SIZE;
  OnePacket one({FIRST, SECOND});
  PacketBytes packet(*one.burst, 0);
  CHECK_FALSE(write_ipv4(packet, {UDP_SIZE + ROOM + 1, 17, 1, 2, 3}));
  REQUIRE(write_ipv4(packet, {UDP_SIZE + ROOM, 17, 1, 2, 3}));
  CHECK_FALSE(write_udp(packet, {ROOM + 1, 1, 2}));
  REQUIRE(write_udp(packet, {ROOM, 1, 2}));
  const auto payload = counting(ROOM);
  CHECK_FALSE(write_udp_payload(packet, payload.data(), ROOM + 1));
  REQUIRE(write_udp_payload(packet, payload.data(), ROOM));
  CHECK(udp_checksum_holds(packet, ROOM));
  constexpr std::uint32_t BEHIND = FIRST - HEADERS_SIZE;
  const auto* first = static_cast<const std::uint8_t*>(one.burst->pkts[0][0]);
  CHECK(std::memcmp(first + HEADERS_SIZE, payload.data(), BEHIND) == 0);
  CHECK(std::memcmp(one.burst->pkts[1][0], payload.data() + BEHIND, SECOND) == 0);

  // If lengths are set, the first segment ends at its length.
  one.burst->pkt_lens[0][0] = HEADERS_SIZE;
  one.burst->pkt_lens[1][0] = SECOND;
  PacketBytes set(*one.burst, 0);
  CHECK(write_udp(set, {ROOM, 1, 2}));
  CHECK_FALSE(write_udp_payload(set, payload.data(), SECOND + 1));
  CHECK(write_udp_payload(set, payload.data(), SECOND));
  CHECK(std::memcmp(one.burst->pkts[1][0], payload.data(), SECOND) == 0);
  // Too short for the headers.
  one.burst->pkt_lens[0][0] = 10;
  one.burst->pkt_lens[1][0] = 10;
  OnePacket cramped({FIRST, 20});
  cramped.burst->pkt_lens[0][0] = 10;
  PacketBytes short_packet(*cramped.burst, 0);
  CHECK_FALSE(write_udp(short_packet, {0, 1, 2}));
}

TEST_CASE("what does not fit is refused and writes nothing", "[headers]") {
  OnePacket one({100});
  PacketBytes packet(*one.burst, 0);
  const auto untouched = bytes_of(packet, 0, 100);
  const auto payload = counting(59);
  CHECK_FALSE(write_ipv4(packet, {67, 17, 1, 2, 3}));
  CHECK_FALSE(write_ipv4(packet, {0xFFFFFFFF, 17, 1, 2, 3}));
  CHECK_FALSE(write_udp(packet, {59, 1, 2}));
  CHECK_FALSE(write_udp_payload(packet, payload.data(), 59));
  CHECK(bytes_of(packet, 0, 100) == untouched);
  CHECK(write_ipv4(packet, {66, 17, 1, 2, 3}));
  CHECK(write_udp(packet, {58, 1, 2}));
  CHECK(write_udp_payload(packet, payload.data(), 58));

  OnePacket tiny({13});
  PacketBytes small(*tiny.burst, 0);
  CHECK_FALSE(write_ethernet(small, DESTINATION, SOURCE));
  CHECK_FALSE(write_ipv4(small, {0, 17, 1, 2, 3}));

  OnePacket jumbo({80000});
  PacketBytes large(*jumbo.burst, 0);
  CHECK(write_ipv4(large, {65515, 17, 1, 2, 3}));
  CHECK_FALSE(write_ipv4(large, {65516, 17, 1, 2, 3}));
  CHECK(write_udp(large, {65507, 1, 2}));
  CHECK_FALSE(write_udp(large, {65508, 1, 2}));
}

TEST_CASE("a packet without headers is its payload", "[headers]") {
  OnePacket one({16, 16});
  one.burst->pkt_lens[0][0] = 16;
  PacketBytes packet(*one.burst, 0);
  const auto payload = counting(32);
  CHECK(write_bare_payload(packet, payload.data(), 32));
  CHECK(bytes_of(packet, 0, 32) == payload);
  CHECK_FALSE(write_bare_payload(packet, payload.data(), 33));
}

TEST_CASE("pieces of any length sum up like the whole", "[headers]") {
  std::mt19937 random(99);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint8_t> bytes(random() % 300);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    Checksum checksum;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min<std::size_t>(bytes.size() - at, random() % 9);
      checksum.add(bytes.data() + at, n);
      at += n;
    }
    REQUIRE(checksum.value() == static_cast<std::uint16_t>(~plain_sum(bytes)));
  }
}

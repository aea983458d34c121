// Frames as they are in a kernel's ring, with what their sender left to the network card.
#include <linux/if_packet.h>

#include <catch2/catch.hpp>

#include <cstring>
#include <numeric>
#include <vector>

#include "engines/packet/card_timestamps.h"
#include "engines/packet/ring_frame.h"
#include "frames.h"
#include "net/headers.h"

namespace daqiri::packet {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t MAC_AT = 128;
constexpr std::uint8_t UDP_L4 = 5;
constexpr std::uint8_t TCP_IPV4 = 1;
constexpr std::uint8_t TCP_IPV6 = 4;

/// A frame in a ring: its header, and before the frame what was left to the card.
class Slot {
 public:
  explicit Slot(const Bytes& frame, const Offload& offload = {})
      : words_((MAC_AT + frame.size()) / 8 + 2) {
    head().tp_mac = MAC_AT;
    head().tp_snaplen = head().tp_len = static_cast<std::uint32_t>(frame.size());
    head().tp_sec = 5;
    head().tp_nsec = 7;
    if (offload.flags != 0) head().tp_status = TP_STATUS_CSUMNOTREADY;
    std::memcpy(at() + MAC_AT - sizeof offload, &offload, sizeof offload);
    std::memcpy(at() + MAC_AT, frame.data(), frame.size());
  }
  std::byte* at() { return reinterpret_cast<std::byte*>(words_.data()); }
  tpacket3_hdr& head() { return *reinterpret_cast<tpacket3_hdr*>(at()); }

 private:
  std::vector<std::uint64_t> words_;
};

Bytes bytes_of(const Frame& frame) {
  Bytes bytes(frame.length);
  FrameCopy(frame).take(bytes.data(), frame.length);
  return bytes;
}

std::uint16_t sum(std::uint32_t sum, const std::uint8_t* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) sum += i % 2 == 0 ? data[i] * 256U : data[i];
  while (sum >> 16U != 0) sum = (sum & 0xFFFFU) + (sum >> 16U);
  return static_cast<std::uint16_t>(sum);
}

/// The sum of the pseudo header of the packet whose IP header is at `ip`.
std::uint16_t pseudo_sum(const Bytes& frame, std::size_t ip, std::size_t transport) {
  const bool ipv4 = frame[ip] >> 4U == 4;
  const std::uint8_t protocol = frame[ip + (ipv4 ? 9 : 6)];
  const auto size = static_cast<std::uint32_t>(frame.size() - transport);
  return sum(protocol + size, frame.data() + ip + (ipv4 ? 12 : 8), ipv4 ? 8 : 32);
}

bool checksum_is_right(const Bytes& frame, std::size_t ip, std::size_t transport) {
  const std::uint16_t pseudo = pseudo_sum(frame, ip, transport);
  return sum(pseudo, frame.data() + transport, frame.size() - transport) == 0xFFFF;
}

struct Kind {
  bool ipv6;
  bool tcp;
  bool tagged;
};

/// A frame of the kind with `payload` bytes, and where its headers are.
struct Made {
  Bytes frame;
  std::size_t ip{14};
  std::size_t transport{0};
  std::size_t payload{0};
};

Made make(const Kind& kind, std::uint16_t payload) {
  test::FrameFields fields;
  fields.protocol = kind.tcp ? 6 : 17;
  fields.payload = static_cast<std::uint16_t>(payload + (kind.tcp ? 24 : 0));
  Made made{kind.ipv6 ? test::make_ipv6_frame(fields) : test::make_frame(fields)};
  if (kind.tagged) {
    const std::uint8_t tag[] = {0x81, 0, 0, 5};
    made.frame.insert(made.frame.begin() + 12, tag, tag + 4);
    made.ip += 4;
  }
  made.transport = made.ip + (kind.ipv6 ? 40 : 20);
  made.payload = made.transport + 8;
  if (kind.tcp) {
    made.payload = made.transport + 32;  // with options
    made.frame[made.transport + 12] = 0x80;
    made.frame[made.transport + 13] = 0x80 | 0x10 | 0x08 | 0x01;
    test::put32(made.frame, made.transport + 4, 0xFFFFFFF0);
  }
  if (!kind.ipv6) test::put16(made.frame, made.ip + 4, 0xFFFF);
  std::iota(made.frame.begin() + static_cast<std::ptrdiff_t>(made.payload), made.frame.end(), 0);
  const std::size_t field = made.transport + (kind.tcp ? 16 : 6);
  test::put16(made.frame, field, pseudo_sum(made.frame, made.ip, made.transport));
  return made;
}

Offload left_to_card(const Kind& kind, const Made& made, std::uint16_t piece) {
  const std::uint8_t tcp = kind.ipv6 ? TCP_IPV6 : TCP_IPV4;
  return {.flags = Offload::NEEDS_CHECKSUM,
          .kind = piece == 0 ? std::uint8_t{0}
                  : kind.tcp ? tcp
                             : UDP_L4,
          .header_bytes = static_cast<std::uint16_t>(made.payload),
          .piece_bytes = piece,
          .checksum_start = static_cast<std::uint16_t>(made.transport),
          .checksum_field = static_cast<std::uint16_t>(kind.tcp ? 16 : 6)};
}

/// The frame without its tag, as the kernel takes it out.
Bytes untagged(Bytes frame) {
  frame.erase(frame.begin() + 12, frame.begin() + 16);
  return frame;
}

}  // namespace

TEST_CASE("A frame in the ring is as it was on the wire", "[packet][ring]") {
  const Bytes wire = test::make_frame({});
  Slot slot(wire);
  const RingFrame found = read_frame(slot.at(), true);
  REQUIRE(bytes_of(found.frame) == wire);
  REQUIRE(found.frame.wire_length == wire.size());
  REQUIRE(found.frame.time == 5'000'000'007);
  REQUIRE_FALSE(found.frame.checksum_open);
}

TEST_CASE("The ring tells which times are those of the card", "[packet][ring]") {
  Slot slot(test::make_frame({}));
  const std::uint32_t status =
      GENERATE(std::uint32_t{0}, std::uint32_t{TP_STATUS_TS_SOFTWARE},
               std::uint32_t{TP_STATUS_TS_RAW_HARDWARE},
               std::uint32_t{TP_STATUS_TS_RAW_HARDWARE | TP_STATUS_CSUM_VALID});
  slot.head().tp_status = status;
  const RingFrame found = read_frame(slot.at(), true);
  REQUIRE(found.card_time == ((status & TP_STATUS_TS_RAW_HARDWARE) != 0));
  REQUIRE(found.frame.time == 5'000'000'007);
}

TEST_CASE("Clocks may differ by whole seconds", "[packet]") {
  constexpr std::int64_t S = 1'000'000'000;
  REQUIRE(whole_seconds(0) == 0);
  REQUIRE(whole_seconds(37 * S) == 37 * S);
  REQUIRE(whole_seconds(37 * S - 400) == 37 * S);
  REQUIRE(whole_seconds(37 * S + 400'000) == 37 * S);
  REQUIRE(whole_seconds(-37 * S + 400) == -37 * S);
  REQUIRE(whole_seconds(-400) == 0);
}

TEST_CASE("A tag that the kernel took out is restored", "[packet][ring]") {
  const Made made = make({false, false, true}, 10);
  Slot slot(untagged(made.frame));
  slot.head().tp_status = TP_STATUS_VLAN_VALID;
  slot.head().hv1.tp_vlan_tci = 5;
  if (GENERATE(false, true)) {
    slot.head().tp_status |= TP_STATUS_VLAN_TPID_VALID;
    slot.head().hv1.tp_vlan_tpid = 0x8100;
  }
  const RingFrame found = read_frame(slot.at(), true);
  REQUIRE(bytes_of(found.frame) == made.frame);
  REQUIRE(found.frame.wire_length == made.frame.size());
}

TEST_CASE("A checksum that was left to the card is computed", "[packet][ring]") {
  const Kind kind{GENERATE(false, true), GENERATE(false, true), GENERATE(false, true)};
  const std::uint16_t payload = GENERATE(1, 2, 1471);
  const Made made = make(kind, payload);
  Offload offload = left_to_card(kind, made, 0);
  if (kind.tagged) offload.checksum_start = static_cast<std::uint16_t>(made.transport - 4);
  Slot slot(kind.tagged ? untagged(made.frame) : made.frame, offload);
  if (kind.tagged) {
    slot.head().tp_status |= TP_STATUS_VLAN_VALID;
    slot.head().hv1.tp_vlan_tci = 5;
  }
  RingFrame found = read_frame(slot.at(), true);
  REQUIRE(found.frame.checksum_open);
  REQUIRE_FALSE(CutFrame().begin(found));
  REQUIRE_FALSE(checksum_is_right(bytes_of(found.frame), made.ip, made.transport));
  complete_checksum(found);
  REQUIRE(checksum_is_right(bytes_of(found.frame), made.ip, made.transport));
}

TEST_CASE("A checksum outside the frame, of one cut off, or of another kind stays",
          "[packet][ring]") {
  const Kind kind{};
  const Made made = make(kind, 100);
  Offload offload = left_to_card(kind, made, 0);
  SECTION("CRC32c of SCTP") { offload.checksum_field = 8; }
  SECTION("outside") { offload.checksum_start = 0xFFF0; }
  SECTION("at the end") {
    offload.checksum_start = static_cast<std::uint16_t>(made.frame.size() - 7);
  }
  Slot slot(made.frame, offload);
  SECTION("cut off") { slot.head().tp_snaplen -= 1; }
  SECTION("ready") { slot.head().tp_status = 0; }
  REQUIRE_FALSE(read_frame(slot.at(), true).frame.checksum_open);
}

TEST_CASE("Packets that were left together are cut", "[packet][ring]") {
  const Kind kind{GENERATE(false, true), GENERATE(false, true), GENERATE(false, true)};
  // Less than the beginning that is copied, and more; the last one shorter, of one byte, as long.
  const auto [payload, piece] =
      GENERATE(std::pair<int, int>{1000, 300}, std::pair<int, int>{9001, 3000},
               std::pair<int, int>{600, 200}, std::pair<int, int>{5, 1});
  const Made made = make(kind, static_cast<std::uint16_t>(payload));
  Slot slot(made.frame, left_to_card(kind, made, static_cast<std::uint16_t>(piece)));
  const RingFrame whole = read_frame(slot.at(), true);
  CutFrame cut;
  REQUIRE(cut.begin(whole));
  Bytes joined;
  for (std::uint32_t i = 0; cut.active(); ++i, cut.next()) {
    REQUIRE(cut.frame().checksum_open);
    cut.complete_checksum();
    const Frame frame = cut.frame();
    REQUIRE_FALSE(frame.rest.empty());
    REQUIRE(frame.time == whole.frame.time);
    const Bytes bytes = bytes_of(frame);
    const std::size_t data = bytes.size() - made.payload;
    const bool last = joined.size() + data == static_cast<std::size_t>(payload);
    REQUIRE((data == static_cast<std::size_t>(piece) || last));
    REQUIRE(checksum_is_right(bytes, made.ip, made.transport));
    if (kind.ipv6) {
      REQUIRE(load_be16(bytes.data() + made.ip + 4) == bytes.size() - made.transport);
    } else {
      REQUIRE(load_be16(bytes.data() + made.ip + 2) == bytes.size() - made.ip);
      REQUIRE(load_be16(bytes.data() + made.ip + 4) == (0xFFFF + i) % 0x10000);
      REQUIRE(sum(0, bytes.data() + made.ip, 20) == 0xFFFF);
    }
    const std::uint8_t* transport = bytes.data() + made.transport;
    if (kind.tcp) {
      REQUIRE(load_be32(transport + 4) == static_cast<std::uint32_t>(0xFFFFFFF0 + joined.size()));
      REQUIRE(transport[13] == (0x10 | (i == 0 ? 0x80 : 0) | (last ? 0x09 : 0)));
    } else {
      REQUIRE(load_be16(transport + 4) == 8 + data);
    }
    joined.insert(joined.end(), bytes.begin() + static_cast<std::ptrdiff_t>(made.payload),
                  bytes.end());
  }
  REQUIRE(joined ==
          Bytes(made.frame.begin() + static_cast<std::ptrdiff_t>(made.payload), made.frame.end()));
}

TEST_CASE("A frame that cannot be cut stays whole", "[packet][ring]") {
  Kind kind{};
  Made made = make(kind, 1000);
  Offload offload = left_to_card(kind, made, 100);
  SECTION("in a tunnel") {
    offload.checksum_start = static_cast<std::uint16_t>(made.transport + 50);
  }
  SECTION("of another protocol") { made.frame[made.ip + 9] = 47; }
  SECTION("not IP") { test::put16(made.frame, 12, 0x88B5); }
  SECTION("of a kind to come") { offload.kind = 9; }
  SECTION("without a size") { offload.piece_bytes = 0; }
  SECTION("its checksum is done") { offload.flags = 0; }
  SECTION("headers only") { made.frame.resize(made.payload); }
  SECTION("before the IP header") { offload.checksum_start = 2; }
  SECTION("a TCP header without a length") { offload.kind = TCP_IPV4; }
  Slot slot(made.frame, offload);
  CutFrame cut;
  REQUIRE_FALSE(cut.begin(read_frame(slot.at(), true)));
  REQUIRE_FALSE(cut.active());
}

}  // namespace daqiri::packet

// Fields, positions and payloads of packets.
#include <catch2/catch.hpp>

#include <random>
#include <vector>

#include "reorder/plan.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

bool bit(const std::vector<std::uint8_t>& bytes, std::uint32_t at) {
  return (bytes[at / 8] >> (7U - at % 8) & 1U) != 0;
}

bool located(const Plan& plan, const std::vector<std::uint8_t>& packet, std::uint32_t length,
             Place& place, std::uint32_t flow = 0) {
  return plan.locate(packet.data(), length, flow, place) == Located::IN_BATCH;
}

}  // namespace

TEST_CASE("a field is its bits, at any place", "[reorder]") {
  std::mt19937 random(3);
  std::vector<std::uint8_t> bytes(32);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  std::size_t wrong = 0;
  for (std::uint32_t base = 0; base < 6; ++base) {
    for (std::uint32_t offset = 0; offset < 100; ++offset) {
      for (std::uint32_t width = 1; width <= 64 - offset % 8; ++width) {
        ReorderBitFieldConfig config{offset, width};
        config.base_ = ReorderBase::UDP_PAYLOAD;
        std::uint64_t expected = 0;
        for (std::uint32_t i = 0; i < width; ++i)
          expected = expected * 2 + (bit(bytes, base * 8 + offset + i) ? 1 : 0);
        const Field field(config);
        wrong += field.read(bytes.data(), base) == expected ? 0 : 1;
        wrong += field.end(base) == base + (offset + width + 7) / 8 ? 0 : 1;
        if (offset % 8 != 0 || width % 8 != 0) continue;
        config.byte_order_ = ReorderByteOrder::LITTLE;
        std::uint64_t little = 0;
        for (std::uint32_t i = 0; i < width / 8; ++i)
          little |= std::uint64_t{bytes[base + offset / 8 + i]} << (8 * i);
        wrong += Field(config).read(bytes.data(), base) == little ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the documented methods", "[reorder]") {
  std::vector<std::uint8_t> packet(100);
  packet[64] = 0x12;
  packet[65] = 0x34;
  packet[66] = 0x56;
  packet[67] = 0x78;
  packet[68] = 0x9A;
  ReorderConfig config;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 70;
  Place place{};
  SECTION("sequence number, packets per batch") {
    config.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
    config.seq_packets_per_batch_ = {{512, 32}, 1024};
    const Plan plan(config, PacketKind::FRAMES);
    REQUIRE(located(plan, packet, 100, place));
    CHECK(place.batch == 0x12345678U / 1024);
    CHECK(place.slot == 0x12345678U % 1024);
    CHECK(plan.units() == 1024);
    CHECK(plan.batch_mask() == (1U << 22U) - 1);
    CHECK(plan.window() == 2);
  }
  SECTION("sequence number, batch number") {
    config.method_ = ReorderMethod::SEQ_BATCH_NUMBER;
    config.seq_batch_number_ = {{512, 32}, {544, 4}, 1U << 28U};
    const Plan plan(config, PacketKind::FRAMES);
    REQUIRE(located(plan, packet, 100, place));
    CHECK(place.batch == 9);
    CHECK(place.slot == 0x2345678);
  }
  CHECK(place.payload_at == 70);
  CHECK(place.payload_bytes == 30);
}

TEST_CASE("open batches have different numbers", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.flow_ids_ = {1};
  config.batch_packet_number_ = {{0, 8}, {8, 8}, 4};
  const auto window = [&config](std::uint64_t step) {
    config.batch_packet_number_.batch_number_.step_ = step;
    return Plan(config, PacketKind::PAYLOADS).window();
  };
  CHECK(window(1) == 2);
  CHECK(window(64) == 2);
  CHECK(window(128) == 1);
  CHECK(window(0) == 2);
}

TEST_CASE("byte offsets may be any that fit the batch", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_BYTE_OFFSET;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 4;
  config.batch_byte_offset_ = {{0, 16}, {16, 16}, 100};
  config.data_types_ = {ReorderDataType::INT16, ReorderDataType::FP32, ReorderEndianness::HOST};
  const Plan plan(config, PacketKind::PAYLOADS);
  CHECK(plan.units() == 50);
  CHECK(plan.output_bytes(100) == 200);
  std::vector<std::uint8_t> packet(4 + 20);
  Place place{};
  packet[3] = 80;
  REQUIRE(located(plan, packet, 24, place));
  CHECK(place.slot == 80);
  CHECK_FALSE(located(plan, packet, 23, place));
  packet[3] = 81;
  CHECK_FALSE(located(plan, packet, 24, place));
  packet[3] = 82;
  CHECK_FALSE(located(plan, packet, 24, place));
  CHECK(located(plan, packet, 22, place));
}

TEST_CASE("offsets from the UDP payload need a UDP packet", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
  config.flow_ids_ = {1};
  config.payload_base_ = ReorderBase::UDP_PAYLOAD;
  config.payload_byte_offset_ = 4;
  config.seq_packets_per_batch_ = {{0, 32}, 8};
  config.seq_packets_per_batch_.sequence_number_.base_ = ReorderBase::UDP_PAYLOAD;
  std::vector<std::uint8_t> payload{0, 0, 0, 21, 7, 7, 7};
  Place place{};
  const Plan bare(config, PacketKind::PAYLOADS);
  REQUIRE(located(bare, payload, 7, place));
  CHECK(place.batch == 2);
  CHECK(place.slot == 5);
  CHECK(place.payload_at == 4);
  CHECK(place.payload_bytes == 3);

  const Plan framed(config, PacketKind::FRAMES);
  std::vector<std::uint8_t> frame(60);
  frame[12] = 0x08;
  frame[14] = 0x45;
  frame[17] = 20 + 8 + 7;
  frame[23] = 17;
  frame[39] = 8 + 7;
  std::copy(payload.begin(), payload.end(), frame.begin() + 42);
  REQUIRE(located(framed, frame, 60, place));
  CHECK(place.slot == 5);
  CHECK(place.payload_at == 46);
  // Without the padding of the frame.
  CHECK(place.payload_bytes == 3);
  SECTION("behind a VLAN tag") {
    frame.insert(frame.begin() + 12, {0x81, 0x00, 0x00, 0x05});
    REQUIRE(located(framed, frame, 64, place));
    CHECK(place.slot == 5);
    CHECK(place.payload_at == 50);
    CHECK(place.payload_bytes == 3);
  }
  SECTION("not another protocol") {
    frame[23] = 6;
    CHECK_FALSE(located(framed, frame, 60, place));
  }
  SECTION("not a fragment") {
    frame[20] = 0x20;
    CHECK_FALSE(located(framed, frame, 60, place));
  }
  SECTION("not more than was captured") {
    frame[39] = 30;
    CHECK_FALSE(located(framed, frame, 60, place));
    CHECK_FALSE(located(framed, frame, 43, place));
    CHECK_FALSE(located(framed, frame, 20, place));
    CHECK_FALSE(located(framed, frame, 0, place));
  }
}

TEST_CASE("a frame's shape says how long packets are", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 4;
  config.batch_packet_number_ = {{0, 16}, {16, 16}, 4};
  config.first_packet_ = {1};
  config.data_types_ = {ReorderDataType::UINT16, ReorderDataType::UINT16,
                        ReorderEndianness::NETWORK};
  config.frame_.shape_ = {2, 10};
  const Plan plan(config, PacketKind::PAYLOADS);
  CHECK(plan.payload_bytes() == 10);
  std::vector<std::uint8_t> packet(16);
  packet[3] = 1;
  Place place{};
  REQUIRE(located(plan, packet, 14, place));
  CHECK(place.slot == 0);
  CHECK_FALSE(located(plan, packet, 12, place));
  packet[3] = 0;
  CHECK_FALSE(located(plan, packet, 14, place));
  packet[3] = 5;
  CHECK_FALSE(located(plan, packet, 14, place));
}

namespace {

/// Bytes 0 and 1: batch; 2 and 3: packet; four of header, then the payload.
ReorderConfig numbered(std::uint32_t packets) {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 4;
  config.batch_packet_number_ = {{0, 16}, {16, 16}, packets};
  return config;
}

}  // namespace

TEST_CASE("numbers count from a flow's first one, in steps", "[reorder]") {
  ReorderConfig config = numbered(4);
  config.flow_ids_ = {1, 2};
  config.batch_packet_number_.packet_number_.step_ = 8;
  std::vector<std::uint8_t> packet(8);
  const auto slot_of = [&](const Plan& plan, std::uint32_t number, std::uint32_t flow) {
    packet[2] = static_cast<std::uint8_t>(number >> 8U);
    packet[3] = static_cast<std::uint8_t>(number);
    Place place{};
    return located(plan, packet, 8, place, flow) ? static_cast<int>(place.slot) : -1;
  };
  SECTION("of all flows") {
    config.first_packet_ = {3};
    const Plan plan(config, PacketKind::PAYLOADS);
    CHECK(slot_of(plan, 3, 0) == 0);
    CHECK(slot_of(plan, 27, 1) == 3);
    CHECK(slot_of(plan, 35, 0) == -1);
    CHECK(slot_of(plan, 4, 0) == -1);
    CHECK(slot_of(plan, 0, 0) == -1);
  }
  SECTION("of each flow") {
    config.first_packet_ = {3, 65528};
    config.flow_stride_ = 2;
    const Plan plan(config, PacketKind::PAYLOADS);
    CHECK(slot_of(plan, 3, 0) == 0);
    CHECK(slot_of(plan, 11, 0) == 1);
    CHECK(slot_of(plan, 65528, 1) == 2);
    CHECK(slot_of(plan, 0, 1) == 3);
    CHECK(slot_of(plan, 3, 1) == -1);
    CHECK(slot_of(plan, 19, 0) == -1);
  }
  SECTION("that run on") {
    config.batch_packet_number_.running_ = true;
    const Plan plan(config, PacketKind::PAYLOADS);
    CHECK(slot_of(plan, 0, 0) == 0);
    CHECK(slot_of(plan, 8 * 4, 0) == 0);
    CHECK(slot_of(plan, 8 * 1023, 0) == 3);
    CHECK(slot_of(plan, 12, 0) == -1);
  }
}

TEST_CASE("sequence numbers of 64 bits and in steps", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 8;
  config.seq_packets_per_batch_ = {{0, 64}, 100};
  config.seq_packets_per_batch_.sequence_number_.step_ = 1000;
  config.first_packet_ = {7};
  const std::uint64_t number = 7 + 1000 * (12'345'678'901'234ULL * 100 + 42);
  std::vector<std::uint8_t> packet(12);
  for (std::size_t i = 0; i < 8; ++i) packet[i] = static_cast<std::uint8_t>(number >> (56 - 8 * i));
  Place place{};
  const Plan any(config, PacketKind::PAYLOADS);
  CHECK_FALSE(any.divides());
  REQUIRE(located(any, packet, 12, place));
  CHECK(place.batch == 12'345'678'901'234ULL);
  CHECK(place.slot == 42);
  packet[7] ^= 1U;
  CHECK_FALSE(located(any, packet, 12, place));

  config.seq_packets_per_batch_ = {{0, 32}, 4};
  config.seq_packets_per_batch_.sequence_number_.step_ = 2;
  config.first_packet_ = {};
  const Plan powers(config, PacketKind::PAYLOADS);
  CHECK(powers.batch_mask() == (1ULL << 29U) - 1);
  packet[0] = packet[1] = packet[2] = 0xFF;
  packet[3] = 0xFE;
  REQUIRE(located(powers, packet, 12, place));
  CHECK(place.batch == powers.batch_mask());
  CHECK(place.slot == 3);
}

TEST_CASE("packets that do not fulfil a condition are left out", "[reorder]") {
  ReorderConfig config = numbered(4);
  ReorderConditionConfig kind;
  kind.field_ = {32, 8};
  kind.mask_ = 0xF0;
  kind.at_least_ = kind.at_most_ = 0x30;
  ReorderConditionConfig size;
  size.field_ = {40, 16};
  size.at_least_ = 100;
  config.conditions_ = {kind, size};
  config.payload_byte_offset_ = 7;
  const Plan plan(config, PacketKind::PAYLOADS);
  std::vector<std::uint8_t> packet{0, 1, 0, 2, 0x3A, 0, 100, 9};
  Place place{};
  const auto fate = [&](std::uint32_t length = 8) {
    return plan.locate(packet.data(), length, 0, place);
  };
  CHECK(fate() == Located::IN_BATCH);
  CHECK(place.slot == 2);
  packet[6] = 99;
  CHECK(fate() == Located::LEFT_OUT);
  packet[6] = 100;
  packet[4] = 0x2A;
  CHECK(fate() == Located::LEFT_OUT);
  // Other kinds may be shorter than the fields.
  CHECK(fate(5) == Located::LEFT_OUT);
  packet[4] = 0x3A;
  packet[3] = 4;
  CHECK(fate() == Located::MALFORMED);
}

TEST_CASE("a number in the packet says where its payload begins", "[reorder]") {
  ReorderConfig config = numbered(4);
  config.payload_byte_offset_ = 6;
  config.payload_offset_field_ = {32, 16};
  config.payload_offset_field_.unit_ = 8;
  const Plan plan(config, PacketKind::PAYLOADS);
  std::vector<std::uint8_t> packet(30);
  Place place{};
  REQUIRE(located(plan, packet, 30, place));
  CHECK(place.payload_at == 6);
  CHECK(place.payload_bytes == 24);
  packet[5] = 2;
  REQUIRE(located(plan, packet, 30, place));
  CHECK(place.payload_at == 22);
  CHECK(place.payload_bytes == 8);
  packet[5] = 3;
  CHECK_FALSE(located(plan, packet, 30, place));
  packet[4] = 0xFF;
  CHECK_FALSE(located(plan, packet, 30, place));
}

TEST_CASE("payloads are cut, and the last packet of a part may be shorter", "[reorder]") {
  ReorderConfig config = numbered(6);
  config.flow_ids_ = {1, 2};
  config.flow_stride_ = 3;
  config.payload_bytes_ = 10;
  config.data_types_ = {ReorderDataType::UINT16, ReorderDataType::UINT32, ReorderEndianness::HOST};
  // Of each flow: 10, 10 and 4 bytes.
  config.frame_.shape_ = {2, 12};
  const Plan plan(config, PacketKind::PAYLOADS);
  std::vector<std::uint8_t> packet(20);
  Place place{};
  const auto bytes_of = [&](std::uint32_t flow, std::uint8_t number, std::uint32_t length) {
    packet[3] = number;
    return located(plan, packet, length, place, flow) ? static_cast<int>(place.payload_bytes) : -1;
  };
  CHECK(bytes_of(0, 0, 14) == 10);
  CHECK(bytes_of(0, 0, 20) == 10);
  CHECK(bytes_of(0, 0, 13) == -1);
  CHECK(bytes_of(0, 2, 8) == 4);
  CHECK(bytes_of(1, 2, 20) == 4);
  CHECK(bytes_of(1, 2, 7) == -1);
  CHECK(place.slot == 5);
  CHECK(plan.begin_of(2, 20) == 40);
  CHECK(plan.begin_of(3, 20) == 48);
  CHECK(plan.begin_of(6, 20) == 96);
}

TEST_CASE("byte offsets may count in units, and end with a short packet", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_BYTE_OFFSET;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 4;
  config.payload_bytes_ = 16;
  config.batch_byte_offset_ = {{0, 16}, {16, 16}, 40};
  config.batch_byte_offset_.byte_offset_.unit_ = 8;
  const Plan plan(config, PacketKind::PAYLOADS);
  std::vector<std::uint8_t> packet(4 + 20);
  Place place{};
  packet[3] = 2;
  REQUIRE(located(plan, packet, 24, place));
  CHECK(place.slot == 16);
  CHECK(place.payload_bytes == 16);
  packet[3] = 4;
  REQUIRE(located(plan, packet, 12, place));
  CHECK(place.slot == 32);
  CHECK(place.payload_bytes == 8);
  CHECK_FALSE(located(plan, packet, 11, place));
  packet[3] = 5;
  CHECK_FALSE(located(plan, packet, 24, place));
}

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

}  // namespace

TEST_CASE("a field is its bits, at any place", "[reorder]") {
  std::mt19937 random(3);
  std::vector<std::uint8_t> bytes(24);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  std::size_t wrong = 0;
  for (std::uint32_t base = 0; base < 6; ++base) {
    for (std::uint32_t offset = 0; offset < 100; ++offset) {
      for (std::uint32_t width = 1; width <= 32; ++width) {
        ReorderBitFieldConfig config{offset, width};
        config.base_ = ReorderBase::UDP_PAYLOAD;
        std::uint32_t expected = 0;
        for (std::uint32_t i = 0; i < width; ++i)
          expected = expected * 2 + (bit(bytes, base * 8 + offset + i) ? 1 : 0);
        const Field field(config);
        wrong += field.read(bytes.data(), base) == expected ? 0 : 1;
        wrong += field.end(base) == base + (offset + width + 7) / 8 ? 0 : 1;
        if (offset % 8 != 0 || width % 8 != 0) continue;
        config.byte_order_ = ReorderByteOrder::LITTLE;
        std::uint32_t little = 0;
        for (std::uint32_t i = 0; i < width / 8; ++i)
          little |= std::uint32_t{bytes[base + offset / 8 + i]} << (8 * i);
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
    REQUIRE(plan.locate(packet.data(), 100, 0, place));
    CHECK(place.batch == 0x12345678U / 1024);
    CHECK(place.slot == 0x12345678U % 1024);
    CHECK(plan.units() == 1024);
    CHECK(plan.batch_numbers() == 1U << 22U);
    CHECK(plan.window() == 2);
  }
  SECTION("sequence number, batch number") {
    config.method_ = ReorderMethod::SEQ_BATCH_NUMBER;
    config.seq_batch_number_ = {{512, 32}, {544, 4}, 1U << 28U};
    const Plan plan(config, PacketKind::FRAMES);
    REQUIRE(plan.locate(packet.data(), 100, 0, place));
    CHECK(place.batch == 9);
    CHECK(place.slot == 0x2345678);
  }
  CHECK(place.payload_at == 70);
  CHECK(place.payload_bytes == 30);
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
  REQUIRE(plan.locate(packet.data(), 24, 0, place));
  CHECK(place.slot == 80);
  CHECK_FALSE(plan.locate(packet.data(), 23, 0, place));
  packet[3] = 81;
  CHECK_FALSE(plan.locate(packet.data(), 24, 0, place));
  packet[3] = 82;
  CHECK_FALSE(plan.locate(packet.data(), 24, 0, place));
  CHECK(plan.locate(packet.data(), 22, 0, place));
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
  REQUIRE(bare.locate(payload.data(), 7, 0, place));
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
  REQUIRE(framed.locate(frame.data(), 60, 0, place));
  CHECK(place.slot == 5);
  CHECK(place.payload_at == 46);
  // Without the padding of the frame.
  CHECK(place.payload_bytes == 3);
  SECTION("behind a VLAN tag") {
    frame.insert(frame.begin() + 12, {0x81, 0x00, 0x00, 0x05});
    REQUIRE(framed.locate(frame.data(), 64, 0, place));
    CHECK(place.slot == 5);
    CHECK(place.payload_at == 50);
    CHECK(place.payload_bytes == 3);
  }
  SECTION("not another protocol") {
    frame[23] = 6;
    CHECK_FALSE(framed.locate(frame.data(), 60, 0, place));
  }
  SECTION("not a fragment") {
    frame[20] = 0x20;
    CHECK_FALSE(framed.locate(frame.data(), 60, 0, place));
  }
  SECTION("not more than was captured") {
    frame[39] = 30;
    CHECK_FALSE(framed.locate(frame.data(), 60, 0, place));
    CHECK_FALSE(framed.locate(frame.data(), 43, 0, place));
    CHECK_FALSE(framed.locate(frame.data(), 20, 0, place));
    CHECK_FALSE(framed.locate(frame.data(), 0, 0, place));
  }
}

TEST_CASE("a frame's shape says how long packets are", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 4;
  config.batch_packet_number_ = {{0, 16}, {16, 16}, 4, 1};
  config.data_types_ = {ReorderDataType::UINT16, ReorderDataType::UINT16,
                        ReorderEndianness::NETWORK};
  config.frame_.shape_ = {2, 10};
  const Plan plan(config, PacketKind::PAYLOADS);
  CHECK(plan.payload_bytes() == 10);
  std::vector<std::uint8_t> packet(16);
  packet[3] = 1;
  Place place{};
  REQUIRE(plan.locate(packet.data(), 14, 0, place));
  CHECK(place.slot == 0);
  CHECK_FALSE(plan.locate(packet.data(), 12, 0, place));
  packet[3] = 0;
  CHECK_FALSE(plan.locate(packet.data(), 14, 0, place));
  packet[3] = 5;
  CHECK_FALSE(plan.locate(packet.data(), 14, 0, place));
}

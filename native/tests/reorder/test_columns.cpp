// Numbers from packets that go with their frame.
#include <catch2/catch.hpp>

#include <numeric>
#include <random>
#include <set>

#include "assembler_bench.h"

using namespace daqiri;
using namespace daqiri::reorder;
using namespace daqiri::test;

namespace {

constexpr std::uint64_t LARGE = 0xF000'0000'0000'0001;

/// A number of 64 bits behind the ones of the plan, and the payload.
ReorderConfig with_columns(std::uint32_t packets) {
  ReorderConfig config = by_packet_number(packets);
  config.payload_byte_offset_ = 16;
  config.columns_ = {{"first", {64, 64}}, {"sum", {64, 64}, ReorderColumnSource::SUM}};
  config.columns_[0].field_.base_ = ReorderBase::UDP_PAYLOAD;
  return config;
}

void send_number(Bench& bench, std::uint32_t batch, std::uint32_t slot, std::uint64_t number) {
  std::vector<std::uint8_t> bytes(20, 5);
  bytes[0] = static_cast<std::uint8_t>(batch >> 8U);
  bytes[1] = static_cast<std::uint8_t>(batch);
  bytes[4] = static_cast<std::uint8_t>(slot >> 8U);
  bytes[5] = static_cast<std::uint8_t>(slot);
  for (std::size_t i = 0; i < 8; ++i)
    bytes[8 + i] = static_cast<std::uint8_t>(number >> (56 - 8 * i));
  bench.send(std::move(bytes));
}

}  // namespace

TEST_CASE("columns are of the first packet, or the sum of all, in any order", "[reorder]") {
  constexpr std::uint32_t PACKETS = 9;
  Bench bench(with_columns(PACKETS));
  std::mt19937 random(7);
  std::vector<std::vector<std::uint64_t>> expected;
  for (std::uint32_t batch = 0; batch < 300; ++batch) {
    std::vector<std::uint32_t> slots(PACKETS);
    std::iota(slots.begin(), slots.end(), 0U);
    std::shuffle(slots.begin(), slots.end(), random);
    slots.resize(1 + random() % PACKETS);
    std::uint64_t sum = 0;
    std::uint64_t first = 0;
    for (const std::uint32_t slot : slots) {
      const std::uint64_t number = LARGE + random() % 1000;
      send_number(bench, batch, slot, number);
      // A duplicate does not count.
      if (slots.size() < PACKETS) send_number(bench, batch, slot, random());
      sum += number;
      if (slot == *std::ranges::min_element(slots)) first = number;
    }
    expected.push_back({first, sum});
  }
  bench.assembler->finish();
  REQUIRE(bench.frames.size() == expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    wrong += bench.frames[i].columns == expected[i] ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("columns of packets have a number for each, the first one of duplicates", "[reorder]") {
  constexpr std::uint32_t PACKETS = 70;
  ReorderConfig config = with_columns(PACKETS);
  config.columns_.insert(config.columns_.begin() + 1,
                         {"each", {64, 64}, ReorderColumnSource::PACKETS});
  config.columns_.push_back({"low", {112, 16}, ReorderColumnSource::PACKETS});
  Bench bench(config);
  std::mt19937 random(11);
  std::vector<std::vector<std::uint64_t>> expected;
  // More than there are buffers, which were used before.
  for (std::uint32_t batch = 0; batch < 100; ++batch) {
    std::vector<std::uint32_t> slots(PACKETS);
    std::iota(slots.begin(), slots.end(), 0U);
    std::shuffle(slots.begin(), slots.end(), random);
    slots.resize(1 + random() % PACKETS);
    std::vector<std::uint64_t> each(PACKETS);
    std::vector<std::uint64_t> low(PACKETS);
    for (const std::uint32_t slot : slots) {
      each[slot] = LARGE + random() % (1U << 20U);
      low[slot] = each[slot] & 0xFFFFU;
      send_number(bench, batch, slot, each[slot]);
      if (slots.size() < PACKETS) send_number(bench, batch, slot, random());
    }
    std::vector<std::uint64_t> numbers{each[*std::ranges::min_element(slots)]};
    numbers.insert(numbers.end(), each.begin(), each.end());
    numbers.push_back(std::accumulate(each.begin(), each.end(), std::uint64_t{0}));
    numbers.insert(numbers.end(), low.begin(), low.end());
    expected.push_back(numbers);
  }
  bench.assembler->finish();
  REQUIRE(bench.frames.size() == expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    wrong += bench.frames[i].columns == expected[i] ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("the first packet is the one with the lowest byte offset", "[reorder]") {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_BYTE_OFFSET;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 4;
  config.batch_byte_offset_ = {{0, 16}, {16, 8}, 12};
  config.columns_ = {{"kind", {24, 8}}, {"all", {24, 8}, ReorderColumnSource::SUM}};
  Bench bench(config);
  for (const auto& [at, kind] : {std::pair(8, 3), std::pair(0, 200), std::pair(4, 100)}) {
    bench.send({0, 7, static_cast<std::uint8_t>(at), static_cast<std::uint8_t>(kind), 1, 1, 1, 1});
  }
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].columns == std::vector<std::uint64_t>{200, 303});
}

TEST_CASE("packets without a column's field are malformed", "[reorder]") {
  ReorderConfig config = by_packet_number(2);
  config.columns_ = {{"trailer", {96, 8}}};
  config.payload_bytes_ = 4;
  Bench bench(config);
  bench.send(1, 0, 9, 4);
  CHECK(bench.assembler->tally().malformed == 1);
  bench.send(1, 0, 9, 5);
  bench.send(1, 1, 8, 5);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].columns == std::vector<std::uint64_t>{9});
  CHECK(bench.balanced());
}

TEST_CASE("frames of plans without columns have none", "[reorder]") {
  Bench bench(by_packet_number(1));
  bench.whole(3);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].columns.empty());
}

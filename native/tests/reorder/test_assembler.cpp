// Assembling frames from packets.
#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

#include "assembler_bench.h"

using namespace daqiri;
using namespace daqiri::reorder;
using namespace daqiri::test;

TEST_CASE("packets in any order make a frame", "[reorder]") {
  Bench bench(by_packet_number(3));
  for (const std::uint32_t slot : {2U, 0U, 1U})
    bench.send(5, slot, static_cast<std::uint8_t>(10 + slot));
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0] == Seen{5, slots({10, 11, 12}), {true, true, true}, 3, false, 0});
  CHECK(bench.assembler->tally().complete == 1);
  CHECK(bench.balanced());
}

TEST_CASE("what is missing is filled and marked, when the batch leaves the window", "[reorder]") {
  Bench bench(by_packet_number(3));
  bench.send(5, 0, 1);
  bench.send(5, 2, 3);
  bench.send(6, 1, 9);
  CHECK(bench.frames.empty());
  bench.send(7, 1, 9);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0] == Seen{5, slots({1, 0, 3}), {true, false, true}, 2, false, 0});
  bench.send(5, 1, 2);
  CHECK(bench.assembler->tally().late == 1);
  CHECK(bench.assembler->tally().incomplete == 1);
  CHECK(bench.assembler->tally().missing == 1);
  CHECK(bench.balanced());
}

TEST_CASE("a batch waits for its timeout", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.send(1, 1, 7);
  CHECK(bench.assembler->expire(bench.now) == bench.now + TIMEOUT_NS);
  CHECK(bench.frames.empty());
  CHECK(bench.assembler->expire(bench.now + TIMEOUT_NS) == 0);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0] == Seen{1, slots({0, 7}), {false, true}, 1, true, 0});
  bench.send(1, 0, 7);
  CHECK(bench.assembler->tally().late == 1);
}

TEST_CASE("the first of two packets for a slot counts", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.send(1, 0, 1);
  bench.send(1, 0, 2);
  bench.send(1, 1, 3);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].bytes == slots({1, 3}));
  CHECK(bench.assembler->tally().duplicate == 1);
  CHECK(bench.balanced());
}

TEST_CASE("packets that cannot belong to a frame are malformed", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.send(1, 0, 1);
  bench.send(1, 1, 1, 5);
  bench.send(1, 2, 1);
  bench.send(std::vector<std::uint8_t>(5));
  bench.send(std::vector<std::uint8_t>(8));
  bench.send({});
  CHECK(bench.assembler->tally().malformed == 5);
  CHECK(bench.frames.empty());
  CHECK(bench.balanced());
}

TEST_CASE("modules stand one behind the other", "[reorder]") {
  ReorderConfig config = by_packet_number(6);
  config.flow_ids_ = {7, 8, 9};
  config.flow_stride_ = 2;
  Bench bench(config);
  for (std::uint32_t flow = 0; flow < 3; ++flow) {
    bench.send(4, 1, static_cast<std::uint8_t>(flow * 2 + 1), 4, flow);
    bench.send(4, 0, static_cast<std::uint8_t>(flow * 2), 4, flow);
    bench.send(4, 2, 99, 4, flow);
  }
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].bytes == slots({0, 1, 2, 3, 4, 5}));
  CHECK(bench.assembler->tally().malformed == 3);
}

TEST_CASE("a frame without a buffer is lost, and the next one is whole", "[reorder]") {
  Bench bench(by_packet_number(2), 1);
  bench.keep = true;
  for (std::uint32_t batch = 0; batch < 4; ++batch) {
    bench.send(batch, 0, 1);
    bench.send(batch, 1, 1);
  }
  const std::uint32_t buffer = 0;
  bench.region->give(&buffer, 1);
  bench.send(4, 0, 2);
  bench.send(4, 1, 2);
  bench.assembler->finish();
  const ReorderSnapshot& tally = bench.assembler->tally();
  REQUIRE(bench.frames.size() == 2);
  CHECK(bench.frames[1].batch == 4);
  CHECK(tally.no_buffer == 6);
  CHECK(tally.lost == 3);
  CHECK(tally.complete == 2);
  CHECK(bench.balanced());
}

TEST_CASE("a frame that could not be delivered is lost when it begins", "[reorder]") {
  Bench bench(by_packet_number(2), 1);
  bench.refuse = true;
  bench.send(0, 0, 1);
  CHECK(bench.region->available() == 1);
  bench.refuse = false;
  bench.send(0, 1, 1);
  for (const std::uint32_t slot : {0U, 1U}) bench.send(1, slot, 2);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].batch == 1);
  CHECK(bench.assembler->tally().no_buffer == 2);
  CHECK(bench.assembler->tally().lost == 1);
  CHECK(bench.balanced());
}

TEST_CASE("what is discarded comes back, and the numbers are forgotten", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.send(1000, 0, 1);
  bench.send(1001, 0, 1);
  bench.assembler->discard();
  CHECK(bench.region->available() == 80);
  bench.send(0, 0, 5);
  bench.send(0, 1, 6);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].bytes == slots({5, 6}));
  CHECK(bench.assembler->tally().late == 0);
}

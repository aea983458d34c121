// Numbers of packets and frames: they wrap, go on after the last one, and leave gaps.
#include <catch2/catch.hpp>

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "assembler_bench.h"

using namespace daqiri;
using namespace daqiri::reorder;
using namespace daqiri::test;

TEST_CASE("numbers wrap", "[reorder]") {
  Bench bench(by_packet_number(2, 8));
  for (std::uint32_t batch = 250; batch < 1030; ++batch) {
    bench.send(batch % 256, 1, static_cast<std::uint8_t>(batch));
    // A packet of the previous batch, which is still open.
    if (batch > 250) bench.send((batch - 1) % 256, 0, static_cast<std::uint8_t>(batch - 1));
  }
  REQUIRE(bench.frames.size() == 779);
  for (std::uint32_t i = 0; i < 779; ++i) {
    CHECK(bench.frames[i].batch == (250 + i) % 256);
    CHECK(bench.frames[i].bytes ==
          slots({static_cast<int>((250 + i) % 256), static_cast<int>((250 + i) % 256)}));
  }
  CHECK(bench.assembler->tally().late == 0);
  CHECK(bench.assembler->tally().restarts == 0);
}

TEST_CASE("sequence numbers go on after the last one, with any number of packets", "[reorder]") {
  constexpr std::uint64_t NUMBERS = std::uint64_t{1} << 32;
  const std::uint32_t packets = GENERATE(3U, 7U, 700U);
  Bench bench(by_sequence_number(packets));
  const std::uint64_t first = NUMBERS / packets - 2;
  std::uint64_t held = 0;
  for (std::uint64_t number = first * packets; number < (first + 6) * packets; ++number) {
    // The last packet of a batch comes behind two of the next one.
    if (number % packets == packets - 1) {
      held = number;
      continue;
    }
    bench.sequence(number);
    if (held != 0 && number % packets == 1) bench.sequence(std::exchange(held, 0));
  }
  bench.assembler->finish();
  REQUIRE(bench.frames.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(bench.frames[i].batch == first + i);
    CHECK(bench.frames[i].packets == packets - (i == 5 ? 1 : 0));
  }
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5});
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.malformed + tally.late + tally.skipped + tally.restarts == 0);
  CHECK(bench.balanced());
}

TEST_CASE("frames after the last sequence number stay whole over losses and acquisitions",
          "[reorder]") {
  constexpr std::uint64_t NUMBERS = std::uint64_t{1} << 32;
  constexpr std::uint32_t PACKETS = 700;
  constexpr std::uint64_t FIRST = NUMBERS / PACKETS;
  Bench bench(by_sequence_number(PACKETS));
  const auto whole = [&](std::uint64_t batch) {
    for (std::uint32_t slot = 0; slot < PACKETS; ++slot) bench.sequence(batch * PACKETS + slot);
  };
  whole(FIRST - 1);
  // What is lost holds the last number.
  whole(FIRST + 80);
  whole(FIRST + 81);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{FIRST - 1, FIRST + 80, FIRST + 81});
  CHECK(bench.assembler->tally().skipped == 80);
  bench.frames.clear();

  SECTION("the instrument goes on in the next acquisition") {
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    // The rest of an earlier frame.
    bench.sequence((FIRST + 81) * PACKETS + 9);
    whole(FIRST + 82);
    whole(FIRST + 83);
    bench.assembler->finish();
    CHECK(bench.batches() == std::vector<std::uint32_t>{FIRST + 82, FIRST + 83});
  }
  const auto begin_anew = [&](std::optional<std::uint32_t> first_number) {
    bench.now += PAUSE_NS;
    bench.assembler->begin_epoch(0, bench.now, first_number);
  };
  SECTION("the instrument may have begun anew in the next acquisition") {
    begin_anew(std::nullopt);
    whole(0);
    whole(1);
    CHECK(bench.frames.empty());
    CHECK(bench.assembler->tally().late == 2 * PACKETS);
    CHECK(bench.assembler->unknown());
    // Told the first number, it is certain.
    begin_anew(0);
    CHECK(!bench.assembler->unknown());
    whole(0);
    whole(1);
    CHECK(bench.batches() == std::vector<std::uint32_t>{0, 1});
  }
  SECTION("the instrument begins anew in the next acquisition, or after a pause") {
    // Far from the end of the numbers, that is certain.
    whole(FIRST + 40'000);
    bench.frames.clear();
    const bool acquires = GENERATE(true, false);
    if (acquires) {
      begin_anew(std::nullopt);
    } else {
      bench.assembler->finish();
      bench.now += PAUSE_NS;
    }
    bench.frames.clear();
    const std::uint32_t lost = GENERATE(0U, 1U);
    for (const std::uint32_t batch : {0U, 1U, 2U})
      for (std::uint32_t slot = lost; slot < PACKETS; ++slot)
        bench.sequence(batch * PACKETS + slot);
    bench.assembler->finish();
    CHECK(bench.batches() == std::vector<std::uint32_t>{0, 1, 2});
    CHECK(bench.frames[2].packets == PACKETS - lost);
    CHECK(bench.assembler->tally().restarts == (acquires ? 0 : 1));
  }
  SECTION("a packet near 0 does not move a stream that goes on") {
    whole(FIRST + 40'000);
    bench.frames.clear();
    begin_anew(std::nullopt);
    bench.sequence(3);
    whole(FIRST + 40'002);
    whole(FIRST + 40'003);
    bench.assembler->finish();
    CHECK(bench.batches().back() == FIRST + 40'003);
    CHECK(bench.frames.back().packets == PACKETS);
    CHECK(bench.assembler->tally().late == 0);
  }
  SECTION("behind a loss that may have begun anew, packets are late") {
    constexpr std::uint64_t AFTER = (2 * NUMBERS) / PACKETS;
    whole(AFTER - 100);
    bench.frames.clear();
    bench.indices.clear();
    for (std::uint64_t batch = AFTER + 150; batch < AFTER + 155; ++batch) {
      bench.now += PAUSE_NS;
      whole(batch);
    }
    CHECK(bench.assembler->unknown());
    begin_anew(std::nullopt);
    whole(AFTER + 155);
    bench.assembler->finish();
    CHECK(bench.batches().size() <= 1);
    CHECK(bench.assembler->tally().late == 6 * PACKETS);
  }
  SECTION("a packet from long ago is late") {
    bench.sequence(5 * PACKETS);
    CHECK(bench.assembler->tally().late == 1);
    whole(FIRST + 82);
    CHECK(bench.batches() == std::vector<std::uint32_t>{FIRST + 82});
  }
  CHECK(bench.assembler->tally().malformed == 0);
  CHECK(bench.balanced());
}

TEST_CASE("a frame has packets of one image, whatever becomes of their sequence numbers",
          "[reorder]") {
  constexpr std::uint64_t NUMBERS = std::uint64_t{1} << 32;
  std::size_t delivered = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto one_of = [&random](const std::vector<std::uint64_t>& values) {
      return values[random() % values.size()];
    };
    const auto packets = static_cast<std::uint32_t>(one_of({3, 7, 94, 700}));
    ReorderConfig config = by_sequence_number(packets);
    config.window_ = static_cast<std::uint32_t>(one_of({1, 2, 8}));
    Bench bench(config);
    std::uint64_t number =
        one_of({0, NUMBERS / packets - 9, NUMBERS / packets - 200'000 / packets, random()}) %
        (NUMBERS / packets) * packets;
    // Of all images that the instrument ever made, which may use a number again.
    std::uint64_t image = 0;
    for (int event = 0; event < 14; ++event) {
      const bool pauses = random() % 3 == 0;
      const bool acquires = random() % 4 == 0;
      if (pauses) bench.now += PAUSE_NS;
      if (acquires) bench.assembler->begin_epoch(0, bench.now, std::nullopt);
      // Only in acquisitions can images of the same number be told apart.
      const bool begins = acquires && random() % 3 == 0;
      if (begins) {
        image += number / packets + 1;
        number = 0;
      }
      // An instrument that begins anew and, by chance, near where it was goes on.
      if (event > 0 && random() % 3 == 0)
        number += begins ? one_of({1, 30, 300'000})
                         : one_of({1, packets, 5'000, 70'000, 100'000, 1U << 20U});
      const std::uint64_t more = event == 0 ? packets : random() % 4 * packets + random() % packets;
      for (const std::uint64_t end = number + more; number < end; ++number) {
        if (event > 0 && random() % 50 == 0) continue;
        const std::uint64_t its = image + number / packets;
        bench.now += 1000;
        std::vector<std::uint8_t> bytes(12, static_cast<std::uint8_t>(its % 251));
        for (std::size_t i = 0; i < 4; ++i)
          bytes[i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
        bytes[11] = static_cast<std::uint8_t>(number % packets);
        bench.send(std::move(bytes));
      }
    }
    bench.assembler->finish();
    delivered += bench.frames.size();
    INFO("seed " << seed << ", " << packets << " packets");
    for (const Seen& frame : bench.frames) {
      std::set<std::uint8_t> images;
      for (std::size_t slot = 0; slot < packets; ++slot) {
        if (!frame.valid[slot]) continue;
        images.insert(frame.bytes[4 * slot]);
        REQUIRE(frame.bytes[4 * slot + 3] == static_cast<std::uint8_t>(slot));
      }
      REQUIRE(images.size() == 1);
    }
    CHECK(bench.balanced());
  }
  CHECK(delivered > 1000);
}

TEST_CASE("images of a slow instrument go on after the last sequence number", "[reorder]") {
  constexpr std::uint32_t PACKETS = 700;
  constexpr std::uint32_t FIRST = (std::uint64_t{1} << 32) / PACKETS - 1;
  Bench bench(by_sequence_number(PACKETS));
  const bool acquires = GENERATE(true, false);
  const bool tells = GENERATE(true, false);
  bench.assembler->begin_epoch(0, bench.now, tells ? std::optional(FIRST) : std::nullopt);
  for (std::uint32_t image = FIRST; image < FIRST + 5; ++image) {
    for (std::uint32_t slot = 0; slot < PACKETS; ++slot)
      bench.sequence(std::uint64_t{image} * PACKETS + slot, static_cast<std::uint8_t>(image));
    bench.now += 2 * PAUSE_NS;
    if (acquires) bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  }
  CHECK(bench.batches() ==
        std::vector<std::uint32_t>{FIRST, FIRST + 1, FIRST + 2, FIRST + 3, FIRST + 4});
  for (const Seen& frame : bench.frames)
    CHECK(frame.bytes ==
          std::vector<std::uint8_t>(4 * PACKETS, static_cast<std::uint8_t>(frame.batch)));
  CHECK(bench.assembler->tally().restarts == 0);
}

TEST_CASE("modules with counters of their own go on after the last number", "[reorder]") {
  constexpr std::uint64_t NUMBERS = std::uint64_t{1} << 32;
  constexpr std::uint32_t STRIDE = 94;
  constexpr std::uint64_t FIRST = NUMBERS / STRIDE - 1;
  Bench bench(by_sequence_number(2 * STRIDE, STRIDE));
  for (std::uint64_t batch = FIRST; batch < FIRST + 4; ++batch) {
    for (std::uint32_t slot = 0; slot < STRIDE; ++slot) {
      for (const std::uint32_t flow : {0U, 1U})
        bench.sequence(batch * STRIDE + slot, static_cast<std::uint8_t>(1 + flow), 0, flow);
    }
  }
  CHECK(bench.batches() == std::vector<std::uint32_t>{FIRST, FIRST + 1, FIRST + 2, FIRST + 3});
  for (const Seen& frame : bench.frames) {
    CHECK(frame.packets == 2 * STRIDE);
    CHECK(frame.bytes.front() == 1);
    CHECK(frame.bytes.back() == 2);
  }
}

TEST_CASE("frames are delivered in the order of their numbers", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.send(5, 0, 1);
  bench.whole(6);
  CHECK(bench.frames.empty());
  bench.send(5, 1, 2);
  CHECK(bench.batches() == std::vector<std::uint32_t>{5, 6});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1});
  CHECK(bench.assembler->tally().skipped == 0);
}

TEST_CASE("numbers of which no packet came are skipped, in the window and beyond", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.whole(5);
  bench.whole(7);
  CHECK(bench.batches() == std::vector<std::uint32_t>{5});
  bench.whole(8);
  CHECK(bench.batches() == std::vector<std::uint32_t>{5, 7, 8});
  bench.send(10, 0, 1);
  bench.whole(1000);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{5, 7, 8, 10, 1000});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 2, 3, 5, 995});
  CHECK(bench.assembler->tally().skipped == 991);
}

TEST_CASE("a frame tells the losses before it, and not those behind it", "[reorder]") {
  Bench bench(by_packet_number(2), 1);
  bench.send(5, 0, 1);
  bench.send(6, 0, 1);
  bench.send(5, 1, 1);
  bench.whole(7);
  bench.whole(9);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{5, 7, 9});
  CHECK(bench.absent == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("a lost frame is no skipped one, and both are gaps", "[reorder]") {
  Bench bench(by_packet_number(1), 1);
  bench.keep = true;
  for (const std::uint32_t batch : {0U, 1U, 3U}) bench.send(batch, 0, 1);
  const std::uint32_t buffer = 0;
  bench.region->give(&buffer, 1);
  bench.send(4, 0, 1);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{0, 4});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 4});
  CHECK(bench.assembler->tally().skipped == 1);
  CHECK(bench.assembler->tally().lost == 2);
}

TEST_CASE("a frame waits for skipped numbers no longer than for packets", "[reorder]") {
  ReorderConfig config = by_packet_number(2);
  config.window_ = 8;
  Bench bench(config);
  bench.whole(1);
  const std::uint64_t begun = bench.now;
  bench.send(3, 0, 1);
  bench.now += 1000;
  bench.whole(5);
  CHECK(bench.assembler->expire(bench.now) == begun + TIMEOUT_NS);
  CHECK(bench.batches() == std::vector<std::uint32_t>{1});
  CHECK(bench.assembler->expire(begun + TIMEOUT_NS) == bench.now + TIMEOUT_NS);
  CHECK(bench.batches() == std::vector<std::uint32_t>{1, 3});
  CHECK(bench.assembler->expire(bench.now + TIMEOUT_NS) == 0);
  CHECK(bench.batches() == std::vector<std::uint32_t>{1, 3, 5});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 2, 4});
  CHECK(bench.frames[1].timed_out);
  CHECK_FALSE(bench.frames[2].timed_out);
}

TEST_CASE("a window is a number of frames, whatever their numbers", "[reorder]") {
  // Of a detector that deals its frames to 64 receivers, four of which are open here.
  ReorderConfig config = by_packet_number(2);
  config.window_ = 4;
  const std::uint64_t step = GENERATE(1U, 64U);
  config.batch_packet_number_.batch_number_.step_ = step;
  Bench bench(config);
  std::vector<std::uint32_t> sent;
  for (std::uint32_t first = 0; first < 40 * 64; first += 4 * 64) {
    for (const std::uint32_t slot : {1U, 0U})
      for (std::uint32_t i = 0; i < 4; ++i) bench.send(first + 64 * i, slot, 7);
    for (std::uint32_t i = 0; i < 4; ++i) sent.push_back(first + 64 * i);
  }
  bench.assembler->finish();
  CHECK(bench.batches() == sent);
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.complete == 40);
  CHECK(tally.late == 0);
  CHECK(tally.skipped == (step == 1 ? 39 * 63 : 0));
}

TEST_CASE("frames in steps lack those between", "[reorder]") {
  ReorderConfig config = by_packet_number(1);
  config.batch_packet_number_.batch_number_.step_ = 8;
  Bench bench(config);
  for (const std::uint32_t batch : {65520U, 65528U, 8U, 16U, 40U}) bench.send(batch, 0, 7);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{65520, 65528, 8, 16, 40});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 3, 4, 7});
  CHECK(bench.assembler->tally().skipped == 3);
}

TEST_CASE("numbers that grow irregularly skip none", "[reorder]") {
  ReorderConfig config = by_packet_number(2);
  config.batch_packet_number_.batch_number_.step_ = 0;
  Bench bench(config);
  bench.send(10, 0, 1);
  bench.send(13, 0, 2);
  bench.send(10, 1, 1);
  bench.send(13, 1, 2);
  bench.whole(999);
  // Delivered at once: nothing can be known to lack before it.
  CHECK(bench.batches() == std::vector<std::uint32_t>{10, 13, 999});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 2});
  bench.whole(998);
  CHECK(bench.assembler->tally().late == 2);
  CHECK(bench.assembler->tally().skipped == 0);
}

TEST_CASE("numbers of 64 bits are kept whole, and wrap", "[reorder]") {
  ReorderConfig config = by_packet_number(1);
  config.batch_packet_number_ = {{0, 64}, {64, 8}, 1};
  config.payload_byte_offset_ = 9;
  Bench bench(config);
  struct : FrameSink {
    bool begin(std::uint32_t /*buffer*/) noexcept override { return true; }
    void take(const Frame& frame) noexcept override {
      numbers.push_back(frame.info.batch_id);
      indices.push_back(frame.index);
      region->give(&frame.buffer, 1);
    }
    void discard(std::uint32_t buffer) noexcept override { region->give(&buffer, 1); }
    memory::MemoryRegion* region{nullptr};
    std::vector<std::uint64_t> numbers;
    std::vector<std::uint64_t> indices;
  } sink;
  sink.region = bench.region.get();
  Assembler assembler(bench.plan, *bench.region, bench.valid, sink);
  const std::vector<std::uint64_t> sent{UINT64_MAX - 2, UINT64_MAX - 1, UINT64_MAX, 0, 2};
  for (const std::uint64_t number : sent) {
    std::vector<std::uint8_t> bytes(12, 0);
    for (std::size_t i = 0; i < 8; ++i)
      bytes[i] = static_cast<std::uint8_t>(number >> (56 - 8 * i));
    const Packet packet{bytes.data(), 12, 0, 0};
    assembler.take({&packet, 1}, 1);
  }
  assembler.finish();
  CHECK(sink.numbers == sent);
  CHECK(sink.indices == std::vector<std::uint64_t>{0, 1, 2, 3, 5});
}

TEST_CASE("a part that ends with a short packet is followed by the next one", "[reorder]") {
  ReorderConfig config = by_packet_number(4);
  config.flow_ids_ = {1, 2};
  config.flow_stride_ = 2;
  config.payload_bytes_ = 4;
  config.frame_.shape_ = {12};
  config.fill_ = 9;
  Bench bench(config);
  bench.send(1, 1, 2, 2, 0);
  bench.send(1, 0, 3, 7, 1);
  bench.send(1, 0, 1, 3, 0);
  bench.assembler->finish();
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].bytes == std::vector<std::uint8_t>{9, 9, 9, 9, 2, 2, 3, 3, 3, 3, 9, 9});
  CHECK(bench.frames[0].valid == std::vector<bool>{false, true, true, false});
  CHECK(bench.assembler->tally().malformed == 1);
}

TEST_CASE("a buffer may be as long as a frame with a short last packet", "[reorder]") {
  ReorderConfig config = by_packet_number(3);
  config.payload_bytes_ = 4;
  config.frame_.shape_ = {9};
  Bench bench(config, 80, 9);
  for (std::uint32_t i = 0; i < 3; ++i) bench.send(1, i, static_cast<std::uint8_t>(i + 1));
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames[0].bytes == std::vector<std::uint8_t>{1, 1, 1, 1, 2, 2, 2, 2, 3});
  CHECK(bench.assembler->tally().malformed == 0);
}

TEST_CASE("packets of other kinds are counted, and in no frame", "[reorder]") {
  ReorderConfig config = by_packet_number(2);
  ReorderConditionConfig data;
  data.field_ = {48, 8};
  data.at_least_ = data.at_most_ = 3;
  config.conditions_ = {data};
  Bench bench(config);
  bench.whole(5);
  CHECK(bench.frames.empty());
  bench.send(5, 0, 3);
  bench.send(6, 0, 4);
  bench.send(5, 1, 3);
  CHECK(bench.batches() == std::vector<std::uint32_t>{5});
  CHECK(bench.assembler->tally().left_out == 3);
  CHECK(bench.balanced());
}

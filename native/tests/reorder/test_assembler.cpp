// Assembling frames from packets, compared with a slow and simple model.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "reorder/assembler.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

constexpr std::uint64_t TIMEOUT_NS = 1'000'000;
constexpr std::uint64_t PAUSE_NS = 250'000'000;
constexpr std::uint64_t IDLE_NS = 50'000'000;
constexpr std::uint64_t GAP_NS = 10'000'000;
constexpr std::uint64_t BACKLOG_NS = 1'000'000'000;

ReorderConfig by_packet_number(std::uint32_t packets, std::uint32_t batch_bits = 16) {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 8;
  config.batch_packet_number_.batch_number_ = {0, batch_bits};
  config.batch_packet_number_.packet_number_ = {32, 16};
  config.batch_packet_number_.packets_per_batch_ = packets;
  return config;
}

ReorderConfig with_timeout(ReorderConfig config) {
  config.timeout_us_ = TIMEOUT_NS / 1000;
  return config;
}

ReorderConfig by_sequence_number(std::uint32_t packets, std::uint32_t stride = 0) {
  ReorderConfig config;
  config.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
  config.flow_ids_ = {1, 2};
  config.flow_stride_ = stride;
  config.payload_byte_offset_ = 8;
  config.seq_packets_per_batch_ = {{0, 32}, packets};
  return config;
}

struct Seen {
  std::uint32_t batch;
  std::vector<std::uint8_t> bytes;
  std::vector<bool> valid;
  std::uint32_t packets;
  bool timed_out;
  std::uint64_t first_time;
  bool operator==(const Seen&) const = default;
};

/// A plan with a region that no other test uses.
struct Bench : FrameSink {
  explicit Bench(const ReorderConfig& config, std::uint32_t buffers = 80,
                 std::uint32_t buf_size = 4096, std::uint64_t taken_to_be = 0)
      : plan(with_timeout(config), PacketKind::PAYLOADS, taken_to_be),
        valid(buffers, plan.units()) {
    MemoryRegionConfig output;
    output.name_ = "frames";
    output.num_bufs_ = buffers;
    output.buf_size_ = buf_size;
    region = memory::MemoryRegion::allocate(output);
    std::memset(region->address(0), 0xEE, region->extent().stride * buffers);
    assembler = std::make_unique<Assembler>(plan, *region, valid, *this);
  }

  bool begin(std::uint32_t /*buffer*/) noexcept override { return !refuse; }
  void take(const Frame& frame) noexcept override {
    Seen each;
    each.batch = static_cast<std::uint32_t>(frame.info.batch_id);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data);
    each.bytes.assign(bytes, bytes + frame.info.aggregate_len);
    for (std::uint32_t i = 0; i < plan.units(); ++i)
      each.valid.push_back((frame.valid[i / 64] >> (i % 64) & 1U) != 0);
    each.packets = frame.info.source_packet_count;
    each.timed_out = (frame.info.burst_flags & DAQIRI_BURST_FLAG_REORDER_TIMEOUT) != 0;
    each.first_time = frame.first_time;
    frames.push_back(std::move(each));
    indices.push_back(frame.index);
    absent.push_back(frame.lost);
    orders.push_back(frame.order);
    if (!keep) {
      std::memset(frame.data, 0xEE, region->buf_size());
      region->give(&frame.buffer, 1);
    }
  }
  void discard(std::uint32_t buffer) noexcept override { region->give(&buffer, 1); }

  void send(std::vector<std::uint8_t> bytes, std::uint64_t time = 0, std::uint32_t flow = 0) {
    packets.push_back(std::move(bytes));
    const Packet packet{packets.back().data(), static_cast<std::uint32_t>(packets.back().size()),
                        flow, time};
    assembler->take({&packet, 1}, now);
    // The packets are not read again after take().
    std::fill(packets.back().begin(), packets.back().end(), std::uint8_t{0xDD});
  }
  void send(std::uint32_t batch, std::uint32_t slot, std::uint8_t value, std::uint32_t size = 4,
            std::uint32_t flow = 0) {
    std::vector<std::uint8_t> bytes(8 + size, value);
    const std::uint32_t bits = plan.batch_numbers() == 1U << 16U ? batch << 16U : batch << 24U;
    for (int i = 0; i < 4; ++i)
      bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(bits >> (24 - 8 * i));
    bytes[4] = static_cast<std::uint8_t>(slot >> 8U);
    bytes[5] = static_cast<std::uint8_t>(slot);
    send(std::move(bytes), 0, flow);
  }

  /// Sends a packet with a sequence number.
  void sequence(std::uint64_t number, std::uint8_t value = 7, std::uint64_t time = 0,
                std::uint32_t flow = 0) {
    std::vector<std::uint8_t> bytes(12, value);
    for (std::size_t i = 0; i < 4; ++i)
      bytes[i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
    send(std::move(bytes), time, flow);
  }
  /// Sends all packets of a batch.
  void whole(std::uint32_t batch) {
    for (std::uint32_t slot = 0; slot < plan.units(); ++slot) send(batch, slot, 7);
  }
  [[nodiscard]] std::vector<std::uint32_t> batches() const {
    std::vector<std::uint32_t> numbers;
    for (const Seen& frame : frames) numbers.push_back(frame.batch);
    return numbers;
  }

  [[nodiscard]] bool balanced() const {
    const ReorderSnapshot& t = assembler->tally();
    return t.packets == t.placed + t.duplicate + t.late + t.early + t.malformed + t.no_buffer;
  }

  Plan plan;
  ValidBits valid;
  std::unique_ptr<memory::MemoryRegion> region;
  std::unique_ptr<Assembler> assembler;
  std::vector<Seen> frames;
  std::vector<std::uint64_t> indices;
  std::vector<std::uint64_t> absent;
  std::vector<std::uint64_t> orders;
  std::deque<std::vector<std::uint8_t>> packets;
  std::uint64_t now{1};
  bool keep{false};
  bool refuse{false};
};

std::vector<std::uint8_t> slots(const std::vector<int>& values, std::size_t size = 4) {
  std::vector<std::uint8_t> bytes;
  for (const int value : values) bytes.insert(bytes.end(), size, static_cast<std::uint8_t>(value));
  return bytes;
}

}  // namespace

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

TEST_CASE("numbers begin anew after a pause, with the first packet", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.whole(999);
  bench.send(1000, 0, 1);
  bench.whole(0);
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.late == 2);
  bench.now += PAUSE_NS - 1;
  bench.whole(1);
  CHECK(tally.late == 4);
  CHECK(tally.restarts == 0);
  bench.now += 1;
  for (const std::uint32_t batch : {2U, 3U}) bench.whole(batch);
  CHECK(tally.restarts == 1);
  CHECK(bench.batches() == std::vector<std::uint32_t>{999, 1000, 2, 3});
  CHECK(bench.frames[1].valid == std::vector<bool>{true, false});
  CHECK(tally.skipped == 0);
  CHECK(bench.balanced());
}

TEST_CASE("exposures with the same number are frames of their own after a pause", "[reorder]") {
  Bench bench(by_packet_number(3));
  for (std::uint8_t exposure = 0; exposure < 4; ++exposure) {
    bench.now += PAUSE_NS;
    for (const std::uint32_t slot : {0U, 1U, 2U}) {
      // The second one lacks its last packet.
      if (exposure != 1 || slot != 2) bench.send(0, slot, exposure);
    }
  }
  REQUIRE(bench.frames.size() == 4);
  CHECK(bench.frames[1] == Seen{0, slots({1, 1, 0}), {true, true, false}, 2, false, 0});
  for (const int exposure : {0, 2, 3})
    CHECK(bench.frames[static_cast<std::size_t>(exposure)].bytes ==
          slots({exposure, exposure, exposure}));
  CHECK(bench.assembler->tally().restarts == 3);
}

TEST_CASE("a stray packet before the first frame costs nothing", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  bench.send(9, 1, 99);
  for (std::uint32_t batch = 0; batch < 10; ++batch) bench.whole(batch);
  REQUIRE(bench.frames.size() == 10);
  for (const Seen& frame : bench.frames) CHECK(frame.bytes == slots({7, 7}));
  CHECK(bench.assembler->tally().early == 1);
  CHECK(bench.assembler->tally().skipped == 0);
  CHECK(bench.balanced());
  CHECK(bench.region->available() == 80);
}

TEST_CASE("packets of several pollers may begin with a later frame", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.send(5, 1, 7);
  bench.send(4, 0, 7);
  bench.send(4, 1, 7);
  bench.send(5, 0, 7);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5});
}

TEST_CASE("an acquisition begins with the frame that begins after it", "[reorder]") {
  Bench bench(by_packet_number(3));
  bench.whole(4);
  bench.send(5, 0, 1);
  CHECK(bench.assembler->begin_epoch(0, bench.now, std::nullopt) == 2);
  // What was open is closed.
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5});
  bench.send(5, 2, 1);
  bench.send(5, 1, 1);
  bench.whole(6);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5, 6});
  CHECK(bench.orders == std::vector<std::uint64_t>{0, 1, 3});
  CHECK(bench.assembler->tally().early == 2);
  CHECK(bench.assembler->tally().skipped == 0);
  // The number means another batch when all others have been used.
  for (std::uint32_t batch = 7; batch < 65536 + 6; ++batch) bench.whole(batch % 65536);
  CHECK(bench.assembler->tally().early == 2);
  CHECK(bench.assembler->tally().skipped == 0);
  CHECK(bench.frames.size() == 65536 + 2);
  CHECK(bench.balanced());
}

TEST_CASE("in an acquisition, a packet that is late begins nothing anew", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  bench.send(4, 0, 1);
  bench.assembler->expire(bench.now + TIMEOUT_NS);
  bench.now += PAUSE_NS;
  bench.send(4, 1, 1);
  bench.whole(5);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1});
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.late == 1);
  CHECK(tally.restarts == 0);
  // Far behind, it is of a detector that counts from 0.
  bench.now += PAUSE_NS;
  bench.whole(0);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5, 0});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 2});
  CHECK(tally.restarts == 1);
}

TEST_CASE("a slow frame that is lost is lost once", "[reorder]") {
  Bench bench(by_packet_number(4), 1);
  bench.keep = true;
  bench.whole(0);
  for (const std::uint32_t slot : {0U, 1U, 2U, 3U}) {
    bench.now += PAUSE_NS - 1;
    bench.send(1, slot, 1);
  }
  const std::uint32_t buffer = 0;
  bench.region->give(&buffer, 1);
  bench.whole(2);
  CHECK(bench.batches() == std::vector<std::uint32_t>{0, 2});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 2});
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.lost == 1);
  CHECK(tally.no_buffer == 4);
  CHECK(tally.restarts == 0);
}

TEST_CASE("a lost frame before which others come is one place", "[reorder]") {
  Bench bench(by_packet_number(1), 1);
  bench.refuse = true;
  bench.send(5, 0, 1);
  bench.refuse = false;
  bench.send(4, 0, 1);
  bench.send(6, 0, 1);
  bench.send(7, 0, 1);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 6, 7});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 2, 3});
  CHECK(bench.assembler->tally().lost == 1);
}

TEST_CASE("a packet of another number from before an acquisition costs nothing", "[reorder]") {
  // Images of 3 packets; before the acquisition, one lacks its packet 1.
  const std::uint32_t old = GENERATE(7U, 40U, 97U);
  Bench bench(by_packet_number(3));
  bench.send(old, 0, 1);
  bench.send(old, 2, 1);
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  const std::uint32_t first = GENERATE(0U, 98U);
  const std::uint32_t when = GENERATE(0U, 1U, 2U, 3U, 4U);
  std::vector<std::uint32_t> expected;
  std::uint32_t sent = 0;
  for (std::uint32_t batch = first; batch < first + 5; ++batch) {
    for (const std::uint32_t slot : {0U, 1U, 2U}) {
      if (sent++ == when) bench.send(old, 1, 1);
      bench.send(batch, slot, 7);
    }
    expected.push_back(batch);
  }
  bench.frames.erase(bench.frames.begin());
  bench.indices.erase(bench.indices.begin());
  INFO("old " << old << ", first " << first << ", when " << when);
  CHECK(bench.batches() == expected);
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 2, 3, 4});
  for (const Seen& frame : bench.frames) CHECK(frame.bytes == slots({7, 7, 7}));
  CHECK(bench.assembler->tally().early == 1);
  CHECK(bench.assembler->tally().skipped == 0);
  CHECK(bench.balanced());
}

TEST_CASE("a packet of the next number from before an acquisition costs no image", "[reorder]") {
  Bench bench(by_packet_number(3));
  bench.send(1, 0, 1);
  bench.send(1, 2, 1);
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  const std::uint32_t when = GENERATE(0U, 1U, 2U);
  for (const std::uint32_t slot : {0U, 1U, 2U}) {
    if (slot == when) bench.send(1, 1, 1);
    bench.send(0, slot, 7);
  }
  bench.whole(1);
  INFO("when " << when);
  CHECK(bench.batches() == std::vector<std::uint32_t>{1, 0, 1});
  CHECK(bench.frames.back().bytes == slots({7, 7, 7}));
  CHECK(bench.assembler->tally().early == 1);
  CHECK(bench.balanced());
}

TEST_CASE("a duplicate from before an acquisition begins no image", "[reorder]") {
  // A stream that goes on: images of 8 packets, 5 of number 3 came. A duplicate of one of these, or
  // of the image before, arrives before or after the first packet of the acquisition.
  Bench bench(by_packet_number(8));
  bench.whole(2);
  for (std::uint32_t slot = 0; slot < 5; ++slot) bench.send(3, slot, 3);
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  const std::uint32_t of = GENERATE(2U, 3U);
  const std::uint32_t when = GENERATE(5U, 6U, 8U);
  for (std::uint32_t slot = 5; slot < 8; ++slot) {
    if (slot == when) bench.send(of, 4, 3);
    bench.send(3, slot, 3);
  }
  if (when == 8) bench.send(of, 4, 3);
  for (std::uint32_t batch = 4; batch < 8; ++batch) bench.whole(batch);
  INFO("of " << of << ", when " << when);
  CHECK(bench.batches() == std::vector<std::uint32_t>{2, 3, 4, 5, 6, 7});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 0, 1, 2, 3});
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.incomplete == 1);
  CHECK(tally.early == 4);
  CHECK(tally.skipped == 0);
  CHECK(bench.balanced());
}

TEST_CASE("the rest of an image from before an acquisition is in no image", "[reorder]") {
  // Exposures of one image, number 0. Packets [0, came) arrive, the acquisition begins, the rest
  // arrive, and then the next exposure, at once or later.
  const std::uint32_t units = GENERATE(2U, 3U, 4U, 8U, 64U);
  const std::uint32_t came = GENERATE(1U, 2U, 10U, 32U, 60U);
  const std::uint64_t gap = GENERATE(std::uint64_t{0}, GAP_NS, 10 * GAP_NS);
  const bool lost = GENERATE(false, true);
  if (came >= units) return;
  Bench bench(by_packet_number(units));
  bench.refuse = lost;
  for (std::uint32_t slot = 0; slot < came; ++slot) bench.send(0, slot, 1);
  bench.refuse = false;
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  const std::size_t before = bench.frames.size();
  for (std::uint32_t slot = came; slot < units; ++slot) bench.send(0, slot, 1);
  bench.now += gap;
  for (std::uint32_t slot = 0; slot < units; ++slot) bench.send(0, slot, 2);
  bench.assembler->finish();
  INFO("units " << units << ", came " << came << ", gap " << gap << ", lost " << lost);
  for (std::size_t i = before; i < bench.frames.size(); ++i) {
    for (std::uint32_t slot = 0; slot < units; ++slot)
      CHECK((!bench.frames[i].valid[slot] || bench.frames[i].bytes[4 * slot] == 2));
  }
  if (gap > 0) {
    REQUIRE(bench.frames.size() == before + 1);
    CHECK(bench.frames.back().packets == units);
    CHECK(bench.assembler->tally().early == units - came);
  }
  CHECK(bench.balanced());
  CHECK(bench.region->available() == 80);
}

TEST_CASE("the rest of an image that was delivered without it is in no image", "[reorder]") {
  Bench bench(by_packet_number(8));
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.send(5, slot, 1);
  // Another acquisition begins before anything came for the first.
  for (int i = 0; i < 2; ++i) bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  for (std::uint32_t slot = 4; slot < 8; ++slot) bench.send(5, slot, 1);
  for (std::uint32_t batch = 6; batch < 9; ++batch) bench.whole(batch);
  CHECK(bench.batches() == std::vector<std::uint32_t>{5, 6, 7, 8});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 0, 1, 2});
  CHECK(bench.assembler->tally().early == 4);
}

TEST_CASE("bursts that count from zero in one acquisition begin anew after pauses", "[reorder]") {
  ReorderConfig config = by_packet_number(4);
  config.window_ = 8;
  Bench bench(config);
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  for (int burst = 0; burst < 3; ++burst) {
    for (std::uint32_t batch = 0; batch < 5; ++batch) bench.whole(batch);
    bench.now += 4 * PAUSE_NS;
  }
  CHECK(bench.batches() == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  CHECK(bench.assembler->tally().late == 0);
}

TEST_CASE("a packet beyond the first number costs no image", "[reorder]") {
  // The rest of image 7 of before arrives before images 0 to 8.
  Bench bench(by_packet_number(8));
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.send(7, slot, 1);
  bench.assembler->begin_epoch(0, bench.now, 0);
  for (std::uint32_t slot = 4; slot < 6; ++slot) bench.send(7, slot, 1);
  bench.now += GAP_NS;
  for (std::uint32_t batch = 0; batch < 9; ++batch) bench.whole(batch);
  CHECK(bench.batches() == std::vector<std::uint32_t>{7, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(bench.assembler->tally().early == 2);
  CHECK(bench.assembler->tally().incomplete == 1);
}

TEST_CASE("numbers that begin anew soon cost no packet", "[reorder]") {
  // Each exposure has images 0 and 1, of which packets are lost.
  Bench bench(by_packet_number(8));
  const std::uint32_t lost = GENERATE(0U, 1U, 4U);
  for (std::uint8_t exposure = 1; exposure < 4; ++exposure) {
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    bench.now += GAP_NS;
    for (std::uint32_t batch = 0; batch < 2; ++batch) {
      for (std::uint32_t slot = exposure == 2 ? lost : 0; slot < 8; ++slot)
        bench.send(batch, slot, exposure);
    }
  }
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{0, 1, 0, 1, 0, 1});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 1, 0, 1, 0, 1});
  CHECK(bench.assembler->tally().early == 0);
  CHECK(bench.assembler->tally().missing == 2 * lost);
}

TEST_CASE("a plan without acquisitions recovers from a lost first frame", "[reorder]") {
  Bench bench(by_packet_number(2), 1);
  bench.refuse = true;
  bench.whole(0);
  bench.refuse = false;
  for (int exposure = 0; exposure < 2; ++exposure) {
    bench.now += PAUSE_NS;
    bench.whole(0);
    bench.whole(1);
  }
  CHECK(bench.batches() == std::vector<std::uint32_t>{0, 1, 0, 1});
  CHECK(bench.assembler->tally().lost == 1);
}

TEST_CASE("exposures of one acquisition never become one frame after a pause", "[reorder]") {
  Bench bench(by_packet_number(3));
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  bench.send(0, 0, 1);
  bench.send(0, 1, 1);
  bench.now += PAUSE_NS;
  for (const std::uint32_t slot : {0U, 1U, 2U}) bench.send(0, slot, 2);
  CHECK(bench.batches() == std::vector<std::uint32_t>{0, 0});
  CHECK(bench.frames[0].bytes == slots({1, 1, 0}));
  CHECK(bench.frames[1].bytes == slots({2, 2, 2}));
}

TEST_CASE("two exposures with the same numbers never become one frame", "[reorder]") {
  const std::uint32_t lacking = GENERATE(0U, 1U, 2U, 3U);
  Bench bench(by_packet_number(3));
  for (std::uint8_t exposure = 0; exposure < 5; ++exposure) {
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    bench.now += GAP_NS;
    for (std::uint32_t batch = 0; batch < 2; ++batch) {
      for (const std::uint32_t slot : {0U, 1U, 2U}) {
        if (exposure != 1 || slot != lacking) bench.send(batch, slot, exposure);
      }
    }
  }
  for (const Seen& frame : bench.frames) {
    std::set<int> values;
    for (std::size_t i = 0; i < frame.bytes.size(); ++i) {
      if (frame.valid[i / 4]) values.insert(frame.bytes[i]);
    }
    CHECK(values.size() == 1);
  }
  const ReorderSnapshot& tally = bench.assembler->tally();
  CHECK(tally.complete + tally.incomplete == 10);
  CHECK(tally.early == 0);
  CHECK(bench.balanced());
}

TEST_CASE("packets that arrived before an acquisition are left out, for a second", "[reorder]") {
  Bench bench(by_packet_number(1));
  const auto send = [&](std::uint32_t batch, std::uint64_t time) {
    bench.send({static_cast<std::uint8_t>(batch >> 8U), static_cast<std::uint8_t>(batch), 0, 0, 0,
                0, 0, 0, 7},
               time);
  };
  bench.assembler->begin_epoch(5000, bench.now, std::nullopt);
  send(1, 4999);
  send(2, 5000);
  // Without a time of arrival.
  send(3, 0);
  bench.now += BACKLOG_NS - 1;
  send(4, 4999);
  bench.now += 1;
  // A clock was set back.
  send(5, 4999);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{2, 3, 5});
  CHECK(bench.assembler->tally().early == 2);
}

TEST_CASE("with the expected first number, its absence is a gap", "[reorder]") {
  Bench bench(by_packet_number(2));
  bench.assembler->begin_epoch(0, bench.now, 1);
  bench.whole(4);
  bench.whole(5);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5});
  CHECK(bench.indices == std::vector<std::uint64_t>{3, 4});
  CHECK(bench.assembler->tally().skipped == 3);
  // Numbers of before, then what is expected.
  bench.assembler->begin_epoch(0, bench.now, 1);
  bench.send(0, 0, 99);
  bench.whole(1);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5, 1});
  CHECK(bench.assembler->tally().early == 1);
  bench.frames.pop_back();
  bench.indices.pop_back();
  // A stray packet; then all that is expected.
  bench.assembler->begin_epoch(0, bench.now, 1);
  bench.send(9, 1, 99);
  for (std::uint32_t batch = 1; batch < 4; ++batch) bench.whole(batch);
  CHECK(bench.batches() == std::vector<std::uint32_t>{4, 5, 1, 2, 3});
  CHECK(bench.assembler->tally().skipped == 3);
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

namespace {

/// The rules as a simple model with maps.
class Model {
 public:
  Model(std::uint32_t slots_of, std::uint64_t numbers, std::uint32_t window)
      : slots_(slots_of), numbers_(static_cast<std::int64_t>(numbers)), window_(window) {}

  void take(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
            std::uint64_t now) {
    if (slot >= slots_) return void(++malformed);
    std::uint64_t* fate = put(raw, slot, value, size, now);
    const auto delivered = delivered_.find(number_of(raw));
    const bool back = !acquiring_ || number_of(raw) <= newest_ - window_ ||
                      (delivered != delivered_.end() && delivered->first > newest_ - window_ &&
                       delivered->second.size() == slots_);
    if ((fate == &duplicate || (fate == &late && back)) && now - active_ >= PAUSE_NS) {
      finish();
      begin(raw);
      ++restarts;
      fate = put(raw, slot, value, size, now);
    }
    if (fate != &placed) latest_.reset();
    ++*fate;
  }
  void begin_epoch(std::uint64_t now) {
    before_.clear();
    came_.clear();
    after_gap_.clear();
    rested_ = false;
    begun_in_epoch_ = 0;
    for (const auto& [number, batch] : open_) {
      auto& there = before_[raw_of(number)];
      for (const auto& [slot, what] : batch) there.insert(slot);
    }
    const bool runs = now < active_ + IDLE_NS;
    for (const auto& [number, frame] : closed_) {
      const std::set<std::uint32_t> there = slots_in(frame);
      if (runs || there.size() < slots_) before_[raw_of(number)] = there;
    }
    for (const auto& [number, there] : delivered_) {
      if (runs && number > newest_ - window_) before_[raw_of(number)] = there;
    }
    finish();
    latest_.reset();
    begun_ = false;
    acquiring_ = true;
    epoch_at_ = now;
    index_ = passed_ = 0;
  }
  void finish() {
    while (begun_ && next_ <= newest_) end_next();
  }

  std::uint64_t placed{0}, duplicate{0}, late{0}, early{0}, malformed{0}, restarts{0}, skipped{0};
  std::vector<Seen> frames;
  std::vector<std::uint64_t> indices;

 private:
  [[nodiscard]] std::uint32_t raw_of(std::int64_t number) const {
    return static_cast<std::uint32_t>((number % numbers_ + numbers_) % numbers_);
  }
  [[nodiscard]] std::int64_t number_of(std::uint32_t raw) const {
    std::int64_t step = (raw - newest_) % numbers_;
    if (step < 0) step += numbers_;
    return newest_ + (step > numbers_ / 2 ? step - numbers_ : step);
  }
  /// Returns what the packet counts as.
  std::uint64_t* put(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
                     std::uint64_t now) {
    return put(raw, slot, value, size, now, now >= active_ + GAP_NS);
  }
  std::uint64_t* put(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
                     std::uint64_t now, bool gap) {
    if (!begun_) begin(raw);
    std::int64_t number = number_of(raw);
    if ((number < next_ || number > newest_ + 1) && now - epoch_at_ < BACKLOG_NS &&
        before_.contains(raw) && !are_new(raw, slot))
      return &early;
    // A gap within a frame is not seen.
    if (latest_ != raw) rested_ = rested_ || gap;
    if (number < next_ && !fresh_) return &late;
    if (number < next_ && number <= newest_ - window_) {
      while (!open_.empty()) retract(open_.begin()->first);
      for (const auto& [n, frame] : closed_) {
        placed -= frame.packets;
        early += frame.packets;
      }
      closed_.clear();
      begin(raw);
      number = newest_;
    }
    next_ = std::min(next_, number);
    if (number > newest_) {
      while (next_ <= number - window_ && next_ <= newest_) end_next();
      while (is_no_first() && next_ <= newest_) ++next_;
      if (next_ > newest_ && !anchored_) next_ = number;
      newest_ = number;
      while (next_ <= newest_ - window_) end_next();
      deliver();
    }
    if (closed_.contains(number)) return &late;
    if (!open_.contains(number)) {
      active_ = now;
      if (begun_in_epoch_++ < window_ && before_.contains(raw)) doubtful_.insert(number);
    }
    open_.try_emplace(number);
    if (doubtful_.contains(number) && !weigh(number, slot, gap)) {
      retract(number);
      return put(raw, slot, value, size, now, gap);
    }
    auto& batch = open_[number];
    if (!batch.empty() && batch.begin()->second.second != size) return &malformed;
    if (batch.contains(slot)) return &duplicate;
    batch[slot] = {value, size};
    active_ = now;
    latest_.reset();
    if (!doubtful_.contains(number)) latest_ = raw;
    if (batch.size() == slots_) {
      latest_.reset();
      close(number);
      deliver();
    }
    return &placed;
  }
  static std::set<std::uint32_t> slots_in(const Seen& frame) {
    std::set<std::uint32_t> there;
    for (std::uint32_t slot = 0; slot < frame.valid.size(); ++slot)
      if (frame.valid[slot]) there.insert(slot);
    return there;
  }
  [[nodiscard]] std::size_t again(std::uint32_t raw) {
    return static_cast<std::size_t>(std::ranges::count_if(
        came_[raw], [&](auto slot) { return before_.at(raw).contains(slot); }));
  }
  /// Whether the packets that came since the acquisition began are of a new frame.
  [[nodiscard]] bool are_new(std::uint32_t raw, std::uint32_t slot) {
    came_[raw].insert(slot);
    const std::size_t before = before_.at(raw).size();
    return came_[raw].size() == slots_ ||
           again(raw) > std::max(before / 4, before == 1 ? 0UL : 1UL);
  }
  /// Whether the packets of a doubtful frame remain.
  [[nodiscard]] bool weigh(std::int64_t number, std::uint32_t slot, bool gap) {
    const std::uint32_t raw = raw_of(number);
    if (came_[raw].empty()) {
      after_gap_[raw] = rested_;
    } else if (gap && again(raw) == 0 && !after_gap_[raw]) {
      before_[raw].merge(came_[raw]);
      came_[raw].clear();
      return false;
    }
    if (!are_new(raw, slot)) return true;
    const bool mixed = came_[raw].size() > again(raw) && !after_gap_[raw];
    before_.erase(raw);
    doubtful_.erase(number);
    if (mixed) return false;
    deliver();
    return true;
  }
  void begin(std::uint32_t raw) {
    begun_ = fresh_ = true;
    anchored_ = false;
    newest_ = next_ = raw;
    passed_ = 0;
    delivered_.clear();
  }
  void retract(std::int64_t number) {
    if (latest_ == raw_of(number)) latest_.reset();
    placed -= open_[number].size();
    early += open_[number].size();
    open_.erase(number);
    doubtful_.erase(number);
  }
  void deliver() {
    while (next_ <= newest_ &&
           (closed_.contains(next_) || is_rest(next_) || (is_no_first() && next_ < newest_))) {
      if (next_ == newest_ && open_.contains(next_)) return retract(next_);
      end_next();
    }
  }
  [[nodiscard]] bool is_no_first() const {
    return !anchored_ && !open_.contains(next_) && !closed_.contains(next_);
  }
  /// Whether a frame from before the acquisition has all its packets now.
  [[nodiscard]] bool is_rest(std::int64_t number) const {
    if (!doubtful_.contains(number)) return false;
    std::set<std::uint32_t> all = before_.at(raw_of(number));
    all.merge(std::set(came_.at(raw_of(number))));
    return all.size() == slots_;
  }
  void end_next() {
    if (open_.contains(next_)) close(next_);
    if (const auto found = closed_.find(next_); found == closed_.end()) {
      if (anchored_) ++passed_;
    } else {
      delivered_[next_] = slots_in(found->second);
      frames.push_back(std::move(found->second));
      closed_.erase(found);
      indices.push_back(index_ + passed_);
      index_ = indices.back() + 1;
      skipped += std::exchange(passed_, 0);
      fresh_ = false;
      anchored_ = true;
    }
    ++next_;
  }
  void close(std::int64_t number) {
    const auto& batch = open_.at(number);
    if (doubtful_.contains(number) && batch.size() < slots_) return retract(number);
    doubtful_.erase(number);
    const std::uint32_t size = batch.begin()->second.second;
    Seen frame{raw_of(number), {}, {}, static_cast<std::uint32_t>(batch.size()), false, 0};
    for (std::uint32_t slot = 0; slot < slots_; ++slot) {
      const auto found = batch.find(slot);
      frame.valid.push_back(found != batch.end());
      frame.bytes.insert(frame.bytes.end(), size, found != batch.end() ? found->second.first : 0);
    }
    if (latest_ == raw_of(number)) latest_.reset();
    closed_.emplace(number, std::move(frame));
    open_.erase(number);
  }

  std::uint32_t slots_;
  std::int64_t numbers_;
  std::int64_t window_;
  std::map<std::int64_t, std::map<std::uint32_t, std::pair<std::uint8_t, std::uint32_t>>> open_;
  std::map<std::int64_t, Seen> closed_;
  std::map<std::uint32_t, std::set<std::uint32_t>> before_;
  std::map<std::uint32_t, std::set<std::uint32_t>> came_;
  std::set<std::int64_t> doubtful_;
  std::map<std::uint32_t, bool> after_gap_;
  bool rested_{false};
  /// Number of the frame of the latest packet, if it was placed.
  std::optional<std::uint32_t> latest_;
  std::map<std::int64_t, std::set<std::uint32_t>> delivered_;
  std::uint64_t epoch_at_{0};
  bool acquiring_{false};
  bool anchored_{false};
  bool begun_{false};
  bool fresh_{false};
  std::int64_t newest_{0};
  std::int64_t next_{0};
  std::uint64_t passed_{0};
  std::uint64_t index_{0};
  std::uint64_t active_{0};
  std::int64_t begun_in_epoch_{0};
};

}  // namespace

TEST_CASE("any sequence of packets does what the rules say", "[reorder]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    ReorderConfig config = by_packet_number(1 + below(70), below(2) == 0 ? 8 : 16);
    config.window_ = 1 + below(below(2) == 0 ? 3 : 64);
    // Use the storage of small frames and of large frames.
    Bench bench(config, 80, 4096, seed % 2 == 0 ? 0 : std::uint64_t{1} << 40U);
    Model model(bench.plan.units(), bench.plan.batch_numbers(), bench.plan.window());
    std::uint32_t batch = below(65536);
    std::uint64_t sent = 0;
    for (int frame = 0; frame < 40; ++frame) {
      ++batch;
      if (below(15) == 0) batch = below(65536);
      if (below(4) == 0) bench.now += PAUSE_NS - below(2);
      if (below(3) == 0) bench.now += GAP_NS - below(2);
      if (below(12) == 0) {
        bench.assembler->begin_epoch(0, bench.now, std::nullopt);
        model.begin_epoch(bench.now);
      }
      for (std::uint32_t i = 0; i < bench.plan.units() + below(3); ++i) {
        if (below(20) == 0) continue;
        const std::uint32_t number = batch - below(below(2) == 0 ? 1 : 4);
        const auto raw = static_cast<std::uint32_t>(number % bench.plan.batch_numbers());
        const std::uint32_t slot = below(10) == 0 ? below(bench.plan.units() + 2) : i;
        const auto value = static_cast<std::uint8_t>(1 + below(255));
        const std::uint32_t size = below(50) == 0 ? 3 : 4;
        bench.send(raw, slot, value, size);
        model.take(raw, slot, value, size, bench.now);
        ++sent;
      }
    }
    bench.assembler->finish();
    model.finish();
    const ReorderSnapshot& tally = bench.assembler->tally();
    INFO("seed " << seed);
    CHECK(tally.packets == sent);
    CHECK(tally.placed == model.placed);
    CHECK(tally.duplicate == model.duplicate);
    CHECK(tally.late == model.late);
    CHECK(tally.early == model.early);
    CHECK(tally.malformed == model.malformed);
    CHECK(tally.skipped == model.skipped);
    CHECK(tally.restarts == model.restarts);
    REQUIRE(bench.frames.size() == model.frames.size());
    CHECK(bench.frames == model.frames);
    CHECK(bench.indices == model.indices);
    CHECK(bench.balanced());
    CHECK(bench.region->available() == 80);
  }
}

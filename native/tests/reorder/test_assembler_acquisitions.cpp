// Acquisitions and pauses: which packets begin frames anew, and which belong to none.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "assembler_bench.h"

using namespace daqiri;
using namespace daqiri::reorder;
using namespace daqiri::test;

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

TEST_CASE("an image of which a packet came before an acquisition is none of it", "[reorder]") {
  // Images of 8 packets from a network that changes their order and loses some. The sender stops
  // often, as its processor is busy with others. Of the packets from before the acquisition, some
  // were taken, by other acquisitions, too, and some wait: in one socket, or in two, of which the
  // other is read first.
  constexpr std::uint32_t IMAGES = 12;
  for (unsigned seed = 0; seed < 5'000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    ReorderConfig config = by_packet_number(8);
    config.window_ = 2 + below(3);
    Bench bench(config);
    struct Sent {
      std::uint32_t key, image, slot;
      std::uint64_t time;
    };
    // In so many places after its own, a packet may arrive, so that `window` images are open at
    // most: also if one socket is read with a delay of so many packets of the other one.
    const std::uint32_t delay = below(2) == 0 ? 0 : 8;
    const std::uint32_t later = 1 + below(8 * (bench.plan.window() - 1) - delay + 1);
    const std::uint32_t losses = 4 + below(100);
    std::vector<Sent> sent;
    for (std::uint32_t packet = 0; packet < IMAGES * 8; ++packet) {
      if (below(losses) != 0) sent.push_back({packet + below(later), packet / 8, packet % 8, 0});
    }
    std::ranges::stable_sort(sent, {}, &Sent::key);
    std::uint64_t now = 1'000'000;
    for (Sent& each : sent) each.time = now += below(8) == 0 ? GAP_NS * (1 + below(3)) : 1;
    const std::uint32_t before = 1 + below(IMAGES * 4);
    const std::uint32_t waited = below(std::min(before + 1, 40U));
    const std::uint32_t behind = delay == 0 ? 0 : below(waited + 1);

    const auto send = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        bench.send_at(sent[i].time, sent[i].image, sent[i].slot, 7);
    };
    // Those before `waited` are taken before the acquisition; then those of the other socket, and
    // those that it has up to `taken`.
    const std::uint32_t taken = before + (behind == 0 ? 0 : below(delay));
    std::uint32_t others = 0;
    while (below(2) == 0 && others < before - waited) {
      const std::uint32_t from =
          std::exchange(others, others + 1 + below(before - waited - others));
      send(from, others);
      bench.assembler->begin_epoch(sent[others].time, bench.now, std::nullopt);
    }
    send(others, before - waited);
    const auto first = below(2) == 0 ? std::optional<std::uint64_t>{} : below(IMAGES);
    bench.assembler->begin_epoch(sent[before].time, bench.now, first);
    bench.frames.clear();
    send(before - behind, taken);
    send(before - waited, before - behind);
    send(taken, sent.size());
    bench.assembler->finish();

    std::set<std::uint32_t> begun;
    for (std::size_t i = 0; i < before; ++i) begun.insert(sent[i].image);
    INFO("seed " << seed);
    std::map<std::uint32_t, std::uint32_t> seen;
    for (const Seen& frame : bench.frames) {
      CHECK(!begun.contains(frame.batch));
      CHECK(seen.emplace(frame.batch, frame.packets).second);
    }
    std::map<std::uint32_t, std::uint32_t> after;
    for (const Sent& each : sent) {
      if (!begun.contains(each.image) && each.image >= first.value_or(0)) after[each.image] += 1;
    }
    CHECK(seen == after);
    CHECK(bench.balanced());
    CHECK(bench.region->available() == 80);
  }
}

TEST_CASE("a duplicate of an image whose rest has come begins no image", "[reorder]") {
  Bench bench(by_packet_number(8));
  for (std::uint32_t slot = 0; slot < 5; ++slot) bench.send(3, slot, 3);
  bench.assembler->begin_epoch(0, bench.now, std::nullopt);
  for (std::uint32_t slot = 5; slot < 8; ++slot) bench.send(3, slot, 3);
  bench.send(4, 0, 7);
  bench.send(3, 4, 3);
  for (std::uint32_t slot = 1; slot < 8; ++slot) bench.send(4, slot, 7);
  bench.whole(5);
  CHECK(bench.batches() == std::vector<std::uint32_t>{3, 4, 5});
  CHECK(bench.indices == std::vector<std::uint64_t>{0, 0, 1});
  CHECK(bench.assembler->tally().early == 4);
}

TEST_CASE("a new image is whole, whatever of one with its number waited", "[reorder]") {
  // The poller of the one that waited comes before the last packet of the new one.
  Bench bench(by_packet_number(8));
  const std::uint64_t since = 10 * GAP_NS;
  bench.assembler->begin_epoch(since, bench.now, std::nullopt);
  for (std::uint32_t slot = 0; slot < 7; ++slot) bench.send_at(since + slot, 0, slot, 2);
  for (std::uint32_t slot = 0; slot < 8; ++slot)
    bench.send_at(since - 2 * GAP_NS + slot, 0, slot, 1);
  bench.send_at(since + 7, 0, 7, 2);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames.front().bytes == slots({2, 2, 2, 2, 2, 2, 2, 2}));
  CHECK(bench.assembler->tally().early == 8);
}

TEST_CASE("an image from before that is lost is no image later", "[reorder]") {
  ReorderConfig config = by_packet_number(8);
  config.window_ = 3;
  Bench bench(config);
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.send(5, slot, 3);
  const std::uint64_t since = bench.now += GAP_NS;
  bench.assembler->begin_epoch(since, bench.now, 5);
  bench.refuse = true;
  bench.send_at(since + 1, 5, 4, 3);
  bench.refuse = false;
  bench.now += TIMEOUT_NS;
  bench.assembler->expire(bench.now);
  const bool others_wait = GENERATE(false, true);
  for (std::uint32_t batch = 6; batch < (others_wait ? 13U : 6U); ++batch)
    bench.send_at(since - 1, batch, 0, 3);
  if (!others_wait) bench.now += BACKLOG_NS;
  bench.send_at(since + 2, 5, 5, 3);
  for (std::uint32_t batch = 13; batch < 16; ++batch) bench.whole(batch);
  bench.assembler->finish();
  CHECK(bench.batches() == std::vector<std::uint32_t>{5, 13, 14, 15});
  CHECK(bench.balanced());
  CHECK(bench.region->available() == 80);
}

TEST_CASE("what came before an acquisition came before the next one, too", "[reorder]") {
  Bench bench(by_packet_number(8));
  const std::uint64_t since = 10 * GAP_NS;
  std::vector<std::uint32_t> expected{6, 7, 8};
  SECTION("it waited") {
    bench.assembler->begin_epoch(since, bench.now, std::nullopt);
    for (std::uint32_t slot = 0; slot < 4; ++slot) bench.send_at(since - 9 + slot, 5, slot, 1);
    bench.assembler->begin_epoch(since + 9, bench.now, std::nullopt);
    for (std::uint32_t slot = 4; slot < 8; ++slot) bench.send_at(since + 9 + slot, 5, slot, 1);
  }
  SECTION("it was given up") {
    for (std::uint32_t slot = 0; slot < 3; ++slot) bench.send(5, slot, 1);
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    for (std::uint32_t slot = 3; slot < 6; ++slot) bench.send(5, slot, 1);
    bench.assembler->expire(bench.now + TIMEOUT_NS);
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    bench.frames.clear();
    for (std::uint32_t slot = 6; slot < 8; ++slot) bench.send(5, slot, 1);
  }
  SECTION("its rest came behind the next one") {
    for (std::uint32_t slot = 0; slot < 3; ++slot) bench.send(5, slot, 1);
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    bench.send(6, 0, 1);
    bench.send(5, 4, 1);
    bench.assembler->begin_epoch(0, bench.now, std::nullopt);
    bench.frames.clear();
    for (std::uint32_t slot = 5; slot < 8; ++slot) bench.send(5, slot, 1);
    for (std::uint32_t slot = 1; slot < 8; ++slot) bench.send(6, slot, 1);
    expected = {7, 8};
  }
  for (std::uint32_t batch = expected.front(); batch < 9; ++batch) bench.whole(batch);
  CHECK(bench.batches() == expected);
}

TEST_CASE("an image is not mixed of the rest of one that waited and of a new one", "[reorder]") {
  // The rest came through another poller, before it.
  const std::uint64_t gap = GENERATE(std::uint64_t{0}, GAP_NS);
  Bench bench(by_packet_number(8));
  const std::uint64_t since = 10 * GAP_NS;
  bench.assembler->begin_epoch(since, bench.now, std::nullopt);
  for (const std::uint32_t slot : {4U, 5U}) bench.send_at(since + slot, 0, slot, 1);
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.send_at(since - 4 + slot, 0, slot, 1);
  for (const std::uint32_t slot : {6U, 7U}) bench.send_at(since + slot, 0, slot, 1);
  for (std::uint32_t slot = 0; slot < 8; ++slot) bench.send_at(since + 8 + gap + slot, 0, slot, 2);
  bench.assembler->finish();
  REQUIRE(bench.frames.size() == 1);
  const Seen& frame = bench.frames.front();
  for (std::uint32_t slot = 0; slot < 8; ++slot)
    CHECK((!frame.valid[slot] || frame.bytes[std::size_t{4} * slot] == 2));
  if (gap > 0) CHECK(frame.packets == 8);
}

TEST_CASE("an image is not mixed of a rest that came after a pause and of a new one", "[reorder]") {
  const bool waited = GENERATE(false, true);
  Bench bench(by_packet_number(8));
  const std::uint64_t since = 10 * GAP_NS;
  const auto old = [&](std::uint32_t begin, std::uint32_t end, std::uint64_t time) {
    for (std::uint32_t slot = begin; slot < end; ++slot) bench.send_at(time + slot, 0, slot, 1);
  };
  if (!waited) old(0, 4, since - 9);
  bench.assembler->begin_epoch(since, bench.now, std::nullopt);
  bench.frames.clear();
  if (waited) old(0, 4, since - 9);
  old(4, 8, since + GAP_NS);
  for (std::uint32_t slot = 0; slot < 8; ++slot)
    bench.send_at(since + 2 * GAP_NS + 8 + slot, 0, slot, 2);
  REQUIRE(bench.frames.size() == 1);
  CHECK(bench.frames.front().bytes == slots({2, 2, 2, 2, 2, 2, 2, 2}));
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

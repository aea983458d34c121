// How AF_XDP memory is divided among the queues of a card.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engines/packet/xdp_drops.h"
#include "engines/packet/xdp_shares.h"

using daqiri::packet::XdpShares;
using daqiri::packet::XdpStatistics;

namespace {

constexpr std::uint64_t SECOND = 1'000'000'000;
constexpr std::uint64_t BEGIN = 1000 * SECOND;
constexpr std::uint64_t MIB = 1U << 20U;

}  // namespace

TEST_CASE("rings are as large as the memory, within a limit for all of them") {
  CHECK(XdpShares::ring_size(16'384, 2048, 1) == 16'384);
  CHECK(XdpShares::ring_size(16'384, 2048, 64) == 16'384);
  CHECK(XdpShares::ring_size(20'000, 2048, 4) == 32'768);
  CHECK(XdpShares::ring_size(1, 4096, 1) == 1);
  // 1 GiB.
  CHECK(XdpShares::ring_size(524'288, 2048, 16) == 524'288);
  CHECK(XdpShares::ring_size(524'288, 2048, 64) == 131'072);
  for (const std::uint32_t chunks : {2048U, 16'384U, 65'536U, 100'000U, 524'288U}) {
    for (const std::uint32_t queues : {1U, 2U, 16U, 63U, 64U, 128U}) {
      CAPTURE(chunks, queues);
      const std::uint64_t bytes = std::uint64_t{chunks} * 2048;
      const std::uint64_t size = XdpShares::ring_size(chunks, 2048, queues);
      CHECK((size & (size - 1)) == 0);
      CHECK(queues * size * XdpShares::DESCRIPTOR_BYTES <= XdpShares::most_ring_bytes(bytes));
      // No queue can have less than in equal parts.
      CHECK(size * queues * 2 > chunks);
    }
  }
  CHECK(XdpShares::most_ring_bytes(8 * MIB) == 32 * MIB);
  CHECK(XdpShares::most_ring_bytes(1024 * MIB) == 256 * MIB);
}

TEST_CASE("a card with one queue uses all memory") {
  XdpShares shares(16'384, 1, 16'384);
  const std::array<std::uint32_t, 1> none{0};
  shares.update(none, BEGIN);
  CHECK(shares.most(0) == 16'384);
  CHECK(shares.part() == 16'384);
  CHECK(shares.reserve() == 0);
  CHECK(shares.floor() == 16'384);
}

TEST_CASE("queues without traffic have a quarter of the memory together") {
  CHECK(XdpShares(16'384, 16, 16'384).floor() == 256);
  CHECK(XdpShares(524'288, 16, 524'288).floor() == 8192);
  CHECK(XdpShares(10, 16, 16).floor() == 1);
}

TEST_CASE("a queue gets the chunks that its frames need") {
  XdpShares shares(16'384, 4, 16'384);
  std::array<std::uint32_t, 4> filled{0, 20, 3, 0};
  shares.update(filled, BEGIN);
  CHECK(shares.floor() == 1024);
  CHECK(shares.most(1) == 2000);
  // A few frames need no more than a queue without traffic.
  CHECK((shares.idle(0) && shares.idle(2) && shares.idle(3)));
  CHECK(shares.part() == 16'384 / 2);
  CHECK(shares.reserve() == 2048);
  filled = {1000, 10, 0, 0};
  shares.update(filled, BEGIN + SECOND / 100);
  CHECK(shares.most(0) == 16'384);
  CHECK(shares.most(1) == 2000);
  CHECK(shares.part() == 16'384 / 3);
  filled = {0, 11, 0, 0};
  SECTION("until it has not needed them for one to two seconds") {
    shares.update(filled, BEGIN + SECOND);
    CHECK(shares.most(0) == 16'384);
    CHECK(shares.most(1) == 2000);
    shares.update(filled, BEGIN + 2 * SECOND);
    CHECK(shares.idle(0));
    CHECK(shares.most(1) == 1100);
    CHECK(shares.part() == 16'384 / 2);
  }
  SECTION("also if no frame arrives for long") {
    shares.update(filled, BEGIN + 100 * SECOND);
    CHECK(shares.idle(0));
    CHECK(shares.most(1) == 1100);
  }
}

namespace {

/// Queues whose chunks go to the kernel as in `XdpSocket::refill`, and come back with a frame.
class Card {
 public:
  explicit Card(std::uint32_t queues)
      : shares(CHUNKS, queues, CHUNKS), holdings(queues), filled_(queues) {
    refill();
  }

  /// A second in which so many frames arrive in each hundredth, on some queues.
  void second(std::span<const std::size_t> with_traffic, std::uint32_t frames) {
    for (const std::size_t at : with_traffic) filled_[at] = frames;
    for (int i = 0; i < 100; ++i) {
      for (const std::size_t at : with_traffic) take_back(at, frames);
      now_ += SECOND / 100;
      shares.update(filled_, now_);
      refill();
    }
    std::ranges::fill(filled_, 0);
    const std::size_t at = shares.surplus(holdings, free_);
    if (at == holdings.size()) return;
    CHECK(shares.idle(at));
    take_back(at, holdings[at].held);
    refill();
    ++exchanges;
  }

  static constexpr std::uint32_t CHUNKS = 16'384;
  XdpShares shares;
  std::vector<XdpShares::Holding> holdings;
  int exchanges{0};

 private:
  void take_back(std::size_t at, std::uint32_t chunks) {
    const std::uint32_t n = std::min(chunks, holdings[at].held);
    holdings[at].held -= n;
    free_ += n;
  }
  void refill() {
    for (std::size_t at = 0; at < holdings.size(); ++at) {
      std::uint32_t& held = holdings[at].held;
      while (held < shares.most(at) && free_ > (held < shares.part() ? 0 : shares.reserve())) {
        ++held;
        --free_;
      }
    }
  }

  std::vector<std::uint32_t> filled_;
  std::uint32_t free_{CHUNKS};
  std::uint64_t now_{BEGIN};
};

}  // namespace

TEST_CASE("a flow that changes queues gets all that it needs on each") {
  const std::uint32_t queues = GENERATE(2U, 3U, 8U, 16U, 64U);
  CAPTURE(queues);
  Card card(queues);
  for (std::size_t round = 0; round < 3; ++round) {
    for (std::size_t at = 0; at < queues; ++at) {
      CAPTURE(round, at);
      const std::array with_traffic{at};
      // The queue before is idle after two seconds; then each second one gives its chunks.
      for (std::uint32_t i = 0; i < queues + 3; ++i) card.second(with_traffic, 200);
      CHECK(card.shares.wanted(at) == Card::CHUNKS / 2);
      CHECK(card.holdings[at].held >= card.shares.wanted(at));
      const int before = card.exchanges;
      for (int i = 0; i < 5; ++i) card.second(with_traffic, 200);
      CHECK(card.exchanges == before);
    }
  }
}

TEST_CASE(
    "sockets are exchanged only for a queue that lacks chunks, and only where some are left") {
  constexpr std::uint32_t QUEUES = 4;
  XdpShares shares(16'384, QUEUES, 16'384);
  std::array<std::uint32_t, QUEUES> filled{200, 0, 0, 0};
  shares.update(filled, BEGIN);
  std::array<XdpShares::Holding, QUEUES> queues{{{8191, 0}, {5000, 0}, {2049, 0}, {1024, 0}}};
  CHECK(shares.surplus(queues, 0) == 1);
  CHECK(shares.surplus(queues, shares.reserve()) == 1);
  CHECK(shares.surplus(queues, shares.reserve() + 1) == QUEUES);
  queues[1].waiting = 1;
  CHECK(shares.surplus(queues, 0) == 2);
  queues[2].held = 2048;
  CHECK(shares.surplus(queues, 0) == QUEUES);
  queues[1].waiting = 0;
  queues[0].held = 8192;
  CHECK(shares.surplus(queues, 0) == QUEUES);
  SECTION("not for more than its ring has space for") {
    XdpShares small(16'384, QUEUES, 4096);
    small.update(filled, BEGIN);
    CHECK(small.wanted(0) == 4096);
    queues[0].held = 4096;
    CHECK(small.surplus(queues, 0) == QUEUES);
    queues[0].held = 4095;
    CHECK(small.surplus(queues, 0) == 1);
  }
}

TEST_CASE("drops of AF_XDP") {
  XdpStatistics statistics;
  xdp_statistics now{};
  now.rx_dropped = 5;
  now.rx_ring_full = 2;
  now.rx_fill_ring_empty_descs = 5;
  SECTION("are counted if the kernel copies, those without memory once") {
    for (const bool ran_out : {false, true}) {
      XdpStatistics other;
      const auto drops = other.take(now, false, ran_out);
      CHECK(drops.counted == 7);
      CHECK_FALSE(drops.uncounted);
    }
  }
  SECTION("with zero copy are not counted if the card has no memory") {
    auto drops = statistics.take(now, true, true);
    CHECK(drops.counted == 7);
    CHECK(drops.uncounted);
    // The fill ring was not empty since then.
    drops = statistics.take(now, true, true);
    CHECK(drops.counted == 0);
    CHECK_FALSE(drops.uncounted);
    // It was, while the card had chunks.
    ++now.rx_fill_ring_empty_descs;
    CHECK_FALSE(statistics.take(now, true, false).uncounted);
    ++now.rx_fill_ring_empty_descs;
    CHECK(statistics.take(now, true, true).uncounted);
  }
}

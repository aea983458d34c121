// How AF_XDP memory is divided among the queues of a card.
#include <catch2/catch.hpp>

#include <array>
#include <cstdint>

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
  XdpShares shares(16'384, 1);
  const std::array<std::uint32_t, 1> none{0};
  shares.update(none, BEGIN);
  CHECK(shares.most(0) == 16'384);
  CHECK(shares.part() == 16'384);
  CHECK(shares.reserve() == 0);
  CHECK(shares.floor() == 16'384);
}

TEST_CASE("queues without traffic have a quarter of the memory together") {
  CHECK(XdpShares(16'384, 16).floor() == 256);
  CHECK(XdpShares(524'288, 16).floor() == 8192);
  CHECK(XdpShares(10, 16).floor() == 1);
}

TEST_CASE("a queue gets the chunks that its frames need") {
  XdpShares shares(16'384, 4);
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

// Chunks of AF_XDP memory that come back when a socket is closed.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engines/packet/umem.h"

using daqiri::packet::Umem;

namespace {

constexpr std::uint32_t CHUNKS = 1024;
constexpr std::uint32_t CHUNK_BYTES = 4096;

std::vector<std::uint32_t> take(Umem& umem, std::uint32_t n) {
  std::vector<std::uint32_t> taken(n);
  REQUIRE(umem.take(taken.data(), n) == n);
  return taken;
}

}  // namespace

TEST_CASE("chunks of a closed socket are free again, others stay where they are") {
  Umem umem("eth1", std::uint64_t{CHUNKS} * CHUNK_BYTES, CHUNK_BYTES);
  REQUIRE(umem.available() == CHUNKS);
  const std::vector<std::uint32_t> first = take(umem, 300);
  const std::vector<std::uint32_t> other = take(umem, 200);
  for (const std::uint32_t chunk : first) umem.lend(chunk, 0);
  for (const std::uint32_t chunk : other) umem.lend(chunk, 1);
  // Of the chunks of the first queue, 50 arrived and are free, 60 are kept, 10 of those were freed.
  umem.put_back(first.data(), 50);
  for (std::uint32_t i = 50; i < 110; ++i) umem.keep(first[i], 2);
  umem.give(first.data() + 50, 10);
  umem.give(first.data() + 50, 10);
  REQUIRE(umem.kept() == 50);
  REQUIRE(umem.available() == CHUNKS - 500 + 60);

  CHECK(umem.recover(0) == 190);
  CHECK(umem.recover(0) == 0);
  CHECK(umem.available() == CHUNKS - 200 - 50);
  CHECK(umem.recover(1) == 200);
  umem.give(first.data() + 60, 50);
  umem.give(first.data() + 60, 50);
  CHECK(umem.kept() == 0);

  // Each chunk is there once.
  std::vector<std::uint32_t> all = take(umem, CHUNKS);
  std::ranges::sort(all);
  CHECK(std::ranges::adjacent_find(all) == all.end());
  CHECK(umem.available() == 0);
}

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "memory/buffers.h"

using daqiri::memory::FreeList;

TEST_CASE("A free list hands out each number once", "[memory]") {
  FreeList list(100);
  std::vector<std::uint32_t> numbers(150);
  REQUIRE(list.take(numbers.data(), 150) == 100);
  numbers.resize(100);
  std::sort(numbers.begin(), numbers.end());
  for (std::uint32_t i = 0; i < 100; ++i) REQUIRE(numbers[i] == i);
  REQUIRE(list.available() == 0);
  std::uint32_t none = 0;
  REQUIRE(list.take(&none, 1) == 0);
  list.give(numbers.data(), 40);
  REQUIRE(list.available() == 40);
  REQUIRE(list.take(numbers.data(), 100) == 40);
}

TEST_CASE("An empty free list stays empty", "[memory]") {
  FreeList list(0);
  std::uint32_t number = 0;
  REQUIRE(list.take(&number, 1) == 0);
}

TEST_CASE("Threads never hold the same number", "[memory]") {
  constexpr std::uint32_t COUNT = 256;
  constexpr int THREADS = 4;
  constexpr int ROUNDS = 4000;
  FreeList list(COUNT);
  std::vector<std::atomic<int>> owners(COUNT);
  std::atomic<bool> clash{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < THREADS; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::uint32_t> held(32);
      for (int round = 0; round < ROUNDS; ++round) {
        const std::uint32_t n = list.take(held.data(), 1 + random() % 32);
        for (std::uint32_t i = 0; i < n; ++i) {
          if (owners[held[i]].fetch_add(1) != 0) clash = true;
        }
        for (std::uint32_t i = 0; i < n; ++i) owners[held[i]].fetch_sub(1);
        list.give(held.data(), n);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE_FALSE(clash);
  REQUIRE(list.available() == COUNT);
}

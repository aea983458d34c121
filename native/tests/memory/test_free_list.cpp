#include <catch2/catch.hpp>

#include <algorithm>
#include <iterator>
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

TEST_CASE("A free list hands out first what was given last, in its order", "[memory]") {
  FreeList list(200);
  std::vector<std::uint32_t> all(200);
  REQUIRE(list.take(all.data(), 200) == 200);
  const std::vector<std::uint32_t> first{7, 3, 150};
  std::vector<std::uint32_t> second(50);
  for (std::uint32_t i = 0; i < 50; ++i) second[i] = 199 - 2 * i;
  list.give(first.data(), 3);
  list.give(second.data(), 50);
  // Parts that end with its blocks, and within them.
  std::vector<std::uint32_t> found;
  for (const std::uint32_t part : {12U, 1U, 11U, 20U, 10U}) {
    std::vector<std::uint32_t> some(part);
    some.resize(list.take(some.data(), part));
    found.insert(found.end(), some.begin(), some.end());
  }
  second.insert(second.end(), first.begin(), first.end());
  REQUIRE(found == second);
  REQUIRE(list.available() == 0);
}

TEST_CASE("A free list holds what a list of all that was given holds", "[memory]") {
  std::mt19937 random(36);
  for (const std::uint32_t count : {1U, 11U, 12U, 13U, 24U, 25U, 500U}) {
    FreeList list(count);
    std::vector<std::uint32_t> model(count);
    std::iota(model.rbegin(), model.rend(), 0U);
    std::vector<std::uint32_t> held;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0) {
        std::vector<std::uint32_t> some(1 + random() % 70);
        some.resize(list.take(some.data(), static_cast<std::uint32_t>(some.size())));
        for (const std::uint32_t number : some) {
          REQUIRE(number == model.back());
          model.pop_back();
        }
        held.insert(held.end(), some.begin(), some.end());
      } else {
        std::shuffle(held.begin(), held.end(), random);
        const std::size_t n = std::min<std::size_t>(random() % 70, held.size());
        list.give(held.data(), static_cast<std::uint32_t>(n));
        model.insert(model.end(), std::make_reverse_iterator(held.begin() + n), held.rend());
        held.erase(held.begin(), held.begin() + n);
      }
      REQUIRE(list.available() == model.size());
      REQUIRE(held.size() + model.size() == count);
    }
    REQUIRE_FALSE(list.take_all(count + 1));
    REQUIRE(list.take_all(count) == held.empty());
  }
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
      // Of several blocks, so that others change those that are looked at ahead.
      std::vector<std::uint32_t> held(100);
      for (int round = 0; round < ROUNDS; ++round) {
        const std::uint32_t n = list.take(held.data(), 1 + random() % 100);
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

#include <catch2/catch.hpp>

#include <numeric>
#include <thread>
#include <vector>

#include "system/ring.h"

using namespace daqiri;

TEST_CASE("A ring keeps order and knows when it is full", "[burst]") {
  MpmcRing<int> ring(4);
  REQUIRE(ring.capacity() == 4);
  for (int i = 0; i < 4; ++i) REQUIRE(ring.push(i));
  REQUIRE_FALSE(ring.push(9));
  REQUIRE(ring.size() == 4);
  int value = -1;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(ring.pop(value));
    REQUIRE(value == i);
  }
  REQUIRE_FALSE(ring.pop(value));
}

TEST_CASE("Producers and consumers lose and double nothing", "[burst]") {
  constexpr int PER_PRODUCER = 20000;
  constexpr int PRODUCERS = 2;
  MpmcRing<int> ring(64);
  std::vector<std::atomic<int>> seen(PER_PRODUCER * PRODUCERS);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int p = 0; p < PRODUCERS; ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < PER_PRODUCER; ++i) {
        while (!ring.push(p * PER_PRODUCER + i)) std::this_thread::yield();
      }
    });
  }
  for (int c = 0; c < 2; ++c) {
    threads.emplace_back([&] {
      int value = 0;
      while (taken.load() < PER_PRODUCER * PRODUCERS) {
        if (ring.pop(value)) {
          seen[static_cast<std::size_t>(value)].fetch_add(1);
          taken.fetch_add(1);
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& count : seen) REQUIRE(count.load() == 1);
}

TEST_CASE("The single-producer ring hands cells over in place", "[burst]") {
  constexpr int COUNT = 100000;
  SpscRing<int> ring(64);
  std::thread producer([&] {
    for (int i = 0; i < COUNT;) {
      if (int* cell = ring.claim()) {
        *cell = i++;
        ring.publish();
      } else {
        std::this_thread::yield();
      }
    }
  });
  int expected = 0;
  bool in_order = true;
  while (expected < COUNT) {
    const std::size_t n = ring.ready();
    if (n == 0) std::this_thread::yield();
    for (std::size_t i = 0; i < n; ++i) in_order = in_order && ring.at(i) == expected++;
    ring.consume(n);
  }
  producer.join();
  REQUIRE(in_order);
}

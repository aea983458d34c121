#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "burst/burst.h"
#include "memory/region.h"
#include "system/doorbell.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {
std::unique_ptr<memory::MemoryRegion> small_region(std::uint64_t count) {
  MemoryRegionConfig config;
  config.name_ = "small";
  config.num_bufs_ = count;
  config.buf_size_ = 128;
  return memory::MemoryRegion::allocate(config);
}

void fill(Burst& burst, memory::MemoryRegion& region, std::uint32_t packets) {
  burst.owners[0] = &region;
  REQUIRE(region.take(burst.buffers[0], packets) == packets);
  for (std::uint32_t i = 0; i < packets; ++i)
    burst.pkts[0][i] = region.address(burst.buffers[0][i]);
  burst.owned = packets;
  burst.hdr.hdr.num_pkts = packets;
}
}  // namespace

TEST_CASE("A released burst gives every buffer back once", "[burst]") {
  const auto region = small_region(32);
  BurstPool pool(2, 16, 1, false);
  Burst* burst = pool.take();
  fill(*burst, *region, 16);
  burst->free_packet(3);
  burst->free_packet(3);
  burst->free_packet(99);
  REQUIRE(region->available() == 17);
  burst->free_segment(0);
  REQUIRE(region->available() == 32);
  burst->release();
  REQUIRE(region->available() == 32);
  REQUIRE(pool.available() == 2);
}

TEST_CASE("Buffers go back even when the header was lowered", "[burst]") {
  const auto region = small_region(16);
  BurstPool pool(1, 16, 1, true);
  Burst* burst = pool.take();
  fill(*burst, *region, 16);
  burst->hdr.hdr.num_pkts = 2;
  burst->release();
  REQUIRE(region->available() == 16);
}

TEST_CASE("A pool of bursts is bounded and its headers outlive it", "[burst]") {
  Burst* stale = nullptr;
  {
    BurstPool pool(2, 8, 2, false);
    Burst* first = pool.take();
    Burst* second = pool.take();
    REQUIRE(pool.take() == nullptr);
    REQUIRE(first->state.load() == BurstState::ENGINE);
    REQUIRE(first->hdr.hdr.num_segs == 2);
    stale = first;
    pool.give(first);
    pool.give(second);
  }
  REQUIRE(stale->state.load() == BurstState::FREE);
  REQUIRE(stale->pkts[0] == nullptr);
}

TEST_CASE("Free bursts that many threads take and give are never lost", "[burst]") {
  constexpr std::uint32_t COUNT = 8;
  BurstPool pool(COUNT, 4, 1, true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool] {
      for (int i = 0; i < 20000; ++i) {
        Burst* burst = pool.take();
        if (burst != nullptr) pool.give(burst);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<Burst*> all;
  while (Burst* burst = pool.take()) all.insert(burst);
  CHECK(all.size() == COUNT);
  for (Burst* burst : all) pool.give(burst);
}

TEST_CASE("A child that is forked while another thread makes bursts makes its own", "[burst]") {
#ifdef __SANITIZE_ADDRESS__
  WARN("skipped: a forked child may find the address sanitizer's allocator locked for ever");
  return;
#endif
  std::atomic<bool> done{false};
  std::thread busy([&] {
    while (!done) BurstPool(256, 1, 1, false);
  });
  int ended = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      BurstPool(16, 1, 1, false);
      _exit(0);
    }
    pid_t waited = 0;
    for (int ms = 0; ms < 5000 && waited == 0; ++ms) {
      waited = waitpid(child, nullptr, WNOHANG);
      if (waited == 0) usleep(1000);
    }
    if (waited == child) {
      ++ended;
      continue;
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    break;
  }
  done = true;
  busy.join();
  CHECK(ended == 50);
}

TEST_CASE("A doorbell wakes a sleeper and never misses one", "[burst]") {
  Doorbell bell;
  std::atomic<int> work{0};
  std::atomic<int> done{0};
  constexpr int ROUNDS = 2000;
  std::thread sleeper([&] {
    for (int i = 0; i < ROUNDS;) {
      bell.prepare();
      if (work.load() > i) {
        bell.cancel();
        ++i;
        done.store(i);
        continue;
      }
      // A missed wakeup would cost the full two seconds, and the test would take minutes.
      bell.wait(2'000'000'000);
    }
  });
  const std::uint64_t begun = monotonic_ns();
  for (int i = 1; i <= ROUNDS; ++i) {
    work.store(i);
    bell.ring();
    while (done.load() < i) std::this_thread::yield();
  }
  sleeper.join();
  REQUIRE(monotonic_ns() - begun < 60'000'000'000ULL);
}

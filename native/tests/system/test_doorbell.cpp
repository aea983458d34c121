#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <thread>
#include <vector>

#include "system/doorbell.h"
#include "system/log.h"
#include "timing/clock.h"

using namespace daqiri;

TEST_CASE("one ring wakes every sleeper", "[system]") {
  constexpr int SLEEPERS = 4;
  constexpr int ROUNDS = 200;
  constexpr std::int64_t LONG = 20'000'000'000;
  WaitQueue queue;
  std::atomic<int> round{0};
  std::atomic<int> awake{0};
  std::atomic<int> asleep{0};
  const std::uint64_t begun = monotonic_ns();
  std::vector<std::thread> sleepers;
  for (int i = 0; i < SLEEPERS; ++i) {
    sleepers.emplace_back([&] {
      for (int seen = 0; seen < ROUNDS; ++seen) {
        while (round.load() <= seen) {
          const WaitQueue::Ticket ticket = queue.prepare();
          if (round.load() > seen) break;
          ++asleep;
          queue.wait(ticket, LONG);
          --asleep;
        }
        ++awake;
      }
    });
  }
  for (int i = 1; i <= ROUNDS; ++i) {
    while (asleep < SLEEPERS && monotonic_ns() - begun < LONG) std::this_thread::yield();
    round = i;
    queue.ring();
    while (awake < i * SLEEPERS && monotonic_ns() - begun < LONG) std::this_thread::yield();
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
  // A sleeper that was not woken would sleep for LONG.
  CHECK(monotonic_ns() - begun < static_cast<std::uint64_t>(LONG));
}

TEST_CASE("a thread sleeps on any number of descriptors", "[system]") {
  Doorbell doorbell;
  std::vector<int> fds;
  for (int i = 0; i < 100; ++i) fds.push_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  doorbell.reserve(fds.size());
  const std::uint64_t one = 1;
  REQUIRE(write(fds.back(), &one, sizeof one) == sizeof one);
  const std::uint64_t begun = monotonic_ns();
  doorbell.prepare();
  doorbell.wait(20'000'000'000, fds);
  CHECK(monotonic_ns() - begun < 20'000'000'000ULL);
  for (const int fd : fds) close(fd);
}

TEST_CASE("a log line never waits for standard error", "[system]") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const int before = dup(STDERR_FILENO);
  REQUIRE(dup2(ends[1], STDERR_FILENO) >= 0);
  // Fills the pipe, which has no reader; a blocking write would wait forever.
  for (int i = 0; i < 4000; ++i)
    log(LogLevel::ERROR, "line " + std::to_string(i) + std::string(60, '.'));
  std::vector<char> text(1U << 20U);
  const ssize_t filled = read(ends[0], text.data(), text.size());
  log(LogLevel::ERROR, "the last line");
  const ssize_t n = read(ends[0], text.data(), text.size());
  dup2(before, STDERR_FILENO);
  for (const int fd : {before, ends[0], ends[1]}) close(fd);
  REQUIRE(filled > 0);
  REQUIRE(n > 0);
  const std::string last(text.data(), static_cast<std::size_t>(n));
  CHECK_THAT(last, Catch::Contains("the last line") && Catch::Contains("could not be written"));
}

/// Waits for packets on port 0, and checks what its flows have counted.
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "session/session.h"
#include "timing/clock.h"

namespace daqiri::test {

inline void wait_received(const RxQueue& rx, std::uint64_t count) {
  const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
  while (rx.counters().received < count && monotonic_ns() < end)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  REQUIRE(rx.counters().received == count);
}

inline void check_flow(const Session& session, std::size_t position, std::uint64_t packets,
                       std::uint64_t bytes) {
  const FlowSnapshot found = session.port(0).steering.counts(position);
  CHECK(found.packets == packets);
  CHECK(found.bytes == bytes);
}

}  // namespace daqiri::test

/// An application that receives the bursts of a queue until the session is closed.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "io/rx_queue.h"

namespace daqiri::test {

enum class Manner { FAST, SLOW, KEEPS_BURSTS, STOPS, ABSENT };

/// `take(queue, burst)` is called with each burst before it is released.
template <typename Take>
void consume(RxQueue& rx, Manner manner, Take take) {
  if (manner == Manner::ABSENT) return;
  std::vector<Burst*> kept;
  const auto release = [&kept] {
    for (Burst* burst : kept) burst->release();
    kept.clear();
  };
  std::uint32_t bursts = 0;
  // Check `closed` before emptying the queue, so that no later burst is missed.
  for (bool last = false; !(last && rx.counters().held == 0);) {
    last = rx.closed();
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(1'000'000);
      continue;
    }
    take(rx, *burst);
    if (manner == Manner::SLOW) std::this_thread::sleep_for(std::chrono::microseconds(200));
    kept.push_back(burst);
    if (manner != Manner::KEEPS_BURSTS || kept.size() == 4) release();
    if (manner == Manner::STOPS && ++bursts == 5) break;
  }
  release();
}

}  // namespace daqiri::test

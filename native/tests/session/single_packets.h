/// Packets sent and received one by one, on port 0.
#pragma once

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "session/session.h"
#include "timing/clock.h"

namespace daqiri::test {

inline constexpr std::uint64_t PATIENCE_NS = 20'000'000'000;

/// Sends one packet, split after `cut` bytes if the queue has two segments.
inline void send(Session& session, const std::vector<std::uint8_t>& frame, std::uint32_t cut = 0) {
  TxQueue& tx = session.tx_queue(0, 0);
  Burst* burst = nullptr;
  REQUIRE(tx.allocate(1, &burst) == Status::SUCCESS);
  const auto size = static_cast<std::uint32_t>(frame.size());
  if (tx.num_segments() == 1) cut = size;
  std::memcpy(burst->pkts[0][0], frame.data(), cut);
  burst->pkt_lens[0][0] = cut;
  if (tx.num_segments() > 1) {
    std::memcpy(burst->pkts[1][0], frame.data() + cut, size - cut);
    burst->pkt_lens[1][0] = size - cut;
  }
  REQUIRE(tx.send(burst) == Status::SUCCESS);
}

/// Waits for a burst of a queue.
inline Burst* next_burst(RxQueue& rx) {
  Burst* burst = nullptr;
  const std::uint64_t end = monotonic_ns() + PATIENCE_NS;
  while ((burst = rx.receive()) == nullptr && monotonic_ns() < end) rx.wait(50'000'000);
  REQUIRE(burst != nullptr);
  return burst;
}

/// The next packet of a queue, and its flow.
inline std::pair<std::vector<std::uint8_t>, FlowId> receive(Session& session, int queue) {
  RxQueue& rx = session.rx_queue(0, queue);
  Burst* burst = next_burst(rx);
  std::vector<std::uint8_t> bytes;
  for (int s = 0; s < rx.num_segments(); ++s) {
    const auto* at = static_cast<const std::uint8_t*>(burst->pkts[s][0]);
    bytes.insert(bytes.end(), at, at + burst->pkt_lens[s][0]);
  }
  const FlowId flow = burst->flow_ids[0];
  burst->release();
  return {bytes, flow};
}

/// Waits for drops of this reason and returns their number.
inline std::uint64_t dropped(const RxQueue& rx, DropReason reason) {
  const std::uint64_t end = monotonic_ns() + PATIENCE_NS;
  const auto count = [&] { return rx.counters().dropped[static_cast<std::size_t>(reason)]; };
  while (count() == 0 && monotonic_ns() < end) std::this_thread::yield();
  return count();
}

}  // namespace daqiri::test

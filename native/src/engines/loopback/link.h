/// The wire in memory between a transmit worker and a receive queue.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/rx_queue.h"
#include "steering/steering.h"
#include "system/ring.h"

namespace daqiri::loopback {

/// A packet that has arrived, in buffers of the receive queue's regions.
struct Arrived {
  std::uint32_t buffers[MAX_NUM_SEGS]{};
  std::uint32_t lengths[MAX_NUM_SEGS]{};
  FlowId flow{0};
  /// See steering::Verdict::position.
  std::uint16_t flow_position{steering::NO_FLOW};
  std::uint64_t timestamp{0};
};

/// What happens to packets for which the receiving side has no space.
enum class Full : std::uint8_t {
  /// The sender waits.
  WAIT,
  /// They are dropped and counted, as on a wire.
  DROP
};

/// The wire from one transmit worker to one receive queue. The worker does the work of the
/// receiving port's NIC: it steers the frame, takes a buffer of the receive queue's region and
/// copies the frame once.
struct Link {
  /// As many cells as buffers, so that a stalled poller loses packets only after the region is
  /// exhausted. `full`: for a full ring; `no_buffer`: if no buffer is free.
  Link(RxQueue& queue, const steering::Steering& steering, Full full, Full no_buffer)
      : rx(queue),
        tally(steering.add_tally()),
        ring(queue.region(0).config().num_bufs_),
        waits_for_room(full == Full::WAIT),
        waits_for_buffers(no_buffer == Full::WAIT) {
    constexpr std::uint64_t MOST_AHEAD = 32;
    std::uint64_t smallest = 16 * MOST_AHEAD;
    for (int s = 0; s < rx.num_segments(); ++s)
      smallest = std::min(smallest, rx.region(s).config().num_bufs_);
    ahead = static_cast<std::uint32_t>(std::max<std::uint64_t>(smallest / 16, 1));
    for (auto& numbers : cache) numbers.reserve(ahead + 1);
  }

  RxQueue& rx;
  /// Used by the poller.
  steering::FlowTally& tally;
  SpscRing<Arrived> ring;
  bool waits_for_room;
  bool waits_for_buffers;
  /// Buffers taken in advance, per segment, and how many at a time; used by the transmit worker
  /// within a call.
  std::vector<std::uint32_t> cache[MAX_NUM_SEGS];
  std::uint32_t ahead;
  bool rung{true};

  /// Packets lost on the wire, until the poller's next pass.
  struct Lost {
    std::atomic<std::uint64_t> packets{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  std::array<Lost, NUM_DROP_REASONS> lost;

  void lose(DropReason reason, std::uint64_t bytes) noexcept {
    Lost& entry = lost[static_cast<std::size_t>(reason)];
    entry.bytes.fetch_add(bytes, std::memory_order_relaxed);
    entry.packets.fetch_add(1, std::memory_order_release);
  }

  std::uint32_t take_buffer(int segment) noexcept {
    auto& numbers = cache[segment];
    if (numbers.empty()) {
      numbers.resize(ahead);
      numbers.resize(rx.region(segment).take(numbers.data(), ahead));
      if (numbers.empty()) return NO_BUFFER;
    }
    const std::uint32_t number = numbers.back();
    numbers.pop_back();
    return number;
  }

  /// Take one buffer per segment, or none.
  bool take_buffers(Arrived& packet) noexcept {
    for (int s = 0; s < rx.num_segments(); ++s) {
      packet.buffers[s] = take_buffer(s);
      if (packet.buffers[s] != NO_BUFFER) continue;
      for (int t = 0; t < s; ++t) cache[t].push_back(packet.buffers[t]);
      return false;
    }
    return true;
  }

  /// Other threads may need the buffers.
  void give_cache_back() noexcept {
    for (int s = 0; s < rx.num_segments(); ++s) {
      rx.region(s).give(cache[s].data(), static_cast<std::uint32_t>(cache[s].size()));
      cache[s].clear();
    }
  }

  // --- Poller.

  void count_lost() noexcept {
    for (std::size_t r = 0; r < lost.size(); ++r) {
      if (lost[r].packets.load(std::memory_order_relaxed) == 0) continue;
      const std::uint64_t packets = lost[r].packets.exchange(0, std::memory_order_acquire);
      rx.drop(static_cast<DropReason>(r), packets, lost[r].bytes.exchange(0));
    }
  }

  /// The queue closes: drop the packets that remain in the ring.
  void finish() noexcept {
    for (; ring.ready() > 0; ring.consume(1)) {
      const Arrived& packet = ring.at(0);
      std::uint64_t bytes = 0;
      for (int s = 0; s < rx.num_segments(); ++s) {
        bytes += packet.lengths[s];
        rx.region(s).give(&packet.buffers[s], 1);
      }
      tally.count(packet.flow_position, 1, bytes);
      rx.drop(DropReason::FLUSHED, 1, bytes);
    }
    count_lost();
  }

  std::uint32_t deliver() noexcept {
    constexpr std::size_t MAX_PER_PASS = 256;
    constexpr std::uint32_t AT_ONCE = 64;
    const std::size_t ready = std::min(ring.ready(), MAX_PER_PASS);
    const int segments = rx.num_segments();
    std::uint32_t buffers[MAX_NUM_SEGS][AT_ONCE];
    std::uint32_t lengths[MAX_NUM_SEGS][AT_ONCE];
    FlowId flows[AT_ONCE];
    std::uint64_t times[AT_ONCE];
    RxBatch batch;
    for (int s = 0; s < segments; ++s)
      batch.segments[s] = {.buffers = buffers[s], .lengths = {lengths[s]}};
    batch.flows.values = flows;
    batch.times.values = times;
    std::size_t done = 0;
    for (; done < ready; done += batch.count) {
      const std::uint32_t room = waits_for_room ? rx.room(rx.main_source()) : AT_ONCE;
      batch.count = std::min({static_cast<std::uint32_t>(ready - done), AT_ONCE, room});
      if (batch.count == 0) break;
      steering::FlowRun run(tally);
      for (std::uint32_t i = 0; i < batch.count; ++i) {
        const Arrived& packet = ring.at(i);
        run.add(packet.flow_position);
        for (int s = 0; s < segments; ++s) {
          buffers[s][i] = packet.buffers[s];
          lengths[s][i] = packet.lengths[s];
          run.add_bytes(packet.lengths[s]);
        }
        flows[i] = packet.flow;
        times[i] = packet.timestamp;
      }
      run.end();
      ring.consume(batch.count);
      rx.deliver(batch);
    }
    count_lost();
    return static_cast<std::uint32_t>(done);
  }
};

}  // namespace daqiri::loopback

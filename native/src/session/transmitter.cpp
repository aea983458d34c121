#include "session/transmitter.h"

#include <algorithm>
#include <limits>

#include "session/core.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::uint64_t NEVER = std::numeric_limits<std::uint64_t>::max();
/// Before a launch time the worker sleeps until this long before, then spins.
constexpr std::uint64_t SPIN_NS = 80'000;
constexpr std::int64_t MAX_SLEEP_NS = 100'000'000;
/// Idle time after which the worker sleeps instead of spinning.
constexpr std::uint64_t IDLE_SPIN_NS = 20'000;
/// Pacing credit that an idle queue keeps.
constexpr std::uint64_t PACING_CREDIT_NS = 1'000'000;
/// Passes that a stopping worker makes for what is due.
constexpr int DRAIN_PASSES = 100'000;

/// ns that `bytes` take at `mbps`.
constexpr std::uint64_t wire_ns(std::uint64_t bytes, std::uint32_t mbps) {
  return bytes * 8000U / mbps;
}

}  // namespace

void Transmitter::add(TxQueue& queue) {
  queue.worker_doorbell = &doorbell_;
  queues_.push_back(&queue);
}

void Transmitter::start() {
  thread_ = std::thread([this] { run(); });
}

void Transmitter::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  doorbell_.ring();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t Transmitter::serve(TxQueue& queue, Burst& burst) noexcept {
  const std::uint32_t first = queue.position();
  const std::uint32_t limit = std::min(burst.num_packets() - first, engine_.transmit_run());
  const std::uint32_t mbps = queue.config().pacing_mbps_;
  const std::uint64_t now = realtime_ns();
  std::uint64_t paced = mbps == 0 ? 0 : std::max(queue.paced_until, now - PACING_CREDIT_NS);
  std::uint32_t run = 0;
  std::uint64_t due = now;
  for (; run < limit; ++run) {
    const std::uint64_t launch = burst.timestamps[first + run];
    due = std::max(launch, paced);
    if (due > now) break;
    if (mbps != 0) paced += wire_ns(burst.packet_length(first + run), mbps);
  }
  if (run == 0) return due;
  const TransmitResult result = engine_.transmit(queue, burst, first, run);
  const std::uint32_t done = result.sent + result.failed;
  for (std::uint32_t i = first; i < first + done; ++i) {
    const std::uint64_t launch = burst.timestamps[i];
    if (launch == 0) continue;
    queue.record_lateness(now - launch);
    if (launch < burst.begun_ns) queue.count_late();
  }
  if (mbps != 0) {
    if (done != run) {
      for (std::uint32_t i = first + done; i < first + run; ++i)
        paced -= wire_ns(burst.packet_length(i), mbps);
    }
    queue.paced_until = paced;
  }
  queue.count_sent(result.sent, result.bytes);
  queue.count_dropped(DropReason::SEND_ERROR, result.failed);
  return 0;
}

void Transmitter::wait_until(std::uint64_t due) noexcept {
  const std::uint64_t now = realtime_ns();
  if (now >= due) return;
  if (due - now > SPIN_NS) {
    doorbell_.prepare();
    if (stopping_.load(std::memory_order_acquire)) {
      doorbell_.cancel();
      return;
    }
    doorbell_.wait(
        std::min<std::int64_t>(MAX_SLEEP_NS, static_cast<std::int64_t>(due - now - SPIN_NS)));
    return;
  }
  while (realtime_ns() < due) {
  }
}

bool Transmitter::anything_queued() noexcept {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](TxQueue* queue) { return queue->current() != nullptr; });
}

void Transmitter::sleep() noexcept {
  doorbell_.prepare();
  if (stopping_.load(std::memory_order_acquire) || anything_queued()) {
    doorbell_.cancel();
    return;
  }
  doorbell_.wait(MAX_SLEEP_NS);
}

void Transmitter::run() noexcept {
  settle_thread(cpu_core_, "daqiri-tx-" + cpu_core_);
  std::uint64_t last_busy = monotonic_ns();
  int drain = 0;
  for (;;) {
    const bool stopping = stopping_.load(std::memory_order_acquire);
    std::uint64_t next_due = NEVER;
    bool progress = false;
    for (TxQueue* queue : queues_) {
      Burst* burst = queue->current();
      if (burst == nullptr) {
        queue->end_pass();
        continue;
      }
      const std::uint64_t due = serve(*queue, *burst);
      if (due == 0) {
        progress = true;
      } else {
        next_due = std::min(next_due, due);
      }
      queue->end_pass();
    }
    if (stopping && (!progress || ++drain > DRAIN_PASSES)) break;
    if (progress) {
      last_busy = monotonic_ns();
    } else if (next_due != NEVER) {
      wait_until(next_due);
    } else if (monotonic_ns() - last_busy < IDLE_SPIN_NS) {
      cpu_relax();
    } else {
      sleep();
    }
  }
  for (TxQueue* queue : queues_) {
    queue->mark_closed();
    queue->flush();
  }
}

}  // namespace daqiri

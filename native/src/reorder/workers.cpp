#include "reorder/workers.h"

#include <algorithm>

#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri::reorder {

namespace {

/// Idle time after which a worker sleeps instead of spinning.
constexpr std::uint64_t SPIN_NS = 50'000;
/// Most copies before a worker checks for new ones.
constexpr std::size_t ROUND = 32;

}  // namespace

Workers::Workers(const Plan& plan, const std::vector<std::string>& cores, bool never_sleep,
                 std::size_t frames, FrameWaiter& waiter)
    : plan_(plan), never_sleep_(never_sleep), waiter_(waiter), open_(frames) {
  for (const std::string& core : cores) {
    Worker& worker = workers_.emplace_back();
    worker.core = core;
    worker.thread =
        start_thread([this, &worker](const std::stop_token& stop) { run(worker, stop); });
  }
}

Workers::~Workers() {
  for (Worker& worker : workers_) {
    worker.thread.request_stop();
    worker.doorbell.ring();
  }
}

void Workers::move(std::span<const Transfer> copies) noexcept {
  Worker& worker = workers_[next_];
  next_ = (next_ + 1) % workers_.size();
  const std::uint64_t tail = worker.tail.load(std::memory_order_relaxed);
  const std::uint64_t used = tail - worker.head.load(std::memory_order_acquire);
  const std::size_t n = std::min<std::size_t>(copies.size(), Worker::CAPACITY - used);
  for (std::size_t i = 0; i < n; ++i) {
    open_.add(copies[i].frame);
    worker.ring[(tail + i) % Worker::CAPACITY] = copies[i];
  }
  worker.tail.store(tail + n, std::memory_order_seq_cst);
  worker.doorbell.ring();
  if (n == copies.size()) return;
  for (const Transfer& each : copies.subspan(n)) {
    plan_.place(each.to, each.at, each.from, each.bytes);
    each.owner->give(&each.buffer, 1);
  }
  plan_.settle();
}

Mover::Copies Workers::close(std::uint32_t frame) noexcept {
  return open_.close(frame) ? Copies::DONE : Copies::PENDING;
}

std::size_t Workers::work(Worker& worker) noexcept {
  const std::uint64_t head = worker.head.load(std::memory_order_relaxed);
  const std::uint64_t waiting = worker.tail.load(std::memory_order_seq_cst) - head;
  const auto n = std::min<std::size_t>(waiting, ROUND);
  const auto at = [&](std::size_t i) -> const Transfer& {
    return worker.ring[(head + i) % Worker::CAPACITY];
  };
  for (std::size_t i = 0; i < n; ++i) plan_.place(at(i).to, at(i).at, at(i).from, at(i).bytes);
  plan_.settle();
  // Free runs with the same owner together, and finish runs with the same frame together.
  std::uint32_t buffers[ROUND];
  for (std::size_t i = 0; i < n;) {
    const std::size_t first = i;
    for (; i < n && at(i).owner == at(first).owner; ++i) buffers[i - first] = at(i).buffer;
    at(first).owner->give(buffers, static_cast<std::uint32_t>(i - first));
  }
  for (std::size_t i = 0; i < n;) {
    const std::size_t first = i;
    while (i < n && at(i).frame == at(first).frame) ++i;
    const std::uint32_t frame = at(first).frame;
    if (open_.finish(frame, static_cast<std::uint32_t>(i - first))) waiter_.frame_done(frame, true);
  }
  worker.head.store(head + n, std::memory_order_release);
  return n;
}

void Workers::run(Worker& worker, const std::stop_token& stop) noexcept {
  configure_thread(worker.core, "daqiri-move-" + worker.core);
  std::uint64_t last = monotonic_ns();
  for (;;) {
    // Read before work(): copies may come between work() and the request.
    const bool stopped = stop.stop_requested();
    if (work(worker) > 0) {
      last = monotonic_ns();
    } else if (stopped) {
      return;
    } else if (never_sleep_ || monotonic_ns() - last < SPIN_NS) {
      cpu_relax();
    } else {
      worker.doorbell.prepare();
      if (stop.stop_requested() || worker.tail.load(std::memory_order_seq_cst) !=
                                       worker.head.load(std::memory_order_relaxed))
        worker.doorbell.cancel();
      else
        worker.doorbell.wait(-1, {});
    }
  }
}

}  // namespace daqiri::reorder

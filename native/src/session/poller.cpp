#include <algorithm>

#include "session/workers.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Idle time after which the poller sleeps instead of spinning.
constexpr std::uint64_t SPIN_NS = 50'000;
/// A poller that shares its core with other threads lets packets accumulate, at most for
/// LONGEST_PAUSE_NS and for this part of a burst's timeout. A pause below the least is not worth a
/// system call.
constexpr std::uint64_t LONGEST_PAUSE_NS = 1'000'000;
constexpr std::uint64_t PAUSE_PART_OF_TIMEOUT = 8;
constexpr std::uint64_t LEAST_PAUSE_NS = 10'000;
/// After a pass with at least this many packets, the next pass starts without a pause.
constexpr std::uint32_t BUSY_PASS = 32;
constexpr std::uint64_t MAX_SLEEP_NS = 100'000'000;
/// Limits, in time and packets, for emptying sources when a queue discards.
constexpr std::uint64_t DISCARD_NS = 100'000'000;
constexpr std::uint64_t MOST_DISCARDED = 1U << 20U;
/// How long a caller that waits for packets sleeps where nothing tells of them.
constexpr std::uint64_t UNTOLD_NS = 50'000;
/// Limits, in passes and time, for packets that arrive while the poller stops.
constexpr int DRAIN_PASSES = 10'000;
constexpr std::uint64_t DRAIN_NS = 1'000'000'000;
/// How long a stopping poller waits for packets that other pollers have for its queues, and how
/// often it checks.
constexpr std::uint64_t REST_NS = 3 * DRAIN_NS;
constexpr long REST_PAUSE_NS = 1'000'000;

}  // namespace

void Poller::add(PortIo& io, RxQueue& queue) {
  queue.set_poller(doorbell_);
  if (direct_) queue.set_direct(*this);
  queues_.push_back({&io, &queue});
  const Readiness ready = io.receive_traits(queue).ready;
  if (ready && std::ranges::find(fds_, ready.fd()) == fds_.end()) fds_.push_back(ready.fd());
  doorbell_.reserve(fds_.size());
}

std::uint32_t Poller::receive() noexcept {
  std::uint32_t seen = 0;
  for (const Polled& polled : queues_) seen += polled.io->receive(*polled.queue);
  seen_ += seen;
  return seen;
}

std::uint32_t Poller::pass() noexcept {
  const std::uint64_t now = monotonic_ns();
  bool discarding = false;
  for (const Polled& polled : queues_) {
    polled.queue->begin_pass(now);
    discarding = discarding || polled.queue->discarding();
  }
  const std::uint32_t seen = receive();
  // Discard what the sources held. Queues may share a source: it is emptied for all of them. A
  // source that fills faster than it is emptied has been emptied at least once when a limit is
  // reached.
  std::uint64_t total = seen;
  for (std::uint32_t n = seen;
       discarding && n > 0 && total < MOST_DISCARDED && monotonic_ns() - now < DISCARD_NS;
       total += n) {
    n = receive();
  }
  next_due_ = 0;
  for (const Polled& polled : queues_) {
    // Nothing else would free the buffers of open bursts.
    if (polled.queue->starves()) polled.queue->deliver_open();
    const std::uint64_t due = polled.queue->deliver_expired(now);
    if (due != 0 && (next_due_ == 0 || due < next_due_)) next_due_ = due;
    polled.queue->end_pass();
  }
  return seen;
}

bool Poller::sleep(std::uint64_t ns) noexcept {
  doorbell_.prepare();
  if (stop_.stop_requested() || pass() > 0) {
    doorbell_.cancel();
    return true;
  }
  return doorbell_.wait(static_cast<std::int64_t>(until_due(std::min(ns, MAX_SLEEP_NS))), fds_);
}

bool Poller::step_or_wait(std::uint64_t ns) noexcept {
  const std::uint64_t begun = monotonic_ns();
  do {
    if (pass() > 0 || stop_.stop_requested()) return true;
    cpu_relax();
  } while (monotonic_ns() - begun < std::min(ns, SPIN_NS));
  if (ns <= SPIN_NS) return true;
  const bool untold = never_sleeps_ && !ended();
  const std::uint64_t before = seen_;
  bool undisturbed = true;
  std::uint64_t left = ns - SPIN_NS;
  do {
    undisturbed = sleep(untold ? std::min(left, UNTOLD_NS) : left);
    const std::uint64_t took = monotonic_ns() - begun;
    left = took < ns ? ns - took : 0;
  } while (untold && undisturbed && left > 0 && seen_ == before && !stop_.stop_requested());
  pass();
  return undisturbed;
}

std::uint64_t Poller::until_due(std::uint64_t most) const noexcept {
  if (next_due_ == 0) return most;
  const std::uint64_t now = monotonic_ns();
  return next_due_ > now ? std::min(most, next_due_ - now) : 0;
}

std::uint64_t Poller::pause_allowed() const noexcept {
  if (core_available(cpu_core_)) return 0;
  std::uint64_t allowed = LONGEST_PAUSE_NS;
  for (const Polled& polled : queues_) {
    const RxQueueConfig& config = polled.queue->config();
    if (config.common_.batch_size_ == 1) return 0;
    allowed = std::min(allowed, polled.io->receive_traits(*polled.queue).gathers_ns);
    if (config.timeout_us_ > 0)
      allowed = std::min(allowed, config.timeout_us_ * 1000 / PAUSE_PART_OF_TIMEOUT);
  }
  return allowed < LEAST_PAUSE_NS ? 0 : allowed;
}

bool Poller::finds_gathered() const noexcept {
  return !core_available(cpu_core_) && std::ranges::all_of(queues_, [](const Polled& polled) {
    return polled.io->receive_traits(*polled.queue).gathered;
  });
}

bool Poller::ended() const noexcept {
  return std::ranges::all_of(queues_,
                             [](const Polled& polled) { return polled.io->ended(*polled.queue); });
}

void Poller::take_rest() noexcept {
  const auto expected = [](const Polled& polled) { return polled.io->expects_more(*polled.queue); };
  const std::uint64_t end = monotonic_ns() + REST_NS;
  while (std::ranges::any_of(queues_, expected) && monotonic_ns() < end) {
    if (pass() > 0) continue;
    const timespec pause{0, REST_PAUSE_NS};
    nanosleep(&pause, nullptr);
  }
}

void Poller::stop() noexcept {
  begin_stop();
  thread_ = {};
  if (!direct_) return;
  take_over();
  finish();
}

void Poller::run() noexcept {
  configure_thread(cpu_core_, "daqiri-rx-" + cpu_core_);
  const bool gathered = finds_gathered();
  const std::uint64_t pause_ns = gathered ? 0 : pause_allowed();
  const std::uint64_t spin_ns = gathered || pause_ns > 0 ? 0 : SPIN_NS;
  std::uint64_t last_seen = monotonic_ns();
  while (!stop_.stop_requested()) {
    const std::uint32_t seen = pass();
    if (seen > 0) {
      // Each reading of a clock costs as much as a few packets.
      if (!never_sleeps_) last_seen = monotonic_ns();
      if (pause_ns == 0 || seen >= BUSY_PASS) continue;
      const timespec pause{0, static_cast<long>(until_due(pause_ns))};
      if (pause.tv_nsec > 0) nanosleep(&pause, nullptr);
    } else if ((never_sleeps_ && !ended()) || monotonic_ns() - last_seen < spin_ns) {
      cpu_relax();
    } else {
      sleep(MAX_SLEEP_NS);
    }
  }
  finish();
}

void Poller::finish() noexcept {
  const std::uint64_t end = monotonic_ns() + DRAIN_NS;
  for (int i = 0; i < DRAIN_PASSES && pass() > 0 && monotonic_ns() < end; ++i) {
  }
  // Finish all queues first, because another poller may wait for packets that are read here.
  for (const Polled& polled : queues_) polled.io->finish_receiving(*polled.queue);
  take_rest();
  for (const Polled& polled : queues_) {
    polled.queue->deliver_all();
    polled.queue->end_pass();
    polled.queue->mark_closed();
  }
}

}  // namespace daqiri

#include "session/poller.h"

#include <algorithm>

#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {
/// Idle time after which the poller sleeps instead of spinning.
constexpr std::uint64_t SPIN_NS = 50'000;
/// A poller that shares its core with others lets packets gather in sockets for this long, and for
/// no more than this part of a burst's timeout; less than the least is not worth a system call.
constexpr std::uint64_t PAUSE_NS = 50'000;
constexpr std::uint64_t PAUSE_PART_OF_TIMEOUT = 8;
constexpr std::uint64_t LEAST_PAUSE_NS = 10'000;
/// Packets of a pass from which on the next one is made at once.
constexpr std::uint32_t BUSY_PASS = 32;
constexpr std::int64_t MAX_SLEEP_NS = 100'000'000;
/// How long, and for how many packets, sources are emptied when a queue discards.
constexpr std::uint64_t DISCARD_NS = 100'000'000;
constexpr std::uint64_t MOST_DISCARDED = 1U << 20U;
/// Passes that a stopping poller makes for what still arrives, and their time.
constexpr int DRAIN_PASSES = 10'000;
constexpr std::uint64_t DRAIN_NS = 1'000'000'000;
}  // namespace

void Poller::add(PortIo& io, RxQueue& queue) {
  queue.poller_doorbell = &doorbell_;
  queues_.push_back({&io, &queue});
}

void Poller::start() {
  for (const Polled& polled : queues_) {
    const int fd = polled.io->receive_traits(*polled.queue).ready_fd;
    if (fd >= 0 && std::find(fds_.begin(), fds_.end(), fd) == fds_.end()) fds_.push_back(fd);
  }
  doorbell_.reserve(fds_.size());
  thread_ = std::thread([this] { run(); });
}

void Poller::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  doorbell_.ring();
  if (thread_.joinable()) thread_.join();
}

std::uint32_t Poller::receive() noexcept {
  std::uint32_t seen = 0;
  for (const Polled& polled : queues_) seen += polled.io->receive(*polled.queue);
  return seen;
}

void Poller::drain(std::uint32_t received) noexcept {
  // A source that is filled faster than it is emptied has been emptied once by then.
  const std::uint64_t end = monotonic_ns() + DISCARD_NS;
  for (std::uint64_t total = received;
       received > 0 && total < MOST_DISCARDED && monotonic_ns() < end; total += received) {
    received = receive();
  }
}

std::uint32_t Poller::pass(std::uint64_t* next_due) noexcept {
  *next_due = 0;
  const std::uint64_t now = monotonic_ns();
  bool discarding = false;
  for (const Polled& polled : queues_) {
    polled.queue->begin_pass();
    discarding = discarding || polled.queue->discarding();
  }
  const std::uint32_t seen = receive();
  // Queues may share a source: it is emptied for all of them.
  if (discarding) drain(seen);
  const auto starves = [](const Polled& polled) { return polled.queue->starves(); };
  const bool starving = std::any_of(queues_.begin(), queues_.end(), starves);
  for (const Polled& polled : queues_) {
    // Open bursts hold buffers that nobody can give back.
    if (starving) polled.queue->deliver_open();
    const std::uint64_t due = polled.queue->deliver_expired(now);
    if (due != 0 && (*next_due == 0 || due < *next_due)) *next_due = due;
    polled.queue->end_pass();
  }
  return seen;
}

void Poller::sleep(std::uint64_t next_due) noexcept {
  doorbell_.prepare();
  std::uint64_t due = 0;
  if (stopping_.load(std::memory_order_acquire) || pass(&due) > 0) {
    doorbell_.cancel();
    return;
  }
  if (due != 0) next_due = due;
  std::int64_t timeout = MAX_SLEEP_NS;
  if (next_due != 0) {
    const std::uint64_t now = monotonic_ns();
    timeout = next_due > now
                  ? std::min<std::int64_t>(timeout, static_cast<std::int64_t>(next_due - now))
                  : 0;
  }
  doorbell_.wait(timeout, fds_);
}

std::uint64_t Poller::pause_allowed() const noexcept {
  if (cpu_core_ != ANY_CORE) return 0;
  std::uint64_t allowed = PAUSE_NS;
  for (const Polled& polled : queues_) {
    const RxQueueConfig& config = polled.queue->config();
    if (!polled.io->receive_traits(*polled.queue).gathers || config.batch_size_ == 1) return 0;
    if (config.timeout_us_ > 0)
      allowed = std::min(allowed, std::uint64_t{config.timeout_us_} * 1000 / PAUSE_PART_OF_TIMEOUT);
  }
  return allowed < LEAST_PAUSE_NS ? 0 : allowed;
}

void Poller::pause(std::uint64_t pause_ns, std::uint64_t next_due) const noexcept {
  if (next_due != 0) {
    const std::uint64_t now = monotonic_ns();
    if (next_due <= now) return;
    pause_ns = std::min(pause_ns, next_due - now);
  }
  const timespec time{0, static_cast<long>(pause_ns)};
  nanosleep(&time, nullptr);
}

void Poller::run() noexcept {
  configure_thread(cpu_core_, "daqiri-rx-" + cpu_core_);
  const std::uint64_t pause_ns = pause_allowed();
  std::uint64_t last_seen = monotonic_ns();
  std::uint64_t next_due = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    const std::uint32_t seen = pass(&next_due);
    if (seen > 0) {
      last_seen = monotonic_ns();
      if (pause_ns > 0 && seen < BUSY_PASS) pause(pause_ns, next_due);
    } else if (never_sleeps_ || (pause_ns == 0 && monotonic_ns() - last_seen < SPIN_NS)) {
      cpu_relax();
    } else {
      sleep(next_due);
    }
  }
  const std::uint64_t end = monotonic_ns() + DRAIN_NS;
  for (int i = 0; i < DRAIN_PASSES && pass(&next_due) > 0 && monotonic_ns() < end; ++i) {
  }
  for (const Polled& polled : queues_) {
    polled.queue->deliver_open();
    polled.queue->end_pass();
    polled.queue->mark_closed();
  }
}

}  // namespace daqiri

#include "session/workers.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "system/log.h"
#include "system/thread.h"
#include "timing/clock.h"
#include "timing/wire_time.h"

namespace daqiri {

namespace {

/// The worker wakes up this long before a launch time: twice the latest delays of its wake-ups.
constexpr std::uint64_t LEAST_SPIN_NS = 80'000;
constexpr std::uint64_t MOST_SPIN_NS = 1'000'000;
/// It sleeps only if the sleep lasts at least this long.
constexpr std::uint64_t LEAST_SLEEP_NS = 120'000;
/// One in this many wake-ups may be later than expected.
constexpr std::uint64_t WAKE_UPS = 128;
/// Most turns that a caller of a direct queue makes for other callers.
constexpr int MOST_TURNS = 1024;
/// Longest sleep: the worker notices a step of the clock within this time.
constexpr std::uint64_t TX_MAX_SLEEP_NS = 50'000'000;
/// Idle time after which the worker sleeps instead of spinning.
constexpr std::uint64_t IDLE_SPIN_NS = 20'000;
/// Pacing credit that an idle queue accumulates at most.
constexpr std::uint64_t PACING_CREDIT_NS = 1'000'000;
/// Packets per turn while another queue is late for its launch times.
constexpr std::uint64_t SHORT_TURN = 16;
/// Initial cost of sending a packet, and the limit for one measurement.
constexpr std::uint64_t FIRST_COST_NS = 2'000;
constexpr std::uint64_t MAX_COST_NS = 1'000'000;
/// Longest wait for a wire that accepts nothing.
constexpr std::uint64_t REFUSED_NS = 10'000'000;
/// Waits between retries, if the engine gives no notification: the first; each next one is twice as
/// long, up to the longest.
constexpr std::uint64_t FIRST_RETRY_NS = 50'000;
constexpr std::uint64_t LONGEST_RETRY_NS = 1'000'000;
/// How long a flush waits for a peer to receive data in flight, and how often it checks.
constexpr std::uint64_t FLUSH_NS = 25'000'000;
constexpr std::uint64_t FLUSHING_NS = 1'000'000;
/// How often the worker checks for packets that wait in the kernel.
constexpr std::uint64_t LAUNCHING_NS = 1'000'000;
/// How often it polls for buffers that the engine keeps.
constexpr std::uint64_t COMPLETING_NS = 20'000;
/// Most passes of a stopping worker for packets that are due.
constexpr int TX_DRAIN_PASSES = 100'000;
/// A stopping worker ends when the wire has accepted nothing for this long.
constexpr std::uint64_t TX_DRAIN_NS = 1'000'000'000;
/// It ends after this time even if the wire still accepts packets slowly.
constexpr std::uint64_t TX_LONGEST_DRAIN_NS = 5'000'000'000;

/// The launch lead, if the kernel waits for launch times, which reports packets after that. Where a
/// device waits, there are buffers to reuse before.
std::uint64_t kernel_lead(const TransmitTraits& traits) noexcept {
  return traits.keeps_buffers ? 0 : traits.launch_lead;
}

}  // namespace

void Transmitter::add(PortIo& io, TxQueue& queue) {
  queue.worker_doorbell = &doorbell_;
  if (direct_) queue.set_direct(*this);
  Served served{.io = &io,
                .queue = &queue,
                .traits = io.transmit_traits(queue),
                .pacing_mbps = queue.config().pacing_mbps_,
                .packet_cost = FIRST_COST_NS,
                .retry_ns = FIRST_RETRY_NS / 2,
                .wait_ns = FIRST_RETRY_NS};
  if (served.traits.paces) served.pacing_mbps = 0;
  queue.open(io, clock_, served.traits.keeps_buffers);
  queues_.push_back(served);
  fds_.reserve(queues_.size());
  doorbell_.reserve(queues_.size());
  realtime_priority_ = std::max(realtime_priority_, queue.config().realtime_priority_);
}

std::uint32_t Transmitter::turn(const Served& served) const noexcept {
  std::uint64_t packets = served.traits.most_packets;
  for (const Served& other : queues_) {
    if (&other == &served || other.due == 0 || other.due == NEVER) continue;
    const std::uint64_t fit =
        other.due <= now_ ? SHORT_TURN
                          : std::max<std::uint64_t>((other.due - now_) / served.packet_cost, 1);
    packets = std::min(packets, fit);
  }
  return static_cast<std::uint32_t>(packets);
}

void Transmitter::count_completed(Served& served, bool last) noexcept {
  const TransmitCompletion completion = served.io->completed(*served.queue, last);
  const std::uint64_t later = kernel_lead(served.traits) > 0 ? LAUNCHING_NS : COMPLETING_NS;
  served.ask = completion.more ? now_ + later : NEVER;
  served.queue->count_completed(completion);
}

bool Transmitter::flush(Served& served) noexcept {
  TxQueue& queue = *served.queue;
  if (served.flush_until == 0) {
    queue.begin_flush();
    served.flush_until = monotonic_ns() + FLUSH_NS;
  }
  const bool last = monotonic_ns() >= served.flush_until;
  StreamPort* const stream = served.io->stream();
  if (!last && stream != nullptr && stream->cut(queue)) {
    served.burst = queue.current();
    transmit(served, 1);
    queue.end_pass();
  }
  const bool settled = stream == nullptr || stream->settle(queue, last);
  const bool cut = stream != nullptr && stream->cut(queue);
  if (served.ask != NEVER) count_completed(served, false);
  const bool dropped = !cut && queue.drop_flushed();
  // Release bursts of which packets were kept.
  queue.end_pass();
  if (!dropped || (!last && !(settled && served.ask == NEVER))) {
    served.refused = true;
    served.unconnected = false;
    served.due = now_ + FLUSHING_NS;
    return false;
  }
  served.flush_until = 0;
  served.refused = false;
  served.burst = nullptr;
  queue.end_flush();
  return true;
}

bool Transmitter::serve(Served& served) noexcept {
  if (served.flush_until != 0 || served.queue->flush_wanted()) return flush(served);
  // Also if the clock was set back.
  if (served.ask != NEVER &&
      (served.ask <= now_ || served.ask - now_ > served.traits.launch_lead + LAUNCHING_NS))
    count_completed(served, false);
  served.burst = served.queue->current();
  if (served.burst == nullptr) {
    served.due = NEVER;
    served.queue->end_pass();
    return false;
  }
  const Burst& burst = *served.burst;
  const std::uint32_t first = served.queue->position();
  const std::uint64_t mbps = served.pacing_mbps;
  // Not the port's clock: if that were set back, a paced queue would stop for the same time.
  const std::uint64_t steady = mbps == 0 ? 0 : monotonic_ns();
  std::uint64_t paced = mbps == 0 ? 0 : std::max(served.paced_until, steady - PACING_CREDIT_NS);
  const std::uint32_t limit = std::min(burst.num_packets() - first, turn(served));
  std::uint64_t rest = served.pacing_rest;
  std::uint32_t run = 0;
  for (; run < limit; ++run) {
    served.due = wanted_at(served, burst.timestamps[first + run]);
    if (paced > steady) served.due = std::max(served.due, now_ + (paced - steady));
    if (served.due > now_) break;
    if (mbps != 0) {
      paced += wire_ns(burst.packet_length(first + run) + served.traits.overhead_bytes, mbps, rest);
    }
  }
  if (run > 0) transmit(served, run);
  served.queue->end_pass();
  return run > 0 && !served.refused;
}

void Transmitter::transmit(Served& served, std::uint32_t run) noexcept {
  TxQueue& queue = *served.queue;
  Burst& burst = *served.burst;
  const std::uint32_t first = queue.position();
  const std::uint64_t mbps = served.pacing_mbps;
  const std::uint64_t begun = now_;
  const std::uint64_t steady = mbps == 0 ? 0 : monotonic_ns();
  const TransmitResult result = served.io->transmit(queue, burst, first, run);
  now_ = clock_();
  const std::uint32_t done = result.sent + result.kept + result.failed;
  served.refused = done == 0;
  served.unconnected = result.unconnected;
  if (served.refused) {
    const bool told = served.traits.ready && !result.device_full;
    // What waits for its launch time in a full device leaves soon, and so does what follows.
    const std::uint64_t longest = served.traits.launch_lead > 0 ? FIRST_RETRY_NS : LONGEST_RETRY_NS;
    if (!told) served.retry_ns = std::min(2 * served.retry_ns, longest);
    served.wait_ns = told ? REFUSED_NS : served.retry_ns;
    served.due = now_ + served.wait_ns;
    return;
  }
  served.retry_ns = FIRST_RETRY_NS / 2;
  last_left_ = monotonic_ns();
  // A step of the clock in the meantime must not count as time in the engine.
  const std::uint64_t took =
      now_ > begun ? std::min(now_ - begun, MAX_COST_NS * done) : std::uint64_t{0};
  served.packet_cost = std::max<std::uint64_t>((7 * served.packet_cost + took / done) / 8, 1);
  std::uint64_t wire = 0;  // bytes
  for (std::uint32_t i = 0; i < done; ++i) {
    if (mbps != 0) wire += burst.packet_length(first + i) + served.traits.overhead_bytes;
    const std::uint64_t launch = burst.timestamps[first + i];
    if (launch == 0) continue;
    // Packets of one call leave one after another.
    const std::uint64_t left = begun + took * i / done;
    queue.record_lateness(left > launch ? left - launch : 0);
    if (launch < burst.begun_ns) queue.count_late();
  }
  if (mbps != 0) {
    served.paced_until = std::max(served.paced_until, steady - PACING_CREDIT_NS) +
                         wire_ns(wire, mbps, served.pacing_rest);
  }
  queue.count_sent(result.sent, result.bytes);
  if (result.kept > 0) {
    queue.count_kept(result.kept);
    served.ask = std::min(served.ask, now_ + kernel_lead(served.traits));
  }
  queue.count_dropped(DropReason::SEND_ERROR, result.failed);
  if (result.failed > 0 && result.error != served.error) note_error(served, result.error);
  // The time of the next burst is not known yet.
  served.due = 0;
  if (first + done < burst.num_packets())
    served.due = wanted_at(served, burst.timestamps[first + done]);
}

void Transmitter::note_error(Served& served, int error) noexcept {
  served.error = error;
  const TxQueue& queue = *served.queue;
  try {
    log(LogLevel::WARN,
        "transmit queue '" + queue.config().common_.name_ + "' of interface '" +
            queue.interface_name() +
            "': packets cannot be sent and are counted as send_error: " + std::strerror(error),
        {.interface = queue.interface_name(), .queue = queue.config().common_.name_});
  } catch (const std::bad_alloc&) {
    return;
  }
}

std::uint64_t Transmitter::spin_ns() const noexcept {
  return std::clamp(2 * woken_late_ns_, LEAST_SPIN_NS, MOST_SPIN_NS);
}

bool Transmitter::may_sleep_until(std::uint64_t due) const noexcept {
  return due > now_ && due - now_ > spin_ns() + LEAST_SLEEP_NS;
}

void Transmitter::wait_until(std::uint64_t due) noexcept {
  if (due <= now_) return;
  woken_late_ns_ -= woken_late_ns_ / WAKE_UPS;
  if (may_sleep_until(due)) {
    const std::uint64_t ns = std::min(due - now_ - spin_ns(), TX_MAX_SLEEP_NS);
    const std::uint64_t wanted = now_ + ns;
    sleep(ns);
    if (now_ > wanted) woken_late_ns_ = std::clamp(now_ - wanted, woken_late_ns_, MOST_SPIN_NS);
    return;
  }
  // A clock that is set back ends the spinning too.
  do {
    now_ = clock_();
  } while (now_ < due && !may_sleep_until(due) && !anything_new() && !stop_.stop_requested());
}

void Transmitter::sleep(std::uint64_t ns) noexcept {
  fds_.clear();
  for (const Served& served : queues_) {
    if (served.refused && served.traits.ready) fds_.push_back(served.traits.ready.fd());
  }
  doorbell_.prepare();
  if ((drain_ == 0 && stop_.stop_requested()) || anything_new()) {
    doorbell_.cancel();
  } else {
    interrupted_ = !doorbell_.wait(static_cast<std::int64_t>(ns), fds_);
  }
  now_ = clock_();
}

bool Transmitter::anything_new() const noexcept {
  return std::any_of(queues_.begin(), queues_.end(), [](const Served& served) {
    if (served.flush_until != 0) return false;
    return served.queue->flush_wanted() ||
           (served.burst == nullptr && served.queue->anything_queued());
  });
}

void Transmitter::stop() noexcept {
  begin_stop();
  thread_ = {};
  if (!direct_) return;
  take_over();
  work_until_stopped();
}

void Transmitter::step() noexcept {
  now_ = clock_();
  for (int i = 0; i < MOST_TURNS && serve_all(); ++i) {
  }
}

bool Transmitter::step_or_wait(std::uint64_t ns) noexcept {
  step();
  interrupted_ = false;
  rest(ns);
  step();
  return !interrupted_;
}

void Transmitter::run() noexcept {
  configure_thread(cpu_core_, "daqiri-tx-" + cpu_core_, realtime_priority_);
  work_until_stopped();
}

bool Transmitter::serve_all() noexcept {
  bool progress = false;
  for (Served& served : queues_) progress = serve(served) || progress;
  return progress;
}

void Transmitter::work_until_stopped() noexcept {
  last_left_ = monotonic_ns();
  now_ = clock_();
  std::uint64_t drain_begun = 0;
  // The clock is read after every wait and every call of the engine, and not once more: a read
  // would delay a packet more than it could improve its launch.
  for (;;) {
    if (stop_.stop_requested() && drain_++ == 0) drain_begun = last_left_ = monotonic_ns();
    const bool progress = serve_all();
    if (drain_ > TX_DRAIN_PASSES || (drain_ > 0 && monotonic_ns() - last_left_ > TX_DRAIN_NS) ||
        (drain_ > 0 && monotonic_ns() - drain_begun > TX_LONGEST_DRAIN_NS))
      break;
    if (!progress && !rest(TX_MAX_SLEEP_NS)) break;
  }
  for (Served& served : queues_) {
    if (served.ask != NEVER) count_completed(served, true);
    served.queue->end_pass();
    served.queue->mark_closed();
    served.queue->discard();
  }
}

bool Transmitter::rest(std::uint64_t ns) noexcept {
  // Launch times have priority; rejected packets are retried at about their time.
  std::uint64_t due = NEVER;
  std::uint64_t retry = NEVER;
  std::uint64_t pause = NEVER;
  for (const Served& served : queues_) {
    due = std::min(due, served.ask);
    std::uint64_t& wanted = served.refused ? retry : due;
    wanted = std::min(wanted, served.due);
    // Without launch times, the last call of `completed` waits; senders would go on meanwhile here.
    if (served.ask != NEVER && kernel_lead(served.traits) > 0)
      pause = std::min(pause, LAUNCHING_NS);
    if (served.refused && !served.unconnected) pause = std::min(pause, served.wait_ns);
  }
  if (drain_ > 0) {
    if (pause == NEVER) return false;
    sleep(pause);
  } else if (retry < due && may_sleep_until(due)) {
    if (retry > now_) sleep(std::min({retry, due - spin_ns(), now_ + ns}) - now_);
  } else if (due == NEVER && monotonic_ns() - last_left_ < IDLE_SPIN_NS) {
    cpu_relax();
    now_ = clock_();
  } else {
    wait_until(std::min(due, now_ + ns));
  }
  return true;
}

}  // namespace daqiri

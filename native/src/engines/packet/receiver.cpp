#include "engines/packet/receiver.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>
#include <set>
#include <system_error>

#include "daqiri/error.h"
#include "engines/packet/receive_path.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri::packet {

namespace {

/// What one pass takes, so that the poller's other work has its turn.
constexpr std::uint32_t MOST_PER_PASS = 1024;
/// How often the kernel is asked for what it has dropped.
constexpr std::uint64_t ASK_NS = 10'000'000;
/// Of a ring: beyond it, a consumer that is too slow only hides for longer.
constexpr std::uint64_t MOST_RING_BYTES = 1U << 30U;

/// As much as the queues' regions hold: a region that several have counts once.
std::uint64_t ring_bytes(const Port& port) {
  std::set<const memory::MemoryRegion*> regions;
  std::uint64_t bytes = 0;
  for (const auto& queue : port.rx) {
    for (int s = 0; s < queue->num_segments(); ++s) {
      const memory::MemoryRegion& region = queue->region(s);
      if (regions.insert(&region).second)
        bytes += region.config().num_bufs_ * region.config().buf_size_;
    }
  }
  return std::min(bytes, MOST_RING_BYTES);
}

/// Half of what the most impatient queue allows a burst, and no more than this.
std::uint32_t patience_ms(const Port& port) {
  constexpr std::uint64_t MOST = 10;
  std::uint64_t patience = MOST;
  for (const auto& queue : port.rx) {
    const std::uint64_t timeout_us = queue->config().timeout_us_;
    // 0: it waits for full bursts, however long.
    if (timeout_us > 0) patience = std::min(patience, timeout_us / 2000);
  }
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(patience, 1));
}

void require_one_core(const InterfaceConfig& interface) {
  const RxQueueConfig& first = interface.rx_.queues_.front();
  for (const RxQueueConfig& queue : interface.rx_.queues_) {
    if (queue.poll_mode_ != first.poll_mode_) {
      throw Error(Status::NOT_SUPPORTED,
                  "interface '" + interface.name_ + "': rx queues '" + first.common_.name_ +
                      "' and '" + queue.common_.name_ +
                      "' have different poll_modes, and engine 'packet' reads all queues of an "
                      "interface together; give them the same poll_mode");
    }
    if (queue.common_.cpu_core_ == first.common_.cpu_core_) continue;
    throw Error(Status::NOT_SUPPORTED,
                "interface '" + interface.name_ + "': rx queues '" + first.common_.name_ +
                    "' and '" + queue.common_.name_ + "' have the cpu_core '" +
                    first.common_.cpu_core_ + "' and '" + queue.common_.cpu_core_ +
                    "', and engine 'packet' reads all queues of an interface on one; give them "
                    "the same cpu_core");
  }
}

}  // namespace

Receiver::Receiver(const Port& port, const NetworkInterface& interface)
    : interface_(port.config.name_),
      address_(interface.name),
      patience_ms_(patience_ms(port)),
      steering_(port.steering),
      tally_(port.steering.add_tally()),
      arrivals_("interface '" + port.config.name_ + "'") {
  require_one_core(port.config);
  ring_ = open_receive_path(port, interface, ring_bytes(port), patience_ms_);
  for (const int fd : ring_->fds()) {
    if (const int error = arrivals_.watch(fd, EPOLLIN | EPOLLET); error != 0)
      throw packet_error(interface, "wait for frames", error);
  }
  for (const auto& queue : port.rx) {
    queue->share_owner(ring_);
    gathered_.push_back(std::make_unique<Gathered>(*queue));
  }
}

Receiver::Gathered& Receiver::gathered_for(std::uint16_t queue) noexcept {
  for (const auto& gathered : gathered_)
    if (gathered->queue->id() == queue) return *gathered;
  return *gathered_.front();
}

std::uint32_t Receiver::receive() noexcept {
  const std::uint64_t now = gathered_.front()->queue->pass_ns();
  note_discards(now);
  const steering::Steering::Pass pass(steering_);
  const std::uint32_t seen = receive(pass.program());
  if (now - asked_ns_ >= ASK_NS) {
    asked_ns_ = now;
    ask_kernel();
  }
  return seen;
}

std::uint32_t Receiver::receive(const steering::Program& program) noexcept {
  std::array<epoll_event, 2> events;
  std::uint32_t seen = 0;
  refused_ = false;
  Frame frame = ring_->peek();
  // Before looking again: what comes later is another event.
  if (frame.data == nullptr && arrivals_.take(events) > 0) frame = ring_->peek();
  RxQueue& first = *gathered_.front()->queue;
  if (frame.data == nullptr && ring_->waits_for_memory()) first.look_again();
  for (; frame.data != nullptr && seen < MOST_PER_PASS; frame = ring_->peek()) {
    if (!take(frame, program)) {
      refused_ = true;
      // Nobody tells when there is a buffer, and the ring is readable as long as frames wait.
      arrivals_.take(events);
      first.look_again();
      break;
    }
    ring_->advance();
    ++seen;
  }
  deliver_all();
  return seen;
}

void Receiver::note_discards(std::uint64_t now_ns) noexcept {
  for (const auto& gathered : gathered_) {
    RxQueue& queue = *gathered->queue;
    if (queue.discarding() && queue.discards()) {
      gathered->discard_before = realtime_ns();
      gathered->discard_until = now_ns + 2'000'000 * std::uint64_t{patience_ms_} + ASK_NS;
      gathered->discarded_as = queue.discard_reason();
    } else if (now_ns > gathered->discard_until) {
      // A clock that is set back does no harm.
      gathered->discard_before = 0;
    }
  }
}

bool Receiver::take(const Frame& frame, const steering::Program& program) noexcept {
  const steering::Verdict verdict = program.classify(
      steering::PacketView::of_beginning(frame.data, frame.length_at_data(), frame.length));
  Gathered& gathered = gathered_for(verdict.queue);
  RxQueue& queue = *gathered.queue;
  const std::uint32_t length = verdict.length_of(frame.length);
  if (!verdict.matched && program.isolated()) {
    lose(queue, verdict, frame, DropReason::FILTERED);
  } else if (finishing_) {
    lose(queue, verdict, frame, DropReason::FLUSHED);
  } else if (frame.wire_length > frame.length || length > queue.max_packet_size()) {
    lose(queue, verdict, frame, DropReason::TRUNCATED);
  } else if (verdict.malformed) {
    lose(queue, verdict, frame, DropReason::MALFORMED);
  } else if (frame.time < gathered.discard_before) {
    lose(queue, verdict, frame, gathered.discarded_as);
  } else if (!put(gathered, frame, verdict)) {
    if (may_wait(queue)) return false;
    lose(queue, verdict, frame, DropReason::NO_PACKET_BUFFER);
  }
  return true;
}

void Receiver::lose(RxQueue& queue, const steering::Verdict& verdict, const Frame& frame,
                    DropReason reason) noexcept {
  // As long as it would have been in the queue.
  const std::uint32_t bytes = frame.wire_length - frame.length + verdict.length_of(frame.length);
  tally_.count(verdict.position, 1, bytes);
  queue.drop(reason, 1, bytes);
}

bool Receiver::put(Gathered& gathered, const Frame& frame,
                   const steering::Verdict& verdict) noexcept {
  RxQueue& queue = *gathered.queue;
  // The kernel stops at a block in which a frame is kept: nothing stays there that may be held for
  // long, by the application or by a recorder beside whose queue there are others. What is
  // discarded needs no buffer. A packet has to lie in one piece.
  const bool soon = queue.discards() || queue.stage_claims(verdict.flow);
  const bool worth = soon || (ring_->worth_keeping() && queue.recorded() && gathered_.size() == 1);
  const bool keep = worth && (frame.rest.empty() || queue.discards());
  if (gathered.count > 0 && gathered.kept != keep) deliver(gathered);
  if (gathered.count == 0) {
    gathered.kept = keep;
    gathered.room = Gathered::MOST;
    if (!soon && may_wait(queue)) {
      queue.finish_unless_of(queue.main_source(), keep ? ring_.get() : nullptr);
      gathered.room = std::min(gathered.room, queue.room(queue.main_source()));
    }
    if (gathered.room == 0) return false;
  }
  const std::uint32_t at = gathered.count;
  const auto segments = static_cast<std::uint32_t>(queue.num_segments());
  if (!keep) {
    for (std::uint32_t s = 0; s < segments; ++s) {
      if (queue.region(static_cast<int>(s)).take(&gathered.buffers[s][at], 1) == 1) continue;
      for (std::uint32_t t = 0; t < s; ++t)
        queue.region(static_cast<int>(t)).give(&gathered.buffers[t][at], 1);
      deliver(gathered);
      queue.note_shortage();
      return false;
    }
  }
  const std::uint32_t block = keep ? ring_->keep(segments) : 0;
  Frame left_over = frame;
  if (verdict.transformed) {
    // Nobody looks at the frame again.
    left_over.data = take_off(frame.data, verdict.remains);
    left_over.length -= static_cast<std::uint32_t>(left_over.data - frame.data);
  }
  FrameCopy copy(left_over);
  std::uint8_t* data = left_over.data;
  const std::uint32_t whole = verdict.length_of(frame.length);
  std::uint32_t left = whole;
  for (std::uint32_t s = 0; s < segments; ++s) {
    const std::uint32_t length = std::min(left, queue.segment_capacity(static_cast<int>(s)));
    if (keep) {
      gathered.buffers[s][at] = block;
      gathered.data[s][at] = data;
    } else {
      void* to = queue.region(static_cast<int>(s)).address(gathered.buffers[s][at]);
      copy.take(to, length);
      gathered.data[s][at] = to;
    }
    gathered.lengths[s][at] = length;
    data += length;
    left -= length;
  }
  gathered.flows[at] = verdict.flow;
  gathered.times[at] = frame.time;
  tally_.count(verdict.position, 1, whole);
  if (++gathered.count == gathered.room) deliver(gathered);
  return true;
}

void Receiver::deliver(Gathered& gathered) noexcept {
  if (gathered.count == 0) return;
  RxBatch batch;
  batch.count = gathered.count;
  gathered.count = 0;
  for (std::size_t s = 0; s < static_cast<std::size_t>(gathered.queue->num_segments()); ++s) {
    batch.segments[s] = {.buffers = gathered.buffers[s].data(),
                         .data = gathered.data[s].data(),
                         .lengths = {gathered.lengths[s].data()},
                         .owner = gathered.kept ? ring_.get() : nullptr};
  }
  batch.flows.values = gathered.flows.data();
  batch.times.values = gathered.times.data();
  gathered.queue->deliver(batch);
}

void Receiver::deliver_all() noexcept {
  for (const auto& gathered : gathered_) deliver(*gathered);
}

RxQueue& Receiver::accountable() const noexcept {
  for (const auto& gathered : gathered_)
    if (gathered->queue->recorded()) return *gathered->queue;
  return *gathered_.front()->queue;
}

void Receiver::ask_kernel() noexcept {
  if (const std::uint32_t dropped = ring_->take_drops(); dropped > 0)
    accountable().drop(DropReason::KERNEL, dropped);
  const int error = ring_->take_error();
  if (error == 0) return;
  try {
    const std::string what =
        error == ENOLINK
            ? "' was removed, or its XDP program was detached; close and open the engine to "
              "receive "
              "frames again"
            : "' is down or was removed: " + std::generic_category().message(error) +
                  "; frames are received again once it is up (one that was removed: after the "
                  "engine was closed and opened)";
    log(LogLevel::WARN, "interface '" + interface_ + "': '" + address_ + what,
        {.interface = interface_, .queue = {}});
  } catch (const std::bad_alloc&) {
    // There is no memory to say so.
    asked_ns_ = 0;
  }
}

void Receiver::finish() noexcept {
  ring_->stop_arrivals();
  // The kernel hands its last block over after its patience, twice that at the latest.
  const std::uint64_t end = monotonic_ns() + 2'000'000 * std::uint64_t{patience_ms_} + ASK_NS;
  const steering::Steering::Pass pass(steering_);
  const steering::Program& program = pass.program();
  do {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
    while (receive(program) > 0) {
    }
    // Nobody makes room any more.
    finishing_ = finishing_ || refused_;
  } while (monotonic_ns() < end);
  finishing_ = true;
  while (receive(program) > 0) {
  }
  ask_kernel();
}

}  // namespace daqiri::packet

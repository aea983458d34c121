#include "engines/packet/receiver.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <new>
#include <set>
#include <system_error>
#include <utility>

#include "daqiri/error.h"
#include "engines/packet/receive_path.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri::packet {

namespace {

/// Limit for one pass, so that the poller's other work is not delayed.
constexpr std::uint32_t MOST_PER_PASS = 1024;
/// Largest ring: a larger one would only hide a slow consumer for longer.
constexpr std::uint64_t MOST_RING_BYTES = 1U << 30U;

/// The readers of a port's rings. A region whose packets several of them receive counts for each in
/// part.
std::vector<Reader> readers_of(const Port& port) {
  std::vector<Reader> readers;
  std::map<const MemoryRegionConfig*, std::set<std::size_t>> users;
  for (const auto& queue : port.rx) {
    auto reader =
        std::ranges::find_if(readers, [&](const Reader& each) { return each.polls(*queue); });
    if (reader == readers.end()) reader = readers.insert(reader, {queue.get(), 0});
    for (int s = 0; s < queue->num_segments(); ++s)
      users[&queue->region(s).config()].insert(static_cast<std::size_t>(reader - readers.begin()));
  }
  for (const auto& [region, by] : users)
    for (const std::size_t i : by)
      readers[i].ring_bytes += region->num_bufs_ * region->buf_size_ / by.size();
  for (Reader& reader : readers)
    reader.ring_bytes = std::min(reader.ring_bytes, MOST_RING_BYTES / readers.size());
  return readers;
}

/// Half of the shortest burst timeout of the queues, within these limits.
std::uint32_t patience_ms(const Port& port) {
  constexpr std::uint64_t LEAST = 1;
  constexpr std::uint64_t MOST = 10;
  std::uint64_t patience = MOST;
  for (const auto& queue : port.rx) {
    const RxQueueConfig& config = queue->config();
    const bool direct = config.poll_mode_ == QueuePollMode::DIRECT;
    // Bursts of these queues do not wait for more frames.
    if (direct || config.common_.batch_size_ == 1) return LEAST;
    // 0: the queue waits for full bursts without a limit.
    if (config.timeout_us_ > 0) patience = std::min(patience, config.timeout_us_ / 2000);
  }
  return static_cast<std::uint32_t>(std::max(patience, LEAST));
}

}  // namespace

std::uint64_t Receiver::ring_bytes(const std::set<const MemoryRegionConfig*>& regions) noexcept {
  std::uint64_t bytes = 0;
  for (const MemoryRegionConfig* region : regions) bytes += region->num_bufs_ * region->buf_size_;
  return std::min(bytes, MOST_RING_BYTES);
}

std::vector<std::unique_ptr<Receiver>> Receiver::open(const Port& port,
                                                      const NetworkInterface& interface) {
  const std::vector<Reader> readers = readers_of(port);
  const std::uint32_t patience = patience_ms(port);
  std::vector<std::unique_ptr<Receiver>> receivers;
  const auto rings = open_receive_path(port, interface, readers, patience);
  receivers.reserve(rings.size());
  for (std::size_t i = 0; i < rings.size(); ++i) {
    receivers.push_back(std::make_unique<Receiver>(port, interface, rings[i], readers[i],
                                                   rings.size() == 1, patience));
  }
  return receivers;
}

Receiver::Receiver(const Port& port, const NetworkInterface& interface,
                   std::shared_ptr<FrameRing> ring, const Reader& reader, bool alone,
                   std::uint32_t patience_ms)
    : interface_(port.config.name_),
      address_(interface.name),
      first_(*reader.first),
      alone_(alone),
      patience_ms_(patience_ms),
      steering_(port.steering),
      tally_(port.steering.add_tally()),
      ring_(std::move(ring)),
      arrivals_("interface '" + port.config.name_ + "'") {
  for (const int fd : ring_->fds()) {
    if (const int error = arrivals_.watch(fd, EPOLLIN | EPOLLET); error != 0)
      throw packet_error(interface, "wait for frames", error);
  }
  for (const auto& queue : port.rx) {
    queue->share_owner(ring_);
    Target& target = targets_.emplace_back(Target{queue.get(), {}, {}});
    if (reader.polls(*queue)) {
      target.gathering = std::make_unique<Gathering>(*queue, *ring_, late_ns());
    } else {
      target.hand_over = std::make_unique<HandOver>(*queue, *ring_, late_ns());
    }
  }
}

const Receiver::Target& Receiver::target_for(std::uint16_t queue) const noexcept {
  for (const Target& target : targets_)
    if (target.queue->id() == queue) return target;
  return targets_.front();
}

HandOver* Receiver::hand_over_to(const RxQueue& queue) const noexcept {
  return target_for(queue.id()).hand_over.get();
}

std::uint32_t Receiver::receive() noexcept {
  const std::uint64_t now = first().pass_ns();
  for (const Target& target : targets_)
    if (target.gathering != nullptr) target.gathering->note_discards(now);
  const steering::Steering::Pass pass(steering_);
  const std::uint32_t seen = receive(pass.program());
  if (all_read_) note_all_read(now);
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
  // Take the event before reading again: frames that arrive later trigger a new event.
  if (frame.data == nullptr && arrivals_.take(events) > 0) frame = ring_->peek();
  if (frame.data == nullptr && ring_->waits_for_memory()) first().look_again();
  for (; frame.data != nullptr && seen < MOST_PER_PASS; frame = ring_->peek()) {
    if (!take(frame, program)) {
      refused_ = true;
      // There is no notification of free buffers, and the ring is readable as long as frames wait.
      arrivals_.take(events);
      first().look_again();
      break;
    }
    ring_->advance();
    ++seen;
  }
  all_read_ = frame.data == nullptr;
  deliver_all();
  return seen;
}

bool Receiver::take(const Frame& frame, const steering::Program& program) noexcept {
  const steering::Verdict& verdict =
      steering_.classify(frame.data, frame.length_at_data(), frame.length);
  const Target& target = target_for(verdict.queue);
  const std::uint32_t length = verdict.length_of(frame.length);
  if (!verdict.matched && program.isolated()) {
    lose(target, verdict, frame, DropReason::FILTERED);
  } else if (finishing_) {
    lose(target, verdict, frame, DropReason::FLUSHED);
  } else if (frame.wire_length > frame.length || length > target.queue->max_packet_size()) {
    lose(target, verdict, frame, DropReason::TRUNCATED);
  } else if (verdict.malformed) {
    lose(target, verdict, frame, DropReason::MALFORMED);
  } else if (frame.checksum_open) {
    // Only now, for frames that are needed.
    ring_->complete_checksum();
    return take(ring_->peek(), program);
  } else if (target.hand_over != nullptr) {
    tally_.count(verdict.position, 1, length);
    target.hand_over->put(frame, verdict);
  } else if (target.gathering->discards(frame.time)) {
    lose(target, verdict, frame, target.gathering->discarded_as());
  } else if (!frame.rest.empty() && target.queue->discards()) {
    // It cannot be kept, and needs no buffer.
    lose(target, verdict, frame, target.queue->discard_reason());
  } else if (!put(*target.gathering, frame, verdict)) {
    if (may_wait(*target.queue)) return false;
    lose(target, verdict, frame, DropReason::NO_PACKET_BUFFER);
  }
  return true;
}

void Receiver::lose(const Target& target, const steering::Verdict& verdict, const Frame& frame,
                    DropReason reason) noexcept {
  // With the length that it would have had in the queue.
  const std::uint32_t bytes = frame.wire_length - frame.length + verdict.length_of(frame.length);
  tally_.count(verdict.position, 1, bytes);
  drop(target, reason, 1, bytes);
}

void Receiver::drop(const Target& target, DropReason reason, std::uint64_t n,
                    std::uint64_t bytes) noexcept {
  if (target.hand_over != nullptr) return target.hand_over->lose(reason, n, bytes);
  target.queue->drop(reason, n, bytes);
}

bool Receiver::put(Gathering& gathering, const Frame& frame,
                   const steering::Verdict& verdict) noexcept {
  RxQueue& queue = gathering.queue();
  // The kernel stops at a block with a kept frame. So no frame stays there that may be held for
  // long: by the application, by a recorder if there are other queues, or for a copy to a GPU.
  // Discarded frames need no buffer.
  const bool soon = queue.discards() || queue.stage_claims(verdict.flow);
  const bool worth = soon || (ring_->worth_keeping() && queue.recorded() && !queue.on_gpu() &&
                              targets_.size() == 1);
  // A packet must be contiguous.
  const bool keep = worth && frame.rest.empty();
  gathering.begin(keep);
  if (gathering.empty() && !soon && may_wait(queue)) {
    queue.finish_unless_of(queue.main_source(), keep ? ring_.get() : nullptr);
    const std::uint32_t room = queue.room(queue.main_source());
    if (room == 0) return false;
    gathering.limit(room);
  }
  PacketBuffers buffers;
  if (keep) {
    buffers.fill(ring_->keep(static_cast<std::uint32_t>(queue.num_segments())));
  } else if (!take_buffers(queue, buffers)) {
    gathering.deliver();
    queue.note_shortage();
    return false;
  }
  const Frame rest = left_over(frame, verdict);
  const std::uint32_t length = verdict.length_of(frame.length);
  if (!keep) copy_to_buffers(queue, buffers, rest, length);
  tally_.count(verdict.position, 1, length);
  gathering.add(buffers, rest.data, length, verdict.flow, frame.time);
  return true;
}

void Receiver::deliver_all() noexcept {
  for (const Target& target : targets_) {
    if (target.hand_over != nullptr) {
      target.hand_over->wake();
    } else {
      target.gathering->deliver();
    }
  }
}

void Receiver::note_all_read(std::uint64_t now_ns) noexcept {
  for (const Target& target : targets_) {
    if (target.hand_over != nullptr) {
      target.hand_over->note_all_read(now_ns);
    } else {
      target.gathering->note_all_read(now_ns);
    }
  }
}

const Receiver::Target& Receiver::accountable() const noexcept {
  for (const Target& target : targets_)
    if (target.queue->recorded() && (alone_ || target.hand_over == nullptr)) return target;
  return target_for(first_.id());
}

void Receiver::ask_kernel() noexcept {
  if (const std::uint32_t dropped = ring_->take_drops(); dropped > 0)
    drop(accountable(), DropReason::KERNEL, dropped, 0);
  if (ring_->drops_uncounted()) warn_of_uncounted_drops();
  if (ring_->lacks_card_times()) warn_of_kernel_times();
  if (const int fd = ring_->balance(); fd >= 0) arrivals_.watch(fd, EPOLLIN | EPOLLET);
  const int error = ring_->take_error();
  if (error == 0) return;
  try {
    const std::string what =
        error == ENOLINK
            ? "' was removed, its XDP program was detached, or another program uses one of its "
              "queues; close and open the engine to receive frames again"
            : "' is down or was removed: " + std::generic_category().message(error) +
                  "; frames are received again once it is up (one that was removed: after the "
                  "engine was closed and opened)";
    log(LogLevel::WARN, "interface '" + interface_ + "': '" + address_ + what,
        {.interface = interface_, .queue = {}});
  } catch (const std::bad_alloc&) {
    // Out of memory for the message: try again in the next pass.
    asked_ns_ = 0;
  }
}

void Receiver::warn_of_uncounted_drops() noexcept {
  if (std::exchange(warned_, true)) return;
  try {
    log(LogLevel::WARN,
        "interface '" + interface_ + "': '" + address_ +
            "' loses frames, and more than the counter `kernel` shows: with zero copy the card "
            "drops frames for which there is no memory, and no AF_XDP counter counts them "
            "(`ethtool "
            "-S " +
            address_ +
            "` may). Raise num_bufs of the queues' memory regions, or give the queues cores "
            "of their own (cpu_core)",
        {.interface = interface_, .queue = {}});
  } catch (const std::bad_alloc&) {
    warned_ = false;
  }
}

void Receiver::warn_of_kernel_times() noexcept {
  if (std::exchange(warned_of_times_, true)) return;
  try {
    log(LogLevel::WARN,
        "interface '" + interface_ + "': '" + address_ +
            "' delivers frames without the time of the network card (hardware_timestamps), which "
            "get that of the kernel; `ethtool --show-time-stamping " +
            address_ + "` and `hwstamp_ctl -i " + address_ +
            "` show whether another program has changed its setting",
        {.interface = interface_, .queue = {}});
  } catch (const std::bad_alloc&) {
    warned_of_times_ = false;
  }
}

void Receiver::finish() noexcept {
  ring_->stop_arrivals();
  const std::uint64_t end = monotonic_ns() + late_ns();
  const steering::Steering::Pass pass(steering_);
  const steering::Program& program = pass.program();
  do {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
    while (receive(program) > 0) {
    }
    // No more buffers become free.
    finishing_ = finishing_ || refused_;
  } while (monotonic_ns() < end);
  finishing_ = true;
  while (receive(program) > 0) {
  }
  ask_kernel();
  for (const Target& target : targets_)
    if (target.hand_over != nullptr) target.hand_over->end();
}

void Receiver::stop() noexcept {
  ring_->stop();
  for (const Target& target : targets_)
    if (target.hand_over != nullptr) target.hand_over->discard_rest();
}

}  // namespace daqiri::packet

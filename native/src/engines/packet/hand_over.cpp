#include "engines/packet/hand_over.h"

#include <algorithm>
#include <utility>

namespace daqiri::packet {

namespace {

/// Limit for one pass, so that the poller's other work is not delayed.
constexpr std::size_t MOST_PER_PASS = 1024;

}  // namespace

void HandOver::put(const Frame& frame, const steering::Verdict& verdict) noexcept {
  const std::uint32_t length = verdict.length_of(frame.length);
  Handed* handed = handed_.claim();
  if (handed == nullptr) return lose(DropReason::RING_FULL, 1, length);
  // A packet must be contiguous. A reorder plan should continue even if the queue has no buffers.
  if (frame.rest.empty() && (queue_.has_stage() || ring_.has_room())) {
    handed->place = Place::RING;
    handed->buffers.fill(ring_.keep(static_cast<std::uint32_t>(queue_.num_segments())));
    handed->data = left_over(frame, verdict).data;
  } else if (take_buffers(queue_, handed->buffers)) {
    handed->place = Place::BUFFERS;
    copy_to_buffers(queue_, handed->buffers, left_over(frame, verdict), length);
  } else {
    handed->place = Place::NOWHERE;
  }
  handed->time = frame.time;
  handed->length = length;
  handed->flow = verdict.flow;
  handed_.publish();
  anything_new_ = true;
}

void HandOver::lose(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept {
  losses_.lose(reason, n, bytes);
  anything_new_ = true;
}

void HandOver::wake() noexcept {
  if (std::exchange(anything_new_, false)) queue_.poller_doorbell->ring();
}

void HandOver::end() noexcept {
  ended_.store(true, std::memory_order_release);
  queue_.poller_doorbell->ring();
}

std::uint32_t HandOver::receive() noexcept {
  gathering_.note_discards(queue_.pass_ns());
  const std::uint32_t lost = losses_.take(queue_);
  // Read before the number of frames put until then.
  const std::uint64_t all_read_ns = all_read_ns_.load(std::memory_order_acquire);
  const std::size_t put = handed_.ready();
  const std::size_t ready = std::min(put, MOST_PER_PASS);
  for (std::size_t done = 0; done < ready;) {
    const std::size_t part = std::min<std::size_t>(ready - done, Gathering::MOST);
    for (std::size_t i = 0; i < part; ++i) take(handed_.at(i));
    gathering_.deliver();
    give_returned();
    handed_.consume(part);
    done += part;
  }
  if (ready == put) gathering_.note_all_read(all_read_ns);
  return lost + static_cast<std::uint32_t>(ready);
}

void HandOver::take(const Handed& handed) noexcept {
  const auto drop = [&](DropReason reason) {
    give_back(handed);
    queue_.drop(reason, 1, handed.length);
  };
  if (gathering_.discards(handed.time)) return drop(gathering_.discarded_as());
  if (handed.place == Place::NOWHERE) {
    gathering_.deliver();
    return drop(queue_.discards() ? queue_.discard_reason() : DropReason::NO_PACKET_BUFFER);
  }
  // As in Receiver::put.
  const bool stays =
      handed.place == Place::RING && (queue_.discards() || queue_.stage_claims(handed.flow));
  gathering_.begin(stays);
  if (stays || handed.place == Place::BUFFERS)
    return gathering_.add(handed.buffers, handed.data, handed.length, handed.flow, handed.time);
  PacketBuffers buffers;
  if (!take_buffers(queue_, buffers)) {
    // The collected frames may hold all buffers.
    gathering_.deliver();
    return drop(DropReason::NO_PACKET_BUFFER);
  }
  Frame frame;
  frame.data = handed.data;
  frame.length = handed.length;
  copy_to_buffers(queue_, buffers, frame, handed.length);
  gathering_.add(buffers, nullptr, handed.length, handed.flow, handed.time);
  give_back(handed);
}

void HandOver::give_back(const Handed& handed) noexcept {
  const auto segments = static_cast<std::uint32_t>(queue_.num_segments());
  if (handed.place == Place::BUFFERS) {
    for (std::uint32_t s = 0; s < segments; ++s)
      queue_.region(static_cast<int>(s)).give(&handed.buffers[s], 1);
  } else if (handed.place == Place::RING) {
    std::copy_n(handed.buffers.begin(), segments, returned_.begin() + num_returned_);
    num_returned_ += segments;
  }
}

void HandOver::give_returned() noexcept {
  ring_.give(returned_.data(), std::exchange(num_returned_, 0));
}

bool HandOver::expects_more() const noexcept {
  // In this order, so that frames put before the end are seen.
  return !ended_.load(std::memory_order_acquire) || handed_.ready() > 0 || losses_.any();
}

void HandOver::discard_rest() noexcept {
  std::uint32_t found = losses_.take(queue_);
  for (; handed_.ready() > 0; handed_.consume(1), ++found) {
    give_back(handed_.at(0));
    give_returned();
    queue_.drop(DropReason::FLUSHED, 1, handed_.at(0).length);
  }
  if (found > 0) queue_.end_pass();
}

}  // namespace daqiri::packet

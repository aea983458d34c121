#include "engines/packet/hand_over.h"

#include <algorithm>
#include <utility>

namespace daqiri::packet {

void HandOver::put(const Frame& frame, const steering::Verdict& verdict) noexcept {
  const std::uint32_t length = verdict.length_of(frame.length);
  HandedFrame* handed = claim();
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
  publish();
}

std::uint32_t HandOver::receive() noexcept {
  gathering_.note_discards(queue_.pass_ns());
  const Pass pass = begin_pass();
  for (std::size_t done = 0; done < pass.packets;) {
    const std::size_t part = std::min<std::size_t>(pass.packets - done, Gathering::MOST);
    for (std::size_t i = 0; i < part; ++i) take(at(i));
    gathering_.deliver();
    give_returned();
    consume(part);
    done += part;
  }
  gathering_.note_all_read(pass.read_before);
  return pass.lost + static_cast<std::uint32_t>(pass.packets);
}

void HandOver::take(const HandedFrame& handed) noexcept {
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

void HandOver::give_back(const HandedFrame& handed) noexcept {
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

void HandOver::discard_rest() noexcept {
  discard_all([this](const HandedFrame& handed) {
    give_back(handed);
    give_returned();
    queue_.drop(DropReason::FLUSHED, 1, handed.length);
  });
}

}  // namespace daqiri::packet

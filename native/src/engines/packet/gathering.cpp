#include "engines/packet/gathering.h"

#include "timing/clock.h"

namespace daqiri::packet {

void copy_to_buffers(const RxQueue& queue, const PacketBuffers& buffers, const Frame& frame,
                     std::uint32_t length) noexcept {
  FrameCopy copy(frame);
  const int segments = queue.num_segments();
  for (int s = 0; s < segments; ++s) {
    const std::uint32_t part = std::min(length, queue.segment_capacity(s));
    copy.take(queue.region(s).address(buffers[static_cast<std::size_t>(s)]), part);
    length -= part;
  }
}

Frame left_over(const Frame& frame, const steering::Verdict& verdict) noexcept {
  Frame rest = frame;
  if (verdict.transformed) {
    rest.data = take_off(frame.data, verdict.remains);
    rest.length -= static_cast<std::uint32_t>(rest.data - frame.data);
  }
  return rest;
}

void Gathering::note_discards(std::uint64_t now_ns) noexcept {
  if (queue_.discarding() && queue_.discards()) {
    discard_before_ = realtime_ns();
    discard_until_ = now_ns + late_ns_;
    discarded_as_ = queue_.discard_reason();
  }
}

void Gathering::add(const PacketBuffers& buffers, std::uint8_t* data, std::uint32_t length,
                    FlowId flow, std::uint64_t time) noexcept {
  const std::uint32_t at = count_;
  const auto segments = static_cast<std::size_t>(queue_.num_segments());
  for (std::size_t s = 0; s < segments; ++s) {
    const auto segment = static_cast<int>(s);
    const std::uint32_t part = std::min(length, queue_.segment_capacity(segment));
    buffers_[s][at] = buffers[s];
    data_[s][at] = kept_ ? data : queue_.region(segment).address(buffers[s]);
    lengths_[s][at] = part;
    if (kept_) data += part;
    length -= part;
  }
  flows_[at] = flow;
  times_[at] = time;
  if (++count_ == room_) deliver();
}

void Gathering::deliver() noexcept {
  if (count_ == 0) return;
  RxBatch batch;
  batch.count = count_;
  count_ = 0;
  for (std::size_t s = 0; s < static_cast<std::size_t>(queue_.num_segments()); ++s) {
    batch.segments[s] = {.buffers = buffers_[s].data(),
                         .data = data_[s].data(),
                         .lengths = {lengths_[s].data()},
                         .owner = kept_ ? &ring_ : nullptr};
  }
  batch.flows.values = flows_.data();
  batch.times.values = times_.data();
  queue_.deliver(batch);
}

}  // namespace daqiri::packet

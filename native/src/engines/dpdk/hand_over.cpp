#include "engines/dpdk/hand_over.h"

#include <algorithm>
#include <utility>

#include "timing/clock.h"

namespace daqiri::dpdk {

void Batch::deliver(RxQueue& queue) noexcept {
  if (count_ == 0) return;
  RxBatch batch;
  batch.count = std::exchange(count_, 0);
  for (std::size_t s = 0; s < static_cast<std::size_t>(queue.num_segments()); ++s) {
    batch.segments[s] = {
        .buffers = buffers_[s].data(), .data = data_[s].data(), .lengths = {lengths_[s].data()}};
  }
  batch.flows.values = flows_.data();
  batch.times.values = times_.data();
  queue.deliver(batch);
}

void HandOver::note_discards() noexcept {
  if (!queue_.discarding() || !queue_.discards()) return;
  // What the other poller has read before the request may still be on its way.
  discard_before_ = realtime_ns();
  discard_until_ = queue_.pass_ns();
  discarded_as_ = queue_.discard_reason();
}

std::uint32_t HandOver::receive() noexcept {
  note_discards();
  const Pass pass = begin_pass();
  const auto segments = static_cast<std::size_t>(queue_.num_segments());
  for (std::size_t done = 0; done < pass.packets;) {
    const std::size_t part = std::min<std::size_t>(pass.packets - done, Batch::MOST);
    for (std::size_t i = 0; i < part; ++i) {
      const HandedPacket& handed = at(i);
      if (handed.time < discard_before_) {
        discard(handed, discarded_as_);
      } else {
        batch_.add(handed.packet, segments, handed.time);
      }
    }
    batch_.deliver(queue_);
    consume(part);
    done += part;
  }
  // Also correct if the realtime clock is set back.
  if (pass.read_before > discard_until_) discard_before_ = 0;
  return pass.lost + static_cast<std::uint32_t>(pass.packets);
}

void HandOver::discard(const HandedPacket& handed, DropReason reason) noexcept {
  std::uint32_t length = 0;
  for (int s = 0; s < queue_.num_segments(); ++s) {
    const auto segment = static_cast<std::size_t>(s);
    length += handed.packet.lengths[segment];
    queue_.region(s).give(&handed.packet.buffers[segment], 1);
  }
  queue_.drop(reason, 1, length);
}

void HandOver::discard_rest() noexcept {
  discard_all([this](const HandedPacket& handed) { discard(handed, DropReason::FLUSHED); });
}

}  // namespace daqiri::dpdk

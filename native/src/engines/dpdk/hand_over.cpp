#include "engines/dpdk/hand_over.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "timing/clock.h"

namespace daqiri::dpdk {

namespace {

/// A reader that never finds the device empty has read all that is old by then.
constexpr std::uint64_t LONGEST_WAIT_NS = 100'000'000;

}  // namespace

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

std::uint32_t HandOver::receive() noexcept {
  const auto segments = static_cast<std::size_t>(queue_.num_segments());
  // What arrived before a request to discard may be in the device until the other poller has read
  // it. The request is done after this pass, so this pass waits.
  const bool waits = queue_.discarding() && queue_.discards();
  const std::uint64_t end = queue_.pass_ns() + LONGEST_WAIT_NS;
  std::uint32_t seen = 0;
  for (;;) {
    const Pass pass = begin_pass();
    for (std::size_t done = 0; done < pass.packets;) {
      const std::size_t part = std::min<std::size_t>(pass.packets - done, Batch::MOST);
      for (std::size_t i = 0; i < part; ++i) {
        const HandedPacket& handed = at(i);
        batch_.add(handed.packet, segments, handed.time);
      }
      batch_.deliver(queue_);
      consume(part);
      done += part;
    }
    seen += pass.lost + static_cast<std::uint32_t>(pass.packets);
    if (!waits || pass.read_before > queue_.pass_ns() || !expects_more() || monotonic_ns() > end)
      return seen;
    std::this_thread::yield();
  }
}

void HandOver::discard(const HandedPacket& handed) noexcept {
  std::uint32_t length = 0;
  for (int s = 0; s < queue_.num_segments(); ++s) {
    const auto segment = static_cast<std::size_t>(s);
    length += handed.packet.lengths[segment];
    queue_.region(s).give(&handed.packet.buffers[segment], 1);
  }
  queue_.drop(DropReason::FLUSHED, 1, length);
}

void HandOver::discard_rest() noexcept {
  discard_all([this](const HandedPacket& handed) { discard(handed); });
}

}  // namespace daqiri::dpdk

#include "engines/socket/udp_hand_over.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/packet_buffers.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// Calls `use` with each segment and its part of a packet of `length` bytes.
template <typename Use>
void for_segments(const RxQueue& queue, std::uint32_t length, Use use) {
  for (int s = 0; s < queue.num_segments(); ++s) {
    const std::uint32_t part = std::min(length, queue.segment_capacity(s));
    use(s, part);
    length -= part;
  }
}

}  // namespace

void UdpHandOver::put(const AddressKey& peer, const std::byte* data, std::uint32_t length,
                      FlowId flow, std::uint64_t time) noexcept {
  HandedDatagram* handed = claim();
  if (handed == nullptr) return lose(DropReason::RING_FULL, 1, kept_of(length));
  std::array<std::array<std::uint32_t, 1>, MAX_NUM_SEGS> taken;
  if (take_buffers(queue_, taken.data(), 0, 1) == 0)
    return lose(DropReason::NO_PACKET_BUFFER, 1, kept_of(length));
  for_segments(queue_, length, [&](int s, std::uint32_t part) {
    const std::uint32_t buffer = taken[static_cast<std::size_t>(s)][0];
    handed->buffers[static_cast<std::size_t>(s)] = buffer;
    std::memcpy(queue_.region(s).address(buffer), data, part);
    data += part;
  });
  handed->peer = peer;
  handed->time = time;
  handed->length = length;
  handed->flow = flow;
  publish();
}

void UdpHandOver::note_discards() noexcept {
  if (!queue_.discarding() || !queue_.discards()) return;
  // What had arrived before the request may still be in the other poller's socket.
  discard_before_ = realtime_ns();
  discard_until_ = queue_.pass_ns();
  discarded_as_ = queue_.discard_reason();
}

std::uint32_t UdpHandOver::begin() noexcept {
  note_discards();
  const Pass pass = begin_pass();
  left_ = pass.packets;
  read_before_ = pass.read_before;
  return pass.lost + static_cast<std::uint32_t>(left_);
}

std::uint32_t UdpHandOver::next(RxBatch& batch, AddressKey& peer) noexcept {
  std::uint32_t n = 0;
  std::uint32_t truncated = 0;
  for (; left_ > 0 && n < MOST; consume(1), --left_) {
    const HandedDatagram& handed = at(0);
    if (handed.time < discard_before_) {
      discard(handed, discarded_as_);
      continue;
    }
    if (n > 0 && handed.peer != peer) break;
    peer = handed.peer;
    for_segments(queue_, handed.length, [&](int s, std::uint32_t part) {
      const auto segment = static_cast<std::size_t>(s);
      buffers_[segment][n] = handed.buffers[segment];
      lengths_[segment][n] = part;
    });
    flows_[n] = handed.flow;
    times_[n] = handed.time;
    if (handed.length > queue_.max_packet_size()) ++truncated;
    ++n;
  }
  if (truncated > 0) queue_.count_truncated(truncated);
  // Also correct if the realtime clock is set back.
  if (n == 0 && read_before_ > discard_until_) discard_before_ = 0;
  batch = {};
  batch.count = n;
  batch.flows.values = flows_.data();
  batch.times.values = times_.data();
  for (std::size_t s = 0; s < static_cast<std::size_t>(queue_.num_segments()); ++s) {
    batch.segments[s].buffers = buffers_[s].data();
    batch.segments[s].lengths.values = lengths_[s].data();
  }
  return n;
}

void UdpHandOver::discard(const HandedDatagram& handed, DropReason reason) noexcept {
  for (int s = 0; s < queue_.num_segments(); ++s)
    queue_.region(s).give(&handed.buffers[static_cast<std::size_t>(s)], 1);
  queue_.drop(reason, 1, kept_of(handed.length));
}

void UdpHandOver::discard_rest() noexcept {
  discard_all([this](const HandedDatagram& handed) { discard(handed, DropReason::FLUSHED); });
}

}  // namespace daqiri::sockets

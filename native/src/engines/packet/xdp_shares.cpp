#include "engines/packet/xdp_shares.h"

#include <bit>

namespace daqiri::packet {

namespace {

/// A queue gets this many times the chunks that it fills in 10 ms: those of a second.
constexpr std::uint64_t AHEAD = 100;
constexpr std::uint64_t SECOND_NS = 1'000'000'000;

}  // namespace

std::uint32_t XdpShares::ring_size(std::uint32_t chunks, std::uint32_t chunk_bytes,
                                   std::uint32_t queues) noexcept {
  const std::uint64_t limit = most_ring_bytes(std::uint64_t{chunks} * chunk_bytes);
  const std::uint64_t fits = limit / (std::uint64_t{queues} * DESCRIPTOR_BYTES);
  return static_cast<std::uint32_t>(std::bit_floor(
      std::clamp<std::uint64_t>(fits, 1, std::bit_ceil(std::uint64_t{std::max(chunks, 1U)}))));
}

XdpShares::XdpShares(std::uint32_t chunks, std::uint32_t queues, std::uint32_t ring_size)
    : chunks_(chunks),
      ring_size_(ring_size),
      floor_(chunks),
      part_(chunks),
      most_(queues),
      filled_(queues) {
  if (queues > 1) {
    // A quarter of the memory for all queues: for the first burst of a flow, on any of them.
    floor_ = std::max(chunks / (4 * queues), 1U);
    reserve_ = chunks / 8;
  }
  std::ranges::fill(most_, floor_);
}

void XdpShares::update(std::span<const std::uint32_t> filled, std::uint64_t now_ns) noexcept {
  if (most_.size() == 1) return;
  const std::uint64_t passed_ns = now_ns - begun_ns_;
  if (passed_ns >= SECOND_NS) begun_ns_ = now_ns;
  std::uint32_t active = 0;
  for (std::size_t queue = 0; queue < most_.size(); ++queue) {
    Filled& each = filled_[queue];
    if (passed_ns >= SECOND_NS)
      each = {.now = 0, .before = passed_ns >= 2 * SECOND_NS ? 0 : each.now};
    each.now = std::max(each.now, filled[queue]);
    const std::uint64_t wanted = AHEAD * std::max(each.now, each.before);
    most_[queue] =
        std::max(floor_, static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, chunks_)));
    if (!idle(queue)) ++active;
  }
  // One part stays for a queue that becomes active next.
  part_ = chunks_ / (active + 1);
}

std::size_t XdpShares::surplus(std::span<const Holding> queues,
                               std::uint32_t available) const noexcept {
  std::size_t found = queues.size();
  if (available > reserve_) return found;
  bool lacking = false;
  for (std::size_t at = 0; at < queues.size(); ++at) {
    const Holding& queue = queues[at];
    if (!idle(at)) {
      lacking = lacking || queue.held < wanted(at);
    } else if (queue.held > 2 * floor_ && queue.waiting == 0 &&
               (found == queues.size() || queue.held > queues[found].held)) {
      found = at;
    }
  }
  return lacking ? found : queues.size();
}

}  // namespace daqiri::packet

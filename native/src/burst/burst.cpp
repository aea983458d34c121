#include "burst/burst.h"

#include <algorithm>
#include <utility>

namespace daqiri {

void Burst::free_segment(int segment) noexcept {
  std::uint32_t* numbers = buffers[segment];
  memory::MemoryRegion* region = regions[segment];
  if (numbers == nullptr || region == nullptr) return;
  const std::uint32_t n = owned;
  // Usually nothing was freed before and the whole array goes back as one chain.
  const auto* end = std::remove(numbers, numbers + n, NO_BUFFER);
  region->give(numbers, static_cast<std::uint32_t>(end - numbers));
  std::fill(numbers, numbers + n, NO_BUFFER);
  std::fill(pkts[segment], pkts[segment] + n, nullptr);
}

void Burst::free_packet_segment(int segment, std::uint32_t packet) noexcept {
  if (packet >= owned || regions[segment] == nullptr) return;
  std::uint32_t& number = buffers[segment][packet];
  if (number == NO_BUFFER) return;
  regions[segment]->give(&number, 1);
  number = NO_BUFFER;
  pkts[segment][packet] = nullptr;
}

void Burst::free_packet(std::uint32_t packet) noexcept {
  for (int s = 0; s < hdr.hdr.num_segs; ++s) free_packet_segment(s, packet);
}

void Burst::release() noexcept {
  // Nobody joins a burst whose only holder is here, so that the common case costs a load.
  if (!exclusive() && holders.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  // The last burst of a closed session takes pools and regions with it: keep them until we are
  // done.
  const std::shared_ptr<SessionMemory> held = std::move(keep);
  for (int s = 0; s < MAX_NUM_SEGS; ++s) free_segment(s);
  home->give(this);
}

}  // namespace daqiri

#include "burst/burst.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daqiri/error.h"

namespace daqiri {

void Burst::free_segment(int segment) noexcept {
  std::uint32_t* numbers = buffers[segment];
  memory::BufferOwner* owner = owners[segment];
  if (numbers == nullptr || owner == nullptr || owned == 0) return;
  const std::uint32_t n = owned;
  // Usually nothing was freed before and the whole array goes back as one chain.
  const auto* end = std::remove(numbers, numbers + n, NO_BUFFER);
  owner->give(numbers, static_cast<std::uint32_t>(end - numbers));
  std::fill(numbers, numbers + n, NO_BUFFER);
  std::fill(pkts[segment], pkts[segment] + n, nullptr);
}

void Burst::free_packet_segment(int segment, std::uint32_t packet) noexcept {
  if (packet >= owned || owners[segment] == nullptr) return;
  std::uint32_t& number = buffers[segment][packet];
  if (number == NO_BUFFER) return;
  owners[segment]->give(&number, 1);
  number = NO_BUFFER;
  pkts[segment][packet] = nullptr;
}

void Burst::free_packet(std::uint32_t packet) noexcept {
  for (int s = 0; s < MAX_NUM_SEGS; ++s) free_packet_segment(s, packet);
}

int Burst::unreadable_segment() const noexcept {
  for (int s = 0; s < MAX_NUM_SEGS; ++s) {
    if (owners[s] != nullptr && !owners[s]->host_readable()) return s;
  }
  return -1;
}

void require_host_readable(const Burst& burst, std::string_view action) {
  const int segment = burst.unreadable_segment();
  if (segment < 0 || segment >= MAX_NUM_SEGS) return;
  std::string text = "segment " + std::to_string(segment) + " of the packets lies in '" +
                     burst.owners[segment]->name() + "', which the CPU cannot read, and cannot be ";
  text.append(action).append(
      "; copy the packets to the host first, or use a memory region of kind "
      "'host', 'huge' or 'host_pinned'");
  throw Error(Status::NOT_SUPPORTED, text);
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

#include "metrics/counters.h"

namespace daqiri {

std::string_view drop_reason_name(DropReason reason) noexcept {
  static constexpr std::array<std::string_view, NUM_DROP_REASONS> NAMES{
      "no_packet_buffer", "no_burst_buffer", "ring_full", "kernel",     "nic",
      "truncated",        "filtered",        "flushed",   "send_error", "missed_launch"};
  const auto i = static_cast<std::size_t>(reason);
  return i < NAMES.size() ? NAMES[i] : std::string_view{"unknown"};
}

}  // namespace daqiri

/// Checks on the bursts that a program hands in.
#pragma once

#include <cstdint>
#include <string_view>

#include "api/failure.h"
#include "burst/burst.h"

namespace daqiri::api {

/// The burst behind the handle, or null after refusing a null or freed one.
inline Burst* held(std::string_view call, const BurstParams* handle) noexcept {
  auto* burst = static_cast<Burst*>(const_cast<BurstParams*>(handle));
  if (burst != nullptr && burst->state.load(std::memory_order_acquire) == BurstState::APPLICATION)
      [[likely]] {
    return burst;
  }
  if (burst == nullptr) {
    refuse(Status::NULL_PTR, call, std::string_view("the burst is null"));
  } else {
    refuse(Status::INVALID_PARAMETER, call, std::string_view("the burst was freed, or sent"));
  }
  return nullptr;
}

/// What a call returns that `held` refused.
inline Status not_held(const BurstParams* handle) noexcept {
  return handle == nullptr ? Status::NULL_PTR : Status::INVALID_PARAMETER;
}

/// As `held`, of a burst that the caller is to change: refused while a write in the background
/// reads it.
inline Burst* held_alone(std::string_view call, BurstParams* handle, Status* status) noexcept {
  Burst* burst = held(call, handle);
  if (burst == nullptr) {
    *status = not_held(handle);
  } else if (!burst->exclusive()) {
    *status = refuse(Status::NOT_READY, call,
                     std::string_view("the burst is being written to files; call "
                                      "daqiri_file_write_wait first, or only free it"));
    return nullptr;
  }
  return burst;
}
inline Burst* held_alone(std::string_view call, BurstParams* handle) noexcept {
  Status status{};
  return held_alone(call, handle, &status);
}

/// Whether packet `idx` of the burst exists; refuses if not.
inline bool has_packet(std::string_view call, const Burst& burst, int idx) noexcept {
  if (idx >= 0 && static_cast<std::uint32_t>(idx) < burst.owned) [[likely]]
    return true;
  refuse(Status::INVALID_PARAMETER, call, std::string_view("packet "), idx,
         std::string_view(" of a burst of "), burst.owned);
  return false;
}

/// Whether the burst has segment `seg`; refuses if not.
inline bool has_segment(std::string_view call, const Burst& burst, int seg) noexcept {
  if (seg >= 0 && seg < MAX_NUM_SEGS && burst.owners[seg] != nullptr) [[likely]]
    return true;
  refuse(Status::INVALID_PARAMETER, call, std::string_view("the packets have no segment "), seg);
  return false;
}

/// Segments of the burst's packets, whatever its header says; 0 before it has buffers.
inline int num_segments(const Burst& burst) noexcept {
  int n = 0;
  while (n < MAX_NUM_SEGS && burst.owners[n] != nullptr) ++n;
  return n;
}

}  // namespace daqiri::api

/// A burst as the application sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/config.h"

/// What CUDA calls cudaEvent_t points to this.
struct CUevent_st;

namespace daqiri {

inline constexpr int MAX_NUM_SEGS = 4;

inline constexpr std::uint32_t DAQIRI_BURST_FLAG_REORDERED = 1U << 28;
inline constexpr std::uint32_t DAQIRI_BURST_FLAG_REORDER_TIMEOUT = 1U << 29;

struct BurstHeaderParams {
  std::size_t num_pkts{0};
  std::uint16_t port_id{0};
  std::uint16_t q_id{0};
  int num_segs{0};
  /// Bytes in all packets and segments.
  std::uint64_t nbytes{0};
  std::size_t max_pkt{0};
  /// Longest packet that fits, over all segments.
  std::uint32_t max_pkt_size{0};
  std::uint32_t burst_flags{0};
};

struct BurstHeader {
  BurstHeaderParams hdr;
};

/// Packets and what is known of them, one flat array per field. Use the functions of daqiri.h.
struct BurstParams {
  BurstHeader hdr;
  /// A CUDA event (cudaEvent_t), or null.
  CUevent_st* event{nullptr};
  void** pkts[MAX_NUM_SEGS]{};
  std::uint32_t* pkt_lens[MAX_NUM_SEGS]{};
  FlowId* flow_ids{nullptr};
  /// Receive: arrival, ns, CLOCK_REALTIME on kernel engines. Transmit: launch time, 0: at once.
  std::uint64_t* timestamps{nullptr};
  std::uintptr_t connection_id{0};
};

}  // namespace daqiri

/// A burst as the application sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/config.h"

/// What CUDA calls cudaEvent_t points to this.
struct CUevent_st;

namespace daqiri {

/// Segments that a packet can have.
inline constexpr int MAX_NUM_SEGS = 4;

/// The burst is one aggregate of reordered packets.
inline constexpr std::uint32_t DAQIRI_BURST_FLAG_REORDERED = 1U << 28;
/// The aggregate was closed by its timeout, not by its last packet.
inline constexpr std::uint32_t DAQIRI_BURST_FLAG_REORDER_TIMEOUT = 1U << 29;

/// What a program may read of a burst.
struct BurstHeaderParams {
  /// Packets.
  std::size_t num_pkts{0};
  /// Port it came from, or goes to.
  std::uint16_t port_id{0};
  /// Queue of that port.
  std::uint16_t q_id{0};
  /// Segments of each packet.
  int num_segs{0};
  /// Bytes in all packets and segments.
  std::uint64_t nbytes{0};
  /// Most packets it can hold; of an aggregate, source packets in it.
  std::size_t max_pkt{0};
  /// Longest packet that fits, over all segments.
  std::uint32_t max_pkt_size{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
};

/// Layers as programs spell them: `burst->hdr.hdr`.
struct BurstHeader {
  /// The header.
  BurstHeaderParams hdr;
};

/// Packets and what is known of them, one flat array per field. Use the functions of daqiri.h.
struct BurstParams {
  /// The header, a level down.
  BurstHeader hdr;
  /// A CUDA event (cudaEvent_t), or null.
  CUevent_st* event{nullptr};
  /// Per segment, address of each packet.
  void** pkts[MAX_NUM_SEGS]{};
  /// Per segment, bytes of each packet.
  std::uint32_t* pkt_lens[MAX_NUM_SEGS]{};
  /// Flow of each packet; 0: none matched.
  FlowId* flow_ids{nullptr};
  /// Receive: arrival, ns, CLOCK_REALTIME on kernel engines. Transmit: launch time, 0: at once.
  std::uint64_t* timestamps{nullptr};
  /// Peer; 0: none.
  std::uintptr_t connection_id{0};
};

}  // namespace daqiri

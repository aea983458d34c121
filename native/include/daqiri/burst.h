/// A burst as the application sees it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "daqiri/cuda_types.h"
#include "daqiri/enums.h"
#include "daqiri/flows.h"
#include "daqiri/rdma.h"

namespace daqiri {

/// \addtogroup bursts
/// \{

/// The burst is one aggregate of reordered packets.
inline constexpr std::uint32_t DAQIRI_BURST_FLAG_REORDERED = 1U << 28;
/// The aggregate was closed by its timeout, not by its last packet.
inline constexpr std::uint32_t DAQIRI_BURST_FLAG_REORDER_TIMEOUT = 1U << 29;

/// Bytes of a BurstHeader.
inline constexpr std::size_t ADV_NETWORK_HEADER_SIZE_BYTES = 256;

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
  /// For engines that poll from the GPU; 0 elsewhere.
  std::uintptr_t first_pkt_addr{0};
  /// Most packets it can hold; of an aggregate, source packets in it.
  std::uint32_t max_pkt{0};
  /// Longest packet that fits, over all segments.
  std::uint32_t max_pkt_size{0};
  /// As first_pkt_addr.
  std::uint32_t gpu_pkt0_idx{0};
  /// As first_pkt_addr.
  std::uintptr_t gpu_pkt0_addr{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
};

/// Layers as programs spell them: `burst->hdr.hdr`.
struct BurstHeader {
  /// The header.
  BurstHeaderParams hdr;
  /// The program's own; zeros in a new burst.
  std::uint8_t custom_burst_data[ADV_NETWORK_HEADER_SIZE_BYTES - sizeof(BurstHeaderParams)]{};
};

/// Packets and what is known of them, one flat array per field. Use the functions of daqiri.h.
struct BurstParams {
  /// The header, a level down.
  BurstHeader hdr;
  /// RDMA: the operation.
  TransportHeader transport_hdr;
  /// Of an aggregate that a GPU has made: complete, as the aggregate is. Of packets that were
  /// copied to a GPU: complete when they are there. The engine's; it lives as long as the burst is
  /// held. Null for others.
  cudaEvent_t event{nullptr};
  /// Per segment, address of each packet.
  std::array<void**, MAX_NUM_SEGS> pkts{};
  /// Per segment, bytes of each packet.
  std::array<std::uint32_t*, MAX_NUM_SEGS> pkt_lens{};
  /// The program's own, such as one pointer per packet; null in a new burst.
  void** pkt_extra_info{nullptr};
  /// The program's own; let go of with the burst.
  std::shared_ptr<void> custom_pkt_data;
  /// Flow of each packet; 0: none matched.
  FlowId* flow_ids{nullptr};
  /// Receive: arrival, ns, CLOCK_REALTIME on kernel engines. Transmit: launch time, 0: at once.
  std::uint64_t* timestamps{nullptr};
  /// Peer; 0: none.
  std::uintptr_t connection_id{0};
};

/// \}

}  // namespace daqiri

/// Bursts of packets, as the application receives and sends them.
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

/// Size of a BurstHeader in bytes.
inline constexpr std::size_t ADV_NETWORK_HEADER_SIZE_BYTES = 256;

/// Properties of a burst. Programs read them and do not change them.
struct BurstHeaderParams {
  /// Number of packets.
  std::size_t num_pkts{0};
  /// Port that received the burst or will send it.
  std::uint16_t port_id{0};
  /// Queue of that port.
  std::uint16_t q_id{0};
  /// Number of segments of each packet.
  int num_segs{0};
  /// Total bytes of all packets and segments.
  std::uint64_t nbytes{0};
  /// For engines that poll from the GPU; 0 with other engines.
  std::uintptr_t first_pkt_addr{0};
  /// Largest number of packets that the burst can hold. For an aggregate: its number of source
  /// packets.
  std::uint32_t max_pkt{0};
  /// Largest packet length that fits, over all segments.
  std::uint32_t max_pkt_size{0};
  /// Like first_pkt_addr.
  std::uint32_t gpu_pkt0_idx{0};
  /// Like first_pkt_addr.
  std::uintptr_t gpu_pkt0_addr{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
};

/// Header of a burst. Programs access its fields as `burst->hdr.hdr`.
struct BurstHeader {
  /// Properties of the burst.
  BurstHeaderParams hdr;
  /// Free for the program's use; zeros in a new burst.
  std::uint8_t custom_burst_data[ADV_NETWORK_HEADER_SIZE_BYTES - sizeof(BurstHeaderParams)]{};
};

/// A burst: packets and their metadata, one flat array per field. Access it through the functions
/// of daqiri.h.
struct BurstParams {
  /// Header; the properties are in `hdr.hdr`.
  BurstHeader hdr;
  /// RDMA operation.
  TransportHeader transport_hdr;
  /// Event that completes when the data is in GPU memory. Set for packets that are copied to a GPU,
  /// and for aggregates that a GPU assembled, where it has already completed; null otherwise. The
  /// engine owns it. It is valid while the program holds the burst.
  cudaEvent_t event{nullptr};
  /// For each segment, the address of each packet.
  std::array<void**, MAX_NUM_SEGS> pkts{};
  /// For each segment, the bytes of each packet.
  std::array<std::uint32_t*, MAX_NUM_SEGS> pkt_lens{};
  /// Free for the program's use, for example one pointer per packet; null in a new burst.
  void** pkt_extra_info{nullptr};
  /// Free for the program's use; released with the burst.
  std::shared_ptr<void> custom_pkt_data;
  /// Flow of each packet; 0: no flow matched.
  FlowId* flow_ids{nullptr};
  /// Time of each packet in ns. Receive: arrival, on CLOCK_REALTIME with kernel engines. Transmit:
  /// launch time; 0: at once.
  std::uint64_t* timestamps{nullptr};
  /// Connection to the peer; 0: none.
  std::uintptr_t connection_id{0};
};

/// \}

}  // namespace daqiri

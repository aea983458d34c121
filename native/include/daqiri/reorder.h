/// What is known of an aggregate of reordered packets.
#pragma once

#include <cstdint>

namespace daqiri {

/// Of one aggregate.
struct ReorderBurstInfo {
  /// Number of the batch, as its packets carry it.
  std::uint64_t batch_id{0};
  /// Packets in the aggregate.
  std::uint32_t source_packet_count{0};
  /// Packets of a complete one.
  std::uint32_t packets_per_batch{0};
  /// Output bytes of one packet.
  std::uint64_t payload_len{0};
  /// Output bytes of the batch.
  std::uint64_t aggregate_len{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
};

}  // namespace daqiri

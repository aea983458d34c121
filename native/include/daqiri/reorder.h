/// What is known of an aggregate of reordered packets.
#pragma once

#include <cstdint>

namespace daqiri {

struct ReorderBurstInfo {
  std::uint64_t batch_id{0};
  /// Packets in the aggregate.
  std::uint32_t source_packet_count{0};
  std::uint32_t packets_per_batch{0};
  /// Output bytes of one packet, and of the batch.
  std::uint64_t payload_len{0};
  std::uint64_t aggregate_len{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
};

}  // namespace daqiri

/// Ranges of the numbers in a configuration.
#pragma once

#include <cstdint>
#include <string_view>

#include "daqiri/config.h"

namespace daqiri::config {

/// Inclusive. `unit` says what is counted, for messages.
struct Range {
  std::int64_t first;
  std::int64_t last;
  std::string_view unit{};
};

inline constexpr Range VERSION{1, 1};
inline constexpr Range CPU_CORE{0, 8191};
inline constexpr Range META_BUFFERS{1, 1'048'576, "bursts"};
inline constexpr Range AFFINITY{0, 1023};
inline constexpr Range NUM_BUFS{1, 2'147'483'648, "buffers"};
inline constexpr Range BUF_SIZE{1, UINT32_MAX, "bytes"};
inline constexpr Range PORT{1, 65535};
inline constexpr Range PAYLOAD_SIZE{0, UINT32_MAX, "bytes"};
inline constexpr Range MILLISECONDS{0, UINT32_MAX, "milliseconds"};
inline constexpr Range NANOSECONDS{0, UINT32_MAX, "nanoseconds"};
inline constexpr Range MICROSECONDS{0, UINT32_MAX, "microseconds"};
inline constexpr Range RETRY{1, 86400, "seconds"};
inline constexpr Range FLOW_CAPACITY{0, 8'388'608, "flows"};
inline constexpr Range QUEUE_ID{0, 65535};
inline constexpr Range BATCH_SIZE{1, 1'048'576, "packets"};
inline constexpr Range SPLIT{0, UINT32_MAX, "bytes"};
inline constexpr Range PACING{0, UINT32_MAX, "Mb/s"};
inline constexpr Range REALTIME_PRIORITY{0, 99};
inline constexpr Range FLOW_ID{0, MAX_STATIC_FLOW_ID};
inline constexpr Range BYTE{0, 255};
inline constexpr Range WORD{0, 65535};
inline constexpr Range DOUBLE_WORD{0, UINT32_MAX};
inline constexpr Range FLEX_ID{0, INT32_MAX};
inline constexpr Range FLEX_OFFSET{0, 28, "bytes, a multiple of 4"};
inline constexpr Range VLAN_ID{0, 4095};
inline constexpr Range VLAN_PRIORITY{0, 7};
inline constexpr Range VLAN_DEI{0, 1};
inline constexpr Range TTL{1, 255};
inline constexpr Range NETWORK_ID{0, 0xFFFFFF};
inline constexpr Range BUF_OFFSET{0, UINT32_MAX, "bytes"};
inline constexpr Range BIT_OFFSET{0, UINT32_MAX, "bits"};
inline constexpr Range BIT_WIDTH{1, 32, "bits"};
inline constexpr Range PACKETS_PER_BATCH{1, UINT32_MAX, "packets"};

}  // namespace daqiri::config

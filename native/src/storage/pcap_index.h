/// Index of a pcap file: where each packet lies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace daqiri {

struct PcapIndex {
  std::uint32_t link_type{0};
  std::uint32_t snap_length{0};
  bool nanosecond{false};
  /// File of the other byte order.
  bool swapped{false};
  /// Byte offset of each packet's data in the file.
  std::vector<std::uint64_t> offsets;
  /// Bytes captured, and bytes on the wire.
  std::vector<std::uint32_t> lengths;
  std::vector<std::uint32_t> wire_lengths;
  /// ns since the epoch.
  std::vector<std::int64_t> timestamps;
  /// Bytes of a torn last record that were left out.
  std::uint64_t torn_bytes{0};
};

/// Index the classic pcap data of `size` bytes (a memory map). Throws Error INVALID_PARAMETER
/// naming `name` and what was found. A torn last record is left out and reported in `torn_bytes`.
PcapIndex index_pcap(const std::uint8_t* data, std::uint64_t size, const std::string& name);

}  // namespace daqiri

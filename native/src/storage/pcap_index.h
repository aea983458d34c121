/// Index of a pcap file: where each packet lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "storage/page_array.h"
#include "storage/pcap_format.h"
#include "storage/record_source.h"

namespace daqiri {

struct PcapIndex {
  std::uint32_t link_type{0};
  std::uint32_t snap_length{0};
  bool nanosecond{false};
  /// File of the other byte order.
  bool swapped{false};
  /// Byte offset of each packet's data in the file.
  PageArray<std::uint64_t> offsets;
  /// Bytes captured, and bytes on the wire.
  PageArray<std::uint32_t> lengths;
  PageArray<std::uint32_t> wire_lengths;
  /// ns since the epoch.
  PageArray<std::int64_t> timestamps;
  /// Bytes at the end that are no whole record and were left out.
  std::uint64_t torn_bytes{0};
  /// Empty, or why the records end before the torn bytes: a record's length that is impossible.
  std::string damage;
};

/// Makes the index of classic pcap data step by step.
class PcapIndexer {
 public:
  /// `size` bytes at `data`. Throws Error INVALID_PARAMETER naming `name` and what was found.
  PcapIndexer(const std::uint8_t* data, std::uint64_t size, std::string name);
  /// The same bytes as file `fd`, for where reading is faster than mapping.
  PcapIndexer(const std::uint8_t* data, std::uint64_t size, int fd, std::string name);

  /// Some milliseconds' worth of records. Returns whether there may be more.
  bool advance();
  /// After the last advance.
  [[nodiscard]] PcapIndex take() noexcept { return std::move(index_); }

 private:
  template <bool SWAPPED, typename Source>
  bool advance(Source& source);
  template <typename Source>
  bool zeros_begin(Source& source);
  void reserve(std::size_t records);

  std::string name_;
  std::variant<pcap::MemoryRecords, pcap::FileRecords> source_;
  PcapIndex index_;
  /// Behind the last whole record.
  std::uint64_t at_{sizeof(pcap::FileHeader)};
  /// Offset of the first byte behind the last look at a row of zeros that is not zero.
  std::uint64_t zeros_seen_{0};
};

/// Index the classic pcap data of `size` bytes at once. Throws Error INVALID_PARAMETER naming
/// `name` for what is no pcap data, and for damage.
PcapIndex index_pcap(const std::uint8_t* data, std::uint64_t size, const std::string& name);

}  // namespace daqiri

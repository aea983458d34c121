#include "storage/pcap_index.h"

#include <algorithm>
#include <cstring>

#include "daqiri/error.h"
#include "storage/pcap_format.h"

namespace daqiri {

namespace {

/// Records after which their mean size is taken for that of the whole file.
constexpr std::size_t SAMPLE = 4096;
/// How many records ahead memory is asked for, at the length of the current one.
constexpr std::uint64_t AHEAD = 8;

void reserve(PcapIndex& index, std::size_t records) {
  index.offsets.reserve(records);
  index.lengths.reserve(records);
  index.wire_lengths.reserve(records);
  index.timestamps.reserve(records);
}

/// Tells records of zeros from a tail of zeros, which a crash leaves where data had not reached the
/// disk.
class ZeroTail {
 public:
  ZeroTail(const std::uint8_t* data, std::uint64_t size) : data_(data), size_(size) {}
  bool begins(std::uint64_t at) {
    // Looked at once, so that a file full of zeros costs no more than any other.
    if (at < seen_) return false;
    const std::uint8_t* found =
        std::find_if(data_ + at, data_ + size_, [](std::uint8_t b) { return b != 0; });
    seen_ = static_cast<std::uint64_t>(found - data_);
    return seen_ == size_;
  }

 private:
  const std::uint8_t* data_;
  std::uint64_t size_;
  /// Offset of the first byte behind the last look that is not zero.
  std::uint64_t seen_{0};
};

template <bool SWAPPED>
std::uint32_t order(std::uint32_t value) {
  return SWAPPED ? __builtin_bswap32(value) : value;
}

template <bool SWAPPED>
std::uint64_t index_records(const std::uint8_t* data, std::uint64_t size, const std::string& name,
                            PcapIndex& index) {
  const std::int64_t ns_per_tick = index.nanosecond ? 1 : 1000;
  ZeroTail zeros(data, size);
  std::uint64_t at = sizeof(pcap::FileHeader);
  while (size - at >= sizeof(pcap::RecordHeader)) {
    pcap::RecordHeader record;
    std::memcpy(&record, data + at, sizeof record);
    const std::uint32_t captured = order<SWAPPED>(record.captured);
    const std::uint64_t step = sizeof record + captured;
    __builtin_prefetch(data + std::min(at + AHEAD * step, size - 1));
    if (captured > pcap::MAX_RECORD) {
      throw Error(Status::INVALID_PARAMETER,
                  name + ": the record at byte " + std::to_string(at) + " claims " +
                      std::to_string(captured) + " bytes, and more than " +
                      std::to_string(pcap::MAX_RECORD) + " is taken for garbage; 'truncate -s " +
                      std::to_string(at) + "' on a copy keeps the " +
                      std::to_string(index.offsets.size()) + " packets before it");
    }
    if (step > size - at) break;
    if (record == pcap::RecordHeader{} && zeros.begins(at)) break;
    index.offsets.push_back(at + sizeof record);
    index.lengths.push_back(captured);
    index.wire_lengths.push_back(order<SWAPPED>(record.original));
    index.timestamps.push_back(std::int64_t{order<SWAPPED>(record.seconds)} * 1'000'000'000 +
                               std::int64_t{order<SWAPPED>(record.fraction)} * ns_per_tick);
    at += step;
    if (index.offsets.size() == SAMPLE)
      reserve(index, SAMPLE + SAMPLE * (size - at) / at * 17 / 16);
  }
  return at;
}

}  // namespace

PcapIndex index_pcap(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  const pcap::Format format = pcap::read_header(data, size, name);
  PcapIndex index;
  index.link_type = format.link_type;
  index.snap_length = format.snap_length;
  index.nanosecond = format.nanosecond;
  index.swapped = format.swapped;
  const std::uint64_t end = format.swapped ? index_records<true>(data, size, name, index)
                                           : index_records<false>(data, size, name, index);
  index.torn_bytes = size - end;
  return index;
}

}  // namespace daqiri

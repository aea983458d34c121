#include "storage/pcap_index.h"

#include <utility>

#include "daqiri/error.h"

namespace daqiri {

namespace {

/// Records of one step; their mean size is taken for that of the whole file, too.
constexpr std::size_t STEP = 16'384;

template <bool SWAPPED>
std::uint32_t order(std::uint32_t value) {
  return SWAPPED ? __builtin_bswap32(value) : value;
}

using Source = std::variant<pcap::MemoryRecords, pcap::FileRecords>;

Source source_of(const std::uint8_t* data, std::uint64_t size, int fd, const std::string& name) {
  if (fd >= 0 && pcap::FileRecords::pays(fd)) return pcap::FileRecords(fd, size, name);
  return pcap::MemoryRecords(data, size);
}

}  // namespace

PcapIndexer::PcapIndexer(const std::uint8_t* data, std::uint64_t size, std::string name)
    : PcapIndexer(data, size, -1, std::move(name)) {}

PcapIndexer::PcapIndexer(const std::uint8_t* data, std::uint64_t size, int fd, std::string name)
    : name_(std::move(name)), source_(source_of(data, size, fd, name_)) {
  const pcap::Format format = pcap::read_header(data, size, name_);
  index_.link_type = format.link_type;
  index_.snap_length = format.snap_length;
  index_.nanosecond = format.nanosecond;
  index_.swapped = format.swapped;
}

void PcapIndexer::reserve(std::size_t records) {
  index_.offsets.reserve(records);
  index_.lengths.reserve(records);
  index_.wire_lengths.reserve(records);
  index_.timestamps.reserve(records);
}

/// Records of zeros are told from a tail of zeros, which a crash leaves where data had not reached
/// the disk.
template <typename Source>
bool PcapIndexer::zeros_begin(Source& source) {
  // Looked at once, so that a file full of zeros costs no more than any other.
  if (at_ < zeros_seen_) return false;
  zeros_seen_ = source.zeros_end(at_);
  return zeros_seen_ == source.size();
}

template <bool SWAPPED, typename Source>
bool PcapIndexer::advance(Source& source) {
  const std::uint64_t size = source.size();
  const std::int64_t ns_per_tick = index_.nanosecond ? 1 : 1000;
  const std::size_t before = index_.offsets.size();
  if (before == STEP) reserve(STEP + (size - at_) / (at_ / STEP));
  reserve(before + STEP);
  std::uint64_t* const offsets = index_.offsets.data();
  std::uint32_t* const lengths = index_.lengths.data();
  std::uint32_t* const wire_lengths = index_.wire_lengths.data();
  std::int64_t* const timestamps = index_.timestamps.data();
  std::size_t n = before;
  std::uint64_t at = at_;
  std::uint64_t step = 0;
  bool more = false;
  while (size - at >= sizeof(pcap::RecordHeader)) {
    if (n == before + STEP) {
      more = true;
      break;
    }
    const pcap::RecordHeader record = source.read(at, step);
    const std::uint32_t captured = order<SWAPPED>(record.captured);
    step = sizeof record + captured;
    if (captured > pcap::MAX_RECORD) {
      index_.damage = "the record at byte " + std::to_string(at) + " claims " +
                      std::to_string(captured) + " bytes, and more than " +
                      std::to_string(pcap::MAX_RECORD) + " is taken for garbage";
      break;
    }
    if (step > size - at) break;
    at_ = at;
    if (record == pcap::RecordHeader{} && zeros_begin(source)) break;
    offsets[n] = at + sizeof record;
    lengths[n] = captured;
    wire_lengths[n] = order<SWAPPED>(record.original);
    timestamps[n] = std::int64_t{order<SWAPPED>(record.seconds)} * 1'000'000'000 +
                    std::int64_t{order<SWAPPED>(record.fraction)} * ns_per_tick;
    ++n;
    at += step;
  }
  // Zeros before a torn record are the crash's as well: once it is cut off, they end the file.
  while (!more && n > 0 && lengths[n - 1] == 0 && wire_lengths[n - 1] == 0 &&
         timestamps[n - 1] == 0) {
    --n;
    at -= sizeof(pcap::RecordHeader);
  }
  at_ = at;
  index_.torn_bytes = size - at;
  index_.offsets.set_size(n);
  index_.lengths.set_size(n);
  index_.wire_lengths.set_size(n);
  index_.timestamps.set_size(n);
  return more;
}

bool PcapIndexer::advance() {
  return std::visit(
      [this](auto& source) {
        return index_.swapped ? advance<true>(source) : advance<false>(source);
      },
      source_);
}

PcapIndex index_pcap(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  PcapIndexer indexer(data, size, name);
  while (indexer.advance()) {
  }
  PcapIndex index = indexer.take();
  if (!index.damage.empty()) {
    throw Error(Status::INVALID_PARAMETER, name + ": " + index.damage + "; " +
                                               std::to_string(index.offsets.size()) +
                                               " packets before it are whole");
  }
  return index;
}

}  // namespace daqiri

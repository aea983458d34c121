// Bytes of a pcap file: the index is within the file and agrees with a walk over the records.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "daqiri/error.h"
#include "memory_file.h"
#include "require.h"
#include "storage/pcap_index.h"
#include "system/mapped_file.h"

using namespace daqiri;
using fuzz::require;

namespace {

template <typename... Source>
std::optional<PcapIndex> index(const Source&... source) {
  try {
    PcapIndexer indexer(source...);
    while (indexer.advance()) {
    }
    return indexer.take();
  } catch (const Error& error) {
    require(error.status() == Status::INVALID_PARAMETER, "a bad file is the caller's");
    return std::nullopt;
  }
}

template <typename Array>
bool equal(const Array& a, const Array& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void check_index(const PcapIndex& found, std::size_t size) {
  const std::size_t n = found.offsets.size();
  require(
      found.lengths.size() == n && found.wire_lengths.size() == n && found.timestamps.size() == n,
      "the arrays have one value per packet");
  std::uint64_t end = sizeof(pcap::FileHeader);
  for (std::size_t i = 0; i < n; ++i) {
    require(found.offsets[i] == end + sizeof(pcap::RecordHeader), "records follow each other");
    end = found.offsets[i] + found.lengths[i];
    require(end <= size, "packets lie within the file");
  }
  require(end + found.torn_bytes == size, "records and torn bytes make up the file");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<PcapIndex> found = index(data, size, "data");
  static fuzz::MemoryFile file;
  file.hold(data, size);
  const MappedFile mapped(file.fd(), "file");
  const std::optional<PcapIndex> read = index(mapped);
  require(found.has_value() == read.has_value(), "a file is as good read as mapped");
  if (!found) return 0;
  check_index(*found, size);
  require(equal(found->offsets, read->offsets) && equal(found->lengths, read->lengths) &&
              equal(found->wire_lengths, read->wire_lengths) &&
              equal(found->timestamps, read->timestamps) && found->damage == read->damage,
          "the index is the same read as mapped");
  // The walk supports only files in the byte order of this machine.
  if (found->swapped) return 0;
  const std::uint64_t end = pcap::whole_records_end(file.fd(), size, "file");
  require(end >= sizeof(pcap::FileHeader) && end <= size - found->torn_bytes,
          "the walk ends where the index does, or before");
  const std::optional<PcapIndex> whole = index(data, std::size_t{end}, "data");
  require(whole && whole->torn_bytes == 0, "what is cut to whole records is whole");
  require(std::equal(whole->offsets.begin(), whole->offsets.end(), found->offsets.begin()),
          "a file that is cut keeps its first records");
  return 0;
}

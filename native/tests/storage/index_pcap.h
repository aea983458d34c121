/// Indexes pcap data in one call.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/error.h"
#include "storage/pcap_index.h"

namespace daqiri::test {

/// Throws Error INVALID_PARAMETER with `name` if the data is not pcap or is damaged.
inline PcapIndex index_pcap(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  PcapIndexer indexer(data, size, name);
  while (indexer.advance()) {
  }
  PcapIndex index = indexer.take();
  if (!index.damage.empty()) throw Error(Status::INVALID_PARAMETER, name + ": " + index.damage);
  return index;
}

}  // namespace daqiri::test

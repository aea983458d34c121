// Bytes of a pcapng file: rejected, or converted to a valid classic file.
#include "storage/pcap_index.h"

#include <algorithm>
#include <cstdint>

#include "daqiri/error.h"
#include "memory_file.h"
#include "require.h"
#include "storage/index_pcap.h"

using namespace daqiri;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::MemoryFile from;
  static fuzz::MemoryFile to;
  from.hold(data, size);
  to.hold(data, 0);
  PcapngEnd end;
  try {
    const auto advance = pcapng_conversion(from.fd(), to.fd(), "file", end);
    while (advance()) {
    }
  } catch (const Error& error) {
    require(error.status() == Status::INVALID_PARAMETER, "a bad file is the caller's");
    return 0;
  }
  require(end.whole_bytes + end.torn_bytes == size, "whole blocks and torn bytes are the file");
  const auto classic = to.content();
  const PcapIndex index = test::index_pcap(classic.data(), classic.size(), "classic");
  require(index.nanosecond && index.damage.empty(), "what is converted is undamaged");
  // Empty packets with time 0 at the end look like the zeros left by a crash.
  const auto torn = classic.end() - static_cast<std::ptrdiff_t>(index.torn_bytes);
  require(index.torn_bytes % sizeof(pcap::RecordHeader) == 0 &&
              std::all_of(torn, classic.end(), [](std::uint8_t byte) { return byte == 0; }),
          "what is converted is whole");
  return 0;
}

/// Do the records of a pcap file end where the file ends?
#pragma once

#include <cstdint>

namespace daqiri::pcap {

/// Offset behind the last whole record of the pcap file `fd`, which has `size` bytes and a valid
/// header. Throws nothing: a read error ends the chain, and `error_number` tells it.
std::uint64_t whole_records_end(int fd, std::uint64_t size, int& error_number);

}  // namespace daqiri::pcap

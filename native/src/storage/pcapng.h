/// pcapng files, through libpcap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace daqiri {

/// Writes the packets of a pcapng file to a classic one in nanoseconds, step by step.
///
/// libpcap is loaded when the first such file is opened: programs that never do run without it.
class PcapngConversion {
 public:
  /// From the open file `from`, from its beginning, to the open, empty file `to`. `name` is for
  /// errors. Throws Error NOT_SUPPORTED without libpcap, INVALID_PARAMETER with libpcap's words.
  PcapngConversion(int from, int to, std::string name);
  PcapngConversion(const PcapngConversion&) = delete;
  PcapngConversion& operator=(const PcapngConversion&) = delete;
  ~PcapngConversion();

  /// Some milliseconds' worth of packets. Returns whether there may be more. Throws Error
  /// INVALID_PARAMETER for a damaged file, with the place; GENERIC_FAILURE when `to` cannot be
  /// written.
  bool advance();

 private:
  struct Files;
  std::string name_;
  std::unique_ptr<Files> files_;
  std::uint64_t packets_{0};
};

}  // namespace daqiri

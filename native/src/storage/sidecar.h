/// The metadata file beside a recorded pcap file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/file.h"
#include "storage/pcap_writer.h"

namespace daqiri {

/// What <name>.pcap.json says: one JSON object with these keys.
struct CaptureMetadata {
  PcapTally tally;
  PcapFormat format;
  bool headers_reconstructed{false};
  /// "<interface>/<queue>"
  std::string queue;
  /// Packets lost while this file was the current one; reasons without losses are left out.
  std::vector<std::pair<std::string_view, std::uint64_t>> dropped_by_reason;

  [[nodiscard]] std::uint64_t dropped() const noexcept;
  [[nodiscard]] std::string json() const;
};

/// Written in one piece when the pcap file is complete. Room on the disk is taken when that is
/// begun, so that a disk that is full by then does not cost the metadata.
class Sidecar {
 public:
  Sidecar() = default;
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;
  ~Sidecar() { abandon(); }

  /// Throws Error GENERIC_FAILURE with path and errno.
  void begin(const std::string& pcap_path);
  /// <pcap_path>.json is there, whole, or Error is thrown and it is not.
  void finish(const CaptureMetadata& metadata);
  /// Leave nothing behind.
  void abandon() noexcept;

 private:
  std::string path_;
  std::string part_path_;
  File part_;
};

}  // namespace daqiri

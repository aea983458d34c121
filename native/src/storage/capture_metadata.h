/// What the file beside a capture tells.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/counters.h"
#include "session/session.h"
#include "storage/record_batch.h"

namespace daqiri {

using CountsByReason = std::vector<std::pair<std::string_view, std::uint64_t>>;

/// What is the same for all files of a recording.
struct CaptureOrigin {
  /// "<interface>/<queue>"
  std::string queue;
  std::uint32_t link_type{0};
  bool headers_reconstructed{false};
  /// "pcap", "raw"
  std::string format;
  bool nanosecond{false};
  std::uint64_t packet_data_offset{0};
  /// "buffered", "direct"
  std::string writer;
  /// JSON: the flows that lead to the queue, the machine and the software.
  std::string flows;
  std::string host;
};

/// What <name>.json says: one JSON object with these keys.
struct CaptureMetadata {
  const CaptureOrigin& origin;
  FileTally tally;
  /// Packets lost while this file was the current one; and those left out because somebody asked
  /// for it. Reasons without packets are not told.
  CountsByReason lost;
  CountsByReason left_out;
  /// CLOCK_REALTIME ns and the queue's counters when the file was begun and completed.
  std::uint64_t begin_ns{0};
  std::uint64_t end_ns{0};
  RxSnapshot begin;
  RxSnapshot end;

  [[nodiscard]] std::string json() const;
};

[[nodiscard]] std::uint64_t total(const CountsByReason& counts) noexcept;

/// JSON: flows of the queue's port that lead to it.
std::string flows_json(const Session& session, const RxQueue& queue);
/// JSON: name, kernel and processor of this machine, version of this engine.
std::string host_json();

}  // namespace daqiri

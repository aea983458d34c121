/// Metadata of a recorded file.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "session/session.h"
#include "storage/file_output.h"
#include "storage/recorder_options.h"
#include "storage/recording_source.h"

namespace daqiri {

/// What is the same for all files of a recording.
struct CaptureOrigin {
  CaptureOrigin(const RecorderOptions& chosen, const Session& session, const RecordingSource& from);

  RecorderOptions options;
  const RecordingSource& source;
  /// "<interface>/<queue or plan>"
  std::string name;
  /// "buffered", "direct", "cufile"
  std::string writer;
  /// How cuFile does it; empty: another does.
  std::string cufile_mode;
  /// JSON: the flows that lead to the source; name, kernel and processor of this machine, version
  /// of this engine.
  std::string flows;
  std::string host;
};

/// What did not get into files until some moment: counted by the source, and by its recorder.
struct CaptureLosses {
  /// Why a recorder did not write a record that it took from its source. The first is a loss.
  enum Reason : std::uint8_t { WRITE_ERROR, PAUSED, BEFORE_START, AFTER_LIMIT, HELD, REWOUND };

  SourceCounters counters;
  std::array<std::uint64_t, 6> not_written{};
};

/// What <name>.json says, one JSON object; and the sums of its records that were lost while the
/// file was the current one, and that were left out because somebody asked for it.
struct CaptureMetadata {
  std::string json;
  std::uint64_t dropped;
  std::uint64_t left_out;
};

/// Of a file that was begun at `begun_ns` (CLOCK_REALTIME) and is complete now; what it tells is
/// lost is what was lost from `before` to `now`.
CaptureMetadata describe(const CaptureOrigin& origin, const FileTally& tally,
                         std::uint64_t begun_ns, const CaptureLosses& before,
                         const CaptureLosses& now);

}  // namespace daqiri

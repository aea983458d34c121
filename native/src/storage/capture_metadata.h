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

/// Values that are the same for all files of a recording.
struct CaptureOrigin {
  CaptureOrigin(const RecorderOptions& chosen, const Session& session, const RecordingSource& from);

  RecorderOptions options;
  const RecordingSource& source;
  /// "<interface>/<queue or plan>"
  std::string name;
  /// "buffered", "direct", "cufile"
  std::string writer;
  /// The mode of cuFile; empty: another writer.
  std::string cufile_mode;
  /// JSON: the flows that lead to the source; name, kernel and CPU of this machine, and the version
  /// of this engine.
  std::string flows;
  std::string host;
  /// The configuration of the engine, as YAML.
  std::string configuration;
};

/// Records that are in no file up to some moment, as counted by the source and by its recorder.
struct CaptureLosses {
  /// Why a recorder did not write a record from its source. Only the first is a loss.
  enum Reason : std::uint8_t { WRITE_ERROR, PAUSED, BEFORE_START, AFTER_LIMIT, HELD, REWOUND };

  SourceCounters counters;
  /// What the host lost before the engine; in none of the sums.
  PortSnapshot port;
  std::array<std::uint64_t, 6> not_written{};
};

/// Contents of <name>.json, one JSON object, and sums from it: records that were lost while the
/// file was the current one, records that were omitted on request, and packets that the host lost
/// before the engine.
struct CaptureMetadata {
  std::string json;
  std::uint64_t dropped;
  std::uint64_t left_out;
  std::uint64_t lost_before_engine;
};

/// Metadata of a file that was begun at `begun_ns` (CLOCK_REALTIME) and is complete now. Its losses
/// are the difference of `before` and `now`.
CaptureMetadata describe(const CaptureOrigin& origin, const RunMetadata& run,
                         const FileTally& tally, std::uint64_t begun_ns,
                         const CaptureLosses& before, const CaptureLosses& now);

}  // namespace daqiri

/// Options of a recorder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "burst/burst.h"
#include "daqiri/flows.h"
#include "storage/file_output.h"
#include "storage/recorder_group.h"
#include "storage/run_metadata.h"

namespace daqiri {

/// Format of packet files.
enum class CaptureFormat : std::uint8_t { PCAP, RAW };
/// Compression of frames in HDF5 files, which have one chunk per frame.
enum class FrameCompression : std::uint8_t { NONE, BITSHUFFLE_LZ4 };
/// Computes numbers from the frame in a burst, in whatever memory it is.
using ReduceFrame = std::function<void(const Burst& frame, std::span<double> numbers)>;
/// What a recorder does if its file cannot be written: count records as lost until it ends, or
/// retry regularly.
enum class OnError : std::uint8_t { STOP, RESUME };

struct RecorderOptions {
  /// Existing directory, absolute.
  std::string directory;
  /// Files are <prefix>_<number, six digits>.pcap, .raw or .h5, each with its metadata in
  /// <name>.json. Existing files are not overwritten: if the first one exists, the recorder does
  /// not start; later ones skip the number.
  std::string prefix{"capture"};
  std::uint64_t first_number{0};
  CaptureFormat format{CaptureFormat::PCAP};
  /// pcap: resolution of timestamps.
  bool nanosecond{true};
  /// raw: bytes to omit at the beginning of each packet.
  std::uint64_t packet_data_offset{0};
  /// For frames.
  FrameCompression compression{FrameCompression::NONE};
  std::uint32_t compression_threads{1};
  /// Folder with the compression's plugin; empty: HDF5's default folders.
  std::string plugin_folder{};
  /// How bytes are written to disk. If DIRECT is not possible, the writer is BUFFERED, with a
  /// warning; AUTO is DIRECT if possible. CUFILE is for frames in device memory, which cuFile
  /// writes from there; rejected if it is not possible. AUTO uses CUFILE for these frames if
  /// possible.
  WriterKind writer{WriterKind::BUFFERED};
  OnError on_error{OnError::STOP};
  /// Complete a file only after it is on disk (fdatasync).
  bool durable{false};
  /// A file is complete with the record that makes it this many records or this many bytes of
  /// records (pcap: 16 bytes of record header and the packet, each), or when this many seconds have
  /// passed since its first record; 0: no limit.
  std::uint64_t roll_packets{0};
  std::uint64_t roll_bytes{0};
  double roll_seconds{0.0};
  /// Stop after exactly this many records; 0: no limit. What the queue has not delivered by then
  /// stays in the queue; the rest of the last burst counts as omitted (`after_limit`), because a
  /// burst cannot be put back.
  std::uint64_t max_packets{0};
  /// Stop after this time, with what the queue has delivered by then; 0: no limit. The clock stops
  /// while the recorder is paused.
  double max_seconds{0.0};
  /// Files begin with the first packet that has this flow id, or with the first frame that begins
  /// after it; earlier records are omitted (`before_start`).
  std::optional<FlowId> start_flow{};
  /// Frames: record only frames requested by `acquire`; omit others (`held`).
  bool held{false};
  /// Frames: names of the numbers that `reduce` computes from each, on the recorder's thread. Each
  /// is a column of the files.
  std::vector<std::string> reductions{};
  ReduceFrame reduce{};
  /// Run and detector. Files of frames have space for a run that is not known yet only if this is
  /// not empty.
  RunMetadata metadata{};
  /// Null: no group. With a group, its limits apply instead of those above.
  std::shared_ptr<RecorderGroup> group{};
};

/// Throws Error INVALID_PARAMETER for options that no recorder supports.
void require_recordable(const RecorderOptions& options);

}  // namespace daqiri

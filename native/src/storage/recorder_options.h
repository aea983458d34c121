/// Options of a recorder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daqiri/flows.h"
#include "storage/file_output.h"
#include "storage/recorder_group.h"

namespace daqiri {

/// Of packets.
enum class CaptureFormat : std::uint8_t { PCAP, RAW };
/// Of frames, which HDF5 files hold: a chunk each, or one behind the other.
enum class FrameLayout : std::uint8_t { CHUNKED, CONTIGUOUS };
/// Of chunks.
enum class FrameCompression : std::uint8_t { NONE, BITSHUFFLE_LZ4 };
/// What a recorder does when its file cannot be written: it goes on without (what comes is lost)
/// until it ends, or it tries to go on every now and then.
enum class OnError : std::uint8_t { STOP, RESUME };

struct RecorderOptions {
  /// Existing directory, absolute.
  std::string directory;
  /// Files are <prefix>_<number, six digits>.pcap, .raw or .h5, each with its metadata beside it in
  /// <name>.json. Existing files are not overwritten: the first one is refused, later ones leave
  /// the number out.
  std::string prefix{"capture"};
  std::uint64_t first_number{0};
  CaptureFormat format{CaptureFormat::PCAP};
  /// pcap: resolution of the times.
  bool nanosecond{true};
  /// raw: bytes that are left out at the beginning of each packet.
  std::uint64_t packet_data_offset{0};
  /// Frames.
  FrameLayout layout{FrameLayout::CHUNKED};
  FrameCompression compression{FrameCompression::NONE};
  std::uint32_t compression_threads{1};
  /// Where the compression's plugin is; empty: where HDF5 looks for plugins.
  std::string plugin_folder{};
  /// How bytes get to the disk. DIRECT is BUFFERED, with a warning, where it is not possible; AUTO
  /// is DIRECT where it is possible. CUFILE is for frames in device memory, from where cuFile
  /// writes them, and refused where it cannot; AUTO is CUFILE for these where it can.
  WriterKind writer{WriterKind::BUFFERED};
  OnError on_error{OnError::STOP};
  /// A file is complete once the disk has it (fdatasync), and not before.
  bool durable{false};
  /// A file is complete with the record that makes it this many records, this many bytes of records
  /// (pcap: 16 bytes of record header and the packet, each), or once this many seconds have passed
  /// since its first record; 0: no limit.
  std::uint64_t roll_packets{0};
  std::uint64_t roll_bytes{0};
  double roll_seconds{0.0};
  /// Stop by itself after exactly this many records; 0: no limit. What the queue has not handed
  /// over by then stays in the queue; the rest of the burst that went beyond is counted as left out
  /// (`after_limit`), since a burst cannot be put back.
  std::uint64_t max_packets{0};
  /// Stop by itself after this time, with what the queue has handed over by then; 0: no limit. The
  /// clock stops while the recorder is paused.
  double max_seconds{0.0};
  /// Files begin with the first packet that has this flow id, or with the first frame that begins
  /// after that; what comes before is left out (`before_start`).
  std::optional<FlowId> start_flow{};
  /// Frames: only what `acquire` asks for is recorded; other frames are left out (`held`).
  bool held{false};
  /// Null: it is on its own. Limits are the group's, not those above.
  std::shared_ptr<RecorderGroup> group{};
};

/// Throws Error INVALID_PARAMETER for what no recorder can do.
void require_recordable(const RecorderOptions& options);

}  // namespace daqiri

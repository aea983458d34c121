/// Sources of a recorder: a receive queue or a reorder plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daqiri/config.h"
#include "metrics/json_object.h"
#include "net/link_layer.h"
#include "reorder/running_plan.h"
#include "session/session.h"
#include "storage/record_writer.h"

namespace daqiri {

struct RecorderOptions;

/// Counters of a receive queue, or of a reorder plan.
using SourceCounters = std::variant<RxSnapshot, reorder::ReorderSnapshot>;

/// Bursts of records: packets, or one frame per burst. The source is used exclusively until
/// `detach`.
class RecordingSource {
 public:
  RecordingSource() = default;
  RecordingSource(const RecordingSource&) = delete;
  RecordingSource& operator=(const RecordingSource&) = delete;
  virtual ~RecordingSource() = default;

  /// Stop using the source, so that others can. Idempotent.
  virtual void detach() noexcept = 0;
  /// The next burst in state APPLICATION, or null.
  virtual Burst* receive() noexcept = 0;
  /// Whether no more records arrive than can be received now.
  [[nodiscard]] virtual bool closed() const noexcept = 0;
  /// Rung when a burst is ready and when the source closes.
  virtual WaitQueue& ready() noexcept = 0;
  /// Index of the first record of the burst for files that begin with the flow of the options; the
  /// number of records if there is none.
  virtual std::uint32_t start_of(const Burst& burst, FlowId flow) noexcept = 0;
  /// The first file was created.
  virtual void begin() noexcept {}
  /// Frames: an acquisition begins at `since` on the port's clock, with number `first`, if it is
  /// known. Throws std::bad_alloc, and Error INVALID_PARAMETER if there is no such number.
  virtual reorder::RunningPlan::Epoch begin_acquisition(std::uint64_t /*since*/,
                                                        std::optional<std::uint64_t> /*first*/) {
    return {};
  }
  /// The recording ends: frames of which no more packets are expected can be received.
  virtual void end() noexcept {}
  /// Number of records that wait now.
  [[nodiscard]] virtual std::uint64_t held() const noexcept = 0;
  [[nodiscard]] virtual SourceCounters counters() const noexcept = 0;
  /// Whether cuFile may write its records.
  [[nodiscard]] virtual bool in_device_memory() const noexcept { return false; }
  /// `kind`: BUFFERED or DIRECT, or CUFILE; must be possible. Throws Error.
  [[nodiscard]] virtual std::unique_ptr<RecordWriter> make_writer(const RecorderOptions& options,
                                                                  WriterKind kind) const = 0;

  /// "queue", "reorder_plan": its name in metadata. `interface`: empty if it has several.
  [[nodiscard]] virtual const char* kind() const noexcept = 0;
  /// Add its properties, besides counters, to the metadata of files.
  virtual void describe(const RecorderOptions& options, JsonObject& object) const = 0;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual const std::string& interface() const noexcept = 0;
  /// Whether a flow leads to it.
  [[nodiscard]] virtual bool has_flow(const FlowConfig& flow) const noexcept = 0;
  /// Its port, or of several the one whose clock counts; all of them.
  [[nodiscard]] virtual int port() const noexcept = 0;
  [[nodiscard]] virtual std::vector<int> ports() const { return {port()}; }
};

/// Check the options and attach. Throws Error: INVALID_PARAMETER, NOT_READY if the source is in
/// use.
std::unique_ptr<RecordingSource> packets_of(RxQueue& queue, const Session& session,
                                            const RecorderOptions& options);
std::unique_ptr<RecordingSource> frames_of(reorder::RunningPlan& plan, const Session& session,
                                           const RecorderOptions& options);

}  // namespace daqiri

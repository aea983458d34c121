/// Sources of a recorder: a receive queue or a reorder plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

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

/// Bursts of records: packets, or frames, of which a burst has one. Nobody else gets them until it
/// is detached.
class RecordingSource {
 public:
  RecordingSource() = default;
  RecordingSource(const RecordingSource&) = delete;
  RecordingSource& operator=(const RecordingSource&) = delete;
  virtual ~RecordingSource() = default;

  /// Others may have what comes. Idempotent.
  virtual void detach() noexcept = 0;
  /// The next burst in state APPLICATION, or null.
  virtual Burst* receive() noexcept = 0;
  /// Nothing more comes than what can be received.
  [[nodiscard]] virtual bool closed() const noexcept = 0;
  /// Rung with a burst, and when it closes.
  virtual WaitQueue& ready() noexcept = 0;
  /// The first record of the burst that belongs in files which begin with the flow of the options;
  /// behind all of its records: none does.
  virtual std::uint32_t start_of(const Burst& burst, FlowId flow) noexcept = 0;
  /// The first file is there.
  virtual void begin() noexcept {}
  /// What it loses from now on has begun from now on. Returns records that it had lost before.
  virtual std::uint64_t begin_acquisition() noexcept { return 0; }
  /// Records that it has by now.
  [[nodiscard]] virtual std::uint64_t held() const noexcept = 0;
  [[nodiscard]] virtual SourceCounters counters() const noexcept = 0;
  /// Whether cuFile may write what it has.
  [[nodiscard]] virtual bool in_device_memory() const noexcept { return false; }
  /// `kind`: BUFFERED or DIRECT, what is possible; CUFILE, if it is. Throws Error.
  [[nodiscard]] virtual std::unique_ptr<RecordWriter> make_writer(const RecorderOptions& options,
                                                                  WriterKind kind) const = 0;

  /// "queue", "reorder_plan": what it is called in metadata.
  [[nodiscard]] virtual const char* kind() const noexcept = 0;
  /// What it has beside counters to tell of its files, into their metadata.
  virtual void describe(const RecorderOptions& options, JsonObject& object) const = 0;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual const std::string& interface() const noexcept = 0;
  /// Whether a flow leads to it.
  [[nodiscard]] virtual bool has_flow(const FlowConfig& flow) const noexcept = 0;
  [[nodiscard]] virtual int port() const noexcept = 0;
};

/// Checks the options and attaches. Throws Error: INVALID_PARAMETER, NOT_READY when somebody else
/// has it.
std::unique_ptr<RecordingSource> packets_of(RxQueue& queue, const Session& session,
                                            const RecorderOptions& options);
std::unique_ptr<RecordingSource> frames_of(reorder::RunningPlan& plan, const Session& session,
                                           const RecorderOptions& options);

}  // namespace daqiri

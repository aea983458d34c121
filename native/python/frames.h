/// Frames of a reorder plan in Python's hands.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "arrays.h"
#include "lifecycle.h"
#include "reorder/running_plan.h"

namespace daqiri::python {

/// Has the frames of a plan to itself for as long as it lives. Any thread.
class FrameTaker {
 public:
  FrameTaker(std::shared_ptr<OpenSession> open, reorder::RunningPlan& plan);
  FrameTaker(const FrameTaker&) = delete;
  FrameTaker& operator=(const FrameTaker&) = delete;
  ~FrameTaker() { release(); }

  /// The next frame as a burst, or None after `timeout` seconds (None: no limit). Throws Error
  /// NOT_READY when the engine is closed and all frames were taken.
  [[nodiscard]] py::object receive(std::optional<double> timeout);
  /// Idempotent.
  void release() noexcept;

 private:
  std::shared_ptr<OpenSession> open_;
  reorder::RunningPlan* plan_;
  std::atomic<bool> held_{true};
};

/// A copy of a frame with a binning, newer than copy number `after`, as (number, data, batch,
/// packets, missing, time of the first packet, of the last), or None.
[[nodiscard]] py::object preview_frame(reorder::RunningPlan& plan, std::uint64_t after,
                                       std::int64_t binning);

void bind_record_frames(pybind11::class_<OpenSession, std::shared_ptr<OpenSession>>& session);
void bind_frame_kernel(pybind11::class_<OpenSession, std::shared_ptr<OpenSession>>& session);

}  // namespace daqiri::python

/// Frames of a reorder plan, as Python receives them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "arrays.h"
#include "lifecycle.h"
#include "reorder/running_plan.h"

namespace daqiri::python {

/// Takes the frames of a plan exclusively while it exists. Any thread may use it.
class FrameTaker {
 public:
  FrameTaker(std::shared_ptr<OpenSession> open, reorder::RunningPlan& plan);
  FrameTaker(const FrameTaker&) = delete;
  FrameTaker& operator=(const FrameTaker&) = delete;
  ~FrameTaker() { release(); }

  /// The next frame as a burst, or None after `timeout` seconds (None: no limit). Throws Error
  /// NOT_READY when the engine is closed and no frames are left.
  [[nodiscard]] py::object receive(std::optional<double> timeout);
  /// Idempotent.
  void release() noexcept;

 private:
  std::shared_ptr<OpenSession> open_;
  reorder::RunningPlan* plan_;
  std::atomic<bool> held_{true};
};

/// A copy of a frame with a number above `after`, as (number, data, batch, packets, missing, time
/// of the first packet, time of the last packet), or None.
[[nodiscard]] py::object preview_frame(reorder::RunningPlan& plan, std::uint64_t after);

void bind_record_frames(pybind11::class_<OpenSession, std::shared_ptr<OpenSession>>& session);
void bind_frame_kernel(pybind11::class_<OpenSession, std::shared_ptr<OpenSession>>& session);

}  // namespace daqiri::python

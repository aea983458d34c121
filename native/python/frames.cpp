#include "frames.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "burst.h"
#include "daqiri/error.h"
#include "gil.h"
#include "recorder.h"

namespace daqiri::python {

namespace py = pybind11;

FrameTaker::FrameTaker(std::shared_ptr<OpenSession> open, reorder::RunningPlan& plan)
    : open_(std::move(open)), plan_(&plan) {
  const GilRelease unlocked;
  plan_->attach("another frames()");
}

py::object FrameTaker::receive(std::optional<double> timeout) {
  static_cast<void>(open_->session());
  const Deadline deadline(timeout);
  for (;;) {
    // Check `finished` first, so that frames queued before the plan finished are returned.
    const bool finished = plan_->finished();
    if (Burst* burst = held_.load(std::memory_order_acquire) ? plan_->pop() : nullptr)
      return py::cast(std::make_unique<ReceivedBurst>(burst));
    if (finished || !held_.load(std::memory_order_acquire)) {
      throw Error(Status::NOT_READY, "reorder plan '" + plan_->name() +
                                         "' has ended and has no frames left; open the "
                                         "engine again");
    }
    if (deadline.passed()) return py::none();
    {
      const GilRelease unlocked;
      plan_->frames().wait_unless(
          [this] {
            return plan_->waiting() > 0 || plan_->finished() ||
                   !held_.load(std::memory_order_acquire);
          },
          deadline.slice());
    }
    check_signals();
  }
}

void FrameTaker::release() noexcept {
  if (!held_.exchange(false, std::memory_order_acq_rel)) return;
  const GilRelease unlocked;
  plan_->detach();
  plan_->frames().ring();
}

py::object preview_frame(reorder::RunningPlan& plan, std::uint64_t after) {
  reorder::FrameCopy copy;
  {
    const GilRelease unlocked;
    copy = plan.preview().newer(after);
  }
  if (copy.number == 0) return py::none();
  const auto& info = copy.info;
  const auto* const data = reinterpret_cast<const std::uint8_t*>(copy.data.get());
  return py::make_tuple(
      copy.number, read_only_view(data, copy.bytes, owning_capsule(std::move(copy.data))),
      info.batch_id, info.source_packet_count, copy.missing, copy.first_time, copy.last_time,
      py::array_t<std::uint64_t>(info.num_column_values, info.columns));
}

namespace {

/// Calls a Python function with each frame, from the recorder's thread.
class PythonReduction {
 public:
  explicit PythonReduction(py::object function)
      : function_(new py::object(std::move(function)), Drop()) {}

  void operator()(const Burst& frame, std::span<double> numbers) const {
    std::ranges::fill(numbers, std::numeric_limits<double>::quiet_NaN());
    const GilHold locked;
    if (!locked) return;  // the interpreter exits
    static thread_local const InterpreterState kept;
    const Reducing reducing;
    try {
      // Arrays of the function may outlive the call: they keep the buffer in use.
      auto& shared = const_cast<Burst&>(frame);
      shared.holders.fetch_add(1, std::memory_order_relaxed);
      const auto found = (*function_)(std::make_unique<ReceivedBurst>(&shared));
      const auto values = found.cast<std::vector<double>>();
      std::ranges::copy_n(values.begin(),
                          static_cast<std::ptrdiff_t>(std::min(values.size(), numbers.size())),
                          numbers.begin());
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("a reduction of frames");
    }
  }

 private:
  struct Drop {
    void operator()(py::object* function) const {
      const GilHold locked;
      if (!locked) return;  // it is left to the process's end
      delete function;
    }
  };
  std::shared_ptr<py::object> function_;
};

}  // namespace

void bind_record_frames(py::class_<OpenSession, std::shared_ptr<OpenSession>>& session) {
  session.def(
      "record_frames",
      [](OpenSession& open, int port, std::size_t position, std::string directory,
         std::string prefix, std::uint64_t first_number, const std::string& compression,
         std::uint32_t compression_threads, std::string plugin_folder, const std::string& writer,
         const std::string& on_error_word, bool durable, std::uint64_t roll_frames,
         std::uint64_t roll_bytes, double roll_seconds, std::uint64_t max_frames,
         double max_seconds, std::optional<FlowId> start_flow, bool held,
         std::shared_ptr<RecorderGroup> group, RunMetadata metadata,
         std::vector<std::string> reductions, const py::object& reduce) {
        reorder::RunningPlan& plan = open.session().reorder_plans(port).at(position);
        RecorderOptions options{.directory = std::move(directory),
                                .prefix = std::move(prefix),
                                .first_number = first_number,
                                .compression = frame_compression(compression),
                                .compression_threads = compression_threads,
                                .plugin_folder = std::move(plugin_folder),
                                .writer = writer_kind(writer),
                                .on_error = on_error(on_error_word),
                                .durable = durable,
                                .roll_packets = roll_frames,
                                .roll_bytes = roll_bytes,
                                .roll_seconds = roll_seconds,
                                .max_packets = max_frames,
                                .max_seconds = max_seconds,
                                .start_flow = start_flow,
                                .held = held,
                                .reductions = std::move(reductions),
                                .metadata = std::move(metadata),
                                .group = std::move(group)};
        if (!reduce.is_none()) options.reduce = PythonReduction(reduce);
        const GilRelease unlocked;
        return RecorderHandle(open.record(plan, options));
      },
      py::arg("port"), py::arg("position"), py::arg("directory"), py::arg("prefix"), py::kw_only(),
      py::arg("first_number"), py::arg("compression"), py::arg("compression_threads"),
      py::arg("plugin_folder"), py::arg("writer"), py::arg("on_error"), py::arg("durable"),
      py::arg("roll_frames"), py::arg("roll_bytes"), py::arg("roll_seconds"), py::arg("max_frames"),
      py::arg("max_seconds"), py::arg("start_flow"), py::arg("held"), py::arg("group"),
      py::arg("metadata"), py::arg("reductions"), py::arg("reduce"));
}

void bind_frames(py::module_& m) {
  py::class_<FrameTaker>(
      m, "FrameTaker", "Receives the frames of a plan; wrapped by daqiri_ophyd.engine.ReorderPlan.")
      .def("receive", &FrameTaker::receive, py::arg("timeout"))
      .def("release", &FrameTaker::release);
}

}  // namespace daqiri::python

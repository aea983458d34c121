// Recorders.
#include "recorder.h"

#include <poll.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <initializer_list>
#include <mutex>
#include <utility>

#include "bindings.h"
#include "daqiri/error.h"
#include "gil.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

RecorderNews news_of(const Recorder& recorder) {
  const RecorderSnapshot s = recorder.snapshot();
  return {s.files, s.running, s.failing, s.acquisitions};
}

template <typename Value>
Value value_of(const char* option, const std::string& word,
               std::initializer_list<std::pair<const char*, Value>> words) {
  std::string accepted;
  for (const auto& [known, value] : words) {
    if (word == known) return value;
    accepted += (accepted.empty() ? "'" : ", '") + std::string(known) + "'";
  }
  throw Error(Status::INVALID_PARAMETER,
              std::string(option) + " is '" + word + "'; accepted are " + accepted);
}

}  // namespace

void require_not_reducing(const char* action) {
  if (!Reducing::now()) return;
  throw Error(Status::NOT_READY,
              std::string("a reduction of frames cannot ") + action +
                  ", which waits for the reduction; raise an exception in it to fail the reading");
}

CaptureFormat capture_format(const std::string& word) {
  return value_of<CaptureFormat>("format", word,
                                 {{"pcap", CaptureFormat::PCAP}, {"raw", CaptureFormat::RAW}});
}

FrameCompression frame_compression(const std::string& word) {
  return value_of<FrameCompression>(
      "compression", word,
      {{"none", FrameCompression::NONE}, {"bitshuffle-lz4", FrameCompression::BITSHUFFLE_LZ4}});
}

WriterKind writer_kind(const std::string& word) {
  return value_of<WriterKind>("writer", word,
                              {{"buffered", WriterKind::BUFFERED},
                               {"direct", WriterKind::DIRECT},
                               {"auto", WriterKind::AUTO},
                               {"cufile", WriterKind::CUFILE}});
}

OnError on_error(const std::string& word) {
  return value_of<OnError>("on_error", word,
                           {{"stop", OnError::STOP}, {"resume", OnError::RESUME}});
}

Recorder& RecorderHandle::get() const {
  if (born_ != fork_generation()) {
    throw Error(
        Status::NOT_READY,
        "the recorder was started before this process was forked and continues in the parent");
  }
  return *recorder_;
}

bool RecorderHandle::look(std::int64_t timeout_ns) {
  pollfd bell{recorder_->doorbell().fd(), POLLIN, 0};
  const timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  if (ppoll(&bell, 1, &limit, nullptr) <= 0) return false;
  if (!news_->watched) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t n = ::read(bell.fd, &rings, sizeof rings);
  }
  return true;
}

bool RecorderHandle::wait(std::optional<double> timeout) {
  constexpr timespec BREATH{0, 1'000'000};
  const Deadline deadline(timeout);
  static_cast<void>(get());
  for (;;) {
    const auto news = news_of(*recorder_);
    {
      const std::lock_guard lock(news_->mutex);
      if (std::exchange(news_->seen, news) != news) return true;
    }
    if (deadline.passed()) return false;
    {
      const GilRelease unlocked;
      // The doorbell is still set for news already seen, because the event loop has not read it
      // yet.
      if (look(deadline.slice()) && news_->watched && news_of(*recorder_) == news)
        nanosleep(&BREATH, nullptr);
    }
    check_signals();
  }
}

void bind_recorder(py::module_& m) {
  py::class_<RecorderGroup, std::shared_ptr<RecorderGroup>>(
      m, "RecorderGroup", "Recorders with common limits; see daqiri_ophyd.engine.RecorderGroup.")
      .def(py::init([](std::uint64_t max_packets, std::uint64_t roll_packets,
                       std::uint64_t roll_bytes, double roll_seconds, double max_seconds) {
             return std::make_shared<RecorderGroup>(RecorderGroup::Limits{
                 max_packets, roll_packets, roll_bytes, roll_seconds, max_seconds});
           }),
           py::kw_only(), py::arg("max_packets"), py::arg("roll_packets"), py::arg("roll_bytes"),
           py::arg("roll_seconds"), py::arg("max_seconds"));
  py::class_<RecorderHandle>(m, "Recorder", "A recording; wrapped by daqiri_ophyd.engine.Recorder.")
      .def("stop",
           [](RecorderHandle& recorder) {
             require_not_reducing("stop a recorder");
             const GilRelease unlocked;
             recorder.get().stop();
           })
      .def("roll",
           [](RecorderHandle& recorder) {
             require_not_reducing("complete a recorder's file");
             const GilRelease unlocked;
             recorder.get().roll();
           })
      .def(
          "set_paused",
          [](RecorderHandle& recorder, bool paused) {
            const GilRelease unlocked;
            recorder.get().set_paused(paused);
          },
          py::arg("paused"))
      .def(
          "describe",
          [](RecorderHandle& recorder, RunMetadata metadata) {
            require_not_reducing("describe a recorder's files");
            const GilRelease unlocked;
            recorder.get().describe(std::move(metadata));
          },
          py::arg("metadata"))
      .def(
          "refuse",
          [](RecorderHandle& recorder, std::string reason) {
            const GilRelease unlocked;
            recorder.get().refuse(std::move(reason));
          },
          py::arg("reason"))
      .def(
          "end_in",
          [](RecorderHandle& recorder, double seconds) {
            const GilRelease unlocked;
            recorder.get().end_in(seconds);
          },
          py::arg("seconds"))
      .def(
          "acquire",
          [](RecorderHandle& recorder, std::uint64_t frames, std::optional<std::uint64_t> first) {
            const GilRelease unlocked;
            return recorder.get().acquire(frames, first);
          },
          py::arg("frames"), py::arg("first_number"))
      .def(
          "rewind",
          [](RecorderHandle& recorder, std::uint64_t frames) {
            require_not_reducing("rewind a recorder");
            const GilRelease unlocked;
            recorder.get().rewind(frames);
          },
          py::arg("frames"))
      .def(
          "split",
          [](RecorderHandle& recorder, std::uint64_t frames) {
            require_not_reducing("split a recorder's file");
            const GilRelease unlocked;
            recorder.get().split(frames);
          },
          py::arg("frames"))
      .def("snapshot",
           [](const RecorderHandle& recorder) {
             const RecorderSnapshot s = recorder.get().snapshot();
             return py::make_tuple(s.packets, s.bytes, s.files, s.dropped, s.left_out, s.running,
                                   s.failing, s.error, s.unreported, s.limit_reached, s.frames,
                                   s.missing, s.flushed, s.acquired, s.path);
           })
      .def(
          "files",
          [](const RecorderHandle& recorder, std::size_t first) {
            py::list files;
            for (const RecordedFile& f : recorder.get().files(first)) {
              files.append(py::make_tuple(f.path, f.packets, f.bytes, f.t_first_ns, f.t_last_ns,
                                          f.dropped, f.left_out, f.frames, f.missing,
                                          f.lost_before_engine));
            }
            return files;
          },
          py::arg("first"))
      .def_property_readonly("running", &RecorderHandle::running)
      .def_property_readonly("writer",
                             [](const RecorderHandle& recorder) { return recorder.get().writer(); })
      .def("wait", &RecorderHandle::wait, py::arg("timeout"))
      .def("fileno", &RecorderHandle::fileno);
}

}  // namespace daqiri::python

/// A recorder, as Python sees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "lifecycle.h"
#include "storage/recorder.h"

namespace daqiri::python {

/// What wait() compares: complete files, running, failing, finished acquisitions.
using RecorderNews = std::tuple<std::uint64_t, bool, bool, std::uint64_t>;

/// A recorder with an armed doorbell, so that event loops can watch it.
class RecorderHandle {
 public:
  explicit RecorderHandle(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {
    recorder_->doorbell().prepare();
  }

  /// Throws Error NOT_READY in a process forked from the one that started the recorder.
  [[nodiscard]] Recorder& get() const;
  [[nodiscard]] bool running() const {
    return born_ == fork_generation() && recorder_->snapshot().running;
  }
  /// The file descriptor of the doorbell. After this call the caller has to read it; `wait` then
  /// only polls.
  [[nodiscard]] int fileno() {
    news_->watched = true;
    return get().doorbell().fd();
  }
  /// True if a file was completed, the recorder ended or an error occurred since it last returned
  /// True.
  bool wait(std::optional<double> timeout);

 private:
  bool look(std::int64_t timeout_ns);

  std::uint64_t born_{fork_generation()};
  std::shared_ptr<Recorder> recorder_;
  struct News {
    /// Guards `seen`.
    std::mutex mutex;
    RecorderNews seen{0, true, false, 0};
    std::atomic<bool> watched{false};
  };
  std::unique_ptr<News> news_{std::make_unique<News>()};
};

/// Marks that this thread is a recorder's and computes numbers from a frame.
class Reducing {
 public:
  Reducing() noexcept { now() = true; }
  Reducing(const Reducing&) = delete;
  Reducing& operator=(const Reducing&) = delete;
  ~Reducing() { now() = false; }

  static bool& now() noexcept {
    thread_local bool reducing = false;
    return reducing;
  }
};

/// Throws Error NOT_READY in a reduction of frames: its recorder would wait for itself.
void require_not_reducing(const char* action);

// Options given as words. Throw Error INVALID_PARAMETER with the accepted words.
CaptureFormat capture_format(const std::string& word);
FrameCompression frame_compression(const std::string& word);
WriterKind writer_kind(const std::string& word);
OnError on_error(const std::string& word);

}  // namespace daqiri::python

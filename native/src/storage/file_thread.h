/// The thread that writes files in the background.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "daqiri/status.h"
#include "storage/file_write.h"

namespace daqiri {

/// One write: what to do, how far it is, how it ended.
struct FileWriteJob {
  /// Throws Error.
  std::function<void(FileWriteProgress&)> work;
  FileWriteProgress progress;
  /// Keeps the burst until it is written, whatever becomes of its session.
  std::optional<BurstHold> hold;

  void run() noexcept;
  [[nodiscard]] bool done() const noexcept {
    return status.load(std::memory_order_acquire) != Status::NOT_READY;
  }

  std::atomic<Status> status{Status::NOT_READY};
  /// Set before `status`.
  std::string error;
  std::mutex mutex;
  std::condition_variable ended;
};

/// Started with the first job, joined at exit of the process after what was submitted is written.
class FileThread {
 public:
  FileThread() = default;
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;
  ~FileThread();

  /// Throws Error NO_SPACE_AVAILABLE when MAX_PENDING_FILE_WRITES wait.
  void submit(std::shared_ptr<FileWriteJob> job);

 private:
  void run() noexcept;

  std::mutex mutex_;
  std::condition_variable submitted_;
  std::deque<std::shared_ptr<FileWriteJob>> jobs_;
  bool stopping_{false};
  std::thread thread_;
};

/// The process's.
FileThread& file_thread();

}  // namespace daqiri

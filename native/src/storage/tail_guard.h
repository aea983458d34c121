/// Whole records after a kill.
#pragma once

#include <sys/types.h>

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "system/file.h"

namespace daqiri {

/// Cuts the file that is being written to its whole records when the process is killed in the
/// middle of a write: the kernel ends a write(2) of a killed process at a page, which is within a
/// record more often than not, and nothing in the process can mend that any more.
///
/// A task beside the process does it. It shares the memory but not the thread group, so that
/// SIGKILL of the process does not reach it; it sleeps until the process is gone, and does nothing
/// else. It cannot help when it is killed, too (out of memory, a control group, the machine).
///
/// One thread, which must live until `stop`: the task borrows its thread-local storage.
class TailGuard {
 public:
  TailGuard() = default;
  TailGuard(const TailGuard&) = delete;
  TailGuard& operator=(const TailGuard&) = delete;
  ~TailGuard() { stop(); }

  /// Returns errno, 0: done.
  int start() noexcept;
  /// Ends the task; nothing is guarded any more. Idempotent.
  void stop() noexcept;

  /// Guard the open file `fd` at `path`, of which `size` bytes are whole.
  void watch(int fd, const std::string& path, std::uint64_t size) noexcept;
  /// `size` bytes are whole by now.
  void commit(std::uint64_t size) noexcept {
    __atomic_store_n(&watched_.whole, size, __ATOMIC_RELEASE);
  }
  /// The file is done.
  void forget() noexcept { __atomic_store_n(&watched_.armed, false, __ATOMIC_RELEASE); }

 private:
  /// What the task sees: plain data, since it must not call a function that a sanitizer follows.
  struct Watched {
    bool armed;
    std::uint64_t whole;
    char path[PATH_MAX];
    dev_t device;
    ino_t inode;
    int ended;
    int process;
  };

  static int run(void* watched) noexcept;
  static bool keep_watch(const Watched* watched) noexcept;
  static void cut(const Watched* watched) noexcept;

  Watched watched_{};
  pid_t task_{0};
  std::vector<std::byte> stack_;
  /// Its closing tells the task of the end; nothing is ever written.
  File alive_;
  File ended_;
  File process_;
};

}  // namespace daqiri

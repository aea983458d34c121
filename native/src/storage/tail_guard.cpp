#include "storage/tail_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

// clone(2) by its other name: thread sanitizer takes the usual one for a fork.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): glibc's
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);

namespace daqiri {

namespace {

constexpr std::size_t STACK = std::size_t{64} * 1024;

/// Close all descriptors from `first` to `last`. Returns whether that went.
__attribute__((no_sanitize("address", "thread", "undefined"))) bool close_all(
    unsigned first, unsigned last) noexcept {
  return first > last || syscall(SYS_close_range, first, last, 0) == 0;
}

}  // namespace

// The task is no thread in the eyes of the C library and of sanitizers: bare system calls only.

__attribute__((no_sanitize("address", "thread", "undefined"))) int TailGuard::run(
    void* watched) noexcept {
  syscall(SYS_exit_group, keep_watch(static_cast<const Watched*>(watched)) ? 0 : 1);
  return 0;
}

__attribute__((no_sanitize("address", "thread", "undefined"))) bool TailGuard::keep_watch(
    const Watched* watched) noexcept {
  auto first = static_cast<unsigned>(watched->ended);
  auto second = static_cast<unsigned>(watched->process);
  pollfd ends[2] = {{watched->ended, POLLIN, 0}, {watched->process, POLLIN, 0}};
  if (first > second) {
    const unsigned other = first;
    first = second;
    second = other;
  }
  // Sockets and files of the process are not to stay open for our sake.
  if (!close_all(second + 1, ~0U) || !close_all(first + 1, second - 1)) return false;
  if (first > 0 && !close_all(0, first - 1)) return false;
  syscall(SYS_setsid);
  syscall(SYS_prctl, PR_SET_NAME, "daqiri-guard", 0, 0, 0);
  while (syscall(SYS_ppoll, ends, 2, nullptr, nullptr, 0) < 0) {
    if (errno != EINTR) return false;
  }
  cut(watched);
  return true;
}

__attribute__((no_sanitize("address", "thread", "undefined"))) void TailGuard::cut(
    const Watched* watched) noexcept {
  if (!__atomic_load_n(&watched->armed, __ATOMIC_ACQUIRE)) return;
  const auto fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, watched->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd < 0) return;
  struct stat found;
  const auto whole = static_cast<off_t>(__atomic_load_n(&watched->whole, __ATOMIC_ACQUIRE));
  if (syscall(SYS_fstat, fd, &found) == 0 && found.st_dev == watched->device &&
      found.st_ino == watched->inode && found.st_size >= whole)
    // Gives back, too, what room was taken behind the end.
    syscall(SYS_ftruncate, fd, whole);
  syscall(SYS_close, fd);
}

int TailGuard::start() noexcept {
  // Asked here, since the task could not tell.
  if (!close_all(~0U, ~0U)) return errno;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  ended_ = File(ends[0]);
  alive_ = File(ends[1]);
  process_ = File(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process_.is_open()) return errno;
  watched_.ended = ended_.fd();
  watched_.process = process_.fd();
  try {
    stack_.resize(STACK);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  // The task inherits the mask: signals to the process are not its business.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  task_ = __clone(run, stack_.data() + stack_.size(), CLONE_VM, &watched_);
  const int problem = task_ < 0 ? errno : 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (problem != 0) {
    task_ = 0;
    return problem;
  }
  return 0;
}

void TailGuard::stop() noexcept {
  forget();
  if (task_ > 0) {
    alive_.close();
    while (waitpid(task_, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
    task_ = 0;
  }
  alive_.close();
  ended_.close();
  process_.close();
}

void TailGuard::watch(int fd, const std::string& path, std::uint64_t size) noexcept {
  forget();
  struct stat found{};
  if (path.size() >= sizeof watched_.path || fstat(fd, &found) != 0) return;
  std::memcpy(watched_.path, path.c_str(), path.size() + 1);
  watched_.device = found.st_dev;
  watched_.inode = found.st_ino;
  commit(size);
  __atomic_store_n(&watched_.armed, true, __ATOMIC_RELEASE);
}

}  // namespace daqiri

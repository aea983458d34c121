#include "system/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <mutex>
#include <utility>

namespace daqiri {

struct MappedFile::Watch {
  /// 0: the entry is free. `end` is set before `begin`.
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> lost{false};
  Watch* next{nullptr};
};

namespace {

std::mutex mutex;  // for members that are not atomic
std::atomic<MappedFile::Watch*> watches{nullptr};
struct sigaction previous{};
std::atomic<bool> passing_on{false};
const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));

/// Replaces pages with zeros, from the page of `address` to the end of its mapping. Returns whether
/// it did.
bool replace_lost_pages(std::uintptr_t address) noexcept {
  for (MappedFile::Watch* w = watches.load(); w != nullptr; w = w->next) {
    const std::uintptr_t begin = w->begin.load();
    const std::uintptr_t end = w->end.load();
    if (begin == 0 || address < begin || address >= end || w->begin.load() != begin) continue;
    w->lost.store(true);
    const std::uintptr_t page = address / page_size * page_size;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): where the access failed
    return mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

/// Behaves as if this handler did not exist.
void pass_on(int signal_number, siginfo_t* info, void* context) noexcept {
  const bool sent = info->si_code <= 0;
  const bool handled = (previous.sa_flags & SA_SIGINFO) != 0 ||
                       (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (!handled && sent && previous.sa_handler == SIG_IGN) return;
  // The previous handler may have raised the signal again to end the process.
  if (!handled || passing_on.exchange(true)) {
    std::signal(signal_number, SIG_DFL);
    // A failed access is repeated, and fails again.
    if (sent) std::raise(signal_number);
    return;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0)
    previous.sa_sigaction(signal_number, info, context);
  else
    previous.sa_handler(signal_number);
  passing_on.store(false);
}

void on_bus_error(int signal_number, siginfo_t* info, void* context) {
  const int before = errno;
  const bool access = info->si_code > 0;
  if (!access || !replace_lost_pages(reinterpret_cast<std::uintptr_t>(info->si_addr)))
    pass_on(signal_number, info, context);
  errno = before;
}

/// Also if another handler (Python's faulthandler) was installed after this one.
void install_handler() noexcept {
  struct sigaction present{};
  if (sigaction(SIGBUS, nullptr, &present) != 0 ||
      ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_bus_error))
    return;
  previous = present;
  struct sigaction ours{};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

MappedFile::Watch* watch(std::uintptr_t begin, std::uint64_t size) {
  const std::lock_guard lock(mutex);
  install_handler();
  MappedFile::Watch* free = watches.load();
  while (free != nullptr && free->begin.load() != 0) free = free->next;
  if (free == nullptr) {
    free = std::make_unique<MappedFile::Watch>().release();
    free->next = watches.load();
    watches.store(free);
  }
  free->lost.store(false);
  free->end.store(begin + size);
  free->begin.store(begin);
  return free;
}

}  // namespace

MappedFile::MappedFile(int fd, std::string name)
    : name_(std::move(name)), file_(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {
  struct stat found{};
  if (!file_.is_open() || fstat(fd, &found) != 0) throw file_error("cannot read", name_, errno);
  size_ = static_cast<std::uint64_t>(found.st_size);
  if (size_ == 0) return;
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) throw file_error("cannot read", name_, errno);
  data_ = static_cast<const std::uint8_t*>(mapped);
  watch_ = watch(reinterpret_cast<std::uintptr_t>(mapped), size_);
}

MappedFile::~MappedFile() {
  if (watch_ == nullptr) return;
  munmap(const_cast<std::uint8_t*>(data_), size_);
  watch_->begin.store(0);
}

void MappedFile::require_whole() const {
  struct stat found{};
  if (fstat(file_.fd(), &found) != 0) throw file_error("cannot read", name_, errno);
  const auto size = static_cast<std::uint64_t>(found.st_size);
  if (size < size_) {
    throw Error(Status::GENERIC_FAILURE, name_ + " was cut from " + std::to_string(size_) + " to " +
                                             std::to_string(size) +
                                             " bytes while it was read; open it again");
  }
  if (watch_ != nullptr && watch_->lost.load()) {
    throw Error(Status::GENERIC_FAILURE,
                name_ +
                    ": a part of it could not be read (it was cut while it was read, or its disk "
                    "has an error); open it again");
  }
}

}  // namespace daqiri

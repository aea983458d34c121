#include "storage/failing_write.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

/// Calls before the failing one; negative if it has failed or none should fail.
std::atomic<int> turns_left{-1};
std::atomic<bool> of_direct{false};
std::atomic<int> problem{0};
std::atomic<int> cuts_left{-1};

}  // namespace

/// Replaces the function of the C library.
extern "C" ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  if (turns_left >= 0 && ((fcntl(fd, F_GETFL) & O_DIRECT) != 0) == of_direct && turns_left-- == 0) {
    errno = problem;
    return -1;
  }
  // The second half of the offset is for 32-bit machines.
  return syscall(SYS_pwritev2, fd, pieces, count, offset, 0, flags);
}

/// Replaces the function of the C library.
extern "C" int ftruncate(int fd, off_t length) noexcept {
  if (cuts_left >= 0 && cuts_left-- == 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_ftruncate, fd, length));
}

namespace daqiri::test {

FailingWrite::FailingWrite(bool direct, int turn, int error) noexcept {
  of_direct = direct;
  problem = error;
  turns_left = turn;
}

FailingWrite::~FailingWrite() { turns_left = -1; }

bool FailingWrite::met() const noexcept { return turns_left < 0; }

FailingCut::FailingCut(int turn) noexcept { cuts_left = turn; }

FailingCut::~FailingCut() { cuts_left = -1; }

bool FailingCut::met() const noexcept { return cuts_left < 0; }

}  // namespace daqiri::test

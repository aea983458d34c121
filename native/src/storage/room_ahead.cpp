#include "storage/room_ahead.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace daqiri {

void RoomAhead::begin(int fd, std::uint64_t size) noexcept {
  fd_ = fd;
  end_ = size;
  // In memory, room is pages, which are found no faster ahead.
  struct statfs system{};
  possible_ =
      fstatfs(fd, &system) == 0 && system.f_type != TMPFS_MAGIC && system.f_type != RAMFS_MAGIC;
}

void RoomAhead::reserve(std::uint64_t end) noexcept {
  if (!possible_ || end <= end_ || end < LEAST) return;
  const std::uint64_t from = end_;
  end_ = end + std::min(end, MOST);
  possible_ = fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                        static_cast<off_t>(end_ - from)) == 0;
}

int RoomAhead::give_back(std::uint64_t size) noexcept {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return errno;
  end_ = size;
  return 0;
}

}  // namespace daqiri

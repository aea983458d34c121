#include "storage/chunk_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "system/file.h"

namespace daqiri {

namespace {

constexpr std::uint64_t MOST_AHEAD = std::uint64_t{64} << 20U;

}  // namespace

ChunkFile::ChunkFile(int fd, std::uint64_t spare, DirectWrites* direct)
    : fd_(fd), spare_(spare), direct_(direct) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limit_ = limit.rlim_cur;
}

ChunkFile::ChunkFile(int fd) : ChunkFile(fd, 0, nullptr) {
  size_ = HADDR_MAX / 2;
  struct stat found{};
  if (fstat(fd, &found) == 0) set_least_end(static_cast<haddr_t>(found.st_size));
}

int ChunkFile::trim() noexcept {
  return ftruncate(fd_, static_cast<off_t>(size_)) == 0 ? 0 : errno;
}

int ChunkFile::reserve(std::uint64_t end) noexcept {
  if (end + spare_ > limit_) return EFBIG;
  if (end + spare_ <= reserved_) return 0;
  const std::uint64_t ahead = std::min(end, MOST_AHEAD);
  if (allocate_blocks(end + spare_ + ahead) == 0) return 0;
  return allocate_blocks(end + spare_);
}

int ChunkFile::allocate_blocks(std::uint64_t end) noexcept {
  int problem = 0;
  do {
    problem = fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(reserved_),
                        static_cast<off_t>(end - reserved_)) == 0
                  ? 0
                  : errno;
  } while (problem == EINTR);
  if (problem == 0) reserved_ = end;
  // The file system does not support it: lack of space is detected when writing.
  if (problem == EOPNOTSUPP || problem == ENOSYS) {
    reserved_ = NO_LIMIT;
    return 0;
  }
  return problem;
}

haddr_t ChunkFile::allocate(H5FD_mem_t type, hsize_t bytes) noexcept {
  if (direct_ == nullptr) return Storage::allocate(type, bytes);
  if (is_frame(type) || bytes >= LONG) return allocate_pages(bytes);
  // No page contains both a frame and other data.
  if (bytes > block_end_ - block_next_) {
    block_next_ = allocate_pages(BLOCK);
    block_end_ = block_next_ + BLOCK;
  }
  return std::exchange(block_next_, block_next_ + bytes);
}

haddr_t ChunkFile::allocate_pages(hsize_t bytes) noexcept {
  const haddr_t at = whole_pages(end());
  set_end(at + whole_pages(bytes));
  return at;
}

bool ChunkFile::read(haddr_t at, void* to, std::size_t bytes) noexcept {
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t n = pread(fd_, out, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      fail(errno);
      return false;
    }
    // Bytes after the end are zeros.
    if (n == 0) {
      std::memset(out, 0, bytes);
      return true;
    }
    out += n;
    at += static_cast<haddr_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

bool ChunkFile::write(H5FD_mem_t type, haddr_t at, const void* from, std::size_t bytes) noexcept {
  if (given_up_) return true;
  if (is_frame(type)) {
    noted_ = {at, bytes};
    frame_expected_ = false;
    return true;
  }
  if (const int problem = write_fully(fd_, from, bytes, at); problem != 0) return fail(problem);
  size_ = std::max<haddr_t>(size_, at + bytes);
  return true;
}

int ChunkFile::expect_frame(std::size_t bytes) noexcept {
  const int problem =
      reserve(direct_ != nullptr ? whole_pages(end()) + direct_->taken(bytes) : end() + bytes);
  frame_expected_ = problem == 0;
  if (problem != 0) fail(problem);
  return problem;
}

int ChunkFile::write_frame(const void* frame, Burst* owner) noexcept {
  frame_expected_ = false;
  const std::optional<Extent> noted = std::exchange(noted_, std::nullopt);
  if (!noted) return 0;
  const auto [at, bytes] = *noted;
  const std::uint64_t end = at + (direct_ != nullptr ? direct_->taken(bytes) : bytes);
  int problem = reserve(end);
  if (problem == 0) problem = put(at, frame, bytes, owner);
  if (problem != 0) {
    fail(problem);
    return problem;
  }
  size_ = std::max<haddr_t>(size_, end);
  return 0;
}

int ChunkFile::put(haddr_t at, const void* from, std::size_t bytes, Burst* owner) noexcept {
  if (direct_ == nullptr) return write_fully(fd_, from, bytes, at);
  if (at % DIRECT_PAGE == 0) return direct_->put(at, from, bytes, owner);
  // The library has reused free space, in pages with other data.
  int problem = direct_->wait();
  if (problem != 0 || owner == nullptr || !direct_->from_device())
    return problem != 0 ? problem : write_fully(fd_, from, bytes, at);
  problem = direct_->put(at, from, bytes, owner);
  return problem != 0 ? problem : direct_->wait();
}

bool ChunkFile::truncate() noexcept {
  if (given_up_ || size_ == end()) return true;
  if (ftruncate(fd_, static_cast<off_t>(end())) != 0) return fail(errno);
  size_ = end();
  return true;
}

}  // namespace daqiri

#include "storage/direct_output.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "daqiri/config.h"
#include "system/file.h"
#include "system/thread.h"

namespace daqiri {

namespace {

/// Why files in `directory` cannot be written directly; empty: they can.
std::string refusal(const std::string& directory, std::size_t alignment) {
  struct statfs system{};
  if (statfs(directory.c_str(), &system) != 0)
    return file_problem("cannot examine", directory, errno);
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)
    return directory + " lies in memory, where there is no disk to write to directly";
  // A file without a name: it goes with its descriptor.
  const File probe(open(directory.c_str(), O_TMPFILE | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600));
  if (!probe.is_open()) return file_problem("O_DIRECT is refused in", directory, errno);
#ifdef STATX_DIOALIGN
  struct statx limits{};
  if (statx(probe.fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &limits) == 0 &&
      (limits.stx_mask & STATX_DIOALIGN) != 0 &&
      (limits.stx_dio_offset_align == 0 || limits.stx_dio_offset_align > alignment)) {
    return "the disk of " + directory + " takes blocks of " +
           std::to_string(limits.stx_dio_offset_align) + " bytes, and ours are multiples of " +
           std::to_string(alignment);
  }
#else
  static_cast<void>(alignment);
#endif
  return {};
}

/// Returns errno.
int set_direct(int fd, bool direct) noexcept {
  const int flags = fcntl(fd, F_GETFL);
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  return flags < 0 || fcntl(fd, F_SETFL, wanted) < 0 ? errno : 0;
}

}  // namespace

DirectOutput::DirectOutput()
    : memory_(static_cast<std::byte*>(std::aligned_alloc(ALIGNMENT, BLOCK * NUM_BLOCKS)),
              std::free) {
  if (memory_ == nullptr) throw std::bad_alloc();
  // So that pages are there before packets are.
  std::memset(memory_.get(), 0, BLOCK * NUM_BLOCKS);
  thread_ = std::thread([this] { run(); });
}

std::unique_ptr<DirectOutput> DirectOutput::make(const std::string& directory,
                                                 std::string& why_not) {
  why_not = refusal(directory, ALIGNMENT);
  if (!why_not.empty()) return nullptr;
  try {
    return std::unique_ptr<DirectOutput>(new DirectOutput);
  } catch (const std::exception& e) {
    why_not = std::string("there is no memory or no thread for it: ") + e.what();
    return nullptr;
  }
}

DirectOutput::~DirectOutput() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int DirectOutput::begin(int fd, const FileTally& whole) noexcept {
  drain();
  const std::lock_guard lock(mutex_);
  fd_ = fd;
  whole_ = taken_ = in_file_ = whole;
  filling_ = full_ = written_ = 0;
  problem_ = 0;
  preallocation_.begin(fd, whole.size);
  origin_ = whole.size / ALIGNMENT * ALIGNMENT;
  filled_ = static_cast<std::size_t>(whole.size - origin_);
  // The block that the file ends in is written again with what follows.
  if (filled_ > 0) {
    if (const int problem = set_direct(fd, false); problem != 0) return problem;
    const ssize_t n = pread(fd, block(0), filled_, static_cast<off_t>(origin_));
    if (n != static_cast<ssize_t>(filled_)) return n < 0 ? errno : EIO;
  }
  return set_direct(fd, true);
}

int DirectOutput::put(RecordBatch& batch) noexcept {
  std::uint64_t copied = 0;
  for (std::size_t p = 0; p < batch.num_pieces(); ++p) {
    const auto* from = static_cast<const std::byte*>(batch.pieces()[p].iov_base);
    std::size_t left = batch.pieces()[p].iov_len;
    while (left > 0) {
      const std::size_t n = std::min(left, BLOCK - filled_);
      std::memcpy(block(filling_) + filled_, from, n);
      from += n;
      left -= n;
      filled_ += n;
      copied += n;
      if (filled_ == BLOCK) hand_over(batch.tally_at(copied));
    }
  }
  taken_ = batch.tally_at(batch.bytes());
  const std::lock_guard lock(mutex_);
  whole_ = in_file_;
  return problem_;
}

void DirectOutput::hand_over(const FileTally& after) noexcept {
  std::unique_lock lock(mutex_);
  after_[full_ % NUM_BLOCKS] = after;
  ++full_;
  changed_.notify_all();
  filling_ = full_;
  filled_ = 0;
  // After an error blocks are thrown away: `put` tells it.
  changed_.wait(lock,
                [this] { return full_ - written_ < NUM_BLOCKS || (problem_ != 0 && !writing_); });
}

int DirectOutput::drain() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !writing_ && (written_ == full_ || problem_ != 0); });
  whole_ = in_file_;
  return problem_;
}

int DirectOutput::sync() noexcept {
  int problem = drain();
  if (problem != 0 || fd_ < 0 || whole_.size == taken_.size) return problem;
  // The rest ends anywhere: whole pages directly, what is left through the page cache.
  const std::size_t pages = filled_ / ALIGNMENT * ALIGNMENT;
  const std::byte* const last = block(filling_);
  const std::uint64_t offset = offset_of(filling_);
  problem = write_fully(fd_, last, pages, offset);
  if (problem == 0) problem = set_direct(fd_, false);
  if (problem == 0) problem = write_fully(fd_, last + pages, filled_ - pages, offset + pages);
  if (problem == 0) problem = set_direct(fd_, true);
  const std::lock_guard lock(mutex_);
  problem_ = problem;
  if (problem == 0) whole_ = in_file_ = taken_;
  return problem;
}

// --- The thread

void DirectOutput::run() noexcept {
  configure_thread(std::string(ANY_CORE), "daqiri-disk");
  block_file_size_signal();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (written_ < full_ && problem_ == 0); });
    if (written_ == full_ || problem_ != 0) return;
    const std::uint64_t first = written_;
    const std::uint64_t count = std::min(full_ - first, NUM_BLOCKS - first % NUM_BLOCKS);
    writing_ = true;
    lock.unlock();
    int problem = 0;
    const std::uint64_t done = write_blocks(first, count, problem);
    lock.lock();
    writing_ = false;
    written_ += done;
    if (done > 0) in_file_ = after_[(written_ - 1) % NUM_BLOCKS];
    if (problem_ == 0) problem_ = problem;
    changed_.notify_all();
  }
}

std::uint64_t DirectOutput::write_blocks(std::uint64_t first, std::uint64_t count,
                                         int& problem) noexcept {
  const std::uint64_t offset = offset_of(first);
  preallocation_.reserve(offset + count * BLOCK);
  problem = write_fully(fd_, block(first), count * BLOCK, offset);
  if (problem == 0) return count;
  // Once more through the page cache, which takes any length: it succeeds, or it names the reason.
  problem = set_direct(fd_, false);
  std::uint64_t done = 0;
  while (problem == 0 && done < count) {
    problem = write_fully(fd_, block(first + done), BLOCK, offset + done * BLOCK);
    if (problem == 0) ++done;
  }
  set_direct(fd_, true);
  return done;
}

}  // namespace daqiri

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
#include <vector>

#include "system/file.h"

namespace daqiri {

namespace {

/// Why files in `directory` cannot be written directly; empty: they can.
std::string refusal(const std::string& directory, std::size_t alignment) {
  struct statfs system{};
  if (statfs(directory.c_str(), &system) != 0)
    return file_problem("cannot look at", directory, errno);
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

}  // namespace

std::unique_ptr<DirectOutput> DirectOutput::make(const std::string& directory,
                                                 std::string& why_not) {
  why_not = refusal(directory, ALIGNMENT);
  if (!why_not.empty()) return nullptr;
  io_uring ring{};
  const int problem = io_uring_queue_init(NUM_BLOCKS, &ring, 0);
  if (problem < 0) {
    why_not = "io_uring is not allowed here: " + std::generic_category().message(-problem);
    return nullptr;
  }
  std::unique_ptr<DirectOutput> output(new DirectOutput(ring));
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(ALIGNMENT, BLOCK * NUM_BLOCKS));
  if (memory == nullptr) {
    why_not = "there is no memory for its blocks";
    return nullptr;
  }
  output->memory_ = {memory, std::free};
  std::array<iovec, NUM_BLOCKS> pieces{};
  for (std::size_t b = 0; b < NUM_BLOCKS; ++b) {
    output->blocks_[b].data = memory + b * BLOCK;
    pieces[b] = {output->blocks_[b].data, BLOCK};
  }
  std::memset(memory, 0, BLOCK * NUM_BLOCKS);
  // Saves looking the pages up with every write; a limit on locked memory may forbid it.
  output->registered_ = io_uring_register_buffers(&output->ring_, pieces.data(), NUM_BLOCKS) == 0;
  return output;
}

DirectOutput::~DirectOutput() {
  while (oldest_ < filling_) reap(true);
  io_uring_queue_exit(&ring_);
}

int DirectOutput::begin(int fd, const FileTally& whole) noexcept {
  fd_ = fd;
  whole_ = taken_ = whole;
  oldest_ = filling_ = 0;
  problem_ = 0;
  torn_ = false;
  room_.begin(fd, whole.size);
  Block& first = block(0);
  first.offset = whole.size / ALIGNMENT * ALIGNMENT;
  filled_ = static_cast<std::size_t>(whole.size - first.offset);
  // The block that the file ends in is written again with what follows.
  if (filled_ > 0) {
    const ssize_t n = pread(fd, first.data, filled_, static_cast<off_t>(first.offset));
    if (n != static_cast<ssize_t>(filled_)) return n < 0 ? errno : EIO;
  }
  const int flags = fcntl(fd, F_GETFL);
  return flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) < 0 ? errno : 0;
}

int DirectOutput::put(RecordBatch& batch) noexcept {
  std::uint64_t copied = 0;
  for (std::size_t p = 0; p < batch.num_pieces() && problem_ == 0; ++p) {
    const auto* from = static_cast<const std::byte*>(batch.pieces()[p].iov_base);
    std::size_t left = batch.pieces()[p].iov_len;
    while (left > 0 && problem_ == 0) {
      const std::size_t n = std::min(left, BLOCK - filled_);
      std::memcpy(block(filling_).data + filled_, from, n);
      from += n;
      left -= n;
      filled_ += n;
      copied += n;
      if (filled_ == BLOCK) {
        block(filling_).after = batch.tally_at(copied);
        submit();
      }
    }
  }
  if (problem_ == 0) taken_ = batch.tally_at(batch.bytes());
  reap(false);
  return problem_;
}

void DirectOutput::submit() noexcept {
  Block& full = block(filling_);
  room_.reserve(full.offset + BLOCK);
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  const auto index = static_cast<int>(filling_ % NUM_BLOCKS);
  if (registered_)
    io_uring_prep_write_fixed(entry, fd_, full.data, BLOCK, full.offset, index);
  else
    io_uring_prep_write(entry, fd_, full.data, BLOCK, full.offset);
  io_uring_sqe_set_data64(entry, filling_);
  full.under_way = true;
  full.failed = false;
  ++filling_;
  int n = 0;
  do {
    n = io_uring_submit(&ring_);
  } while (n == -EINTR || n == -EAGAIN || n == -EBUSY);
  if (n < 0) {
    full.under_way = false;
    full.failed = true;
    return fail(-n);
  }
  while (filling_ - oldest_ >= NUM_BLOCKS && problem_ == 0) reap(true);
  block(filling_).offset = full.offset + BLOCK;
  filled_ = 0;
}

void DirectOutput::reap(bool wait) noexcept {
  io_uring_cqe* done = nullptr;
  int problem = 0;
  if (wait && oldest_ < filling_) {
    do {
      problem = io_uring_wait_cqe(&ring_, &done);
    } while (problem == -EINTR);
    if (problem < 0) {
      oldest_ = filling_;
      return fail(-problem);
    }
  }
  while (io_uring_peek_cqe(&ring_, &done) == 0) {
    Block& landed_block = block(io_uring_cqe_get_data64(done));
    const int result = done->res;
    io_uring_cqe_seen(&ring_, done);
    landed(landed_block, result);
  }
  while (oldest_ < filling_ && !block(oldest_).under_way) {
    torn_ = torn_ || block(oldest_).failed;
    if (!torn_) whole_ = block(oldest_).after;
    ++oldest_;
  }
}

void DirectOutput::landed(Block& block, int result) noexcept {
  block.under_way = false;
  if (result == static_cast<int>(BLOCK)) return;
  // Once more through the page cache, which takes any length: it succeeds, or it names the reason.
  const int flags = fcntl(fd_, F_GETFL);
  fcntl(fd_, F_SETFL, flags & ~O_DIRECT);
  const int problem = write_fully(fd_, block.data, BLOCK, block.offset);
  fcntl(fd_, F_SETFL, flags);
  if (problem == 0) return;
  block.failed = true;
  fail(problem);
}

void DirectOutput::fail(int problem) noexcept {
  if (problem_ == 0) problem_ = problem;
}

int DirectOutput::settle() noexcept {
  while (oldest_ < filling_) reap(true);
  if (problem_ != 0 || fd_ < 0) return problem_;
  if (whole_.size == taken_.size && !room_.reaches_beyond(taken_.size)) return 0;
  Block& last = block(filling_);
  const std::size_t padded = (filled_ + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  std::memset(last.data + filled_, 0, padded - filled_);
  if (padded > 0) problem_ = write_fully(fd_, last.data, padded, last.offset);
  if (problem_ == 0) problem_ = room_.give_back(taken_.size);
  if (problem_ != 0) return problem_;
  whole_ = taken_;
  return 0;
}

}  // namespace daqiri

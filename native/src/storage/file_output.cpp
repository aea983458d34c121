#include "storage/file_output.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "daqiri/config.h"
#include "memory/streaming_copy.h"
#include "system/file.h"
#include "system/thread.h"

namespace daqiri {

namespace {

bool in_memory(const struct statfs& system) noexcept {
  return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

// --- Through the page cache

class BufferedOutput final : public FileOutput {
 public:
  explicit BufferedOutput(bool preallocates) : preallocates_(preallocates) {}

  [[nodiscard]] const char* name() const noexcept override { return "buffered"; }

  int begin(int fd, const std::string& /*path*/, const FileTally& whole) noexcept override {
    fd_ = fd;
    whole_ = whole;
    if (preallocates_) preallocation_.begin(fd, whole.size);
    return 0;
  }

  int put(RecordBatch& batch) noexcept override {
    preallocation_.reserve(batch.before().size + batch.bytes());
    std::uint64_t written = 0;
    const auto pieces = batch.pieces();
    const int problem =
        write_pieces(fd_, pieces.data(), pieces.size(), batch.before().size, written);
    whole_ = batch.tally_at(written);
    return problem;
  }

  int sync() noexcept override { return 0; }

 private:
  bool preallocates_;
  int fd_{-1};
};

// --- Without the page cache

/// Why files in `directory` cannot be written directly; empty: they can.
std::string refusal(const std::string& directory) {
  struct statfs system{};
  if (statfs(directory.c_str(), &system) != 0)
    return file_problem("cannot examine", directory, errno);
  if (in_memory(system)) return directory + " is in memory: there is no disk to write to directly";
  // A file without a name, removed when its descriptor is closed.
  const File probe(open(directory.c_str(), O_TMPFILE | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600));
  if (!probe.is_open()) return file_problem("O_DIRECT is rejected in", directory, errno);
#ifdef STATX_DIOALIGN
  struct statx limits{};
  if (statx(probe.fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &limits) == 0 &&
      (limits.stx_mask & STATX_DIOALIGN) != 0 &&
      (limits.stx_dio_offset_align == 0 || limits.stx_dio_offset_align > DIRECT_PAGE)) {
    return "the disk of " + directory + " requires blocks of " +
           std::to_string(limits.stx_dio_offset_align) +
           " bytes, and the engine writes multiples of " + std::to_string(DIRECT_PAGE);
  }
#endif
  return {};
}

/// Returns errno.
int set_direct(int fd, bool direct) noexcept {
  const int flags = fcntl(fd, F_GETFL);
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  return flags < 0 || fcntl(fd, F_SETFL, wanted) < 0 ? errno : 0;
}

/// O_DIRECT writes of aligned blocks. Packets are copied to a ring of blocks. A thread writes full
/// blocks, adjacent ones in one call, one call at a time: the file grows in order and never has a
/// hole.
class DirectOutput final : public FileOutput {
 public:
  DirectOutput() : thread_(start_thread([this] { run(); })) {}
  ~DirectOutput() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  [[nodiscard]] const char* name() const noexcept override { return "direct"; }

  int begin(int fd, const std::string& /*path*/, const FileTally& whole) noexcept override {
    drain();
    const std::lock_guard lock(mutex_);
    fd_ = fd;
    whole_ = taken_ = in_file_ = whole;
    full_ = written_ = 0;
    problem_ = 0;
    preallocation_.begin(fd, whole.size);
    origin_ = whole.size / DIRECT_PAGE * DIRECT_PAGE;
    filled_ = static_cast<std::size_t>(whole.size - origin_);
    // The last, partial block of the file is written again with what follows.
    if (filled_ > 0) {
      if (const int problem = set_direct(fd, false); problem != 0) return problem;
      const ssize_t n = pread(fd, block(0), filled_, static_cast<off_t>(origin_));
      if (n != static_cast<ssize_t>(filled_)) return n < 0 ? errno : EIO;
    }
    return set_direct(fd, true);
  }

  int put(RecordBatch& batch) noexcept override {
    std::uint64_t copied = 0;
    for (const iovec& piece : batch.pieces()) {
      const auto* from = static_cast<const std::byte*>(piece.iov_base);
      const std::byte* const end = from + piece.iov_len;
      while (from < end) {
        const std::size_t n = std::min<std::size_t>(end - from, BLOCK - filled_);
        copy(block(full_) + filled_, from, n);
        from += n;
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

  int sync() noexcept override {
    int problem = drain();
    if (problem != 0 || fd_ < 0 || whole_.size == taken_.size) return problem;
    // The rest may have any length: whole pages are written directly, and what remains, or is
    // rejected, through the page cache.
    const std::byte* const last = block(full_);
    const std::uint64_t offset = offset_of(full_);
    iovec pages{block(full_), filled_ / DIRECT_PAGE * DIRECT_PAGE};
    std::uint64_t written = 0;
    memory::settle_stores();
    problem = write_pieces(fd_, &pages, 1, offset, written);
    if (direct_write_refused(problem)) problem = 0;
    if (problem == 0) problem = set_direct(fd_, false);
    if (problem == 0)
      problem = write_fully(fd_, last + written, filled_ - written, offset + written);
    if (problem == 0) problem = set_direct(fd_, true);
    const std::lock_guard lock(mutex_);
    problem_ = problem;
    if (problem == 0) whole_ = in_file_ = taken_;
    return problem;
  }

 private:
  static constexpr std::size_t BLOCK = std::size_t{1} << 20U;
  static constexpr std::size_t NUM_BLOCKS = 8;
  /// Shorter pieces stay in the CPU caches, because the next pieces share their cache lines.
  static constexpr std::size_t STREAM_FROM = 512;

  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  using Blocks = std::unique_ptr<std::byte, Free>;

  /// In hugepages if available, so that a write has fewer pages to pin.
  static Blocks make_blocks() {
    constexpr std::size_t HUGEPAGE = std::size_t{2} << 20U;
    constexpr std::size_t BYTES = BLOCK * NUM_BLOCKS;
    Blocks blocks(static_cast<std::byte*>(std::aligned_alloc(HUGEPAGE, BYTES)));
    if (blocks == nullptr) throw std::bad_alloc();
    madvise(blocks.get(), BYTES, MADV_HUGEPAGE);
    // Fault the pages in before packets arrive.
    std::memset(blocks.get(), 0, BYTES);
    return blocks;
  }

  [[nodiscard]] std::byte* block(std::uint64_t number) const noexcept {
    return blocks_.get() + number % NUM_BLOCKS * BLOCK;
  }
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    // The disk is the next reader of a block, not the CPU.
    if (bytes >= STREAM_FROM) return memory::streaming_copy(to, from, bytes);
    std::memcpy(to, from, bytes);
  }
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t number) const noexcept {
    return origin_ + number * BLOCK;
  }

  /// The current block is full; all packets of `after` are in it and in those before it.
  void hand_over(const FileTally& after) noexcept {
    memory::settle_stores();
    std::unique_lock lock(mutex_);
    after_[full_ % NUM_BLOCKS] = after;
    ++full_;
    filled_ = 0;
    changed_.notify_all();
    // After an error, blocks are discarded: `put` returns the error.
    changed_.wait(lock,
                  [this] { return full_ - written_ < NUM_BLOCKS || (problem_ != 0 && !writing_); });
  }

  /// Wait for the thread to write all full blocks. Returns errno.
  int drain() noexcept {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !writing_ && (written_ == full_ || problem_ != 0); });
    whole_ = in_file_;
    return problem_;
  }

  // Called by the thread.

  void run() noexcept {
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

  /// Write `count` full blocks, starting with number `first`. Returns the number of blocks in the
  /// file, and errno.
  std::uint64_t write_blocks(std::uint64_t first, std::uint64_t count, int& problem) noexcept {
    const std::uint64_t offset = offset_of(first);
    preallocation_.reserve(offset + count * BLOCK);
    iovec blocks{block(first), count * BLOCK};
    std::uint64_t written = 0;
    problem = write_pieces(fd_, &blocks, 1, offset, written);
    std::uint64_t done = written / BLOCK;
    if (!direct_write_refused(problem)) return done;
    // Try again through the page cache, which accepts any length: this succeeds or returns the real
    // error.
    problem = set_direct(fd_, false);
    while (problem == 0 && done < count) {
      problem = write_fully(fd_, block(first + done), BLOCK, offset + done * BLOCK);
      if (problem == 0) ++done;
    }
    set_direct(fd_, true);
    return done;
  }

  Blocks blocks_{make_blocks()};
  // Set while the thread has nothing to write.
  int fd_{-1};
  /// File offset of block 0, aligned.
  std::uint64_t origin_{0};

  // Used by the caller only.
  FileTally taken_;
  /// Bytes in block `full_`.
  std::size_t filled_{0};

  std::mutex mutex_;  // for the members below
  std::condition_variable changed_;
  std::array<FileTally, NUM_BLOCKS> after_;
  /// Blocks [written_, full_) wait for the thread. Only the caller changes `full_`.
  std::uint64_t full_{0};
  std::uint64_t written_{0};
  /// Contents up to the end of block `written_` - 1.
  FileTally in_file_;
  int problem_{0};
  bool writing_{false};
  bool stopping_{false};
  std::jthread thread_;
};

}  // namespace

// --- Preallocation of disk blocks

void Preallocation::begin(int fd, std::uint64_t size) noexcept {
  fd_ = fd;
  end_ = size;
  // For files in memory, preallocation brings no advantage.
  struct statfs system{};
  possible_ = fstatfs(fd, &system) == 0 && !in_memory(system);
}

void Preallocation::reserve(std::uint64_t end) noexcept {
  if (!possible_ || end <= end_ || end < LEAST) return;
  const std::uint64_t from = end_;
  end_ = end + std::min(end, MOST);
  possible_ = fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                        static_cast<off_t>(end_ - from)) == 0;
}

int Preallocation::trim(std::uint64_t size) noexcept {
  if (end_ <= size) return 0;
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return errno;
  end_ = size;
  return 0;
}

// --- Choice of the output

bool direct_write_refused(int problem) noexcept {
  return problem == EINVAL || problem == EOPNOTSUPP || problem == EBADF || problem == EFBIG ||
         problem == ENOSPC;
}

std::unique_ptr<FileOutput> buffered_output(bool preallocates) {
  return std::make_unique<BufferedOutput>(preallocates);
}

WriterKind possible_writer(WriterKind wanted, const std::string& directory, std::string& why_not) {
  why_not = wanted == WriterKind::BUFFERED ? std::string() : refusal(directory);
  return wanted == WriterKind::BUFFERED || !why_not.empty() ? WriterKind::BUFFERED
                                                            : WriterKind::DIRECT;
}

std::unique_ptr<FileOutput> make_output(WriterKind kind) {
  if (kind == WriterKind::BUFFERED) return buffered_output(true);
  return std::make_unique<DirectOutput>();
}

}  // namespace daqiri

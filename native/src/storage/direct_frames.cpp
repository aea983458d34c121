#include "storage/direct_frames.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "daqiri/config.h"
#include "system/file.h"
#include "system/thread.h"

namespace daqiri {

void DirectWrites::FreePages::operator()(std::byte* pages) const noexcept { std::free(pages); }

DirectWrites::DirectWrites(std::size_t size, std::unique_ptr<WriteBackend> backend)
    : backend_(std::move(backend)),
      writes_(std::clamp<std::size_t>(2 * THREADS * CALL / std::max<std::size_t>(size, 1),
                                      THREADS + 1, MOST)) {
  try {
    for (std::size_t i = 0; i < THREADS; ++i) threads_.push_back(start_thread([this] { run(); }));
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    throw;  // threads_ joins the running threads
  }
}

DirectWrites::~DirectWrites() {
  wait();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  threads_.clear();
}

int DirectWrites::begin(int fd, const std::string& path) {
  wait();
  fd_ = fd;
  const int problem = backend_->begin(fd, path);
  const std::lock_guard lock(mutex_);
  whole_ = 0;
  missing_ = false;
  problem_ = problem;
  return problem;
}

int DirectWrites::put(std::uint64_t offset, const void* data, std::size_t size,
                      Burst* owner) noexcept {
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return put_ - ended_in_order_ < writes_.size(); });
    if (problem_ != 0) return problem_;
  }
  Write& next = write(put_);
  next.offset = offset;
  if (const int problem = fill(next, static_cast<const std::byte*>(data), size, owner);
      problem != 0)
    return problem;
  {
    const std::lock_guard lock(mutex_);
    ++put_;
  }
  work_.notify_one();
  return 0;
}

int DirectWrites::fill(Write& write, const std::byte* data, std::size_t size,
                       Burst* owner) const noexcept {
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % DIRECT_PAGE == 0;
  std::size_t held_bytes = 0;
  if (owner != nullptr && device_) {
    held_bytes = size;  // the CPU cannot copy it
  } else if (owner != nullptr && aligned) {
    held_bytes = size / DIRECT_PAGE * DIRECT_PAGE;
  }
  const std::size_t rest = size - held_bytes;
  const std::size_t room = whole_pages(rest);
  if (room > write.copy_room) {
    write.copy.reset(static_cast<std::byte*>(std::aligned_alloc(DIRECT_PAGE, room)));
    write.copy_room = write.copy != nullptr ? room : 0;
    if (write.copy == nullptr) return ENOMEM;
  }
  if (rest > 0) {
    std::memcpy(write.copy.get(), data + held_bytes, rest);
    std::memset(write.copy.get() + rest, 0, room - rest);
  }
  write.size = held_bytes + taken(rest);
  write.held = const_cast<std::byte*>(data);
  write.held_bytes = held_bytes;
  write.owner = held_bytes > 0 ? owner : nullptr;
  write.ended = write.in_file = false;
  if (write.owner != nullptr) write.owner->holders.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

int DirectWrites::wait() noexcept {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return ended_in_order_ == put_; });
  return problem_;
}

void DirectWrites::end() noexcept {
  wait();
  backend_->end();
  fd_ = -1;
}

std::uint64_t DirectWrites::whole() const noexcept {
  const std::lock_guard lock(mutex_);
  return whole_;
}

// --- The threads

void DirectWrites::run() noexcept {
  configure_thread(std::string(ANY_CORE), "daqiri-disk");
  block_file_size_signal();
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || begun_ < put_; });
    if (begun_ == put_) return;
    const std::uint64_t first = begun_;
    std::size_t bytes = 0;
    do {
      bytes += write(begun_).size;
      ++begun_;
    } while (begun_ < put_ && write(begun_).offset == write(first).offset + bytes &&
             bytes + write(begun_).size <= (device_ ? 0 : CALL));
    const std::uint64_t end = begun_;
    // After an error, the rest is discarded: `put` and `wait` return the error.
    const bool writes = problem_ == 0;
    lock.unlock();
    const int problem = writes ? perform(first, end) : 0;
    for (std::uint64_t i = first; i < end; ++i) {
      if (write(i).owner != nullptr) write(i).owner->release();
    }
    lock.lock();
    if (problem_ == 0) problem_ = problem;
    for (std::uint64_t i = first; i < end; ++i) write(i).ended = true;
    count_ended();
    ended_.notify_one();
  }
}

void DirectWrites::count_ended() noexcept {
  while (ended_in_order_ < begun_ && write(ended_in_order_).ended) {
    const Write& next = write(ended_in_order_);
    // Writes after a missing one do not count as whole.
    missing_ = missing_ || !next.in_file;
    if (!missing_) ++whole_;
    ++ended_in_order_;
  }
}

int DirectWrites::perform(std::uint64_t first, std::uint64_t end) noexcept {
  std::array<iovec, MOST_PIECES> pieces{};
  std::size_t count = 0;
  for (std::uint64_t i = first; i < end; ++i) {
    const Write& each = write(i);
    if (each.held_bytes > 0) pieces[count++] = {each.held, each.held_bytes};
    if (each.size > each.held_bytes)
      pieces[count++] = {each.copy.get(), each.size - each.held_bytes};
  }
  const std::uint64_t offset = write(first).offset;
  std::uint64_t written = 0;
  // Frames that were in another file, and are now in host memory.
  const bool copied = device_ && write(first).held_bytes == 0;
  const int problem = copied ? write_pieces(fd_, pieces.data(), count, offset, written)
                             : backend_->write({pieces.data(), count}, offset, written);
  for (std::uint64_t i = first; i < end; ++i)
    write(i).in_file = write(i).offset - offset + write(i).size <= written;
  return problem;
}

}  // namespace daqiri

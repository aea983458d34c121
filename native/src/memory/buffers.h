/// Packet buffers by number: who gets them back, and which of them are free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace daqiri::memory {

/// Buffers known by number: of a memory region, of a kernel's ring of blocks, of a driver's pool.
///
/// An engine that delivers from memory of its own implements this, and gives its session a share of
/// it (SessionMemory::owners): packets may be held long after the session is closed.
class BufferOwner {
 public:
  BufferOwner(std::string name, std::uint32_t buf_size, bool host_readable)
      : name_(std::move(name)), buf_size_(buf_size), host_readable_(host_readable) {}
  virtual ~BufferOwner() = default;

  /// Take `n` buffers back. Any thread.
  virtual void give(const std::uint32_t* buffers, std::uint32_t n) noexcept = 0;
  /// Whether buffers must come back soon: the application, which may hold packets, gets copies.
  [[nodiscard]] virtual bool wanted_soon() const noexcept { return false; }
  /// Copy packet data of one of the buffers to where the CPU reads it. False: the device that has
  /// them does not work any more. Any thread.
  [[nodiscard]] virtual bool copy_to_host(const void* data, void* to,
                                          std::size_t bytes) const noexcept {
    std::memcpy(to, data, bytes);
    return true;
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Most bytes of packet data in a buffer.
  [[nodiscard]] std::uint32_t buf_size() const noexcept { return buf_size_; }
  /// False: an access by the CPU would fault (GPU memory).
  [[nodiscard]] bool host_readable() const noexcept { return host_readable_; }

 private:
  std::string name_;
  std::uint32_t buf_size_;
  bool host_readable_;
};

/// LIFO of the numbers 0..count-1; any thread may take and give.
///
/// A tagged stack: the head holds the top number and a tag that every change advances, so that a
/// compare-exchange never mistakes a recycled top for an unchanged one. Taking and giving move
/// whole chains with one compare-exchange.
class FreeList {
 public:
  explicit FreeList(std::uint32_t count)
      : next_(std::make_unique<std::atomic<std::uint32_t>[]>(count)),
        head_(count > 0 ? 0 : END),
        available_(count) {
    for (std::uint32_t i = 0; i < count; ++i)
      next_[i].store(i + 1 < count ? i + 1 : END, std::memory_order_relaxed);
  }

  /// Take up to `n` numbers. Returns how many were taken.
  std::uint32_t take(std::uint32_t* numbers, std::uint32_t n) noexcept {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      std::uint32_t taken = 0;
      auto top = static_cast<std::uint32_t>(head);
      // The chain may change underfoot; the tag then makes the exchange fail and the walk is
      // repeated.
      while (taken < n && top != END) {
        numbers[taken++] = top;
        top = next_[top].load(std::memory_order_relaxed);
      }
      if (taken == 0) return 0;
      if (head_.compare_exchange_weak(head, successor(head, top), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        available_.fetch_sub(taken, std::memory_order_relaxed);
        return taken;
      }
    }
  }
  /// Give `n` numbers back.
  void give(const std::uint32_t* numbers, std::uint32_t n) noexcept {
    if (n == 0) return;
    for (std::uint32_t i = 0; i + 1 < n; ++i)
      next_[numbers[i]].store(numbers[i + 1], std::memory_order_relaxed);
    available_.fetch_add(n, std::memory_order_relaxed);
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      next_[numbers[n - 1]].store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, successor(head, numbers[0]),
                                          std::memory_order_acq_rel, std::memory_order_relaxed));
  }
  /// Take all `count` numbers for good, or none where one is missing. They still count as free.
  bool take_all(std::uint32_t count) noexcept {
    // A change: whoever gives numbers later sees what was written before.
    std::uint64_t head = head_.fetch_add(0, std::memory_order_acq_rel);
    for (;;) {
      if (available() < count) return false;
      std::uint32_t found = 0;
      for (auto top = static_cast<std::uint32_t>(head); top != END && found < count; ++found)
        top = next_[top].load(std::memory_order_relaxed);
      if (found < count) return false;
      if (head_.compare_exchange_weak(head, successor(head, END), std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        return true;
    }
  }
  /// Numbers free now; exact when no other thread is at work.
  [[nodiscard]] std::uint32_t available() const noexcept {
    return available_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t END = 0xFFFFFFFFU;
  /// The next head: the tag above, the number of the top below.
  static std::uint64_t successor(std::uint64_t head, std::uint32_t top) noexcept {
    return ((head >> 32U) + 1) << 32U | top;
  }

  std::unique_ptr<std::atomic<std::uint32_t>[]> next_;
  alignas(64) std::atomic<std::uint64_t> head_;
  alignas(64) std::atomic<std::uint32_t> available_;
};

}  // namespace daqiri::memory

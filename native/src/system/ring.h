/// Bounded rings for passing values between threads.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace daqiri {

/// Bounded queue of pointers or small values, for any number of producers and consumers, which
/// never wait for each other (D. Vyukov's sequence-numbered cells).
template <typename T>
class MpmcRing {
 public:
  /// Holds at least `capacity` entries (rounded up to a power of two, at least 2).
  explicit MpmcRing(std::size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }

  bool push(T value) noexcept {
    std::size_t pos = 0;
    Cell* cell = claim(tail_, 0, pos);
    if (cell == nullptr) return false;
    cell->value = std::move(value);
    cell->sequence.store(pos + 1, std::memory_order_release);
    return true;
  }

  bool pop(T& value) noexcept {
    std::size_t pos = 0;
    Cell* cell = claim(head_, 1, pos);
    if (cell == nullptr) return false;
    value = std::move(cell->value);
    cell->sequence.store(pos + mask_ + 1, std::memory_order_release);
    return true;
  }

  /// Number of entries; exact if no other thread is active.
  [[nodiscard]] std::size_t size() const noexcept {
    const std::size_t head = head_.load(std::memory_order_acquire);
    const std::size_t tail = tail_.load(std::memory_order_acquire);
    return tail > head ? tail - head : 0;
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  struct Cell {
    std::atomic<std::size_t> sequence{0};
    T value{};
  };

  /// Claims the cell at `next` and advances `next`. A cell can be written if its sequence equals
  /// its position, and read if it is one greater. Null: the ring is full, or empty.
  Cell* claim(std::atomic<std::size_t>& next, std::size_t ahead, std::size_t& pos) noexcept {
    pos = next.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[pos & mask_];
      const std::size_t seq = cell.sequence.load(std::memory_order_acquire);
      const auto diff = static_cast<std::ptrdiff_t>(seq - (pos + ahead));
      if (diff < 0) return nullptr;
      if (diff > 0) {
        pos = next.load(std::memory_order_relaxed);
      } else if (next.compare_exchange_weak(pos, pos + 1, std::memory_order_relaxed)) {
        return &cell;
      }
    }
  }

  std::size_t mask_;
  std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

/// Bounded queue for one producer and one consumer, which access its cells in place.
template <typename T>
class SpscRing {
 public:
  explicit SpscRing(std::size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity) - 1),
        cells_(std::make_unique<T[]>(mask_ + 1)) {}

  /// Producer: the next free cell, or null if the ring is full. `publish` passes it to the
  /// consumer.
  T* claim() noexcept {
    const std::size_t pos = tail_.load(std::memory_order_relaxed);
    if (pos - head_seen_ > mask_) {
      head_seen_ = head_.load(std::memory_order_acquire);
      if (pos - head_seen_ > mask_) return nullptr;
    }
    return &cells_[pos & mask_];
  }
  void publish() noexcept {
    tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// Consumer: number of entries that `at` can read.
  [[nodiscard]] std::size_t ready() const noexcept {
    return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_relaxed);
  }
  T& at(std::size_t i) noexcept {
    return cells_[(head_.load(std::memory_order_relaxed) + i) & mask_];
  }
  void consume(std::size_t n) noexcept {
    head_.store(head_.load(std::memory_order_relaxed) + n, std::memory_order_release);
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  std::size_t mask_;
  std::unique_ptr<T[]> cells_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
  std::size_t head_seen_{0};
};

}  // namespace daqiri

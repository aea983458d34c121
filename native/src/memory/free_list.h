/// Lock-free free list of buffer numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace daqiri::memory {

/// LIFO of the numbers 0..count-1; any thread may take and give.
///
/// A tagged stack: the head holds the top number and a tag that every change advances, so that a
/// compare-exchange never mistakes a recycled top for an unchanged one. Taking and giving move
/// whole chains with one compare-exchange.
class FreeList {
 public:
  explicit FreeList(std::uint32_t count);

  /// Take up to `n` numbers. Returns how many were taken.
  std::uint32_t take(std::uint32_t* numbers, std::uint32_t n) noexcept;
  /// Give `n` numbers back.
  void give(const std::uint32_t* numbers, std::uint32_t n) noexcept;
  /// Numbers free now; exact when no other thread is at work.
  [[nodiscard]] std::uint32_t available() const noexcept {
    return available_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

 private:
  static constexpr std::uint32_t END = 0xFFFFFFFFU;

  std::uint32_t count_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> next_;
  alignas(64) std::atomic<std::uint64_t> head_;
  alignas(64) std::atomic<std::uint32_t> available_;
};

}  // namespace daqiri::memory

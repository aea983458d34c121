/// Histogram of durations with bounded relative error.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace daqiri {

/// Log-linear buckets over all 64-bit values: 32 per octave, so that a quantile is at most 1/32
/// above the true value (G. Tene's HdrHistogram). One thread records, merges and resets; others may
/// read at any time.
class Histogram {
 public:
  Histogram();
  void record(std::uint64_t value) noexcept;
  [[nodiscard]] std::uint64_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t maximum() const noexcept {
    return maximum_.load(std::memory_order_relaxed);
  }
  /// Upper edge of the bucket in which quantile `q` (0..1) lies, at most the maximum; 0 when empty.
  [[nodiscard]] std::uint64_t quantile(double q) const noexcept;
  /// Add the counts of another, which nobody records in meanwhile.
  void merge(const Histogram& other) noexcept;
  void reset() noexcept;

  static constexpr std::uint32_t SUB_BITS = 5;
  static constexpr std::uint32_t NUM_BUCKETS = (64 - SUB_BITS + 1) << SUB_BITS;
  static std::uint32_t bucket_of(std::uint64_t value) noexcept;
  static std::uint64_t upper_edge(std::uint32_t bucket) noexcept;
  [[nodiscard]] std::uint64_t bucket_count(std::uint32_t bucket) const noexcept {
    return (*buckets_)[bucket].load(std::memory_order_relaxed);
  }

 private:
  std::unique_ptr<std::array<std::atomic<std::uint64_t>, NUM_BUCKETS>> buckets_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> maximum_{0};
};

}  // namespace daqiri

/// Histogram of durations with bounded relative error.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>

namespace daqiri {

/// Log-linear buckets for all 64-bit values: 32 per octave, so that a quantile is at most 1/32
/// above the true value (G. Tene's HdrHistogram). One thread records and resets; others may read at
/// any time.
class Histogram {
 public:
  void record(std::uint64_t value) noexcept {
    std::atomic<std::uint64_t>& bucket = (*buckets_)[bucket_of(value)];
    bucket.store(bucket.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (value > maximum()) maximum_.store(value, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t count() const noexcept {
    return std::accumulate(buckets_->begin(), buckets_->end(), std::uint64_t{0});
  }
  [[nodiscard]] std::uint64_t maximum() const noexcept {
    return maximum_.load(std::memory_order_relaxed);
  }
  /// Upper edge of the bucket that contains quantile `q` (0..1), at most the maximum; 0 if empty.
  [[nodiscard]] std::uint64_t quantile(double q) const noexcept {
    const double rank = std::max(std::ceil(q * static_cast<double>(count())), 1.0);
    std::uint64_t seen = 0;
    for (std::uint32_t i = 0; i < NUM_BUCKETS; ++i) {
      seen += bucket_count(i);
      if (static_cast<double>(seen) >= rank) return std::min(upper_edge(i), maximum());
    }
    return maximum();
  }
  /// Values from 2^from (0: from 0) to less than 2^to; both > SUB_BITS.
  [[nodiscard]] std::uint64_t count_between(std::uint32_t from, std::uint32_t to) const noexcept {
    const auto bucket = [](std::uint32_t exponent) {
      return exponent == 0 ? 0U : bucket_of(std::uint64_t{1} << exponent);
    };
    return std::accumulate(buckets_->begin() + bucket(from), buckets_->begin() + bucket(to),
                           std::uint64_t{0});
  }
  void reset() noexcept {
    for (auto& bucket : *buckets_) bucket.store(0, std::memory_order_relaxed);
    maximum_.store(0, std::memory_order_relaxed);
  }

  static constexpr std::uint32_t SUB_BITS = 5;
  static constexpr std::uint32_t NUM_BUCKETS = (64 - SUB_BITS + 1) << SUB_BITS;
  static std::uint32_t bucket_of(std::uint64_t value) noexcept {
    if (value < SUB) return static_cast<std::uint32_t>(value);
    const auto exponent = static_cast<std::uint32_t>(std::bit_width(value)) - 1U - SUB_BITS;
    return ((exponent + 1U) << SUB_BITS) + static_cast<std::uint32_t>((value >> exponent) - SUB);
  }
  static std::uint64_t upper_edge(std::uint32_t bucket) noexcept {
    if (bucket < SUB) return bucket;
    const std::uint32_t exponent = (bucket >> SUB_BITS) - 1U;
    const std::uint64_t lower = (SUB + (bucket & (SUB - 1U))) << exponent;
    return lower + ((std::uint64_t{1} << exponent) - 1U);
  }
  [[nodiscard]] std::uint64_t bucket_count(std::uint32_t bucket) const noexcept {
    return (*buckets_)[bucket].load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t SUB = 1U << SUB_BITS;

  using Buckets = std::array<std::atomic<std::uint64_t>, NUM_BUCKETS>;
  std::unique_ptr<Buckets> buckets_{std::make_unique<Buckets>()};
  std::atomic<std::uint64_t> maximum_{0};
};

}  // namespace daqiri

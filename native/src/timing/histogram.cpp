#include "timing/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace daqiri {

Histogram::Histogram()
    : buckets_(std::make_unique<std::array<std::atomic<std::uint64_t>, NUM_BUCKETS>>()) {}

std::uint32_t Histogram::bucket_of(std::uint64_t value) noexcept {
  constexpr std::uint64_t SUB = 1U << SUB_BITS;
  if (value < SUB) return static_cast<std::uint32_t>(value);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(value)) - 1U - SUB_BITS;
  return ((exponent + 1U) << SUB_BITS) + static_cast<std::uint32_t>((value >> exponent) - SUB);
}

std::uint64_t Histogram::upper_edge(std::uint32_t bucket) noexcept {
  constexpr std::uint64_t SUB = 1U << SUB_BITS;
  if (bucket < SUB) return bucket;
  const std::uint32_t exponent = (bucket >> SUB_BITS) - 1U;
  const std::uint64_t lower = (SUB + (bucket & (SUB - 1U))) << exponent;
  return lower + ((std::uint64_t{1} << exponent) - 1U);
}

void Histogram::record(std::uint64_t value) noexcept {
  std::atomic<std::uint64_t>& bucket = (*buckets_)[bucket_of(value)];
  bucket.store(bucket.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (value > maximum_.load(std::memory_order_relaxed))
    maximum_.store(value, std::memory_order_relaxed);
}

std::uint64_t Histogram::quantile(double q) const noexcept {
  std::uint64_t total = 0;
  for (const auto& bucket : *buckets_) total += bucket.load(std::memory_order_relaxed);
  if (total == 0) return 0;
  const double clamped = q < 0.0 ? 0.0 : (q > 1.0 ? 1.0 : q);
  auto rank = static_cast<std::uint64_t>(std::ceil(clamped * static_cast<double>(total)));
  if (rank == 0) rank = 1;
  std::uint64_t seen = 0;
  for (std::uint32_t i = 0; i < NUM_BUCKETS; ++i) {
    seen += (*buckets_)[i].load(std::memory_order_relaxed);
    if (seen >= rank) return std::min(upper_edge(i), maximum());
  }
  return maximum();
}

void Histogram::merge(const Histogram& other) noexcept {
  for (std::uint32_t i = 0; i < NUM_BUCKETS; ++i)
    (*buckets_)[i].fetch_add(other.bucket_count(i), std::memory_order_relaxed);
  count_.fetch_add(other.count(), std::memory_order_relaxed);
  maximum_.store(std::max(maximum(), other.maximum()), std::memory_order_relaxed);
}

void Histogram::reset() noexcept {
  for (auto& bucket : *buckets_) bucket.store(0, std::memory_order_relaxed);
  count_.store(0, std::memory_order_relaxed);
  maximum_.store(0, std::memory_order_relaxed);
}

}  // namespace daqiri

#include "memory/free_list.h"

namespace daqiri::memory {

namespace {
constexpr std::uint64_t pack(std::uint32_t number, std::uint64_t tag) noexcept {
  return (tag << 32U) | number;
}
constexpr std::uint32_t number_of(std::uint64_t head) noexcept {
  return static_cast<std::uint32_t>(head);
}
constexpr std::uint64_t tag_of(std::uint64_t head) noexcept { return head >> 32U; }
}  // namespace

FreeList::FreeList(std::uint32_t count)
    : count_(count),
      next_(std::make_unique<std::atomic<std::uint32_t>[]>(count)),
      head_(pack(count > 0 ? 0 : END, 0)),
      available_(count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i].store(i + 1 < count ? i + 1 : END, std::memory_order_relaxed);
  }
}

std::uint32_t FreeList::take(std::uint32_t* numbers, std::uint32_t n) noexcept {
  if (n == 0) return 0;
  std::uint64_t head = head_.load(std::memory_order_acquire);
  for (;;) {
    std::uint32_t taken = 0;
    std::uint32_t top = number_of(head);
    // The chain may change underfoot; the tag then makes the exchange fail and the walk is
    // repeated.
    while (taken < n && top != END) {
      numbers[taken++] = top;
      top = next_[top].load(std::memory_order_relaxed);
    }
    if (taken == 0) return 0;
    if (head_.compare_exchange_weak(head, pack(top, tag_of(head) + 1), std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      available_.fetch_sub(taken, std::memory_order_relaxed);
      return taken;
    }
  }
}

void FreeList::give(const std::uint32_t* numbers, std::uint32_t n) noexcept {
  if (n == 0) return;
  for (std::uint32_t i = 0; i + 1 < n; ++i)
    next_[numbers[i]].store(numbers[i + 1], std::memory_order_relaxed);
  available_.fetch_add(n, std::memory_order_relaxed);
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  do {
    next_[numbers[n - 1]].store(number_of(head), std::memory_order_relaxed);
  } while (!head_.compare_exchange_weak(head, pack(numbers[0], tag_of(head) + 1),
                                        std::memory_order_acq_rel, std::memory_order_relaxed));
}

}  // namespace daqiri::memory

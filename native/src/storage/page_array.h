/// An array that grows without copying what it holds.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace daqiri {

/// The kernel moves its pages, and memory counts as used from the first write on, so that a reserve
/// that turns out too large costs nothing.
template <typename T>
class PageArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PageArray() = default;
  PageArray(PageArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  PageArray& operator=(PageArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~PageArray() {
    if (data_ != nullptr) munmap(data_, capacity_ * sizeof(T));
  }

  /// Room for `n` elements. Throws std::bad_alloc.
  void reserve(std::size_t n) {
    if (n <= capacity_) return;
    n = (std::max(n, 2 * capacity_) + GRANULE - 1) / GRANULE * GRANULE;
    void* moved = data_ == nullptr
                      ? mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                      : mremap(data_, capacity_ * sizeof(T), n * sizeof(T), MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(moved);
    capacity_ = n;
    // One fault per 2 MiB instead of per 4 KiB, where the system grants it.
    if (n * sizeof(T) >= HUGE_PAGE) madvise(data_, n * sizeof(T), MADV_HUGEPAGE);
  }
  /// The room is there.
  void push_back(T value) noexcept { data_[size_++] = value; }
  /// Elements up to `n` are set by the caller, in the room that is there.
  void set_size(std::size_t n) noexcept { size_ = n; }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }

 private:
  /// Whole pages of any element size.
  static constexpr std::size_t GRANULE = 4096;
  static constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;

  T* data_{nullptr};
  std::size_t size_{0};
  std::size_t capacity_{0};
};

}  // namespace daqiri

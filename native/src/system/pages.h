/// Memory of the kernel, in whole pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace daqiri {

struct UnmapPages {
  /// In bytes.
  std::size_t size{0};
  void operator()(void* begin) const noexcept { munmap(begin, size); }
};
template <typename T>
using Pages = std::unique_ptr<T[], UnmapPages>;

/// Zeros, which count as used memory only after the first write. Throws std::bad_alloc.
template <typename T>
Pages<T> map_pages(std::size_t bytes) {
  void* const begin =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  return Pages<T>(static_cast<T*>(begin), UnmapPages{bytes});
}

}  // namespace daqiri

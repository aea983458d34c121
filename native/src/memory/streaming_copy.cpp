#include "memory/streaming_copy.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace daqiri::memory {

#ifdef __x86_64__

namespace {

constexpr std::size_t LINE = 64;

/// Copies whole cache lines to an address at the beginning of one.
using Lines = void (*)(std::byte* to, const std::byte* from, std::size_t lines) noexcept;

[[gnu::target("avx512f")]] void avx512(std::byte* to, const std::byte* from,
                                       std::size_t lines) noexcept {
  for (; lines > 0; --lines, to += LINE, from += LINE) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
}

[[gnu::target("avx2")]] void avx2(std::byte* to, const std::byte* from,
                                  std::size_t lines) noexcept {
  for (; lines > 0; --lines, to += LINE, from += LINE) {
    const auto* line = reinterpret_cast<const __m256i*>(from);
    auto* out = reinterpret_cast<__m256i*>(to);
    const __m256i low = _mm256_loadu_si256(line);
    const __m256i high = _mm256_loadu_si256(line + 1);
    _mm256_stream_si256(out, low);
    _mm256_stream_si256(out + 1, high);
  }
}

void cached(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  std::memcpy(to, from, lines * LINE);
}

Lines best_lines() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return avx512;
  return __builtin_cpu_supports("avx2") ? avx2 : cached;
}

}  // namespace

void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  static const Lines copy_lines = best_lines();
  const std::size_t before =
      std::min(bytes, (LINE - reinterpret_cast<std::uintptr_t>(to) % LINE) % LINE);
  std::memcpy(to, from, before);
  const std::size_t lines = (bytes - before) / LINE;
  copy_lines(to + before, from + before, lines);
  const std::size_t done = before + lines * LINE;
  std::memcpy(to + done, from + done, bytes - done);
}

void settle_stores() noexcept { _mm_sfence(); }

#else

void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

void settle_stores() noexcept {}

#endif

}  // namespace daqiri::memory

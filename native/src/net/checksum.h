/// The Internet checksum.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace daqiri {

/// RFC 1071, over pieces of any length.
class Checksum {
 public:
  void add(const void* data, std::size_t size) noexcept {
    const auto* at = static_cast<const std::uint8_t*>(data);
    // Halves of 8 bytes, each in a sum of its own: no carry to look after.
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::size_t left = size;
    for (; left >= 8; left -= 8, at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, at, sizeof word);
      low += word & 0xFFFF'FFFFU;
      high += word >> 32U;
    }
    std::uint64_t rest = 0;
    if (left > 0) std::memcpy(&rest, at, left);
    std::uint64_t sum = fold(fold(low) + fold(high) + fold(rest));
    // A piece that begins at an odd byte counts with its bytes swapped (RFC 1071, 2(B)).
    if (odd_) sum = (sum & 0xFFU) << 8U | sum >> 8U;
    sum_ += sum;
    odd_ = odd_ != (size % 2 == 1);
  }
  /// A 16-bit word in host byte order, at an even place.
  void add_word(std::uint16_t word) noexcept {
    sum_ += std::endian::native == std::endian::little ? swapped(word) : word;
  }

  /// In host byte order, complemented.
  [[nodiscard]] std::uint16_t value() const noexcept {
    const auto sum = static_cast<std::uint16_t>(fold(sum_));
    return static_cast<std::uint16_t>(
        ~(std::endian::native == std::endian::little ? swapped(sum) : sum));
  }
  /// As UDP has it: 0 would mean "none" (RFC 768).
  [[nodiscard]] std::uint16_t udp_value() const noexcept {
    return value() == 0 ? std::uint16_t{0xFFFF} : value();
  }

 private:
  static std::uint64_t fold(std::uint64_t sum) noexcept {
    while (sum >> 16U != 0) sum = (sum & 0xFFFFU) + (sum >> 16U);
    return sum;
  }
  static std::uint16_t swapped(std::uint16_t word) noexcept {
    return static_cast<std::uint16_t>(word << 8U | word >> 8U);
  }

  /// Sum of 16-bit words in memory order, not folded.
  std::uint64_t sum_{0};
  bool odd_{false};
};

}  // namespace daqiri

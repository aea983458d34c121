/// Sizes of the elements of packets and frames, and how many of them fill whole bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <numeric>

#include "daqiri/reorder.h"

namespace daqiri::reorder {

/// Bits of an element; 0 if the type has no elements.
[[nodiscard]] constexpr std::uint32_t bits_of(ReorderDataType type) noexcept {
  switch (type) {
    case ReorderDataType::INT4:
    case ReorderDataType::UINT4:
      return 4;
    case ReorderDataType::INT8:
    case ReorderDataType::UINT8:
      return 8;
    case ReorderDataType::INT10:
    case ReorderDataType::UINT10:
      return 10;
    case ReorderDataType::INT12:
    case ReorderDataType::UINT12:
      return 12;
    case ReorderDataType::INT14:
    case ReorderDataType::UINT14:
      return 14;
    case ReorderDataType::INT16:
    case ReorderDataType::UINT16:
    case ReorderDataType::FP16:
    case ReorderDataType::BF16:
      return 16;
    case ReorderDataType::INT24:
    case ReorderDataType::UINT24:
      return 24;
    case ReorderDataType::INT32:
    case ReorderDataType::UINT32:
    case ReorderDataType::FP32:
      return 32;
    case ReorderDataType::INT64:
    case ReorderDataType::UINT64:
    case ReorderDataType::FP64:
      return 64;
    case ReorderDataType::SAME:
    case ReorderDataType::INVALID:
      break;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_float(ReorderDataType type) noexcept {
  return type == ReorderDataType::FP16 || type == ReorderDataType::BF16 ||
         type == ReorderDataType::FP32 || type == ReorderDataType::FP64;
}

/// Whether it is an integer without a sign.
[[nodiscard]] constexpr bool is_unsigned(ReorderDataType type) noexcept {
  switch (type) {
    case ReorderDataType::UINT4:
    case ReorderDataType::UINT8:
    case ReorderDataType::UINT10:
    case ReorderDataType::UINT12:
    case ReorderDataType::UINT14:
    case ReorderDataType::UINT16:
    case ReorderDataType::UINT24:
    case ReorderDataType::UINT32:
    case ReorderDataType::UINT64:
      return true;
    default:
      return false;
  }
}

/// Whether elements begin or end within a byte.
[[nodiscard]] constexpr bool is_packed(ReorderDataType type) noexcept {
  return bits_of(type) % 8 != 0;
}

/// The fewest elements that fill whole bytes of a packet: 2 of 12 bits, 1 of 16 bits.
[[nodiscard]] constexpr std::uint32_t group_elements(ReorderDataType type) noexcept {
  return 8 / std::gcd(bits_of(type), 8U);
}
/// Their bytes; 1 if the type has no elements.
[[nodiscard]] constexpr std::uint32_t group_bytes(ReorderDataType type) noexcept {
  return bits_of(type) == 0 ? 1 : bits_of(type) / std::gcd(bits_of(type), 8U);
}

/// Groups of elements of a conversion, of which a payload has a whole number; computed without a
/// division.
class Groups {
 public:
  constexpr Groups() noexcept = default;
  /// `unconverted`: bytes of an element that is copied as it is.
  constexpr explicit Groups(const ReorderDataTypesConfig& types,
                            std::uint32_t unconverted = 1) noexcept
      : bytes_(bits_of(types.input_type_) != 0 ? group_bytes(types.input_type_) : unconverted),
        output_bytes_(unconverted),
        shift_(std::countr_zero(bytes_)),
        most_(UINT32_MAX / bytes_) {
    // Newton's method doubles the number of right bits; an odd number is its own inverse modulo 8.
    const std::uint64_t odd = bytes_ >> static_cast<unsigned>(shift_);
    inverse_ = odd;
    for (int bits = 3; bits < 64; bits *= 2) inverse_ *= 2 - odd * inverse_;
    if (bits_of(types.input_type_) != 0)
      output_bytes_ = group_elements(types.input_type_) * bits_of(types.output_type_) / 8;
    factor_ = inverse_ * output_bytes_;
  }

  /// Bytes of a group in packets, and in frames.
  [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] constexpr std::uint32_t output_bytes() const noexcept { return output_bytes_; }
  /// Whether these are whole groups.
  [[nodiscard]] constexpr bool fill(std::uint32_t bytes) const noexcept {
    return std::rotr(bytes * static_cast<std::uint32_t>(inverse_), shift_) <= most_;
  }
  /// Output bytes of whole groups.
  [[nodiscard]] constexpr std::uint64_t output_of(std::uint64_t bytes) const noexcept {
    return (bytes >> static_cast<unsigned>(shift_)) * factor_;
  }
  /// Output bytes of the whole groups in this many bytes.
  [[nodiscard]] constexpr std::uint64_t output_within(std::uint64_t bytes) const noexcept {
    return bytes / bytes_ * output_bytes_;
  }
  /// Bytes of the groups with this many output bytes.
  [[nodiscard]] constexpr std::uint64_t input_of(std::uint64_t output) const noexcept {
    return output / output_bytes_ * bytes_;
  }

 private:
  std::uint32_t bytes_{1};
  std::uint32_t output_bytes_{1};
  int shift_{0};
  std::uint32_t most_{UINT32_MAX};
  std::uint64_t inverse_{1};
  std::uint64_t factor_{1};
};

}  // namespace daqiri::reorder

/// A number in a packet.
#pragma once

#include <endian.h>

#include <cstdint>
#include <cstring>

#include "daqiri/reorder.h"

namespace daqiri::reorder {

/// A number in a packet.
class Field {
 public:
  Field() = default;
  explicit Field(const ReorderBitFieldConfig& config) noexcept
      : first_(config.bit_offset_ / 8),
        end_((config.bit_offset_ + config.bit_width_ + 7) / 8),
        mask_(config.bit_width_ >= 64 ? ~std::uint64_t{0}
                                      : (std::uint64_t{1} << config.bit_width_) - 1),
        tail_(static_cast<std::uint8_t>(end_ * 8 - config.bit_offset_ - config.bit_width_)),
        little_(config.byte_order_ == ReorderByteOrder::LITTLE),
        of_payload_(config.base_ == ReorderBase::UDP_PAYLOAD) {}

  [[nodiscard]] bool of_payload() const noexcept { return of_payload_; }
  /// Bytes that a packet needs to contain the field, where the payload begins at `base` (ignored if
  /// the field counts from the packet).
  [[nodiscard]] std::uint32_t end(std::uint32_t base) const noexcept {
    return end_ + (of_payload_ ? base : 0);
  }
  /// Read the field from a packet that contains it. `base`: begin of the UDP payload.
  [[nodiscard]] std::uint64_t read(const std::uint8_t* packet, std::uint32_t base) const noexcept;
  /// All bits of the number.
  [[nodiscard]] std::uint64_t mask() const noexcept { return mask_; }

 private:
  std::uint32_t first_{0};
  std::uint32_t end_{0};
  std::uint64_t mask_{0};
  /// Bits after the field in its last byte.
  std::uint8_t tail_{0};
  bool little_{false};
  bool of_payload_{false};
};

// In the header, because a call for each field of each packet would take as long as the rest.

inline std::uint64_t Field::read(const std::uint8_t* packet, std::uint32_t base) const noexcept {
  const std::uint32_t to = end(base);
  std::uint64_t bits = 0;
  if (to >= sizeof bits) {
    // The packet contains the eight bytes that end with the field.
    std::memcpy(&bits, packet + to - sizeof bits, sizeof bits);
    bits = little_ ? le64toh(bits) >> (64U - 8U * (end_ - first_)) : be64toh(bits) >> tail_;
  } else {
    for (std::uint32_t i = first_; i < end_; ++i) {
      const std::uint64_t byte = packet[to - end_ + i];
      bits = little_ ? bits | byte << (8U * (i - first_)) : bits << 8U | byte;
    }
    if (!little_) bits >>= tail_;
  }
  return bits & mask_;
}

}  // namespace daqiri::reorder

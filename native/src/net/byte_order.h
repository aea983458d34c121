/// Big-endian fields of packet headers.
#pragma once

#include <cstdint>

namespace daqiri {

inline std::uint16_t load_be16(const std::uint8_t* at) noexcept {
  return static_cast<std::uint16_t>(at[0] << 8U | at[1]);
}
inline std::uint32_t load_be32(const std::uint8_t* at) noexcept {
  return static_cast<std::uint32_t>(load_be16(at)) << 16U | load_be16(at + 2);
}
inline void store_be16(std::uint8_t* at, std::uint16_t value) noexcept {
  at[0] = static_cast<std::uint8_t>(value >> 8U);
  at[1] = static_cast<std::uint8_t>(value);
}
inline void store_be32(std::uint8_t* at, std::uint32_t value) noexcept {
  store_be16(at, static_cast<std::uint16_t>(value >> 16U));
  store_be16(at + 2, static_cast<std::uint16_t>(value));
}

}  // namespace daqiri

#include "steering/toeplitz.h"

#include <array>
#include <cstddef>

namespace daqiri::steering {

namespace {

/// Two addresses and two ports.
constexpr std::size_t TUPLE_SIZE = 12;

/// Contribution of each value of each byte of the tuple.
using Table = std::array<std::array<std::uint32_t, 256>, TUPLE_SIZE>;

constexpr Table make_table() {
  Table table{};
  for (std::size_t byte = 0; byte < TUPLE_SIZE; ++byte) {
    std::uint64_t window = 0;
    for (std::size_t i = 0; i < 5; ++i) window = window << 8U | RSS_KEY[byte + i];
    for (unsigned value = 0; value < 256; ++value) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        if ((value & 0x80U >> bit) != 0)
          table[byte][value] ^= static_cast<std::uint32_t>(window >> (8U - bit));
      }
    }
  }
  return table;
}

constexpr Table TABLE = make_table();

}  // namespace

std::uint32_t toeplitz(std::uint32_t ipv4_src, std::uint32_t ipv4_dst, std::uint16_t udp_src,
                       std::uint16_t udp_dst) noexcept {
  const std::uint64_t words[] = {std::uint64_t{ipv4_src} << 32U | ipv4_dst,
                                 std::uint64_t{udp_src} << 48U | std::uint64_t{udp_dst} << 32U};
  std::uint32_t hash = 0;
  for (std::size_t byte = 0; byte < TUPLE_SIZE; ++byte)
    hash ^= TABLE[byte][words[byte / 8] >> (56U - 8U * (byte % 8)) & 0xFFU];
  return hash;
}

}  // namespace daqiri::steering

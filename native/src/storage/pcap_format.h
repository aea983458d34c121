/// The classic pcap file format, version 2.4 (IETF draft-ietf-opsawg-pcap).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace daqiri::pcap {

inline constexpr std::uint32_t MAGIC_MICROSECOND = 0xA1B2C3D4U;
inline constexpr std::uint32_t MAGIC_NANOSECOND = 0xA1B23C4DU;
/// Largest packet that a file of ours holds; libpcap's own limit.
inline constexpr std::uint32_t SNAP_LENGTH = 262'144;
/// A record that claims more is taken for garbage.
inline constexpr std::uint32_t MAX_RECORD = 256U << 20U;

struct FileHeader {
  std::uint32_t magic{MAGIC_MICROSECOND};
  std::uint16_t version_major{2};
  std::uint16_t version_minor{4};
  std::int32_t zone{0};
  std::uint32_t accuracy{0};
  std::uint32_t snap_length{SNAP_LENGTH};
  std::uint32_t link_type{0};
};
static_assert(sizeof(FileHeader) == 24);

struct RecordHeader {
  std::uint32_t seconds{0};
  /// Microseconds or nanoseconds.
  std::uint32_t fraction{0};
  std::uint32_t captured{0};
  std::uint32_t original{0};
  bool operator==(const RecordHeader&) const = default;
  [[nodiscard]] RecordHeader swapped() const noexcept {
    return {__builtin_bswap32(seconds), __builtin_bswap32(fraction), __builtin_bswap32(captured),
            __builtin_bswap32(original)};
  }
};
static_assert(sizeof(RecordHeader) == 16);

/// What a file header says.
struct Format {
  /// 1: Ethernet.
  std::uint32_t link_type{1};
  bool nanosecond{false};
  std::uint32_t snap_length{SNAP_LENGTH};
  /// The other byte order.
  bool swapped{false};
};

/// The header of a file of this machine's byte order.
FileHeader header_of(const Format& format) noexcept;
/// Read the header at `data`. Throws Error INVALID_PARAMETER naming `name` and what was found.
Format read_header(const std::uint8_t* data, std::uint64_t size, const std::string& name);

}  // namespace daqiri::pcap

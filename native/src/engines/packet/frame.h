/// A received frame in memory that the kernel filled.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace daqiri::packet {

/// A frame as it was on the wire, including VLAN tags.
struct Frame {
  /// Null: no frame.
  std::uint8_t* data{nullptr};
  std::uint32_t length{0};
  /// Bytes on the wire; more than `length` if the kernel truncated the frame.
  std::uint32_t wire_length{0};
  /// Arrival, CLOCK_REALTIME ns.
  std::uint64_t time{0};
  /// The pieces after the bytes at `data`, if the frame is not contiguous.
  std::span<const iovec> rest{};
  /// The sender left the checksum to its network card: see FrameRing::complete_checksum.
  bool checksum_open{false};

  /// Bytes at `data`; they include all headers.
  [[nodiscard]] std::uint32_t length_at_data() const noexcept {
    std::uint32_t elsewhere = 0;
    for (const iovec& piece : rest) elsewhere += static_cast<std::uint32_t>(piece.iov_len);
    return length - elsewhere;
  }
};

/// Copies a frame piece by piece, starting with its first byte.
class FrameCopy {
 public:
  explicit FrameCopy(const Frame& frame) noexcept
      : data_(frame.data), left_(frame.length_at_data()), rest_(frame.rest) {}

  /// Copy the next `size` bytes; the frame must have as many.
  void take(void* to, std::uint32_t size) noexcept {
    auto* out = static_cast<std::uint8_t*>(to);
    while (size > 0) {
      if (left_ == 0) {
        data_ = static_cast<const std::uint8_t*>(rest_.front().iov_base);
        left_ = static_cast<std::uint32_t>(rest_.front().iov_len);
        rest_ = rest_.subspan(1);
      }
      const std::uint32_t n = std::min(size, left_);
      if (!rest_.empty()) prefetch(rest_.front());
      std::memcpy(out, data_, n);
      out += n;
      data_ += n;
      left_ -= n;
      size -= n;
    }
  }

 private:
  /// The processor's own prefetch begins anew in each piece. Inline: GCC leaves out calls of
  /// functions that only prefetch, because they change nothing.
  [[gnu::always_inline]] static void prefetch(const iovec& piece) noexcept {
    constexpr std::size_t LINE = 64;
    constexpr std::size_t AHEAD = 8 * LINE;
    const auto* data = static_cast<const std::uint8_t*>(piece.iov_base);
    for (std::size_t at = 0; at < std::min(piece.iov_len, AHEAD); at += LINE)
      __builtin_prefetch(data + at);
  }

  const std::uint8_t* data_;
  std::uint32_t left_;
  std::span<const iovec> rest_;
};

}  // namespace daqiri::packet

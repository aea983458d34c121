/// One frame of a kernel's ring, with what its sender left to the network card.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engines/packet/frame.h"

namespace daqiri::packet {

/// Space before a frame in which `read_frame` restores the VLAN tag that the kernel has removed.
inline constexpr std::uint32_t TAG_BYTES = 4;

/// What the sender of a frame left to its network card: virtio_net_hdr, whose kernel header is no
/// C++.
struct Offload {
  static constexpr std::uint8_t NEEDS_CHECKSUM = 1;

  std::uint8_t flags{0};
  /// Kind of packets to cut it into; 0: none.
  std::uint8_t kind{0};
  std::uint16_t header_bytes{0};
  /// Payload of each of these packets.
  std::uint16_t piece_bytes{0};
  /// Where the checksum begins, and its field from there.
  std::uint16_t checksum_start{0};
  std::uint16_t checksum_field{0};
};
static_assert(sizeof(Offload) == 10);

/// A frame as it is in the ring, and what PACKET_VNET_HDR tells of it.
struct RingFrame {
  Frame frame;
  /// Zeros: nothing is left to do.
  Offload offload;
  /// Whether its time is that of the network card.
  bool card_time{false};
};

/// Reads the frame whose header (tpacket3_hdr) is at `at`, once: restores its VLAN tag.
/// `with_offload`: the ring has PACKET_VNET_HDR.
RingFrame read_frame(std::byte* at, bool with_offload) noexcept;

/// Computes the checksum of a frame that has `checksum_open`.
void complete_checksum(const RingFrame& whole) noexcept;

/// Cuts a frame with several TCP segments or UDP datagrams (GSO) into the frames that the wire
/// would carry. Their headers are written here, with the beginning of the payload; the rest of it
/// remains where it is.
class CutFrame {
 public:
  /// Begin with a frame. Returns false if it remains whole: nothing is to be cut, or it is in a
  /// tunnel, has IPv6 extension headers, or was truncated.
  bool begin(const RingFrame& whole) noexcept;
  /// Whether there is a frame.
  [[nodiscard]] bool active() const noexcept { return at_ < whole_.length; }
  /// The present one.
  [[nodiscard]] Frame frame() noexcept;
  void next() noexcept;
  /// Of the present one, in its headers.
  void complete_checksum() noexcept;

 private:
  /// Ethernet, VLAN tags, IPv4 with options, TCP with options.
  static constexpr std::uint32_t MOST_HEADERS = 256;
  /// With what flows match in the payload, and headers of packets in tunnels.
  static constexpr std::uint32_t MOST_BEGINNING = 1024;

  [[nodiscard]] std::uint32_t piece_bytes() const noexcept;
  void write_beginning() noexcept;

  Frame whole_;
  bool udp_{false};
  /// Offsets of the IP header and of the header after it, and size of all headers.
  std::uint32_t ip_{0};
  std::uint32_t transport_{0};
  std::uint32_t headers_bytes_{0};
  /// Payload of each frame but the last.
  std::uint32_t piece_{0};
  /// Begin of the present one's payload; at the end of the frame: none is left.
  std::uint32_t at_{0};
  std::array<std::uint8_t, MOST_BEGINNING> beginning_{};
  std::uint32_t beginning_bytes_{0};
  /// What follows: at least one byte, so that no one keeps the frame in the ring as one piece.
  iovec rest_{};
};

}  // namespace daqiri::packet

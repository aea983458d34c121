/// How the memory of AF_XDP sockets is divided among the queues of a network card.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace daqiri::packet {

/// The kernel returns a chunk only with a frame in it, so chunks of a queue without traffic stay
/// there. Each queue therefore begins with a few, and gets more as its frames arrive. Used by one
/// poller.
class XdpShares {
 public:
  /// Bytes of a descriptor in the fill ring and in the receive ring.
  static constexpr std::uint64_t DESCRIPTOR_BYTES = 8 + 16;
  /// Least limit on the memory of all rings.
  static constexpr std::uint64_t ENOUGH_RING_BYTES = 32U << 20U;

  /// Largest memory of all rings of sockets with `bytes` for frames.
  static constexpr std::uint64_t most_ring_bytes(std::uint64_t bytes) noexcept {
    return std::max(bytes / 4, ENOUGH_RING_BYTES);
  }
  /// Descriptors of each ring: enough for all chunks, within the limit above; a power of two.
  static std::uint32_t ring_size(std::uint32_t chunks, std::uint32_t chunk_bytes,
                                 std::uint32_t queues) noexcept;

  XdpShares() = default;
  XdpShares(std::uint32_t chunks, std::uint32_t queues);

  /// Call every 10 ms or later, with the number of chunks that each queue has filled since the last
  /// call, and the time.
  void update(std::span<const std::uint32_t> filled, std::uint64_t now_ns) noexcept;

  /// Most chunks of a queue, with frames or without.
  [[nodiscard]] std::uint32_t most(std::size_t queue) const noexcept { return most_[queue]; }
  /// A queue may always take free chunks until it has this many. It takes more only while `reserve`
  /// others stay free.
  [[nodiscard]] std::uint32_t part() const noexcept { return part_; }
  [[nodiscard]] std::uint32_t reserve() const noexcept { return reserve_; }
  /// Chunks of a queue without traffic.
  [[nodiscard]] std::uint32_t floor() const noexcept { return floor_; }
  [[nodiscard]] bool idle(std::size_t queue) const noexcept { return most_[queue] == floor_; }

 private:
  /// Most chunks that a queue filled between two calls: in this second, and in the one before.
  struct Filled {
    std::uint32_t now{0};
    std::uint32_t before{0};
  };

  std::uint32_t chunks_{0};
  std::uint32_t floor_{0};
  std::uint32_t reserve_{0};
  std::uint32_t part_{0};
  std::vector<std::uint32_t> most_;
  std::vector<Filled> filled_;
  /// Beginning of this second.
  std::uint64_t begun_ns_{0};
};

}  // namespace daqiri::packet

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

  /// What the kernel has of a queue: chunks, with frames or without, and descriptors not yet read.
  struct Holding {
    std::uint32_t held{0};
    std::uint32_t waiting{0};
  };

  XdpShares() = default;
  /// `ring_size`: descriptors of each ring, the most chunks without frames that a queue can have.
  XdpShares(std::uint32_t chunks, std::uint32_t queues, std::uint32_t ring_size);

  /// Call every 10 ms or later, with the number of chunks that each queue has filled since the last
  /// call, and the time.
  void update(std::span<const std::uint32_t> filled, std::uint64_t now_ns) noexcept;

  /// Most chunks of a queue, with frames or without.
  [[nodiscard]] std::uint32_t most(std::size_t queue) const noexcept { return most_[queue]; }
  /// A queue may always take free chunks until it has this many. It takes more only while `reserve`
  /// others stay free.
  [[nodiscard]] std::uint32_t part() const noexcept { return part_; }
  [[nodiscard]] std::uint32_t reserve() const noexcept { return reserve_; }
  /// What a queue should have while others have traffic too.
  [[nodiscard]] std::uint32_t wanted(std::size_t queue) const noexcept {
    return std::min({most_[queue], part_, ring_size_});
  }
  /// Chunks of a queue without traffic.
  [[nodiscard]] std::uint32_t floor() const noexcept { return floor_; }
  [[nodiscard]] bool idle(std::size_t queue) const noexcept { return most_[queue] == floor_; }
  /// The idle queue with the most chunks above its own, if a queue with traffic lacks some and few
  /// are free; none: the number of queues.
  [[nodiscard]] std::size_t surplus(std::span<const Holding> queues,
                                    std::uint32_t available) const noexcept;

 private:
  /// Most chunks that a queue filled between two calls: in this second, and in the one before.
  struct Filled {
    std::uint32_t now{0};
    std::uint32_t before{0};
  };

  std::uint32_t chunks_{0};
  std::uint32_t ring_size_{0};
  std::uint32_t floor_{0};
  std::uint32_t reserve_{0};
  std::uint32_t part_{0};
  std::vector<std::uint32_t> most_;
  std::vector<Filled> filled_;
  /// Beginning of this second.
  std::uint64_t begun_ns_{0};
};

}  // namespace daqiri::packet

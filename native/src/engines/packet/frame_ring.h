/// Interface of rings into which the kernel writes the frames of a network interface.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engines/packet/frame.h"
#include "memory/buffers.h"

namespace daqiri::packet {

/// Received frames in memory that the kernel fills and this process returns. Frames are read in
/// order. A frame that is kept stays at its address until it is returned.
class FrameRing : public memory::BufferOwner {
 public:
  using BufferOwner::BufferOwner;

  /// The shortest time that is worth waiting.
  static constexpr std::uint64_t GATHERS_NS = 50'000;

  [[nodiscard]] bool wanted_soon() const noexcept override { return true; }

  /// Each is readable when there may be frames.
  [[nodiscard]] virtual std::vector<int> fds() const = 0;
  /// How frames are received, for display: "af_packet", "af_xdp native". Any thread.
  [[nodiscard]] virtual std::string path() const = 0;
  /// Whether every frame of the interface is received, and none goes to the kernel instead. Any
  /// thread.
  [[nodiscard]] virtual bool takes_every_frame() const noexcept { return false; }
  /// Whether frames are taken in the driver, before the backlog of a core.
  [[nodiscard]] virtual bool in_driver() const noexcept { return false; }
  /// See steering::InstalledFlow::offload.
  [[nodiscard]] virtual std::string_view offload() const noexcept { return {}; }
  /// Why flows that are added later may not receive all their packets; null: they do. Any thread.
  [[nodiscard]] virtual const char* fixed_flows() const noexcept { return nullptr; }

  /// How long frames may wait here, at any packet rate.
  [[nodiscard]] virtual std::uint64_t gathers_ns() const noexcept = 0;
  /// See ReceiveTraits::gathered.
  [[nodiscard]] virtual bool gathered() const noexcept { return false; }

  // --- Poller.

  /// Return the next frame. It stays the next one until `advance`.
  virtual Frame peek() noexcept = 0;
  virtual void advance() noexcept = 0;
  /// Compute the checksum of the frame of `peek`, which has `checksum_open`. Once.
  virtual void complete_checksum() noexcept {}
  /// Whether the frame of `peek` should be kept in the ring instead of copied.
  [[nodiscard]] virtual bool worth_keeping() const noexcept = 0;
  /// Whether about half of its memory is free.
  [[nodiscard]] virtual bool has_room() const noexcept = 0;
  /// Keep the bytes at `data` of the frame of `peek` until they were freed `times` times. Returns
  /// the number of the buffer.
  virtual std::uint32_t keep(std::uint32_t times) noexcept = 0;
  /// Whether frames wait for kept memory: there is no notification when it is freed.
  [[nodiscard]] virtual bool waits_for_memory() const noexcept = 0;
  /// Number of frames that the kernel has dropped since the last call.
  virtual std::uint32_t take_drops() noexcept = 0;
  /// Whether, at that call, more had been dropped that no one has counted.
  [[nodiscard]] virtual bool drops_uncounted() const noexcept { return false; }
  /// Whether frames came without the time of the network card that was requested.
  [[nodiscard]] virtual bool lacks_card_times() const noexcept { return false; }
  /// Divide the memory anew. Call every 10 ms, or later. Returns a new descriptor of `fds`; -1:
  /// they are the same.
  virtual int balance() noexcept { return -1; }
  /// Error of the interface since the last call, errno; 0: none. ENOLINK: no more frames arrive
  /// from it.
  virtual int take_error() noexcept = 0;
  /// Receive no more frames. Frames in the ring can still be read.
  virtual void stop_arrivals() noexcept = 0;

  /// Call after the poller has ended. Kept frames stay readable.
  virtual void stop() noexcept = 0;
};

}  // namespace daqiri::packet

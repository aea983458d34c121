/// Interface of rings into which the kernel writes the frames of a network interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engines/packet/frame.h"
#include "memory/buffers.h"

namespace daqiri::packet {

/// Received frames in memory that the kernel fills and this process returns. Frames are read in
/// order. A frame that is kept stays at its address until it is returned.
class FrameRing : public memory::BufferOwner {
 public:
  using BufferOwner::BufferOwner;

  /// As short as it is worth.
  static constexpr std::uint64_t GATHERS_NS = 50'000;

  [[nodiscard]] bool wanted_soon() const noexcept override { return true; }

  /// Each is readable when there may be frames.
  [[nodiscard]] virtual std::vector<int> fds() const = 0;
  /// What brings the frames, for people: "af_packet", "af_xdp native". Any thread.
  [[nodiscard]] virtual std::string path() const = 0;
  /// Why flows that are added later may not get all their packets; null: they do. Any thread.
  [[nodiscard]] virtual const char* fixed_flows() const noexcept { return nullptr; }

  /// How long frames may wait here unseen, however many come.
  [[nodiscard]] virtual std::uint64_t gathers_ns() const noexcept = 0;
  /// As ReceiveTraits::gathered.
  [[nodiscard]] virtual bool gathered() const noexcept { return false; }

  // --- Poller.

  /// The frame to be read next. It stays the next one until `advance`.
  virtual Frame peek() noexcept = 0;
  virtual void advance() noexcept = 0;
  /// Whether the frame of `peek` is worth keeping where it is.
  [[nodiscard]] virtual bool worth_keeping() const noexcept = 0;
  /// Whether half of its memory, or about, is free.
  [[nodiscard]] virtual bool has_room() const noexcept = 0;
  /// What is at `data` of the frame of `peek` stays where it is, until it has been given back
  /// `times` times. Returns the number of its buffer.
  virtual std::uint32_t keep(std::uint32_t times) noexcept = 0;
  /// Whether frames wait for memory that is kept: nobody tells when it has been given back.
  [[nodiscard]] virtual bool waits_for_memory() const noexcept = 0;
  /// Frames that the kernel has dropped since the last call.
  virtual std::uint32_t take_drops() noexcept = 0;
  /// What is wrong with the interface since the last call, errno; 0: nothing. ENOLINK: nothing
  /// comes from it any more.
  virtual int take_error() noexcept = 0;
  /// See nothing any more. What the ring has can be read.
  virtual void stop_arrivals() noexcept = 0;

  /// After the poller has ended. What is kept stays readable.
  virtual void stop() noexcept = 0;
};

}  // namespace daqiri::packet

/// AF_XDP: frames of one queue of a network card.
#pragma once

#include <linux/if_xdp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engines/packet/interface.h"
#include "engines/packet/umem.h"
#include "engines/packet/xdp_drops.h"
#include "engines/packet/xdp_program.h"
#include "engines/packet/xdp_shares.h"
#include "system/file.h"

namespace daqiri::packet {

/// A ring that an AF_XDP socket shares with the kernel: one side writes descriptors, the other
/// reads them.
class SharedRing {
 public:
  /// The ring at `page_offset`, with `size` descriptors of `element` bytes. If it cannot be mapped,
  /// it is not open, and errno is set.
  SharedRing(int socket, std::int64_t page_offset, const xdp_ring_offset& at, std::uint32_t size,
             std::size_t element);
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;
  ~SharedRing();

  [[nodiscard]] bool is_open() const noexcept { return memory_ != nullptr; }
  [[nodiscard]] std::uint32_t size() const noexcept { return mask_ + 1; }
  [[nodiscard]] std::atomic_ref<std::uint32_t> producer() const noexcept {
    return word(at_.producer);
  }
  [[nodiscard]] std::atomic_ref<std::uint32_t> consumer() const noexcept {
    return word(at_.consumer);
  }
  [[nodiscard]] bool needs_wakeup() const noexcept {
    return (word(at_.flags).load(std::memory_order_relaxed) & XDP_RING_NEED_WAKEUP) != 0;
  }
  template <typename T>
  [[nodiscard]] T& element(std::uint32_t index) const noexcept {
    return reinterpret_cast<T*>(memory_ + at_.desc)[index & mask_];
  }

 private:
  [[nodiscard]] std::atomic_ref<std::uint32_t> word(std::uint64_t offset) const noexcept {
    return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(memory_ + offset));
  }

  /// A child made by fork(2) does not have the ring.
  pid_t process_{getpid()};
  std::byte* memory_{nullptr};
  std::size_t bytes_{0};
  xdp_ring_offset at_{};
  std::uint32_t mask_{0};
};

/// Used by one poller.
class XdpSocket {
 public:
  struct Options {
    std::uint32_t queue{0};
    /// Among the sockets of this memory.
    std::uint32_t position{0};
    /// Descriptors per ring; a power of two.
    std::uint32_t ring_size{0};
    /// Let the kernel copy frames, even if the driver supports zero copy.
    bool copy{false};
    /// Frames of the interface may be longer than a chunk.
    bool pieces{false};
    /// The poller has a dedicated core, and drives the card's queue there while it polls.
    bool busy_poll{false};
    /// Another bound socket of this memory; null: this is the first one.
    const XdpSocket* other{nullptr};
  };

  /// Makes the socket and its rings. Throws Error.
  XdpSocket(const NetworkInterface& interface, Umem& umem, const Options& options);
  /// Receive from the queue, which may still be bound to a socket that was closed. Returns false if
  /// the interface has no such queue. Throws Error.
  bool bind();

  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] std::uint32_t queue() const noexcept { return options_.queue; }
  /// Whether the card writes directly to the memory.
  [[nodiscard]] bool zero_copy() const noexcept { return zero_copy_; }

  /// Number of waiting descriptors.
  [[nodiscard]] std::uint32_t waiting() const noexcept {
    return received_->producer().load(std::memory_order_acquire) - next_;
  }
  /// Waiting descriptor number `i`.
  [[nodiscard]] const xdp_desc& descriptor(std::uint32_t i) const noexcept {
    return received_->element<xdp_desc>(next_ + i);
  }
  /// Remove the first `n` descriptors. The kernel is informed by `refill`.
  void advance(std::uint32_t n) noexcept { next_ += n; }
  /// Number of chunks that the kernel has, with frames or without.
  [[nodiscard]] std::uint32_t held() const noexcept { return filled_ - next_; }
  /// Return descriptors to the kernel, and give it the queue's share of free chunks.
  void refill(const XdpShares& shares) noexcept;
  /// With busy polling, let the kernel check for frames now.
  void look() noexcept;
  /// Whether the kernel has less than half of the queue's share without frames.
  [[nodiscard]] bool starved(const XdpShares& shares) const noexcept;
  /// Number of chunks with frames that arrived since the last call.
  std::uint32_t take_arrived() noexcept;
  /// Frames that the kernel has dropped since the last call.
  XdpDrops take_drops() noexcept;
  /// errno of an error of the interface; 0: none.
  int take_error() noexcept;

 private:
  void set(int option, const void* value, std::size_t size, const char* what);
  /// Returns errno, 0: bound.
  [[nodiscard]] int try_bind(std::uint16_t flags) const noexcept;
  void busy_poll();
  void wake() noexcept;

  NetworkInterface interface_;
  Umem& umem_;
  Options options_;
  File socket_;
  std::unique_ptr<SharedRing> received_;
  std::unique_ptr<SharedRing> fill_;
  std::uint32_t next_{0};
  std::uint32_t filled_{0};
  std::uint32_t arrived_{0};
  bool zero_copy_{false};
  /// With zero copy: every chunk of the kernel had a frame since the last call of take_drops.
  bool ran_out_{false};
  XdpStatistics statistics_;
};

}  // namespace daqiri::packet

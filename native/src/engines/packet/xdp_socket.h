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
#include "engines/packet/xdp_program.h"
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
    /// Descriptors per ring; a power of two.
    std::uint32_t ring_size{0};
    /// Let the kernel copy frames, even if the driver supports zero copy.
    bool copy{false};
    /// The poller has a dedicated core, and drives the card's queue there while it polls.
    bool busy_poll{false};
    /// The first socket of this memory; null: this is the first one.
    const XdpSocket* first{nullptr};
  };

  /// Throws Error. If the interface has no such queue, sets `exists` to false; the object cannot be
  /// used then.
  XdpSocket(const NetworkInterface& interface, Umem& umem, const Options& options, bool& exists);

  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  /// Whether the card writes directly to the memory.
  [[nodiscard]] bool zero_copy() const noexcept;

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
  /// Limit the number of free chunks that the kernel holds for this socket.
  void set_share(std::uint32_t chunks) noexcept { share_ = std::min(chunks, fill_->size()); }
  /// Return descriptors to the kernel, and give it free chunks.
  void refill() noexcept;
  /// With busy polling, let the kernel check for frames now.
  void look() noexcept;
  /// Whether the kernel has less than half of its share of free chunks.
  [[nodiscard]] bool starved() const noexcept;
  /// Number of frames that the kernel has dropped since the last call.
  std::uint64_t take_drops() noexcept;
  /// errno of an error of the interface; 0: none.
  int take_error() noexcept;

 private:
  void set(int option, const void* value, std::size_t size, const char* what);
  void bind_to_queue(const Options& options, bool& exists);
  void busy_poll();
  void wake() noexcept;

  NetworkInterface interface_;
  Umem& umem_;
  File socket_;
  bool busy_poll_;
  std::unique_ptr<SharedRing> received_;
  std::unique_ptr<SharedRing> fill_;
  std::uint32_t share_{0};
  std::uint32_t next_{0};
  std::uint32_t filled_{0};
  std::uint64_t drops_{0};
};

}  // namespace daqiri::packet

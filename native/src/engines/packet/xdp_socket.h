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

/// A ring that an AF_XDP socket shares with the kernel: one of both writes descriptors, the other
/// reads them.
class SharedRing {
 public:
  /// The ring at `page_offset`, of `size` descriptors of `element` bytes. It is not open where
  /// there is no memory for it: errno.
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

/// One poller.
class XdpSocket {
 public:
  struct Options {
    std::uint32_t queue{0};
    /// Descriptors of a ring; a power of two.
    std::uint32_t ring_size{0};
    /// The kernel copies frames to the memory, whatever the driver can.
    bool copy{false};
    /// The poller has a core of its own, and drives the card's queue there while it looks.
    bool busy_poll{false};
    /// The first socket of this memory; null: this is it.
    const XdpSocket* first{nullptr};
  };

  /// Throws Error. Where the interface has no such queue, `exists` becomes false and the object is
  /// of no use.
  XdpSocket(const NetworkInterface& interface, Umem& umem, const Options& options, bool& exists);

  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  /// The card writes to the memory itself.
  [[nodiscard]] bool zero_copy() const noexcept;

  /// Descriptors that wait.
  [[nodiscard]] std::uint32_t waiting() const noexcept {
    return received_->producer().load(std::memory_order_acquire) - next_;
  }
  /// The `i`th of these.
  [[nodiscard]] const xdp_desc& descriptor(std::uint32_t i) const noexcept {
    return received_->element<xdp_desc>(next_ + i);
  }
  /// The first `n` are done with. Known to the kernel from `refill` on.
  void advance(std::uint32_t n) noexcept { next_ += n; }
  /// From now on the kernel may have so many free chunks for it.
  void set_share(std::uint32_t chunks) noexcept { share_ = std::min(chunks, fill_->size()); }
  /// Let the kernel have the descriptors that were advanced over, and free chunks.
  void refill() noexcept;
  /// Have the kernel look for frames now, where it looks for itself only now and then.
  void look() noexcept;
  /// The kernel has less than half of the chunks that it may have.
  [[nodiscard]] bool starved() const noexcept;
  /// Frames that the kernel has dropped since the last call.
  std::uint64_t take_drops() noexcept;
  /// errno of what happened to the interface; 0: nothing.
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

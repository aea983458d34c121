/// Received frames through AF_XDP.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/packet/frame_ring.h"
#include "engines/packet/umem.h"
#include "engines/packet/xdp_attachment.h"
#include "engines/packet/xdp_socket.h"

namespace daqiri::packet {

/// The frames of an interface, or those of every n-th queue of its network card: one socket per
/// queue receives them, all in the same memory. The buffer number of a kept frame is the number of
/// its chunk.
class XdpRing final : public FrameRing {
 public:
  struct Options {
    /// Approximate size of the memory.
    std::uint64_t bytes{0};
    bool busy_poll{false};
    /// Queues of the card: this one, and every `of`-th after it. The card must have the first.
    std::uint32_t first{0};
    std::uint32_t of{1};
  };

  static constexpr std::uint64_t FEWEST_BYTES = 8U << 20U;

  /// Starts to receive frames. Throws Error.
  XdpRing(std::shared_ptr<XdpAttachment> attachment, const Options& options);
  ~XdpRing() override;

  /// Number of the card's queues that it reads.
  [[nodiscard]] std::size_t queues() const noexcept { return sockets_.size(); }
  /// Bytes for frames, and about how many the kernel needs in addition, for rings and chunks of
  /// each queue.
  [[nodiscard]] std::uint64_t frame_bytes() const noexcept { return umem_.bytes(); }
  [[nodiscard]] std::uint64_t kernel_bytes() const noexcept;

  [[nodiscard]] std::vector<int> fds() const override;
  [[nodiscard]] std::string path() const override;
  [[nodiscard]] const char* fixed_flows() const noexcept override {
    return attachment_->fixed_flows();
  }
  [[nodiscard]] bool in_driver() const noexcept override {
    return attachment_->mode() == XdpMode::NATIVE;
  }
  [[nodiscard]] std::string_view offload() const noexcept override { return "xdp"; }

  [[nodiscard]] std::uint64_t gathers_ns() const noexcept override {
    return std::max(GATHERS_NS, shares_.floor() * GATHERS_NS_A_CHUNK);
  }

  Frame peek() noexcept override;
  void advance() noexcept override;
  [[nodiscard]] bool worth_keeping() const noexcept override { return has_room(); }
  [[nodiscard]] bool has_room() const noexcept override {
    return umem_.kept() < umem_.chunks() / 2;
  }
  std::uint32_t keep(std::uint32_t times) noexcept override;
  [[nodiscard]] bool waits_for_memory() const noexcept override;
  std::uint32_t take_drops() noexcept override;
  [[nodiscard]] bool drops_uncounted() const noexcept override { return drops_uncounted_; }
  int balance() noexcept override;
  int take_error() noexcept override;
  void stop_arrivals() noexcept override;
  /// Of all rings of the interface.
  void stop() noexcept override;

  /// Any thread.
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept override {
    umem_.give(buffers, n);
  }

 private:
  /// At one chunk per 100 ns, this fills a quarter of the memory of a queue without traffic.
  static constexpr std::uint64_t GATHERS_NS_A_CHUNK = 25;
  /// More pieces than a frame of 64 KiB has.
  static constexpr std::size_t MOST_PIECES = 64;
  /// A frame may be this much older than the one before it, which another CPU has received.
  static constexpr std::uint64_t DISORDER_NS = 100'000;
  /// Descriptors of a socket to read before those of the next.
  static constexpr std::uint32_t TURN = 64;
  /// Number of chunks ahead whose headers are prefetched.
  static constexpr std::uint32_t LOOK_AHEAD = 4;
  /// What the kernel needs for a chunk and a queue (struct xdp_buff_xsk, Linux 6.18).
  static constexpr std::uint64_t NOTE_BYTES = 128;
  /// Least time between two exchanges of sockets.
  static constexpr std::uint64_t EXCHANGE_NS = 1'000'000'000;

  [[nodiscard]] const NetworkInterface& interface() const noexcept {
    return attachment_->interface();
  }
  /// Throws Error.
  void open_sockets(const Options& options);
  /// Get the chunks of an idle socket back: only the kernel can, when it closes the socket. Returns
  /// the descriptor of the queue's new socket; -1: it still has the old one.
  int exchange(std::size_t at) noexcept;
  /// Read the next frame of the current socket, if it is complete.
  bool read() noexcept;
  void next_socket() noexcept;
  void put_back(std::uint32_t chunk) noexcept;
  void put_back_all() noexcept;

  std::shared_ptr<XdpAttachment> attachment_;
  Umem umem_;
  bool zero_copy_{false};
  /// In the order of the card's queues.
  std::vector<std::unique_ptr<XdpSocket>> sockets_;
  XdpSocket::Options options_;

  // --- Poller.
  std::size_t turn_{0};
  std::uint32_t left_{0};
  /// The next frame, if it has data, and the number of its descriptors.
  Frame frame_;
  std::uint32_t pieces_{0};
  bool kept_{false};
  std::array<iovec, MOST_PIECES> rest_;
  /// Of each socket, the time of its latest frame that has one (CLOCK_MONOTONIC).
  std::vector<std::uint64_t> latest_ns_;
  /// When the descriptors of this turn were there.
  std::uint64_t looked_ns_{0};
  /// CLOCK_REALTIME - CLOCK_MONOTONIC.
  std::uint64_t clock_offset_{0};
  std::array<std::uint32_t, std::size_t{2} * TURN> returned_;
  std::uint32_t num_returned_{0};
  bool drops_uncounted_{false};
  /// After an exchange of sockets, a queue of the card could not be bound.
  bool queue_lost_{false};
  XdpShares shares_;
  /// By socket.
  std::vector<std::uint32_t> arrived_;
  std::vector<XdpShares::Holding> holdings_;
  std::uint64_t exchanged_ns_{0};
  bool stopped_{false};
};

}  // namespace daqiri::packet

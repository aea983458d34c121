/// The XDP program of an interface, whose sockets several threads may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "engines/packet/interface.h"
#include "engines/packet/xdp_filter.h"
#include "engines/packet/xdp_program.h"
#include "system/file.h"

namespace daqiri::packet {

/// Redirects the frames of an interface, before the kernel processes them, to the sockets that are
/// set; other frames go to the kernel.
class XdpAttachment {
 public:
  /// `or_generic`: if the driver cannot run the program, let the kernel run it. Throws Error.
  XdpAttachment(const NetworkInterface& interface, const XdpFilter& filter, bool or_generic);

  [[nodiscard]] const NetworkInterface& interface() const noexcept { return interface_; }
  [[nodiscard]] XdpProgram& program() noexcept { return program_; }
  /// Queues of the network card, as reported by its driver; 0: not reported.
  [[nodiscard]] std::uint32_t queues_told() const noexcept { return queues_told_; }
  /// Most queues that the card may have.
  [[nodiscard]] std::uint32_t most_queues() const noexcept {
    return queues_told_ > 0 ? queues_told_ : MOST_UNTOLD;
  }
  [[nodiscard]] XdpMode mode() const noexcept { return mode_; }
  /// Why the driver does not run the program; empty: it does.
  [[nodiscard]] const std::string& why_generic() const noexcept { return why_generic_; }

  // --- Any thread.

  [[nodiscard]] const char* fixed_flows() const noexcept;
  [[nodiscard]] bool detached() const noexcept { return detached_.load(std::memory_order_relaxed); }
  /// Error of the interface since the last call, of any thread; see FrameRing::take_error.
  /// `queue_lost`: a queue of the card can no longer be read.
  int take_error(bool queue_lost) noexcept;

  /// Detach the program.
  void stop() noexcept;

 private:
  /// Most queues to try if the driver does not report their number.
  static constexpr std::uint32_t MOST_UNTOLD = 64;

  void attach(bool or_generic);

  NetworkInterface interface_;
  /// Keeps the interface promiscuous, and is used to query its state.
  File watch_;
  std::uint32_t queues_told_;
  bool takes_any_flow_;
  XdpProgram program_;
  std::optional<XdpLink> link_;
  XdpMode mode_{XdpMode::NATIVE};
  std::string why_generic_;
  std::atomic<bool> detached_{false};
  std::atomic<bool> was_up_{true};
};

}  // namespace daqiri::packet

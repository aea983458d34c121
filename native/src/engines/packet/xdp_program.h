/// An XDP program on an interface, for the lifetime of the process (bpf(2)).
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engines/packet/interface.h"
#include "engines/packet/xdp_code.h"
#include "engines/packet/xdp_filter.h"
#include "system/file.h"

namespace daqiri::packet {

/// Where a program runs: in the driver, or in the kernel on copied frames.
enum class XdpMode : std::uint8_t { NATIVE, GENERIC };

/// Maps and code in the kernel. The program is not attached yet.
class XdpProgram {
 public:
  /// `queues`: number of the interface's queues that can have a socket. Throws Error.
  XdpProgram(const NetworkInterface& interface, const XdpFilter& filter, std::uint32_t queues,
             xdp_action otherwise = XDP_PASS);

  [[nodiscard]] int fd() const noexcept { return program_.fd(); }
  /// Send the frames of a NIC queue to this AF_XDP socket. Throws Error.
  void set_socket(std::uint32_t queue, int socket);
  /// Send the frames of a NIC queue to the kernel.
  void remove_socket(std::uint32_t queue) noexcept;
  /// Once it is not attached.
  void close() noexcept {
    for (File* each : {&sockets_, &tables_, &addresses_, &program_}) each->close();
  }

 private:
  NetworkInterface interface_;
  File sockets_;
  File tables_;
  File addresses_;
  File program_;
};

/// A program attached to an interface. It is detached with this object, and when the process ends,
/// even if it is killed.
class XdpLink {
 public:
  /// Throws Error and sets `refused` to errno.
  XdpLink(const NetworkInterface& interface, const XdpProgram& program, XdpMode mode, int& refused);

  /// False: another program has detached it, or the interface was removed.
  [[nodiscard]] bool attached() const noexcept;
  void detach() noexcept { link_.close(); }

 private:
  File link_;
};

/// Like packet_error, for AF_XDP.
Error xdp_error(const NetworkInterface& interface, const std::string& what, int error);

}  // namespace daqiri::packet

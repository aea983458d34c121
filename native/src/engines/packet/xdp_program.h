/// An XDP program on an interface, for as long as this process has it (bpf(2)).
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

/// Where a program runs: in the driver, or behind it, on frames that the kernel has copied.
enum class XdpMode : std::uint8_t { NATIVE, GENERIC };

/// Maps and the code that refers to them, in the kernel. Nothing runs it yet.
class XdpProgram {
 public:
  /// `queues`: of the interface, as many as may have a socket. Throws Error.
  XdpProgram(const NetworkInterface& interface, const XdpFilter& filter, std::uint32_t queues,
             xdp_action otherwise = XDP_PASS);

  [[nodiscard]] int fd() const noexcept { return program_.fd(); }
  /// Frames that come on a NIC queue go to this AF_XDP socket. Throws Error.
  void set_socket(std::uint32_t queue, int socket);
  /// All frames go to the kernel.
  void remove_sockets() noexcept;

 private:
  NetworkInterface interface_;
  std::uint32_t queues_;
  File sockets_;
  File tables_;
  File addresses_;
  File program_;
};

/// A program that runs on every frame of an interface. It is gone with this object and with this
/// process, however that ends.
class XdpLink {
 public:
  /// Throws Error; `refused` is errno then.
  XdpLink(const NetworkInterface& interface, const XdpProgram& program, XdpMode mode, int& refused);

  /// False: somebody has detached it, or the interface was removed.
  [[nodiscard]] bool attached() const noexcept;
  void detach() noexcept { link_.close(); }

 private:
  File link_;
};

/// As packet_error, of AF_XDP.
Error xdp_error(const NetworkInterface& interface, const std::string& what, int error);

}  // namespace daqiri::packet

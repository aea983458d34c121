/// How many datagrams came to a socket, whether it had room for them or not.
#pragma once

#include <cstdint>

namespace daqiri::sockets {

/// Counts on arrival, in the kernel.
///
/// A socket's own counter of drops says one for a whole batch of datagrams that came
/// together (UDP_GRO). This one, a socket filter in eBPF that lets everything pass, tells how many
/// there were: gso_segs of each packet of the kernel's. It needs CAP_BPF (root has it), or a kernel
/// with kernel.unprivileged_bpf_disabled=0.
class UdpArrivals {
 public:
  UdpArrivals() noexcept = default;
  UdpArrivals(const UdpArrivals&) = delete;
  UdpArrivals& operator=(const UdpArrivals&) = delete;
  ~UdpArrivals();

  /// Count at `fd` from now on. False where the kernel does not allow it.
  bool attach(int fd) noexcept;
  [[nodiscard]] bool attached() const noexcept { return count_ != nullptr; }
  /// Datagrams that came since `attach`, in any order with those being queued at this moment.
  [[nodiscard]] std::uint64_t count() const noexcept;

 private:
  /// In memory shared with the kernel.
  std::uint64_t* count_{nullptr};
};

}  // namespace daqiri::sockets

/// A UDP socket with the configuration of an interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daqiri/config.h"
#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri::sockets {

struct UnmapArrivals {
  void operator()(std::uint64_t* count) const noexcept;
};
/// Datagrams that came since counting began, in any order with those being queued at this moment;
/// in memory shared with the kernel: to be read with std::atomic_ref.
using UdpArrivals = std::unique_ptr<std::uint64_t, UnmapArrivals>;

/// Counts on arrival at `fd`, in the kernel. Null where the kernel does not allow it.
///
/// The drop counter of a socket counts a batch of merged datagrams (UDP_GRO) as one. This counter,
/// a socket filter in eBPF that passes all packets, counts the datagrams: gso_segs of each packet
/// of the kernel. It requires CAP_BPF (root has it), or a kernel with
/// kernel.unprivileged_bpf_disabled=0.
UdpArrivals count_arrivals(int fd) noexcept;

/// Index of the network interface of a group, by the `address` of the configuration's interface; 0:
/// the kernel chooses. Throws Error INVALID_PARAMETER.
unsigned group_interface(const std::string& interface, const std::string& address,
                         const SocketAddress& group);

/// What a queue whose packets are in these regions asks the kernel to hold.
std::uint64_t receive_buffer_for(std::span<const MemoryRegionConfig* const> regions) noexcept;

/// Non-blocking and close-on-exec. A server is bound to `local_addr`, alone on its port; a client
/// is connected to `remote_addr`, so that the kernel passes it that peer's datagrams only. A server
/// whose address is a multicast group joins it; other sockets may join it, too.
class UdpSocket {
 public:
  /// Throws Error naming the interface, the address, the errno text and the fix: INVALID_PARAMETER
  /// for addresses that cannot be used together, CONNECT_FAILURE when the kernel refuses.
  /// `shared`: one of several sockets at the same address, over which the kernel spreads peers.
  UdpSocket(const InterfaceConfig& interface, bool shared);
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  /// Ask for `bytes` of receive buffer, never less than the default; a warning is logged when the
  /// kernel grants less. Stamp datagrams on arrival, and take them together as they were sent
  /// (UDP_GRO).
  void prepare_receive(std::uint64_t bytes);
  void close() noexcept { socket_.close(); }

  /// -1 when closed.
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] bool client() const noexcept { return remote_.given(); }
  [[nodiscard]] const SocketAddress& local() const noexcept { return local_; }
  /// No address for a server.
  [[nodiscard]] const SocketAddress& remote() const noexcept { return remote_; }
  /// Index of the network interface that packets to a group leave by; 0: not set, or no group.
  [[nodiscard]] unsigned multicast_egress() const noexcept { return multicast_egress_; }
  /// What the kernel dropped at this socket since it was made, modulo 2^32: datagrams, but a
  /// batch that came as one (UDP_GRO) counts once.
  [[nodiscard]] std::uint32_t kernel_drops() const noexcept;
  /// Whether `arrived` is known here.
  [[nodiscard]] bool counts_arrivals() const noexcept { return arrivals_ != nullptr; }
  /// Log, once, that more may have been lost than `kernel_drops` tells, where arrivals are not
  /// counted.
  void warn_of_uncounted_drops() noexcept;
  /// Datagrams that were to be read since the socket was made, dropped ones included.
  [[nodiscard]] std::uint64_t arrived() const noexcept {
    return std::atomic_ref(*arrivals_).load(std::memory_order_acquire) - foreign_;
  }

 private:
  void bind(const std::string& network_interface, bool shared);
  void connect(const std::string& network_interface, const SocketAddress& remote);
  unsigned choose_multicast_interface(const SocketAddress& group, const std::string& address);

  std::string interface_;
  File socket_;
  /// What is to be logged of drops that are of batches (UDP_GRO), whose sizes arrivals would tell.
  std::string uncounted_;
  UdpArrivals arrivals_;
  /// From others than the peer, thrown away before the client was connected.
  std::uint64_t foreign_{0};
  SocketAddress local_;
  SocketAddress remote_;
  unsigned multicast_egress_{0};
};

/// Holds an address for several sockets that share it (SO_REUSEPORT), which the kernel would also
/// let share it with anybody else's, and deal out datagrams among them all. Throws Error
/// CONNECT_FAILURE where another socket has the address, or another engine holds it.
File claim_address(const std::string& interface, const SocketAddress& address);

}  // namespace daqiri::sockets

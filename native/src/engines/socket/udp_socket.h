/// A UDP socket with the configuration of an interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daqiri/config.h"
#include "engines/socket/udp_statistics.h"
#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri::sockets {

struct UnmapArrivals {
  void operator()(std::uint64_t* count) const noexcept;
};
/// Datagrams that have arrived since counting began, possibly including some that are just being
/// queued; in memory shared with the kernel: read it with std::atomic_ref.
/// A second number follows: rejected copies.
using UdpArrivals = std::unique_ptr<std::uint64_t, UnmapArrivals>;

/// Counts arrivals at `fd` in the kernel. Null if the kernel does not permit it.
///
/// The drop counter of a socket counts a batch of merged datagrams (UDP_GRO) as one. This counter,
/// a socket filter in eBPF that passes all packets, counts the datagrams: gso_segs of each packet
/// of the kernel. It requires CAP_BPF (root has it), or a kernel with
/// kernel.unprivileged_bpf_disabled=0. It rejects IPv4 datagrams to the addresses `rejected` (in
/// host order), and counts them apart.
UdpArrivals count_arrivals(int fd, std::span<const std::uint32_t> rejected = {}) noexcept;

/// Whether a socket is the only one at its address, or one of several, among which the kernel
/// distributes peers. Of these, the first receives what is sent by broadcast and multicast. The
/// kernel copies that to each; the further ones keep it out as far as the kernel can: broadcast to
/// the addresses that the host has when they are opened, if arrivals are counted.
enum class Sharing { ALONE, FIRST, FURTHER };

/// Index of the network interface of a group, by the `address` of the configuration's interface; 0:
/// the kernel chooses. Throws Error INVALID_PARAMETER.
unsigned group_interface(const std::string& interface, const std::string& address,
                         const SocketAddress& group);

/// Receive buffer to request from the kernel for a queue whose packets are in these regions.
std::uint64_t receive_buffer_for(std::span<const MemoryRegionConfig* const> regions) noexcept;

/// Non-blocking and close-on-exec. A server is bound to `local_addr`, with exclusive use of its
/// port; a client is connected to `remote_addr`, so that the kernel delivers only that peer's
/// datagrams. A server whose address is a multicast group joins it; other sockets can join it, too.
class UdpSocket {
 public:
  /// Throws Error with the interface, the address, the errno text and the remedy: INVALID_PARAMETER
  /// for addresses that cannot be used together, CONNECT_FAILURE if the kernel rejects them.
  UdpSocket(const InterfaceConfig& interface, Sharing sharing);
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  /// Request `bytes` of receive buffer, at least the default; logs a warning if the kernel grants
  /// less. Enables timestamps on arrival and merged datagrams (UDP_GRO).
  void prepare_receive(std::uint64_t bytes);
  /// Have the kernel report what becomes of sent packets: ENOBUFS of a queueing discipline that
  /// refuses one, which is otherwise a success, and the errors that routers and hosts send back.
  void report_refusals() noexcept;
  /// Any thread, after a call that returned an error: forget the reports of earlier packets, for
  /// which poll(2) shows the socket as readable.
  void discard_reports() const noexcept;
  /// Discard the datagrams that have arrived.
  void discard_waiting() noexcept;
  /// Have the kernel tell the destination of each datagram.
  void report_destinations() noexcept;
  void close() noexcept { socket_.close(); }

  /// -1 if closed.
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] bool client() const noexcept { return remote_.given(); }
  [[nodiscard]] const SocketAddress& local() const noexcept { return local_; }
  /// No address for a server.
  [[nodiscard]] const SocketAddress& remote() const noexcept { return remote_; }
  /// Index of the network interface for packets to a group; 0: not set, or no group.
  [[nodiscard]] unsigned multicast_egress() const noexcept { return multicast_egress_; }
  /// Drops of the kernel at this socket since it was made, modulo 2^32: datagrams, but each merged
  /// batch (UDP_GRO) counts once. Datagrams with a wrong checksum are contained, rejected copies
  /// are not; while one is being rejected, the result is too low. `otherwise`: the result if the
  /// socket is closed.
  [[nodiscard]] std::uint32_t kernel_drops(std::uint32_t otherwise) const noexcept;
  /// Whether `arrived` is available.
  [[nodiscard]] bool counts_arrivals() const noexcept { return arrivals_ != nullptr; }
  /// If arrivals are not counted, log once that more may have been lost than `kernel_drops` shows.
  void warn_of_uncounted_drops() noexcept;
  /// If datagrams had wrong checksums since the socket was made, log that once. Call after drops;
  /// reads the kernel's statistics at most once a second.
  void warn_of_wrong_checksums() noexcept;
  /// Datagrams that have arrived since the socket was made, including dropped ones.
  [[nodiscard]] std::uint64_t arrived() const noexcept {
    return std::atomic_ref(*arrivals_).load(std::memory_order_acquire) - foreign_;
  }

 private:
  void bind(const std::string& network_interface, bool shared);
  void connect(const std::string& network_interface, const SocketAddress& remote);
  unsigned choose_multicast_interface(const SocketAddress& group, const std::string& address);

  std::string interface_;
  File socket_;
  /// Warning to log for drops of batches (UDP_GRO), if arrivals are not counted.
  std::string uncounted_;
  bool reports_{false};
  UdpArrivals arrivals_;
  /// Of `local_`.
  std::string uri_;
  /// When the socket was made.
  UdpStatistics before_;
  bool warned_of_checksums_{false};
  /// Time of the last reading of statistics (CLOCK_MONOTONIC ns).
  std::uint64_t checked_{0};
  /// Datagrams of other senders, or for other sockets, that arrived before the socket was ready.
  std::uint64_t foreign_{0};
  SocketAddress local_;
  SocketAddress remote_;
  unsigned multicast_egress_{0};
};

/// Holds an address for several sockets that share it (SO_REUSEPORT). Otherwise the kernel would
/// let sockets of other programs share it, and distribute datagrams among all of them. Throws Error
/// CONNECT_FAILURE if another socket has the address, or another engine holds it.
File claim_address(const std::string& interface, const SocketAddress& address);

}  // namespace daqiri::sockets

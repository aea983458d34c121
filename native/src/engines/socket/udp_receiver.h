/// Datagrams from a UDP socket to the queues of its interface.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engines/socket/udp_peers.h"
#include "engines/socket/udp_slots.h"
#include "engines/socket/udp_socket.h"
#include "io/port.h"

namespace daqiri::sockets {

/// Reads up to 64 datagrams, or up to 8 GRO batches of them, per system call, straight into buffers
/// taken beforehand, and delivers each to the queue that its flow names, in a burst of its peer.
///
/// The queues share one list of memory regions and one poller, because a buffer is chosen before
/// its datagram is known. Whatever the kernel passes on is read and counted: without buffers,
/// datagrams are discarded as no_packet_buffer. What the kernel dropped is counted with the next
/// datagram read, as one for each GRO batch, and in full when nothing is left to read, where the
/// socket knows what arrived.
class UdpReceiver {
 public:
  /// Peers of a receiver; the one received from least recently makes room for the next.
  static constexpr std::size_t MAX_PEERS = 65'536;

  /// The port's queue at position `number` has the poller that reads the socket, and gets the
  /// datagrams without a flow; `number` is also that of the receiver.
  UdpReceiver(const Port& port, UdpSocket& socket, UdpPeers& peers, std::size_t number);
  UdpReceiver(const UdpReceiver&) = delete;
  UdpReceiver& operator=(const UdpReceiver&) = delete;

  /// Poller of the queues. Datagrams seen.
  std::uint32_t receive() noexcept;
  /// Give unused buffers back; after the poller has ended.
  void close() noexcept;

 private:
  /// What the poller knows of a peer.
  struct Sender {
    UdpPeers::Peer peer;
    /// By position of the queue; null until it is used there.
    std::vector<RxSource*> sources;
  };
  using Senders = std::list<Sender>;

  [[nodiscard]] RxQueue& first_queue() const noexcept { return *queues_[number_]; }
  /// Messages read into the slots.
  std::uint32_t read(std::uint32_t slots) noexcept;
  void count_kernel_drops() noexcept;
  void finish_kernel_drops() noexcept;
  void count_lost_batches(std::uint64_t arrived) noexcept;
  /// `now`: time at which the system call returned, CLOCK_REALTIME ns.
  void accept(std::uint32_t slot, const UdpMessage& message, std::uint64_t now) noexcept;
  void deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
               std::uint32_t end, Sender* sender, std::uint64_t timestamp) noexcept;
  /// Who sent the message in the slot; null: nothing is to be kept of it, or there is no memory to
  /// know it.
  Sender* sender_of(std::uint32_t slot) noexcept;
  Sender* enter(const AddressKey& address) noexcept;
  void evict_earliest() noexcept;
  RxSource& source_of(Sender* sender, std::size_t position) noexcept;

  UdpSocket& socket_;
  UdpPeers& peers_;
  const std::vector<std::unique_ptr<RxQueue>>& queues_;
  std::size_t number_;
  steering::Steering::Reader steering_;
  /// Position among the port's queues by queue id.
  std::vector<std::uint16_t> position_;
  UdpSlots slots_;
  /// By when they were received from, the latest last.
  Senders senders_;
  std::unordered_map<AddressKey, Senders::iterator, UdpPeers::Hash> by_address_;
  std::uint32_t kernel_drops_seen_{0};
  /// Datagrams read, and counted as dropped by the kernel.
  std::uint64_t read_{0};
  std::uint64_t lost_{0};
  /// Drops were seen, of which it is not known how many datagrams they were.
  bool drops_unfinished_{false};
  /// Arrivals as they have been since a time (CLOCK_MONOTONIC ns) with nothing to read.
  std::uint64_t arrived_{0};
  std::uint64_t arrived_since_{0};
};

}  // namespace daqiri::sockets

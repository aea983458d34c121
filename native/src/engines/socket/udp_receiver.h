/// Datagrams from a UDP socket to the queues of its interface.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "engines/socket/peer_channels.h"
#include "engines/socket/udp_slots.h"
#include "engines/socket/udp_socket.h"
#include "io/port.h"

namespace daqiri::sockets {

/// Reads up to 64 datagrams, or up to 8 rows of them, per system call, straight into buffers taken
/// beforehand, and hands each to the queue that its flow names and to the channel of its peer.
///
/// The queues share one list of memory regions and one poller, because a buffer is chosen before
/// its datagram is known. Whatever the kernel passes on is read and counted: without buffers,
/// datagrams are discarded as no_packet_buffer. What the kernel dropped is counted with the next
/// datagram read, as one for each row of datagrams, and in full when nothing is left to read, where
/// the socket knows what arrived.
class UdpReceiver {
 public:
  /// `number`: of this receiver among those of `peers`. The queue at that position has the poller
  /// that reads the socket, and gets the datagrams without a flow.
  UdpReceiver(const Port& port, UdpSocket& socket, PeerChannels& peers, std::size_t number);
  UdpReceiver(const UdpReceiver&) = delete;
  UdpReceiver& operator=(const UdpReceiver&) = delete;

  /// Poller of the queues. Datagrams seen.
  std::uint32_t receive() noexcept;
  /// Give unused buffers back; after the poller has ended.
  void close() noexcept;

  [[nodiscard]] const UdpSocket& socket() const noexcept { return socket_; }
  /// The queue whose `IoEngine::receive` reads the socket.
  [[nodiscard]] RxQueue& first_queue() const noexcept { return *peers_.queues()[number_]; }

 private:
  /// Who sent a message; its peer is not known() where that was not asked for and it is new.
  struct Sender {
    AddressKey key{};
    Peer peer;
  };

  std::uint32_t read(mmsghdr* messages, std::uint32_t slots) noexcept;
  std::uint32_t discard() noexcept;
  void count_kernel_drops() noexcept;
  void settle_kernel_drops() noexcept;
  void count_lost_rows(std::uint64_t arrived) noexcept;
  /// Times at which the system call returned: CLOCK_REALTIME and CLOCK_MONOTONIC ns.
  void accept(std::uint32_t slot, const UdpMessage& message, std::uint64_t now,
              std::uint64_t heard) noexcept;
  void deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
               std::uint32_t end, const Sender& sender, std::uint64_t timestamp) noexcept;
  const Sender& sender_of(std::uint32_t slot, std::uint64_t heard) noexcept;
  const Sender& unlearnt_sender_of(std::uint32_t slot) noexcept;
  void settle_evicted() noexcept;
  [[nodiscard]] steering::Verdict classify(const Sender& sender,
                                           std::uint32_t length) const noexcept;

  UdpSocket& socket_;
  PeerChannels& peers_;
  std::size_t number_;
  const steering::Classifier* classifier_;
  /// False: no flows, everything goes to the first queue.
  bool steered_;
  /// Unmatched datagrams are filtered instead of going to the first queue.
  bool isolated_;
  /// Position among the port's queues by queue id.
  std::vector<std::uint16_t> position_;
  UdpSlots slots_;
  Sender last_;
  /// Peers that had made room when `last_` was looked up, and when rings were given up last.
  std::uint64_t evictions_{0};
  std::uint64_t evictions_settled_{0};
  std::uint32_t kernel_drops_seen_{0};
  /// Datagrams read, and counted as dropped by the kernel.
  std::uint64_t read_{0};
  std::uint64_t lost_{0};
  /// Drops were seen, of which it is not known how many datagrams they were.
  bool unsettled_{false};
  /// Arrivals as they have been since a time (CLOCK_MONOTONIC ns) with nothing to read.
  std::uint64_t arrived_{0};
  std::uint64_t arrived_since_{0};
};

}  // namespace daqiri::sockets

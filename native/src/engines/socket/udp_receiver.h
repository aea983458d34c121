/// Datagrams from a UDP socket to the queues of its interface.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engines/socket/peer_channels.h"
#include "engines/socket/udp_socket.h"
#include "session/port.h"

namespace daqiri::sockets {

/// Reads up to 64 datagrams per system call, straight into buffers taken beforehand, and hands each
/// to the queue that its flow names and to the channel of its peer.
///
/// The queues share one list of memory regions and one poller, because a buffer is chosen before
/// its datagram is known. Whatever the kernel passes on is read and counted: without buffers,
/// datagrams are discarded as no_packet_buffer.
class UdpReceiver {
 public:
  static constexpr std::uint32_t BATCH = 64;

  /// Throws Error INVALID_PARAMETER, naming the queues, when they cannot share a socket.
  UdpReceiver(const Port& port, const UdpSocket& socket, PeerChannels& peers);
  UdpReceiver(const UdpReceiver&) = delete;
  UdpReceiver& operator=(const UdpReceiver&) = delete;

  /// Poller of the queues. Datagrams seen.
  std::uint32_t receive() noexcept;
  /// Give unused buffers back; after the poller has ended.
  void close() noexcept;

  /// The queue whose `IoEngine::receive` reads the socket.
  [[nodiscard]] RxQueue& first_queue() const noexcept { return *peers_.queues().front(); }

 private:
  struct Sender {
    AddressKey key{};
    std::uint32_t peer{PeerTable::NONE};
  };

  [[nodiscard]] memory::MemoryRegion& region(std::uint32_t segment) const noexcept {
    return first_queue().region(static_cast<int>(segment));
  }
  void fill() noexcept;
  void bind(std::uint32_t slot, std::uint32_t segment, std::uint32_t buffer) noexcept;
  void reset(std::uint32_t slot) noexcept;
  std::uint32_t read(std::uint32_t slots) noexcept;
  std::uint32_t discard() noexcept;
  void count_kernel_drops() noexcept;
  bool accept(std::uint32_t slot, std::uint64_t now) noexcept;
  void cut(ReceivedPacket& packet, RxQueue& queue, std::uint32_t length) noexcept;
  const Sender& sender_of(std::uint32_t slot, bool learn_new) noexcept;
  [[nodiscard]] steering::Verdict classify(const Sender& sender,
                                           std::uint32_t length) const noexcept;
  [[nodiscard]] std::uint64_t timestamp_of(std::uint32_t slot) noexcept;

  /// Room for the timestamp and one more, should somebody switch it on.
  struct alignas(cmsghdr) Control {
    std::byte bytes[CMSG_SPACE(sizeof(timespec)) * 2];
  };

  const UdpSocket& socket_;
  PeerChannels& peers_;
  const steering::Classifier* classifier_;
  /// False: no flows, everything goes to the first queue.
  bool steered_;
  /// Unmatched datagrams are filtered instead of going to the first queue.
  bool isolated_;
  /// Position among the port's queues by queue id.
  std::vector<std::uint16_t> position_;
  std::uint32_t segments_;

  // One slot per datagram of a call; slots [0, ready_) have buffers.
  std::array<mmsghdr, BATCH> messages_{};
  std::array<iovec, std::size_t{BATCH} * MAX_NUM_SEGS> vectors_{};
  std::array<SocketAddress, BATCH> names_{};
  std::array<Control, BATCH> controls_{};
  std::array<ReceivedPacket, BATCH> packets_{};
  std::uint32_t ready_{0};
  /// Slots below ready_ whose buffers were delivered, ascending.
  std::array<std::uint32_t, BATCH> vacant_{};
  std::uint32_t num_vacant_{0};
  /// By segment: buffers taken for the vacant slots.
  std::array<std::array<std::uint32_t, BATCH>, MAX_NUM_SEGS> taken_{};

  Sender last_;
  std::uint32_t kernel_drops_seen_{0};
};

}  // namespace daqiri::sockets

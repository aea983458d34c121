/// Datagrams between a UDP socket and the queues of its interface.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engines/socket/sockets.h"
#include "engines/socket/udp_launch.h"
#include "engines/socket/udp_peers.h"
#include "engines/socket/udp_socket.h"
#include "io/io_engine.h"
#include "system/socket_events.h"

namespace daqiri::sockets {

/// What the kernel put into a slot: one datagram, or a row of them (UDP_GRO).
struct UdpMessage {
  /// Datagrams, all of `segment` bytes but the last.
  std::uint32_t count{0};
  std::uint32_t segment{0};
  std::uint32_t last{0};
  std::uint32_t bytes{0};
  /// Kernel's receive time, CLOCK_REALTIME ns; 0: none.
  std::uint64_t timestamp{0};

  [[nodiscard]] std::uint32_t length(std::uint32_t packet) const noexcept {
    return packet + 1 == count ? last : segment;
  }
  [[nodiscard]] std::uint64_t bytes_of(std::uint32_t first, std::uint32_t end) const noexcept {
    return std::uint64_t{end - first} * segment - (end == count ? segment - last : 0);
  }
};

/// The slots of a recvmmsg(2), whose data land in buffers taken beforehand.
///
/// Two layouts, chosen by what arrives. Datagrams that come singly: many slots of one packet each.
/// Rows of datagrams: few slots, each a row of buffers of which every one takes as many bytes as
/// the datagrams of the latest row had. While that stays so, no byte is moved. Behind its buffers a
/// slot has room for a whole message, so that one of another make is complete too and is cut into
/// packets by copying.
class UdpSlots {
 public:
  /// All buffers come from the regions of `queue`. `named`: the kernel tells who sent a message.
  UdpSlots(const RxQueue& queue, bool named);
  UdpSlots(const UdpSlots&) = delete;
  UdpSlots& operator=(const UdpSlots&) = delete;

  /// Take buffers for those that were used, and lay the slots out as the latest messages ask.
  /// Returns how many slots are ready.
  std::uint32_t fill() noexcept;
  /// There is no buffer: the slots tell what a message is, and lose its data.
  [[nodiscard]] bool blank() const noexcept { return ready_ == 0; }
  /// Give unused buffers back.
  void close() noexcept;

  /// Longest packet that is not cut.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] mmsghdr* messages() noexcept { return messages_.data(); }
  static constexpr std::uint32_t MAX_SLOTS = 64;

  /// Who sent the message in `slot`.
  [[nodiscard]] AddressKey sender(std::uint32_t slot) const noexcept { return names_[slot].key(); }
  /// The latest call filled the first `slots`. What is in each is told once; then its header is as
  /// it was before.
  void received(std::uint32_t slots) noexcept { received_ = slots; }
  UdpMessage open(std::uint32_t slot) noexcept;

  /// Make packets [first, end) of the slot's message, or as many of them as go in one batch of
  /// equal length. Slots, and packets of a slot, in ascending order. Returns how many `batch` has:
  /// 0 when there is no buffer.
  std::uint32_t place(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                      std::uint32_t end, RxBatch& batch) noexcept;

 private:
  static constexpr std::uint32_t ROW_SLOTS = 8;
  static constexpr std::uint32_t MAX_ROW = 128;
  static constexpr std::uint32_t MAX_PLACES = ROW_SLOTS * MAX_ROW;
  static constexpr std::uint32_t MAX_MESSAGE = 65536;
  using Numbers = std::array<std::uint32_t, MAX_PLACES>;
  /// Room for the timestamp, the segment size, and others that somebody may switch on.
  struct alignas(cmsghdr) Control {
    std::byte bytes[256];
  };

  void lay_out(std::uint32_t segment, std::uint32_t row, std::uint32_t slots) noexcept;
  void choose_layout() noexcept;
  void compact() noexcept;
  void vacate(std::uint32_t first, std::uint32_t count) noexcept;
  /// Buffers for up to `n` packets in `taken_`, also those of slots not filled.
  std::uint32_t take_spare(std::uint32_t n) noexcept;
  void bind(std::uint32_t first, std::uint32_t count) noexcept;
  void end_last_slot() noexcept;
  void reset(msghdr& header) const noexcept;
  UdpMessage read(mmsghdr& message) noexcept;
  void stage(std::uint32_t slot, std::uint32_t bytes) noexcept;
  void copy_out(const std::byte* data, std::uint32_t length, const Numbers* numbers,
                std::uint32_t at) const noexcept;
  void cut(std::uint32_t length, std::uint32_t* lengths) const noexcept;
  [[nodiscard]] std::byte* overflow(std::uint32_t slot) const noexcept {
    return &overflow_[std::size_t{slot} * MAX_MESSAGE];
  }
  /// Packets of the slot that have buffers.
  [[nodiscard]] std::uint32_t places_of(std::uint32_t slot) const noexcept {
    return std::min(row_, ready_ - slot * row_);
  }

  const RxQueue& queue_;
  std::uint32_t segments_;
  std::uint32_t capacity_{0};
  /// Buffers that may wait here for datagrams.
  std::uint32_t share_{0};

  std::array<mmsghdr, MAX_SLOTS> messages_{};
  std::array<SocketAddress, MAX_SLOTS> names_{};
  std::array<Control, MAX_SLOTS> controls_{};
  std::vector<iovec> vectors_;
  std::unique_ptr<std::byte[]> overflow_;
  /// A message in one piece.
  std::unique_ptr<std::byte[]> staging_;
  /// Slot whose message lies in `staging_`; MAX_SLOTS: none.
  std::uint32_t staged_{MAX_SLOTS};

  [[nodiscard]] std::uint32_t vectors_per_slot() const noexcept { return row_ * segments_ + 1; }

  // Layout: `row_` places per slot, each of as many vectors as segments, for `length_` bytes.
  std::uint32_t length_{0};
  std::uint32_t row_{1};
  std::uint32_t slots_{0};
  std::array<std::uint32_t, MAX_NUM_SEGS> piece_lengths_{};

  struct Places {
    std::uint32_t first;
    std::uint32_t count;
  };
  /// Places [0, ready_) have buffers, but for the vacant ones, which are ascending.
  std::array<Numbers, MAX_NUM_SEGS> buffers_{};
  std::uint32_t ready_{0};
  std::uint32_t received_{0};
  /// At most one for each slot, and one behind them.
  std::array<Places, MAX_SLOTS + 1> vacant_{};
  std::uint32_t num_vacant_{0};
  /// Taken for packets that have no place.
  std::array<Numbers, MAX_NUM_SEGS> taken_{};

  // Seen since `fill`: the latest row of datagrams, and messages of one.
  std::uint32_t row_segment_{0};
  std::uint32_t row_count_{0};
  std::uint32_t singles_{0};
};

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
  steering::FlowTally& tally_;
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

/// Sends up to 512 packets per system call, straight from their buffers. One per transmit queue,
/// because queues may have different workers.
///
/// Neighbours of equal length (the last may be shorter) go to the kernel as one message, which it
/// or the device cuts into datagrams (UDP_SEGMENT). Where that is refused, datagrams go singly, and
/// packets of that length are not offered again. With launch times in the kernel, a message has
/// one.
class UdpSender {
 public:
  static constexpr std::uint32_t BATCH = 512;

  /// `max_payload`: 0, or the configured limit in bytes. `connection`: a client's, or the id that
  /// means a server's socket itself, as 0 does. `launch`: null where the worker keeps launch times.
  UdpSender(const UdpSocket& socket, const UdpPeers& peers, std::uint32_t max_payload,
            std::uintptr_t connection, UdpLaunch* launch);

  /// As PortIo::transmit. A client sends to its peer, a server to the peer of the burst's
  /// connection, or (connection 0) to the one received from last. Packets without a peer or
  /// beyond the limit fail. What a full socket does not take, or the kernel before its launch time,
  /// is left with the worker, which watches `fd`.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Readable when packets that were not taken may be.
  [[nodiscard]] int fd() const noexcept { return events_.fd(); }

 private:
  static constexpr std::uint32_t MESSAGES = 64;
  /// What every kernel with UDP_SEGMENT takes in one message.
  static constexpr std::uint32_t MAX_SEGMENTS = 64;
  struct alignas(cmsghdr) Controls {
    std::byte stamp[CMSG_SPACE(sizeof(std::uint64_t))];
    std::byte segment[CMSG_SPACE(sizeof(std::uint16_t))];
  };

  bool find_destination(const Burst& burst) noexcept;
  void gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Packets that go as one message, which has this stamp.
  [[nodiscard]] std::uint32_t run_length(const Burst& burst, std::uint32_t first,
                                         std::uint32_t count, std::uint64_t stamp) const noexcept;
  void set_controls(std::uint32_t message, std::uint64_t stamp) noexcept;
  bool stop_segmenting(int error) noexcept;
  /// The kernel has taken so many messages.
  TransmitResult count_sent(std::size_t messages) noexcept;

  const UdpSocket& socket_;
  const UdpPeers& peers_;
  /// The kernel's limit on a message, and the configured one on a datagram.
  std::uint32_t max_message_;
  std::uint32_t max_length_;
  /// Packets below this length may be sent as segments.
  std::uint32_t segment_limit_;
  std::uintptr_t connection_;
  UdpLaunch* launch_;
  SocketAddress destination_;
  /// Of the latest burst to a peer, whose address it was.
  std::uintptr_t latest_{0};
  SocketAddress latest_address_;
  SocketEvents events_;
  bool waiting_{false};
  /// The first `gathered_` messages, and the packets, the segment length and the stamp of each.
  std::uint32_t gathered_{0};
  std::array<mmsghdr, MESSAGES> messages_{};
  std::array<std::uint32_t, MESSAGES> packets_{};
  std::array<std::uint32_t, MESSAGES> lengths_{};
  std::array<std::uint64_t, MESSAGES> stamps_{};
  std::array<Controls, MESSAGES> controls_{};
  std::array<iovec, std::size_t{BATCH} * MAX_NUM_SEGS> vectors_{};
};

}  // namespace daqiri::sockets

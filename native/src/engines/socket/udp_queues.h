/// Moves datagrams between a UDP socket and the queues of its interface.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engines/socket/sockets.h"
#include "engines/socket/udp_hand_over.h"
#include "engines/socket/udp_launch.h"
#include "engines/socket/udp_peers.h"
#include "engines/socket/udp_socket.h"
#include "io/io_engine.h"
#include "system/socket_events.h"

namespace daqiri::sockets {

/// Contents of a slot: one datagram, or a batch of them (UDP_GRO).
struct UdpMessage {
  /// Number of datagrams; all except the last have `segment` bytes.
  std::uint32_t count{0};
  std::uint32_t segment{0};
  std::uint32_t last{0};
  std::uint32_t bytes{0};
  /// Kernel's receive time, CLOCK_REALTIME ns; 0: none.
  std::uint64_t timestamp{0};
  /// Known if the socket reports destinations: sent by broadcast or multicast.
  bool to_many{false};

  [[nodiscard]] std::uint32_t length(std::uint32_t packet) const noexcept {
    return packet + 1 == count ? last : segment;
  }
  [[nodiscard]] std::uint64_t bytes_of(std::uint32_t first, std::uint32_t end) const noexcept {
    return std::uint64_t{end - first} * segment - (end == count ? segment - last : 0);
  }
};

/// The slots of a recvmmsg(2), which receives directly into buffers taken in advance.
///
/// There are two layouts, selected by the arriving messages. Single datagrams: many slots with one
/// packet each. Batches of datagrams: few slots, each with a row of buffers that hold as many bytes
/// as the datagrams of the latest batch had. While this length does not change, no byte is moved.
/// After its buffers, a slot has space for a whole message, so that a message of a different form
/// is also complete, and is cut into packets by copying.
class UdpSlots {
 public:
  /// All buffers come from the regions of `queue`. `named`: the kernel reports the sender of each
  /// message. `sharers`: number of objects that take buffers from these regions. `hands_over`:
  /// messages may be for regions of other queues, and are kept if there is no buffer.
  UdpSlots(const RxQueue& queue, bool named, std::size_t sharers, bool hands_over);
  UdpSlots(const UdpSlots&) = delete;
  UdpSlots& operator=(const UdpSlots&) = delete;

  /// Take buffers for used slots, and set the layout for the latest messages. Returns the number of
  /// ready slots.
  std::uint32_t fill() noexcept;
  /// Whether there is no buffer: messages are then read and counted, but nothing can be placed.
  [[nodiscard]] bool blank() const noexcept { return ready_ == 0; }
  /// Whether messages have data: there are buffers, or `whole` has them.
  [[nodiscard]] bool has_data() const noexcept { return !blank() || hands_over_; }
  /// Free unused buffers.
  void close() noexcept;

  /// Length of the longest packet that is not truncated.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] mmsghdr* messages() noexcept { return messages_.data(); }
  static constexpr std::uint32_t MAX_SLOTS = 64;

  /// Sender of the message in `slot`.
  [[nodiscard]] AddressKey sender(std::uint32_t slot) const noexcept { return names_[slot].key(); }
  /// The latest call has filled the first `slots`. `open` returns the contents of each once, and
  /// resets its header.
  void received(std::uint32_t slots) noexcept { received_ = slots; }
  UdpMessage open(std::uint32_t slot) noexcept;
  /// The first bytes of a packet of the slot opened last, at most MOST_FLEX_BYTES, possibly copied
  /// to `room`; none: its data are lost. Call before `place` of this packet.
  using Head = std::array<std::uint8_t, steering::MOST_FLEX_BYTES>;
  [[nodiscard]] std::span<const std::uint8_t> head(std::uint32_t slot, const UdpMessage& message,
                                                   std::uint32_t packet, Head& room) const noexcept;
  /// The message of the slot opened last, in one piece, of up to 64 KiB, until another one is
  /// opened; null: its data are lost. Call before `place`, whose packets have other owners.
  const std::byte* whole(std::uint32_t slot, const UdpMessage& message) noexcept;

  /// Fill `batch` with packets [first, end) of the slot's message, or with as many as have equal
  /// length. Call with ascending slots, and ascending packets per slot. Returns the number of
  /// packets in `batch`; 0: there is no buffer.
  std::uint32_t place(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                      std::uint32_t end, RxBatch& batch) noexcept;

 private:
  static constexpr std::uint32_t ROW_SLOTS = 8;
  static constexpr std::uint32_t MAX_ROW = 128;
  static constexpr std::uint32_t MAX_PLACES = ROW_SLOTS * MAX_ROW;
  static constexpr std::uint32_t MAX_MESSAGE = 65536;
  using Numbers = std::array<std::uint32_t, MAX_PLACES>;
  /// Space for the timestamp, the segment size, and others that the application may enable.
  struct alignas(cmsghdr) Control {
    std::byte bytes[256];
  };

  void lay_out(std::uint32_t segment, std::uint32_t row, std::uint32_t slots) noexcept;
  void choose_layout() noexcept;
  void compact() noexcept;
  void vacate(std::uint32_t first, std::uint32_t count) noexcept;
  /// Take buffers for up to `n` packets to `taken_`, also from slots that were not filled.
  std::uint32_t take_spare(std::uint32_t n) noexcept;
  void bind(std::uint32_t first, std::uint32_t count) noexcept;
  void end_last_slot() noexcept;
  void bind_overflows() noexcept;
  void point_to_vectors() noexcept;
  void reset(msghdr& header) const noexcept;
  UdpMessage read(mmsghdr& message) noexcept;
  void stage(std::uint32_t slot, std::uint32_t bytes) noexcept;
  void copy_out(const std::byte* data, std::uint32_t length, const Numbers* numbers,
                std::uint32_t at) const noexcept;
  void cut(std::uint32_t length, std::uint32_t* lengths) const noexcept;
  [[nodiscard]] std::byte* overflow(std::uint32_t slot) const noexcept {
    return &overflow_[std::size_t{slot} * MAX_MESSAGE];
  }
  /// Number of the slot's packets that have buffers.
  [[nodiscard]] std::uint32_t places_of(std::uint32_t slot) const noexcept {
    return std::min(row_, ready_ - slot * row_);
  }

  const RxQueue& queue_;
  std::uint32_t segments_;
  std::uint32_t capacity_{0};
  /// Most buffers that wait here for datagrams.
  std::uint32_t share_{0};
  bool hands_over_;

  std::array<mmsghdr, MAX_SLOTS> messages_{};
  std::array<SocketAddress, MAX_SLOTS> names_{};
  std::array<Control, MAX_SLOTS> controls_{};
  std::vector<iovec> vectors_;
  /// Of messages that are received without buffers, to be handed over.
  std::array<iovec, MAX_SLOTS> overflows_{};
  std::unique_ptr<std::byte[]> overflow_;
  /// A message in one piece.
  std::unique_ptr<std::byte[]> staging_;
  /// Slot whose message is in `staging_`; MAX_SLOTS: none.
  std::uint32_t staged_{MAX_SLOTS};

  [[nodiscard]] std::uint32_t vectors_per_slot() const noexcept { return row_ * segments_ + 1; }

  // Layout: `row_` places per slot, each with one vector per segment, for `length_` bytes.
  std::uint32_t length_{0};
  std::uint32_t row_{1};
  std::uint32_t slots_{0};
  std::array<std::uint32_t, MAX_NUM_SEGS> piece_lengths_{};

  struct Places {
    std::uint32_t first;
    std::uint32_t count;
  };
  /// Places [0, ready_) have buffers, except the vacant ones, which are in ascending order.
  std::array<Numbers, MAX_NUM_SEGS> buffers_{};
  std::uint32_t ready_{0};
  std::uint32_t received_{0};
  /// At most every second place, and those after them.
  std::array<Places, MAX_PLACES / 2 + 1> vacant_{};
  std::uint32_t num_vacant_{0};
  /// Buffers taken for packets without a place.
  std::array<Numbers, MAX_NUM_SEGS> taken_{};

  // Seen since `fill`: the latest batch of datagrams, and the number of single ones.
  std::uint32_t row_segment_{0};
  std::uint32_t row_count_{0};
  std::uint32_t singles_{0};
};

/// Reads up to 64 datagrams, or up to 8 GRO batches, per system call, directly into buffers taken
/// in advance, and delivers each to the queue of its flow, in a burst of its peer.
///
/// Its queues share the same memory regions and one poller, because a buffer is chosen before its
/// datagram is known. Datagrams for queues of other pollers are handed over. All datagrams from the
/// kernel are read and counted: without buffers, they are discarded as no_packet_buffer. Drops of
/// the kernel are counted with the next datagram, one per GRO batch; the full number is counted
/// when no datagram is left, if the socket counts arrivals.
class UdpReceiver {
 public:
  /// Limit of peers per receiver; a new peer replaces the one with the oldest datagram.
  static constexpr std::size_t MAX_PEERS = 65'536;

  /// `sockets`: see sockets_of; `number`: that of this socket. The first of its queues receives
  /// datagrams without a flow.
  UdpReceiver(const Port& port, UdpSocket& socket, UdpPeers& peers,
              const std::vector<std::size_t>& sockets, std::size_t number);
  /// Call before the pollers start: receive what the other receiver reads for queues of this one.
  void take_from(const UdpReceiver& other);

  /// Poller of the queues. Returns the number of datagrams seen.
  std::uint32_t receive() noexcept;
  /// The same: nothing more is read, and what other receivers hand over is received.
  void finish() noexcept;
  /// Whether other receivers hand over more.
  [[nodiscard]] bool expects_more() const noexcept {
    return std::ranges::any_of(handed_, &UdpHandOver::expects_more);
  }
  /// Free unused buffers; call after all pollers have ended.
  void close() noexcept;

  /// The first queue of the poller that reads the socket.
  [[nodiscard]] RxQueue& first_queue() const noexcept { return *queues_[first_]; }

 private:
  /// State of the poller for a peer.
  struct Sender {
    UdpPeers::Peer peer;
    /// By position of the queue; null until the peer uses it.
    std::vector<RxSource*> sources;
  };
  using Senders = std::list<Sender>;

  /// Where packets go.
  struct Way {
    steering::Verdict verdict;
    std::size_t position;
    /// Null: the queue has the poller of this receiver.
    UdpHandOver* hand_over;

    [[nodiscard]] bool same(const Way& other) const noexcept {
      return position == other.position && verdict.position == other.verdict.position;
    }
  };

  /// Reads the socket. Returns the number of datagrams.
  std::uint32_t receive_messages() noexcept;
  /// Returns the number of datagrams that other receivers have handed over.
  std::uint32_t receive_handed() noexcept;
  /// Returns the number of messages read into the slots.
  std::uint32_t read(std::uint32_t slots) noexcept;
  void count_kernel_drops() noexcept;
  void finish_kernel_drops() noexcept;
  void count_lost_batches(std::uint64_t arrived) noexcept;
  /// `now`: time at which the system call returned, CLOCK_REALTIME ns.
  void accept(std::uint32_t slot, const UdpMessage& message, std::uint64_t now) noexcept;
  /// Whether it has datagrams for queues of other pollers.
  [[nodiscard]] bool hands_over() const noexcept;
  /// Of a packet of a message.
  [[nodiscard]] Way way_of(std::uint32_t slot, const UdpMessage& message, std::uint32_t packet,
                           const Sender* sender) const noexcept;
  void deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
               std::uint32_t end, Sender* sender, std::uint64_t timestamp, const Way& way) noexcept;
  /// `whole`: the message, in one piece; null: its data are lost.
  void hand_over(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                 std::uint32_t end, std::uint64_t timestamp, const Way& way,
                 const std::byte* whole) noexcept;
  void drop(const Way& way, const UdpMessage& message, std::uint32_t first, std::uint32_t end,
            DropReason reason) noexcept;
  /// Sender of the message in the slot; null: it is new, and nothing of it can be stored; or memory
  /// is exhausted.
  Sender* sender_of(std::uint32_t slot) noexcept;
  /// `stored`: whether a datagram of it is stored; otherwise it is only looked up.
  Sender* sender_at(const AddressKey& address, bool stored) noexcept;
  Sender* enter(const AddressKey& address) noexcept;
  void evict_earliest() noexcept;
  RxSource& source_of(Sender* sender, std::size_t position) noexcept;

  UdpSocket& socket_;
  UdpPeers& peers_;
  const std::vector<std::unique_ptr<RxQueue>>& queues_;
  std::size_t number_;
  /// Position of its first queue.
  std::size_t first_;
  steering::Steering::Reader steering_;
  steering::FlowTally& tally_;
  UdpSlots slots_;
  /// To queues of other receivers, by position; null for its own.
  std::vector<std::unique_ptr<UdpHandOver>> hand_overs_;
  /// From other receivers.
  std::vector<UdpHandOver*> handed_;
  bool finished_{false};
  /// In the order of their latest datagrams, the latest last.
  Senders senders_;
  std::unordered_map<AddressKey, Senders::iterator, UdpPeers::Hash> by_address_;
  std::uint32_t kernel_drops_seen_{0};
  /// Number of datagrams read, and counted as dropped by the kernel.
  std::uint64_t read_{0};
  std::uint64_t lost_{0};
  /// Whether drops were seen whose number of datagrams is not known yet.
  bool drops_unfinished_{false};
  /// Number of arrivals, and since when it is unchanged with nothing to read (CLOCK_MONOTONIC ns).
  std::uint64_t arrived_{0};
  std::uint64_t arrived_since_{0};
};

/// Sends up to 512 packets per system call, directly from their buffers. One per transmit queue,
/// because queues may have different workers.
///
/// Consecutive packets of equal length (the last may be shorter) are one message to the kernel,
/// which the kernel or the device splits into datagrams (UDP_SEGMENT). If that is rejected,
/// datagrams are sent one by one, and segmentation is not tried again for that length. With launch
/// times in the kernel, each message has one launch time.
class UdpSender {
 public:
  static constexpr std::uint32_t BATCH = 512;

  /// `max_payload`: 0, or the configured limit in bytes. `connection`: a client's connection, or
  /// the id of a server's own socket, which is equivalent to 0. `launch`: null for launch times in
  /// software. `segments`: whether several packets may be one message.
  UdpSender(const UdpSocket& socket, const UdpPeers& peers, std::uint32_t max_payload,
            std::uintptr_t connection, UdpLaunch* launch, bool segments);

  /// See PortIo::transmit. A client sends to its peer; a server to the peer of the burst's
  /// connection, or (connection 0) to the latest sender. Packets without a peer or beyond the limit
  /// fail. Packets that do not fit into the socket, or that the kernel does not accept yet because
  /// of their launch time, stay with the worker, which waits for `ready`; those that the queueing
  /// discipline refuses (ENOBUFS) stay, too, and the worker retries.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Tells when sending may succeed again.
  [[nodiscard]] Readiness ready() const noexcept { return Readiness(events_); }

 private:
  static constexpr std::uint32_t MESSAGES = 64;
  /// Supported in one message by every kernel with UDP_SEGMENT.
  static constexpr std::uint32_t MAX_SEGMENTS = 64;
  struct alignas(cmsghdr) Controls {
    std::byte stamp[CMSG_SPACE(sizeof(std::uint64_t))];
    std::byte segment[CMSG_SPACE(sizeof(std::uint16_t))];
  };

  bool find_destination(const Burst& burst) noexcept;
  void gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Number of packets in one message with this stamp.
  [[nodiscard]] std::uint32_t run_length(const Burst& burst, std::uint32_t first,
                                         std::uint32_t count, std::uint64_t stamp) const noexcept;
  void set_controls(std::uint32_t message, std::uint64_t stamp) noexcept;
  bool stop_segmenting(int error) noexcept;
  /// The kernel has accepted nothing for want of space.
  TransmitResult refused() noexcept;
  /// The kernel has accepted this many messages.
  TransmitResult count_sent(std::size_t messages) noexcept;

  const UdpSocket& socket_;
  const UdpPeers& peers_;
  /// The kernel's limit for a message, and the configured one for a datagram.
  std::uint32_t max_message_;
  std::uint32_t max_length_;
  /// Packets below this length may be sent as segments.
  std::uint32_t segment_limit_;
  std::uintptr_t connection_;
  UdpLaunch* launch_;
  SocketAddress destination_;
  /// Connection and address of the latest burst to a peer.
  std::uintptr_t latest_{0};
  SocketAddress latest_address_;
  SocketEvents events_;
  bool waiting_{false};
  /// CLOCK_MONOTONIC ns since when packets are refused, and when the last one was; 0: the last one
  /// was accepted.
  std::uint64_t refused_since_{0};
  std::uint64_t refused_at_{0};
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

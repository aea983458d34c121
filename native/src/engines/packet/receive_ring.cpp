#include "engines/packet/receive_ring.h"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "engines/packet/packet_filter.h"
#include "net/packet_socket.h"

namespace daqiri::packet {

namespace {

/// Number of frames ahead whose headers are prefetched.
constexpr std::uint32_t LOOK_AHEAD = 4;
/// A block with at least one in this many bytes used counts as filled.
constexpr std::uint32_t FILLED_PART = 4;
/// Space before a frame for its VLAN tag, and to align it with PACKET_VNET_HDR as without both.
constexpr std::uint32_t reserve_bytes(bool with_offload) noexcept {
  constexpr std::uint32_t ALIGNED = 16 - sizeof(Offload);
  static_assert(ALIGNED >= TAG_BYTES);
  return with_offload ? ALIGNED : TAG_BYTES;
}
/// Frames have variable sizes; the kernel requires a frame size that divides the block.
constexpr unsigned FRAME_BYTES = 2048;

/// Use count of a block while it is not yet returned to the kernel.
constexpr std::uint32_t RETURNING = 1;

/// Size of the blocks of a ring of about `ring_bytes`.
std::uint32_t block_bytes(std::uint64_t ring_bytes) noexcept {
  constexpr std::uint64_t ENOUGH_BLOCKS = 64;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_floor(ring_bytes / ENOUGH_BLOCKS),
                                ReceiveRing::LEAST_BLOCK_BYTES, ReceiveRing::MOST_BLOCK_BYTES));
}

/// Whether PACKET_VNET_HDR describes UDP datagrams that were sent together. Before Linux 6.2, the
/// kernel would drop these (virtio_net_hdr_from_skb).
bool kernel_tells_offload() noexcept {
  utsname system{};
  if (uname(&system) != 0) return false;
  const char* const end = system.release + std::strlen(system.release);
  std::pair<int, int> version;
  const char* const point = std::from_chars(system.release, end, version.first).ptr;
  if (point != end) std::from_chars(point + 1, end, version.second);
  return version >= std::pair(6, 2);
}

/// Returns errno, 0: done.
int let_nothing_through(int socket) noexcept {
  sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog filter{1, &nothing};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 ? 0 : errno;
}

/// The kernel and this process own `status` in turn.
std::atomic_ref<std::uint32_t> status_of(tpacket_hdr_v1& header) noexcept {
  return std::atomic_ref<std::uint32_t>(header.block_status);
}

}  // namespace

ReceiveRing::ReceiveRing(const NetworkInterface& interface, std::uint64_t bytes,
                         std::uint32_t patience_ms,
                         std::shared_ptr<const CardTimestamps> timestamps)
    : FrameRing("packets of " + interface.name, block_bytes(bytes), memory::Place::HOST),
      interface_(interface),
      socket_(open_packet_socket(interface)),
      timestamps_(std::move(timestamps)),
      blocks_(static_cast<std::uint32_t>(
          std::clamp<std::uint64_t>((bytes + buf_size() - 1) / buf_size(), FEWEST_BLOCKS, 65536))),
      uses_(std::make_unique<std::atomic<std::uint32_t>[]>(blocks_)) {
  const auto set = [&](int option, const auto& value, const char* what) {
    if (setsockopt(fd(), SOL_PACKET, option, &value, sizeof value) != 0)
      throw packet_error(interface, what, errno);
  };
  set(PACKET_VERSION, int{TPACKET_V3}, "use TPACKET_V3");
  with_offload_ = kernel_tells_offload();
  set(PACKET_RESERVE, reserve_bytes(with_offload_), "reserve room for VLAN tags");
  if (with_offload_) set(PACKET_VNET_HDR, int{1}, "query what senders left to their card");
  if (timestamps_ != nullptr)
    set(PACKET_TIMESTAMP, int{SOF_TIMESTAMPING_RAW_HARDWARE}, "use times of the card");
  set(PACKET_IGNORE_OUTGOING, int{1}, "leave out frames that this host sends");
  if (const int error = let_nothing_through(fd()); error != 0)
    throw packet_error(interface, "set a filter", error);
  tpacket_req3 request{};
  request.tp_block_size = buf_size();
  request.tp_block_nr = blocks_;
  request.tp_frame_size = FRAME_BYTES;
  request.tp_frame_nr = buf_size() / FRAME_BYTES * blocks_;
  request.tp_retire_blk_tov = patience_ms;
  set(PACKET_RX_RING, request, "make a receive ring");
  void* mapped = mmap(nullptr, this->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  if (mapped == MAP_FAILED) throw packet_error(interface, "map the receive ring", errno);
  ring_ = static_cast<std::byte*>(mapped);
  // A forked child would keep the socket open, and the interface promiscuous.
  madvise(mapped, this->bytes(), MADV_DONTFORK);
  try {
    make_promiscuous(socket_, interface);
    bind_packet_socket(socket_, interface, ETH_P_ALL);
  } catch (...) {
    munmap(mapped, this->bytes());
    throw;
  }
}

void ReceiveRing::begin(const std::string& filter, bool in_group) {
  // In a group, PACKET_IGNORE_OUTGOING has no effect: these frames would fill the ring.
  std::vector<sock_filter> code;
  if (in_group) {
    code = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PKTTYPE)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, PACKET_OUTGOING},
        {BPF_RET | BPF_K, 0, 0, 0}};
  }
  if (!filter.empty()) return attach_filter(socket_, interface_, filter, code);
  if (in_group) {
    code.push_back({BPF_RET | BPF_K, 0, 0, UINT32_MAX});
    const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    if (setsockopt(fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
      throw packet_error(interface_, "receive frames", errno);
    return;
  }
  const int unused = 0;
  if (setsockopt(fd(), SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused) != 0)
    throw packet_error(interface_, "receive frames", errno);
}

void ReceiveRing::stop_arrivals() noexcept {
  // A socket of a group cannot be bound again.
  let_nothing_through(fd());
}

ReceiveRing::~ReceiveRing() { unmap(); }

void ReceiveRing::unmap() noexcept {
  if (ring_ != nullptr && getpid() == process_) munmap(ring_, bytes());
  ring_ = nullptr;
}

tpacket_hdr_v1& ReceiveRing::header(std::uint32_t block) const noexcept {
  return reinterpret_cast<tpacket_block_desc*>(ring_ + std::size_t{block} * buf_size())->hdr.bh1;
}

void ReceiveRing::let_go(std::uint32_t block, std::uint32_t times) noexcept {
  if (uses_[block].fetch_sub(times, std::memory_order_acq_rel) != RETURNING + times) return;
  used_.fetch_sub(1, std::memory_order_relaxed);
  status_of(header(block)).store(TP_STATUS_KERNEL, std::memory_order_release);
  // Until here, the poller must not mistake the status for that of a block that is full again.
  uses_[block].store(0, std::memory_order_release);
}

bool ReceiveRing::open_block() noexcept {
  // Frames from the previous round may still be kept in it.
  if (uses_[block_].load(std::memory_order_acquire) != 0) return false;
  tpacket_hdr_v1& next = header(block_);
  const std::uint32_t status = status_of(next).load(std::memory_order_acquire);
  if ((status & TP_STATUS_USER) == 0) return false;
  uses_[block_].store(RETURNING + 1, std::memory_order_relaxed);
  const std::uint32_t used = used_.fetch_add(1, std::memory_order_relaxed);
  left_ = next.num_pkts;
  frame_ = ring_ + std::size_t{block_} * buf_size() + next.offset_to_first_pkt;
  filled_ = next.blk_len >= buf_size() / FILLED_PART;
  has_room_ = used < blocks_ / 2;
  reading_ = true;
  return true;
}

bool ReceiveRing::find_frame() noexcept {
  while (!reading_ || left_ == 0) {
    if (reading_) {
      reading_ = false;
      let_go(block_, 1);
      block_ = block_ + 1 == blocks_ ? 0 : block_ + 1;
    }
    if (!open_block()) return false;
  }
  return true;
}

Frame ReceiveRing::peek() noexcept {
  if (present_.data != nullptr || !find_frame()) return present_;
  const auto& head = *reinterpret_cast<const tpacket3_hdr*>(frame_);
  constexpr std::uint32_t SELDOM = TP_STATUS_CSUMNOTREADY | TP_STATUS_VLAN_VALID;
  if ((head.tp_status & SELDOM) == 0 && timestamps_ == nullptr) [[likely]] {
    // `advance` has cleared the rest of it.
    present_.data = reinterpret_cast<std::uint8_t*>(frame_ + head.tp_mac);
    present_.length = head.tp_snaplen;
    present_.wire_length = head.tp_len;
    present_.time = std::uint64_t{head.tp_sec} * 1'000'000'000U + head.tp_nsec;
    return present_;
  }
  whole_ = read_frame(frame_, with_offload_);
  if (timestamps_ != nullptr) {
    // The kernel has given others its own time.
    if (whole_.card_time) {
      whole_.frame.time = timestamps_->realtime(whole_.frame.time);
    } else {
      lacks_card_times_ = true;
    }
  }
  present_ = parts_.begin(whole_) ? parts_.frame() : whole_.frame;
  return present_;
}

void ReceiveRing::advance() noexcept {
  if (parts_.active()) {
    parts_.next();
    if (parts_.active()) {
      present_ = parts_.frame();
      return;
    }
  }
  present_ = {};
  step();
}

void ReceiveRing::step() noexcept {
  const auto* head = reinterpret_cast<tpacket3_hdr*>(frame_);
  const std::uint32_t step = head->tp_next_offset;
  // Most frames of a stream have the same length.
  const std::byte* const later = frame_ + std::size_t{step} * LOOK_AHEAD;
  __builtin_prefetch(later);
  __builtin_prefetch(later + head->tp_mac);
  frame_ += step;
  --left_;
}

void ReceiveRing::complete_checksum() noexcept {
  present_.checksum_open = false;
  if (parts_.active()) {
    parts_.complete_checksum();
  } else {
    packet::complete_checksum(whole_);
  }
}

std::uint32_t ReceiveRing::keep(std::uint32_t times) noexcept {
  uses_[block_].fetch_add(times, std::memory_order_relaxed);
  return block_;
}

void ReceiveRing::give(const std::uint32_t* buffers, std::uint32_t n) noexcept {
  if (getpid() != process_) return;
  for (std::uint32_t i = 0; i < n;) {
    const std::uint32_t first = i;
    while (i < n && buffers[i] == buffers[first]) ++i;
    let_go(buffers[first], i - first);
  }
}

std::uint32_t ReceiveRing::take_drops() noexcept {
  tpacket_stats_v3 statistics{};
  socklen_t length = sizeof statistics;
  if (getsockopt(fd(), SOL_PACKET, PACKET_STATISTICS, &statistics, &length) != 0) return 0;
  return statistics.tp_drops;
}

int ReceiveRing::take_error() noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : 0;
}

void ReceiveRing::stop() noexcept {
  // First, because a mapping keeps the socket open. Bound to a protocol that nobody has, it costs
  // other programs' frames nothing (0 would keep the present one). An error means that the
  // interface was removed, and no frames arrive anyway, or that the socket is in a group, and its
  // filter remains.
  stop_arrivals();
  constexpr std::uint16_t RESERVED = 0xFFFF;  // RFC 1701
  static_cast<void>(bind_to_interface(socket_, interface_.index, RESERVED));
  end_promiscuous(socket_, interface_);
  socket_.close();
  timestamps_.reset();
  // Frames that are kept need the mapping, and with it the socket.
  if (used_.load(std::memory_order_acquire) == 0) unmap();
}

}  // namespace daqiri::packet

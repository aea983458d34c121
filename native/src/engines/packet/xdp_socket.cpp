#include "engines/packet/xdp_socket.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "timing/clock.h"

// Linux defines these, but the headers of some distributions do not.
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#endif
#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70
#endif

namespace daqiri::packet {

namespace {

/// Size of the ring for sent frames, which the kernel requires but which is not used.
constexpr std::uint32_t UNUSED_RING = 64;
/// How long a queue may still be bound to a previous socket: the kernel unbinds it some time after
/// that socket was closed.
constexpr std::uint64_t PATIENCE_NS = 2'000'000'000;
constexpr timespec PAUSE{0, 5'000'000};

}  // namespace

SharedRing::SharedRing(int socket, std::int64_t page_offset, const xdp_ring_offset& at,
                       std::uint32_t size, std::size_t element)
    : bytes_(at.desc + size * element), at_(at), mask_(size - 1) {
  void* mapped =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, page_offset);
  if (mapped == MAP_FAILED) return;
  memory_ = static_cast<std::byte*>(mapped);
  madvise(mapped, bytes_, MADV_DONTFORK);
}

SharedRing::~SharedRing() {
  if (is_open() && getpid() == process_) munmap(memory_, bytes_);
}

XdpSocket::XdpSocket(const NetworkInterface& interface, Umem& umem, const Options& options)
    : interface_(interface),
      umem_(umem),
      options_(options),
      socket_(File::private_to_process([] { return socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0); })) {
  if (!socket_.is_open()) throw xdp_error(interface, "open an AF_XDP socket", errno);
  if (options.other == nullptr) {
    xdp_umem_reg memory{};
    memory.addr = reinterpret_cast<std::uintptr_t>(umem.base());
    memory.len = umem.bytes();
    memory.chunk_size = umem.chunk_bytes();
    set(XDP_UMEM_REG, &memory, sizeof memory, "register memory for frames");
  }
  const std::uint32_t size = options.ring_size;
  set(XDP_UMEM_FILL_RING, &size, sizeof size, "make a ring of free memory");
  set(XDP_UMEM_COMPLETION_RING, &UNUSED_RING, sizeof UNUSED_RING, "make a ring for sent frames");
  set(XDP_RX_RING, &size, sizeof size, "make a receive ring");
  xdp_mmap_offsets at{};
  socklen_t length = sizeof at;
  if (getsockopt(fd(), SOL_XDP, XDP_MMAP_OFFSETS, &at, &length) != 0 || length != sizeof at)
    throw xdp_error(interface, "read the ring layout of an AF_XDP socket", errno);
  const auto map = [&](std::int64_t offset, const xdp_ring_offset& ring, std::size_t element) {
    auto made = std::make_unique<SharedRing>(fd(), offset, ring, size, element);
    if (!made->is_open()) throw xdp_error(interface, "map a ring of an AF_XDP socket", errno);
    return made;
  };
  received_ = map(XDP_PGOFF_RX_RING, at.rx, sizeof(xdp_desc));
  fill_ = map(XDP_UMEM_PGOFF_FILL_RING, at.fr, sizeof(std::uint64_t));
}

void XdpSocket::set(int option, const void* value, std::size_t size, const char* what) {
  if (setsockopt(fd(), SOL_XDP, option, value, static_cast<socklen_t>(size)) != 0)
    throw xdp_error(interface_, what, errno);
}

int XdpSocket::try_bind(std::uint16_t flags) const noexcept {
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = static_cast<std::uint32_t>(interface_.index);
  address.sxdp_queue_id = options_.queue;
  address.sxdp_flags = flags;
  if (options_.other != nullptr)
    address.sxdp_shared_umem_fd = static_cast<std::uint32_t>(options_.other->fd());
  const auto* queue = reinterpret_cast<const sockaddr*>(&address);
  const std::uint64_t end = monotonic_ns() + PATIENCE_NS;
  int error = 0;
  do {
    if (error == EBUSY) nanosleep(&PAUSE, nullptr);
    error = ::bind(fd(), queue, sizeof address) == 0 ? 0 : errno;
  } while (error == EBUSY && monotonic_ns() < end);
  return error;
}

bool XdpSocket::bind() {
  int error = 0;
  if (options_.other != nullptr) {
    // All other settings are those of the first socket.
    error = try_bind(XDP_SHARED_UMEM);
    if (error == EINVAL) return false;
  } else {
    // Drivers with xdp_zc_max_segs == 1 (Linux 6.6) have no zero copy with XDP_USE_SG: the kernel
    // then copies, without an error. Where it copies anyway, the MTU may be raised later.
    constexpr std::uint16_t PIECES = XDP_USE_NEED_WAKEUP | XDP_USE_SG;
    if (options_.pieces && !options_.copy) {
      error = try_bind(PIECES);
    } else {
      error = options_.copy ? EOPNOTSUPP : try_bind(XDP_USE_NEED_WAKEUP | XDP_ZEROCOPY);
      if (error != 0 && error != EBUSY) error = try_bind(PIECES | XDP_COPY);
    }
  }
  if (error != 0) {
    throw xdp_error(interface_, "bind an AF_XDP socket to queue " + std::to_string(options_.queue),
                    error);
  }
  xdp_options found{};
  socklen_t length = sizeof found;
  zero_copy_ = getsockopt(fd(), SOL_XDP, XDP_OPTIONS, &found, &length) == 0 &&
               (found.flags & XDP_OPTIONS_ZEROCOPY) != 0;
  if (options_.busy_poll) busy_poll();
  return true;
}

void XdpSocket::busy_poll() {
  // If this is not supported, interrupts of the card deliver the frames.
  const int prefer = 1;
  const int microseconds = 20;
  const int budget = 64;
  options_.busy_poll =
      setsockopt(fd(), SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof prefer) == 0 &&
      setsockopt(fd(), SOL_SOCKET, SO_BUSY_POLL, &microseconds, sizeof microseconds) == 0 &&
      setsockopt(fd(), SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof budget) == 0;
}

void XdpSocket::refill(const XdpShares& shares) noexcept {
  if (received_->consumer().load(std::memory_order_relaxed) != next_)
    received_->consumer().store(next_, std::memory_order_release);
  if (zero_copy_ && received_->producer().load(std::memory_order_relaxed) == filled_)
    ran_out_ = true;
  const std::uint32_t given = filled_ - fill_->consumer().load(std::memory_order_acquire);
  const std::uint32_t most = shares.most(options_.position);
  std::uint32_t room = std::min(fill_->size() - given, most - std::min(most, held()));
  std::array<std::uint32_t, 64> chunks;
  bool more = false;
  while (room > 0) {
    auto wanted = std::min(room, static_cast<std::uint32_t>(chunks.size()));
    if (held() >= shares.part()) {
      const std::uint32_t available = umem_.available();
      wanted = std::min(wanted, available - std::min(available, shares.reserve()));
    }
    const std::uint32_t n = umem_.take(chunks.data(), wanted);
    if (n == 0) break;
    for (std::uint32_t i = 0; i < n; ++i) {
      umem_.lend(chunks[i], options_.queue);
      fill_->element<std::uint64_t>(filled_++) = std::uint64_t{chunks[i]} * umem_.chunk_bytes();
    }
    room -= n;
    more = true;
  }
  if (!more) return;
  fill_->producer().store(filled_, std::memory_order_release);
  if (fill_->needs_wakeup()) wake();
}

void XdpSocket::look() noexcept {
  if (options_.busy_poll) wake();
}

void XdpSocket::wake() noexcept { recvfrom(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr); }

bool XdpSocket::starved(const XdpShares& shares) const noexcept {
  const std::uint32_t empty = filled_ - received_->producer().load(std::memory_order_relaxed);
  return empty < shares.wanted(options_.position) / 2;
}

std::uint32_t XdpSocket::take_arrived() noexcept {
  const std::uint32_t arrived = received_->producer().load(std::memory_order_relaxed);
  return arrived - std::exchange(arrived_, arrived);
}

XdpDrops XdpSocket::take_drops() noexcept {
  xdp_statistics now{};
  socklen_t length = sizeof now;
  if (getsockopt(fd(), SOL_XDP, XDP_STATISTICS, &now, &length) != 0) return {};
  return statistics_.take(now, zero_copy_, std::exchange(ran_out_, false));
}

int XdpSocket::take_error() noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : 0;
}

}  // namespace daqiri::packet

#include "engines/dpdk/sender.h"

#include <net/if.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "net/headers.h"
#include "system/log.h"
#include "timing/clock.h"
#include "timing/wire_time.h"

namespace daqiri::dpdk {

namespace {

constexpr std::uint32_t SOURCE_AT = 6;
constexpr std::uint32_t FEWEST_SLOTS = 2048;
/// How long the last packets may take until the device has read them: if it tells, and if it tells
/// only when it needs room for others (a ring of 1024 long frames takes 74 ms at 1 Gb/s).
constexpr std::uint64_t LAST_NS = 1'000'000'000;
constexpr std::uint64_t LAST_UNTOLD_NS = 100'000'000;
constexpr timespec PAUSE{0, 50'000};

/// Whether the kernel lets a frame be four bytes longer.
bool has_tag(const Pieces& pieces) noexcept {
  const iovec& first = pieces.at[0];
  return first.iov_len >= ETHERNET_SIZE &&
         load_be16(static_cast<const std::uint8_t*>(first.iov_base) + ADDRESSES_SIZE) ==
             RTE_ETHER_TYPE_VLAN;
}

}  // namespace

Sender::Sender(const Place& place, const TxQueue& queue, const steering::TransmitFlows& flows,
               const std::atomic<bool>& removed)
    : place_(place),
      use_(removed),
      name_("transmit queue '" + queue.config().common_.name_ + "' of interface '" +
            queue.interface_name() + "'"),
      fills_source_mac_(queue.has_offload("tx_eth_src")),
      pacing_mbps_(place.clock == nullptr ? 0 : queue.config().pacing_mbps_),
      flows_(flows),
      // Packets that wait for the device to free them, besides those that it is sending.
      size_(std::bit_ceil(std::max(2 * place.descriptors, FEWEST_SLOTS))),
      mbufs_(size_ * std::bit_ceil(static_cast<std::uint32_t>(queue.num_segments()) +
                                   (flows.empty() ? 0U : 2U)),
             place.socket, name_),
      headers_(make_device_memory(std::size_t{size_} * flows.most_headers(), place.socket, name_)),
      most_bytes_(place.most_bytes),
      most_untagged_(place.most_bytes) {}

void Sender::start() noexcept {
  tells_on_request_ = rte_eth_tx_done_cleanup(place_.device, place_.queue, 0) != -ENOTSUP;
}

int Sender::prepare(const Burst& burst, std::uint32_t packet, std::uint32_t number,
                    rte_mbuf*& out) noexcept {
  if (fills_source_mac_ && burst.pkt_lens[0][packet] >= ADDRESSES_SIZE) {
    std::memcpy(static_cast<std::uint8_t*>(burst.pkts[0][packet]) + SOURCE_AT, place_.mac.data(),
                place_.mac.size());
  }
  const std::uint32_t first = burst.pkt_lens[0][packet];
  if (flows_.empty() && burst.hdr.hdr.num_segs == 1 && first > 0 && first <= most_untagged_) {
    out = mbufs_.take(burst.pkts[0][packet], first);
    return out == nullptr ? EAGAIN : 0;
  }
  Pieces pieces;
  const std::size_t headers = std::size_t{number & (size_ - 1)} * flows_.most_headers();
  if (const int error = flows_.transform(burst, packet, headers_.get() + headers, pieces);
      error != 0)
    return error;
  if (pieces.length > most_untagged_ && (pieces.length > most_bytes_ || !has_tag(pieces)))
    return EMSGSIZE;
  // Segments may have no bytes; a packet must have some.
  const auto end = std::remove_if(pieces.at.begin(), pieces.at.begin() + pieces.count,
                                  [](const iovec& piece) { return piece.iov_len == 0; });
  const auto count = static_cast<std::size_t>(end - pieces.at.begin());
  if (count == 0) return EINVAL;
  out = mbufs_.take({pieces.at.data(), count}, pieces.length);
  return out == nullptr ? EAGAIN : 0;
}

int Sender::check_link() noexcept {
  if (place_.link == nullptr) return 0;
  const LinkFlags now = place_.link->flags();
  if (now.flags < 0) return ENODEV;
  if ((now.flags & IFF_UP) == 0) return ENETDOWN;
  if (place_.sockets == nullptr) return 0;
  // Without a carrier, the kernel throws away what is sent. A tap has one a while after it is up.
  if ((now.flags & IFF_RUNNING) == 0) return ENETDOWN;
  // And it throws away what is longer than the MTU at that time.
  most_bytes_ = std::min(place_.most_bytes, now.mtu + ETHERNET_SIZE + VLAN_TAG_SIZE);
  most_untagged_ = most_bytes_ - VLAN_TAG_SIZE;
  return 0;
}

TransmitResult Sender::send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept {
  // Without a device, no packet can be sent.
  if (!use_.begin()) return {.failed = count, .error = ENODEV};
  const int error = check_link();
  const TransmitResult result =
      error == 0 ? put(burst, first, count) : TransmitResult{.failed = count, .error = error};
  use_.end();
  return result;
}

std::optional<std::uint64_t> Sender::paced(std::uint64_t launch, const Pace& pace,
                                           const CardClock::Launches& launches) noexcept {
  const std::uint64_t next = pace.next == 0 ? 0 : pace.next + launches.ahead();
  if (next > launches.now() + CardClock::LEAD_NS) return std::nullopt;
  return std::max({launch, next, launches.now()});
}

TransmitResult Sender::put(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept {
  TransmitResult result;
  std::array<rte_mbuf*, AT_ONCE> packets;
  std::array<std::uint32_t, AT_ONCE> lengths;
  std::array<Pace, AT_ONCE> paces;
  count = std::min({count, AT_ONCE, size_ - (next_ - oldest_)});
  const CardClock::Launches launches(place_.clock);
  std::uint32_t made = 0;
  for (; made < count; ++made) {
    std::uint64_t launch = burst.timestamps[first + made];
    Pace pace = made == 0 ? pace_ : paces[made - 1];
    if (pacing_mbps_ != 0) {
      const auto time = paced(launch, pace, launches);
      if (!time) break;
      launch = *time;
    }
    const int error = prepare(burst, first + made, next_ + made, packets[made]);
    if (error != 0) {
      // First send the packets before it.
      if (made == 0 && error != EAGAIN) {
        result.failed = 1;
        result.error = error;
        return result;
      }
      break;
    }
    launches.put(*packets[made], launch);
    lengths[made] = packets[made]->pkt_len;
    if (pacing_mbps_ != 0) {
      pace.next = launch - launches.ahead() + wire_ns(lengths[made], pacing_mbps_, pace.rest);
      paces[made] = pace;
    }
  }
  const std::uint16_t sent = rte_eth_tx_burst(place_.device, place_.queue, packets.data(),
                                              static_cast<std::uint16_t>(made));
  for (std::uint16_t i = 0; i < sent; ++i) accepted_bytes_ += lengths[i];
  for (std::uint32_t i = made; i > sent; --i) mbufs_.untake(*packets[i - 1]);
  if (pacing_mbps_ != 0 && sent > 0) pace_ = paces[sent - 1U];
  next_ += sent;
  accepted_ += sent;
  if (place_.sockets != nullptr && accepted_ > 0) stuck_ = !place_.sockets->push();
  result.kept = sent;
  result.device_full = sent == 0;
  return result;
}

void Sender::ask() noexcept {
  if ((!tells_on_request_ && !stuck_) || !use_.begin()) return;
  if (tells_on_request_) rte_eth_tx_done_cleanup(place_.device, place_.queue, 0);
  if (stuck_) stuck_ = !place_.sockets->push();
  use_.end();
}

std::uint32_t Sender::release() noexcept {
  if (!closed_.load(std::memory_order_acquire)) {
    const std::uint32_t released = mbufs_.release();
    oldest_ += released;
    return released;
  }
  mbufs_.release_all();
  return next_ - std::exchange(oldest_, next_);
}

TransmitCompletion Sender::completed(bool last) noexcept {
  if (oldest_ != next_ || stuck_) ask();
  TransmitCompletion completion;
  completion.released = release();
  const std::uint64_t end = monotonic_ns() + (tells_on_request_ ? LAST_NS : LAST_UNTOLD_NS);
  while (last && (oldest_ != next_ || stuck_) && monotonic_ns() < end) {
    nanosleep(&PAUSE, nullptr);
    ask();
    completion.released += release();
  }
  if (last && oldest_ != next_) {
    log(tells_on_request_ ? LogLevel::WARN : LogLevel::DEBUG,
        name_ + ": the device has not said of " + std::to_string(next_ - oldest_) +
            " packets that it has sent them");
    // It is closed before the memory of their buffers is freed.
    mbufs_.release_all();
    completion.released += next_ - std::exchange(oldest_, next_);
  }
  // What the kernel has not taken by now ends with the device, or has with its interface.
  if (stuck_ && (last || place_.link->flags().flags < 0)) {
    completion.failed = std::exchange(accepted_, 0);
    accepted_bytes_ = 0;
    stuck_ = false;
  }
  // The device sends what it has accepted; what it does not tell is when.
  if (!stuck_) {
    completion.sent = std::exchange(accepted_, 0);
    completion.bytes = std::exchange(accepted_bytes_, 0);
  }
  completion.more = oldest_ != next_ || stuck_;
  return completion;
}

}  // namespace daqiri::dpdk

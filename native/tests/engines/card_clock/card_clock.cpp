// Instead of DPDK's own functions: a device has a clock, stamps what it receives, and is given
// launch times.
#include <dlfcn.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "timing/clock.h"

namespace {

using daqiri::ahead_of_realtime;
using daqiri::monotonic_ns;

std::mutex mutex;
std::condition_variable changed;

struct {
  std::uint64_t rx{0};
  std::uint64_t tx{0};
} offered, asked;

/// The clock: `begin` at `begin_ns` of CLOCK_MONOTONIC.
struct {
  double ticks_per_ns{1};
  std::uint64_t begin{0};
  std::uint64_t begin_ns{0};
  int error{0};
} card;
unsigned readings{0};

/// Of the packets received from now on.
struct {
  bool given{false};
  std::uint64_t ticks{0};
  std::uint64_t apart{0};
} stamp;

/// Of the packets sent; 0: none.
std::vector<std::uint64_t> launches;

/// What the device receives into.
rte_mempool* buffers{nullptr};
eth_rx_burst_t receive_burst{nullptr};
eth_tx_burst_t send_burst{nullptr};

template <typename Function>
Function* of_dpdk(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::uint64_t& time_of(rte_mbuf& packet) {
  const int offset = rte_mbuf_dynfield_lookup(RTE_MBUF_DYNFIELD_TIMESTAMP_NAME, nullptr);
  return *RTE_MBUF_DYNFIELD(&packet, offset, std::uint64_t*);
}

std::uint64_t flag(const char* name) {
  const int bit = rte_mbuf_dynflag_lookup(name, nullptr);
  return bit < 0 ? 0 : RTE_BIT64(bit);
}

/// `mutex` is held.
std::uint64_t ticks_at(std::uint64_t monotonic) {
  const auto since = static_cast<std::int64_t>(monotonic - card.begin_ns);
  return card.begin +
         static_cast<std::uint64_t>(static_cast<std::int64_t>(
             static_cast<long double>(since) * static_cast<long double>(card.ticks_per_ns)));
}

/// To a buffer of the receiver's, if there is one.
rte_mbuf* moved(rte_mbuf* packet) {
  rte_mbuf* const copy = rte_pktmbuf_alloc(buffers);
  if (copy == nullptr) return packet;
  std::memcpy(rte_pktmbuf_mtod(copy, void*), rte_pktmbuf_mtod(packet, const void*),
              packet->data_len);
  copy->data_len = packet->data_len;
  copy->pkt_len = packet->pkt_len;
  rte_pktmbuf_free(packet);
  return copy;
}

std::uint16_t receive_stamped(void* queue, rte_mbuf** packets, std::uint16_t most) {
  const std::uint16_t count = receive_burst(queue, packets, most);
  // Of six, three as those of cards and three as those of net_ring, which are the sender's.
  for (std::uint16_t i = 0; i < count; ++i)
    if (i % 6 < 3) packets[i] = moved(packets[i]);
  const std::lock_guard lock(mutex);
  for (std::uint16_t i = 0; stamp.given && i < count; ++i) {
    time_of(*packets[i]) = stamp.ticks;
    stamp.ticks += stamp.apart;
    packets[i]->ol_flags |= flag(RTE_MBUF_DYNFLAG_RX_TIMESTAMP_NAME);
  }
  return count;
}

std::uint16_t note_and_send(void* queue, rte_mbuf** packets, std::uint16_t count) {
  const std::lock_guard lock(mutex);
  const std::uint64_t timed = flag(RTE_MBUF_DYNFLAG_TX_TIMESTAMP_NAME);
  std::vector<std::uint64_t> times;
  times.reserve(count);
  for (std::uint16_t i = 0; i < count; ++i)
    times.push_back((packets[i]->ol_flags & timed) != 0 ? time_of(*packets[i]) : 0);
  // Whoever receives them owns them.
  const std::uint16_t sent = send_burst(queue, packets, count);
  launches.insert(launches.end(), times.begin(), times.begin() + sent);
  return sent;
}

}  // namespace

extern "C" {

int rte_eth_dev_info_get(std::uint16_t port, rte_eth_dev_info* info) {
  const int error = of_dpdk<decltype(rte_eth_dev_info_get)>("rte_eth_dev_info_get")(port, info);
  const std::lock_guard lock(mutex);
  info->rx_offload_capa |= offered.rx;
  info->tx_offload_capa |= offered.tx;
  return error;
}

int rte_eth_dev_configure(std::uint16_t port, std::uint16_t rx, std::uint16_t tx,
                          const rte_eth_conf* conf) {
  {
    const std::lock_guard lock(mutex);
    asked = {.rx = conf->rxmode.offloads, .tx = conf->txmode.offloads};
  }
  return of_dpdk<decltype(rte_eth_dev_configure)>("rte_eth_dev_configure")(port, rx, tx, conf);
}

int rte_eth_rx_queue_setup(std::uint16_t port, std::uint16_t queue, std::uint16_t descriptors,
                           unsigned socket, const rte_eth_rxconf* conf, rte_mempool* pool) {
  buffers = pool;
  return of_dpdk<decltype(rte_eth_rx_queue_setup)>("rte_eth_rx_queue_setup")(
      port, queue, descriptors, socket, conf, pool);
}

int rte_eth_dev_start(std::uint16_t port) {
  const int error = of_dpdk<decltype(rte_eth_dev_start)>("rte_eth_dev_start")(port);
  receive_burst = rte_eth_fp_ops[port].rx_pkt_burst;
  send_burst = rte_eth_fp_ops[port].tx_pkt_burst;
  rte_eth_fp_ops[port].rx_pkt_burst = receive_stamped;
  rte_eth_fp_ops[port].tx_pkt_burst = note_and_send;
  return error;
}

int rte_eth_read_clock(std::uint16_t, std::uint64_t* clock) {
  const std::lock_guard lock(mutex);
  *clock = ticks_at(monotonic_ns());
  ++readings;
  changed.notify_all();
  return card.error;
}

void offer(bool stamps, bool launch_times) {
  const std::lock_guard lock(mutex);
  offered.rx = stamps ? RTE_ETH_RX_OFFLOAD_TIMESTAMP : 0;
  offered.tx = launch_times ? RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP : 0;
}

/// What the engine has asked for.
void asked_for(bool* stamps, bool* launch_times) {
  const std::lock_guard lock(mutex);
  *stamps = (asked.rx & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
  *launch_times = (asked.tx & RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP) != 0;
}

/// The clock shows `begin` now. `error`: of rte_eth_read_clock.
void set_clock(double ticks_per_ns, std::uint64_t begin, int error) {
  const std::lock_guard lock(mutex);
  card = {.ticks_per_ns = ticks_per_ns, .begin = begin, .begin_ns = monotonic_ns(), .error = error};
}

/// Waits for so many readings from now on. Returns whether they came within 20 s.
bool wait_for_readings(unsigned count) {
  std::unique_lock lock(mutex);
  const unsigned wanted = readings + count;
  return changed.wait_for(lock, std::chrono::seconds(20), [=] { return readings >= wanted; });
}

/// What the card's clock shows at a time of CLOCK_REALTIME.
std::uint64_t card_time(std::uint64_t realtime) {
  const std::lock_guard lock(mutex);
  return ticks_at(realtime + static_cast<std::uint64_t>(ahead_of_realtime(CLOCK_MONOTONIC)));
}

/// All packets from now on; `apart`: ticks from one to the next.
void stamp_with(bool given, std::uint64_t ticks, std::uint64_t apart) {
  const std::lock_guard lock(mutex);
  stamp = {.given = given, .ticks = ticks, .apart = apart};
}

/// Launch time of the packet sent with that number; 0: it had none. False: not sent yet.
bool launch_of(unsigned number, std::uint64_t* ticks) {
  const std::lock_guard lock(mutex);
  if (number >= launches.size()) return false;
  *ticks = launches[number];
  return true;
}
}

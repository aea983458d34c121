#include "engines/dpdk/port.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <set>
#include <string_view>

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/pieces.h"
#include "engines/dpdk/tap_signals.h"
#include "engines/dpdk/virtual_device.h"
#include "net/headers.h"
#include "steering/frame_sizes.h"
#include "steering/toeplitz.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri::dpdk {

namespace {

/// Descriptors that the engine asks for; devices have fewer.
constexpr std::uint16_t RX_DESCRIPTORS = 8192;
constexpr std::uint16_t TX_DESCRIPTORS = 1024;

/// The region that the device receives into: that of the first queue whose packets are whole, or
/// else the one with the longest buffers. Packets for other regions are copied.
memory::MemoryRegion& region_of(const Port& port) {
  for (const auto& queue : port.rx)
    if (queue->num_segments() == 1) return queue->region(0);
  const RxQueue& first = *port.rx.front();
  int longest = 0;
  for (int s = 1; s < first.num_segments(); ++s)
    if (first.region(s).buf_size() > first.region(longest).buf_size()) longest = s;
  return first.region(longest);
}

/// The regions of the pieces of a packet as the device receives them. `splits`: it splits packets.
std::vector<memory::MemoryRegion*> receive_regions(const Port& port, bool splits) {
  if (port.rx.empty()) return {};
  if (!splits) return {&region_of(port)};
  std::vector<memory::MemoryRegion*> regions;
  const RxQueue& first = *port.rx.front();
  regions.reserve(static_cast<std::size_t>(first.num_segments()));
  for (int s = 0; s < first.num_segments(); ++s) regions.push_back(&first.region(s));
  return regions;
}

/// The memory that the device reads and writes.
std::set<const memory::MemoryRegion*> regions_of(const Port& port, bool splits) {
  const auto received = receive_regions(port, splits);
  std::set<const memory::MemoryRegion*> regions(received.begin(), received.end());
  for (const auto& queue : port.tx)
    for (int s = 0; s < queue->num_segments(); ++s) regions.insert(&queue->region(s));
  return regions;
}

/// The first queue of each poller.
std::vector<RxQueue*> first_queues(const Port& port) {
  std::vector<RxQueue*> first;
  for (const auto& queue : port.rx) {
    const auto same = [&](const RxQueue* each) {
      return each->config().common_.cpu_core_ == queue->config().common_.cpu_core_;
    };
    if (std::ranges::none_of(first, same)) first.push_back(queue.get());
  }
  return first;
}

/// Most packets that a queue of the device has buffers for: no more than a third of a region's for
/// all of them.
std::uint16_t rx_descriptors(const std::vector<memory::MemoryRegion*>& regions,
                             std::uint16_t queues) {
  if (queues == 0) return 0;
  std::uint64_t fewest = RX_DESCRIPTORS;
  for (const memory::MemoryRegion* region : regions) {
    // A region may have several pieces.
    const auto pieces = static_cast<std::uint64_t>(std::ranges::count(regions, region));
    fewest = std::min<std::uint64_t>(fewest, region->config().num_bufs_ / 3 / queues / pieces);
  }
  return static_cast<std::uint16_t>(std::bit_floor(fewest));
}

/// What cards spread over their queues; packets of a flow stay in one.
constexpr std::uint64_t RSS_TYPES = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP;

/// The engine's key, repeated, for keys of any length.
std::array<std::uint8_t, UINT8_MAX>& rss_key() {
  static std::array<std::uint8_t, UINT8_MAX> key = [] {
    std::array<std::uint8_t, UINT8_MAX> made{};
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = steering::RSS_KEY[i % steering::RSS_KEY.size()];
    return made;
  }();
  return key;
}

/// Bytes before a frame in the ring of a packet socket: the kernel's header, and alignment.
constexpr std::uint32_t KERNEL_BYTES = TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - ETH_HLEN;

/// Bytes that a net_af_packet with these arguments receives of a frame: of longer ones, the driver
/// delivers the beginning, as if it were all.
std::uint32_t space_for_frames(const std::string& device) {
  constexpr std::string_view KEY = "framesz=";
  constexpr std::uint32_t DEFAULT = 2048;
  const std::size_t at = device.find(KEY);
  const std::uint32_t bytes =
      at == std::string::npos
          ? DEFAULT
          : static_cast<std::uint32_t>(std::strtoul(&device[at + KEY.size()], nullptr, 10));
  return bytes - std::min(bytes, KERNEL_BYTES);
}

}  // namespace

struct DpdkPort::Settings {
  rte_eth_dev_info info{};
  rte_eth_conf conf;
  /// Longest packet to send, and the length at which received ones are cut.
  std::uint32_t most_bytes{0};
  std::uint32_t cut_at{UINT32_MAX};
  std::uint16_t rx_queues{0};
  /// Of the device, which may want more than the port has.
  std::uint16_t tx_queues{0};
  std::uint16_t rx_descriptors{0};
  std::uint16_t tx_descriptors{0};
};

DpdkPort::DpdkPort(const Port& port, const NetworkConfig& config, std::unique_ptr<Device> device)
    : port_(port), flows_(port.config), device_(std::move(device)) {
  rules_ = std::make_unique<FlowRules>(device_->port(), port.config);
  const Settings settings = settings_for(config);
  // Only the device writes to them.
  const auto on_gpu = [](const auto& queue) { return !queue->host_readable(); };
  if (!splits_ && std::ranges::any_of(port.rx, on_gpu))
    fail("does not split packets any longer", ENOTSUP, "open the engine again");
  for (const memory::MemoryRegion* region : regions_of(port, splits_)) {
    // Cards have that of a GPU since it was allocated.
    if (region->host_readable()) device_->map(*settings.info.device, *region);
  }
  if (CardClock::stamps(port.config) || CardClock::launches(port.config))
    clock_ = std::make_unique<CardClock>(port.config, removed_);
  make_queues(settings);
  const bool is_tap = settings.info.driver_name == TAP_DRIVER;
  if (is_tap) rules_->isolate();
  start();
  if (clock_) clock_->begin(device_->port());
  if (is_tap) take_tap_signals(settings.info.if_index);
  named_losses_.find(device_->port());
  losses_before_ = read_losses();
  kernel_losses_.begin(port.config.name_, settings.info.driver_name, settings.info.if_index,
                       sockets_);
  // A device that is removed now is given back after that.
  const std::lock_guard lock(mutex_);
  watch_.emplace(device_->name(), device_->port(), static_cast<Removable&>(*this));
}

DpdkPort::Settings DpdkPort::settings_for(const NetworkConfig& config) {
  Settings settings;
  rte_eth_dev_info& info = settings.info;
  if (const int error = rte_eth_dev_info_get(device_->port(), &info); error != 0)
    fail("does not tell its features", error, "use another device");
  if (port_.tx.size() > info.max_tx_queues)
    fail("has " + std::to_string(info.max_tx_queues) + " transmit queues, and the interface has " +
             std::to_string(port_.tx.size()),
         ENOTSUP, "use fewer, or give the device more with its own argument (qpairs, tx_queues)");
  // C has zeros where these enumerations have no value.
  rte_eth_conf& conf = settings.conf;
  std::memset(&conf, 0, sizeof conf);
  // Devices without limits give the largest numbers.
  const std::uint32_t header_and_tags = RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN;
  const std::uint32_t most = std::min<std::uint32_t>(
      info.max_mtu, info.max_rx_pktlen - std::min(info.max_rx_pktlen, header_and_tags));
  const std::uint32_t least = std::min<std::uint32_t>(info.min_mtu, most);
  const std::uint32_t wanted = steering::mtu_needed(config, port_.config);
  conf.rxmode.mtu = std::clamp(wanted == 0 ? RTE_ETHER_MTU : wanted, least, most);
  if (std::ranges::any_of(port_.rx, [](const auto& queue) { return queue->num_segments() > 1; })) {
    const std::string why = why_not_split(config, port_.config, info);
    splits_ = why.empty();
    if (splits_) {
      conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
    } else {
      log(LogLevel::INFO, "interface '" + port_.config.name_ +
                              "': the engine splits packets into their memory regions: " + why);
    }
  }
  // mlx5 wants it for packets in pieces of any kind.
  if (splits_ ||
      (!port_.rx.empty() && conf.rxmode.mtu + header_and_tags > region_of(port_).buf_size()))
    conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
  const bool reads_first = info.driver_name == TAP_DRIVER || info.driver_name == PCAP_DRIVER;
  if (reads_first && !port_.rx.empty()) {
    const auto room = static_cast<std::uint32_t>(region_of(port_).buf_size());
    buffers_ahead_ =
        std::min((conf.rxmode.mtu + header_and_tags + room - 1) / room, PacketPool::AT_ONCE);
  }
  settings.most_bytes = std::min<std::uint32_t>(conf.rxmode.mtu + header_and_tags, UINT16_MAX);
  // It tells the length of ordinary frames, and passes on any.
  if (info.driver_name == MEMIF_DRIVER) settings.most_bytes = UINT16_MAX;
  if (info.driver_name == AF_PACKET_DRIVER || info.driver_name == TAP_DRIVER) {
    const InterfaceLink& link =
        interface_.emplace(static_cast<int>(info.if_index), port_.config.address_,
                           info.driver_name == AF_PACKET_DRIVER);
    if (info.driver_name == AF_PACKET_DRIVER) prepare_packet_sockets(link.flags().mtu, settings);
  }
  const bool in_pieces = !flows_.empty() || std::ranges::any_of(port_.tx, [](const auto& queue) {
    return queue->num_segments() > 1;
  });
  if (in_pieces && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0)
    conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  if (CardClock::stamps(port_.config)) {
    if ((info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP) == 0) {
      fail("does not stamp received packets (hardware_timestamps: true)", ENOTSUP,
           "set it to false, for timestamps in software");
    }
    conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
  }
  if (CardClock::launches(port_.config)) {
    if ((info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP) == 0) {
      fail("does not keep launch times (tx.accurate_send: true)", ENOTSUP,
           std::string("set it to false, for launch times in software") +
               (device_->is_card() ? "; a ConnectX needs settings of its firmware, which "
                                     "`daqiri-ophyd host check` names"
                                   : ""));
    }
    conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP;
  }
  const auto tx_queues = static_cast<std::uint16_t>(port_.tx.size());
  if (!port_.rx.empty()) {
    if (info.max_rx_queues == 0)
      fail("has no receive queues", ENOTSUP, "use another device, or remove rx");
    // Each core reads a queue of its own, if the device has as many. Virtual devices put packets
    // into all queues that they have made: net_af_packet at once, net_tap for transmit queues, too.
    std::size_t queues = first_queues(port_).size();
    if (info.driver_name == AF_PACKET_DRIVER) queues = info.max_rx_queues;
    if (device_->loops() || info.driver_name == TAP_DRIVER)
      queues = std::max<std::size_t>(tx_queues, device_->loops() ? 1 : queues);
    settings.rx_queues =
        static_cast<std::uint16_t>(std::min<std::size_t>(queues, info.max_rx_queues));
  }
  if (settings.rx_queues > 1 && (info.flow_type_rss_offloads & RSS_TYPES) != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & RSS_TYPES;
    // DPDK keeps the pointer. Drivers want keys of their own lengths; none: they have no key.
    conf.rx_adv_conf.rss_conf.rss_key = info.hash_key_size == 0 ? nullptr : rss_key().data();
    conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
  }
  // As soon as possible, because drivers set up other rules. Before it has queues, net_tap only
  // says that it does.
  if (info.driver_name != TAP_DRIVER) rules_->isolate();
  settings.tx_queues = tx_queues;
  if (info.driver_name == TAP_DRIVER) {
    if (port_.rx.empty())
      fail("has no receive queue, and its driver wants one for each transmit queue", ENOTSUP,
           "add one to the interface (rx.queues)");
    settings.tx_queues = settings.rx_queues;
  }
  const int error =
      rte_eth_dev_configure(device_->port(), settings.rx_queues, settings.tx_queues, &conf);
  if (error != 0) fail("refuses its settings", error, "use fewer queues or smaller buffers");
  settings.rx_descriptors = rx_descriptors(receive_regions(port_, splits_), settings.rx_queues);
  // Some drivers free a packet only when they need its descriptor. Bursts must not run out before.
  const auto bursts = static_cast<std::uint64_t>(config.tx_meta_buffers_);
  settings.tx_descriptors = static_cast<std::uint16_t>(std::bit_floor(std::clamp<std::uint64_t>(
      bursts / 2 / std::max<std::uint64_t>(tx_queues, 1), 1, TX_DESCRIPTORS)));
  if (const int wrong = rte_eth_dev_adjust_nb_rx_tx_desc(device_->port(), &settings.rx_descriptors,
                                                         &settings.tx_descriptors);
      wrong != 0)
    fail("does not tell the sizes of its rings", wrong, "use another device");
  return settings;
}

void DpdkPort::prepare_packet_sockets(std::uint32_t mtu, Settings& settings) {
  const rte_eth_dev_info& info = settings.info;
  // The kernel takes tags out of frames, and the driver cannot put them back in memory of others.
  settings.conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
  // The kernel refuses longer ones, which the driver counts as sent. Of two tags, it takes one out.
  const std::uint32_t longest = mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
  settings.most_bytes = longest;
  // One that is as long as the space may have been longer.
  settings.cut_at = space_for_frames(port_.config.address_);
  if (longest >= settings.cut_at) {
    // Frames are whole numbers of pages, or parts of one.
    const std::uint32_t better = std::bit_ceil(longest + 1 + KERNEL_BYTES);
    fail("has space for frames of " + std::to_string(settings.cut_at - 1) +
             " bytes, and its network interface receives up to " + std::to_string(longest),
         ENOTSUP,
         "add framesz=" + std::to_string(better) + ",blocksz=" + std::to_string(4 * better) +
             " to the address, with buffers as long (buf_size), or lower the MTU");
  }
  sockets_ = PacketSockets(info.if_index);
  sockets_.leave_out_sent();
}

void DpdkPort::make_queues(const Settings& settings) {
  const std::uint16_t device = device_->port();
  const int socket = rte_eth_dev_socket_id(device);
  rte_ether_addr address{};
  if (rte_eth_macaddr_get(device, &address) == 0)
    std::copy_n(std::begin(address.addr_bytes), mac_.size(), mac_.begin());
  if (rte_is_zero_ether_addr(&address)) {
    // A virtual device without one gets a locally administered address, like a loopback port.
    mac_[0] = 0x02;
    store_be16(&mac_[4], port_.id);
  }
  if (!port_.rx.empty()) {
    for (memory::MemoryRegion* const region : receive_regions(port_, splits_))
      pools_.push_back(std::make_unique<PacketPool>(*region, socket));
    make_receivers(settings);
  }
  for (std::uint16_t number = 0; number < settings.rx_queues; ++number)
    make_rx_queue(number, settings);
  for (std::uint16_t number = 0; number < settings.tx_queues; ++number) {
    const int error = rte_eth_tx_queue_setup(device, number, settings.tx_descriptors,
                                             static_cast<unsigned>(socket), nullptr);
    if (error == 0) continue;
    const bool own = number < port_.tx.size();
    fail("makes no transmit queue", error,
         own ? "use fewer transmit queues" : "use fewer receive queues");
  }
  const bool is_packet_socket = settings.info.driver_name == AF_PACKET_DRIVER;
  for (const auto& queue : port_.tx) {
    const Sender::Place place{.device = device,
                              .queue = static_cast<std::uint16_t>(senders_.size()),
                              .descriptors = settings.tx_descriptors,
                              .most_bytes = settings.most_bytes,
                              .socket = socket,
                              .mac = mac_,
                              .clock = CardClock::launches(port_.config) ? clock_.get() : nullptr,
                              .link = interface_ ? &*interface_ : nullptr,
                              .sockets = is_packet_socket ? &sockets_ : nullptr};
    senders_.push_back(std::make_unique<Sender>(place, *queue, flows_, removed_));
  }
}

void DpdkPort::make_rx_queue(std::uint16_t number, const Settings& settings) {
  rte_eth_rxconf conf = settings.info.default_rxconf;
  std::vector<rte_eth_rxseg> pieces(splits_ ? pools_.size() : 0);
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    rte_eth_rxseg_split& piece = pieces[s].split;
    piece = {};
    piece.mp = pools_[s]->mempool();
    piece.length =
        static_cast<std::uint16_t>(port_.rx.front()->segment_capacity(static_cast<int>(s)));
    // That of the first piece is added by DPDK.
    piece.offset = s == 0 ? 0 : PacketPool::HEADROOM;
  }
  conf.rx_seg = pieces.data();
  conf.rx_nseg = static_cast<std::uint16_t>(pieces.size());
  const int socket = rte_eth_dev_socket_id(device_->port());
  const int error = rte_eth_rx_queue_setup(device_->port(), number, settings.rx_descriptors,
                                           static_cast<unsigned>(socket), &conf,
                                           splits_ ? nullptr : pools_.front()->mempool());
  if (error == 0) return;
  std::string regions;
  for (const auto& pool : pools_)
    regions.append(regions.empty() ? "'" : "', '").append(pool->region().config().name_);
  fail("makes no receive queue", error,
       std::string("give memory region") + (pools_.size() > 1 ? "s " : " ") + regions +
           "' more (num_bufs) or longer buffers (buf_size)");
}

void DpdkPort::make_receivers(const Settings& settings) {
  const std::size_t queues = settings.rx_queues;
  const std::vector<RxQueue*> first = first_queues(port_);
  const std::size_t readers = std::min(first.size(), queues);
  const CardClock* const clock = CardClock::stamps(port_.config) ? clock_.get() : nullptr;
  for (std::size_t reader = 0; reader < readers; ++reader) {
    std::vector<std::uint16_t> own;
    for (std::size_t queue = reader; queue < queues; queue += readers)
      own.push_back(static_cast<std::uint16_t>(queue));
    std::vector<const PacketPool*> pools;
    pools.reserve(pools_.size());
    for (const auto& pool : pools_) pools.push_back(pool.get());
    receivers_.push_back(std::make_unique<Receiver>(port_, *first[reader], device_->port(),
                                                    std::move(own), std::move(pools), clock,
                                                    removed_, settings.cut_at, buffers_ahead_));
  }
  for (const auto& queue : port_.rx) {
    Sources& sources = sources_.emplace_back();
    for (const auto& receiver : receivers_) {
      if (HandOver* const handed = receiver->hand_over_to(*queue); handed != nullptr)
        sources.handed.push_back(handed);
      else if (&receiver->first() == queue.get())
        sources.reader = receiver.get();
    }
  }
}

void DpdkPort::start() {
  const std::uint16_t device = device_->port();
  if (const int error = rte_eth_dev_start(device); error != 0) {
    device_->explain_failed_start(port_.config);
    fail("does not start", error, "the reason says what it needs");
  }
  for (const auto& sender : senders_) sender->start();
  // Frames for other addresses too, as every engine. Devices that have no addresses refuse.
  if (receivers_.empty() || rte_eth_promiscuous_enable(device) == 0 || !device_->is_card()) return;
  log(LogLevel::WARN, device_of(port_.config) +
                          "receives frames for its own address only: it refuses others "
                          "(promiscuous mode)");
}

void DpdkPort::fail(const std::string& what, int error, const std::string& fix) const {
  throw Error(
      error == ENOTSUP || error == -ENOTSUP ? Status::NOT_SUPPORTED : Status::INVALID_PARAMETER,
      device_of(port_.config) + what + (error == ENOTSUP ? "" : ": " + Reports::reason(error)) +
          "; " + fix);
}

std::uint32_t DpdkPort::receive(RxQueue& queue) noexcept {
  const Sources& sources = sources_[position(port_.rx, queue)];
  std::uint32_t seen = sources.reader != nullptr ? sources.reader->receive() : 0;
  for (HandOver* handed : sources.handed) seen += handed->receive();
  return seen;
}

void DpdkPort::finish_receiving(RxQueue& queue) noexcept {
  const Sources& sources = sources_[position(port_.rx, queue)];
  if (sources.reader != nullptr) sources.reader->finish();
}

bool DpdkPort::expects_more(const RxQueue& queue) const noexcept {
  return std::ranges::any_of(sources_[position(port_.rx, queue)].handed, &HandOver::expects_more);
}

TransmitResult DpdkPort::transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                                  std::uint32_t count) noexcept {
  return senders_[position(port_.tx, queue)]->send(burst, first, count);
}

TransmitCompletion DpdkPort::completed(TxQueue& queue, bool last) noexcept {
  return senders_[position(port_.tx, queue)]->completed(last);
}

std::string DpdkPort::launch_times(const TxQueue& queue) const {
  if (!CardClock::launches(port_.config)) return PortIo::launch_times(queue);
  return "device " + port_.config.address_.substr(0, port_.config.address_.find(','));
}

LinkState DpdkPort::link_state() const noexcept {
  if (removed_.load(std::memory_order_relaxed)) return {.state = "removed"};
  const std::lock_guard lock(mutex_);
  if (device_ == nullptr || !owns_eal()) return {};
  const std::uint16_t device = device_->port();
  if (rte_eth_dev_is_removed(device) == 1) return {.state = "removed"};
  // Their drivers do not follow it.
  if (interface_) return interface_->state();
  LinkState state;
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(device, &link) != 0) return state;
  state.state = link.link_status == RTE_ETH_LINK_UP ? "up" : "down";
  state.speed = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
  std::uint16_t mtu = 0;
  if (rte_eth_dev_get_mtu(device, &mtu) == 0) state.mtu = mtu;
  return state;
}

PortSnapshot DpdkPort::read_losses() const noexcept {
  PortSnapshot now;
  rte_eth_stats stats{};
  if (rte_eth_stats_get(device_->port(), &stats) != 0) return losses_;
  const NamedLosses::Counts named = named_losses_.read(device_->port());
  // With most drivers, rx_nombuf are attempts to get a buffer, and the packets still wait.
  now.lost_card.value = stats.imissed + named.card - losses_before_.lost_card.value;
  now.lost_errors.value = stats.ierrors + named.errors - losses_before_.lost_errors.value;
  now.lost_before_engine.value = now.lost_card + now.lost_errors;
  const PortSnapshot by_kernel = kernel_losses_.read();
  now.lost_card += by_kernel.lost_card;
  now.lost_errors += by_kernel.lost_errors;
  now.lost_backlog += by_kernel.lost_backlog;
  now.lost_dropped += by_kernel.lost_dropped;
  now.lost_before_engine += by_kernel.lost_before_engine;
  if (buffers_ahead_ > 0) {
    now.lost_dropped += stats.rx_nombuf;
    now.lost_before_engine += stats.rx_nombuf;
  }
  // Counters of a card that is gone are read as ones.
  constexpr std::uint64_t ABSURD = std::uint64_t{1} << 31U;
  if (removed_.load(std::memory_order_relaxed) &&
      now.lost_before_engine.value - losses_.lost_before_engine.value >= ABSURD)
    return losses_;
  return now;
}

PortSnapshot DpdkPort::losses(std::uint64_t max_age) const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t now = monotonic_ns();
  if (device_ != nullptr && owns_eal() && now - losses_read_ >= max_age) {
    losses_ = read_losses();
    losses_read_ = now;
  }
  return losses_;
}

std::vector<std::uint16_t> DpdkPort::device_queues(const FlowConfig& flow) const {
  const std::vector<std::uint16_t>& ids = flow.action_.ids_;
  // Receivers begin with the queue of the device that has their number.
  std::vector<std::uint16_t> found;
  for (std::size_t number = 0; number < receivers_.size(); ++number) {
    const auto is_own = [&](std::uint16_t id) {
      const RxQueue* const queue = port_.rx_queue(id);
      return queue != nullptr && receivers_[number]->hand_over_to(*queue) == nullptr;
    };
    if (ids.empty() ? is_own(flow.action_.id_) : std::ranges::any_of(ids, is_own))
      found.push_back(static_cast<std::uint16_t>(number));
  }
  // Its core reads nothing, as the device has too few queues: others hand its packets over.
  if (found.empty()) {
    found.resize(receivers_.size());
    std::iota(found.begin(), found.end(), std::uint16_t{0});
  }
  return found;
}

void DpdkPort::install(steering::FlowUpdate& update) {
  // Not mutex_: a card takes its time for rules, and counters are read meanwhile.
  const std::lock_guard lock(rules_mutex_);
  if (receivers_.empty() || device_ == nullptr || !owns_eal()) return;
  refuse_for_gpu(update);
  if (!update.refused.empty()) return;
  rules_->install(update, [this](const FlowConfig& flow) { return device_queues(flow); });
}

void DpdkPort::refuse_for_gpu(steering::FlowUpdate& update) const {
  const RxQueue& queue = *port_.rx.front();
  if (pools_.size() == 1 || pools_.back()->region().host_readable()) return;
  for (const std::size_t i : update.added) {
    const std::string why =
        why_not_on_gpu(*update.flows[i].config, port_.config, queue.segment_capacity(0));
    if (why.empty()) continue;
    update.refused.emplace_back(
        i, Error(Status::NOT_SUPPORTED,
                 why + ", and the device writes the rest to memory region '" +
                     queue.region(1).name() + "' on GPU " + std::to_string(queue.region(1).gpu()) +
                     "; with the flow in the configuration when the engine is opened, packets "
                     "reach the GPU by way of host memory"));
  }
}

void DpdkPort::begin_removal() noexcept {
  if (removed_.exchange(true, std::memory_order_seq_cst)) return;
  try {
    log(LogLevel::WARN,
        device_of(port_.config) +
            "was removed: no packets are received, and those to send are counted as send_error; "
            "once it is there again, bound to its driver, close and open the engine",
        {.interface = port_.config.name_, .queue = {}});
  } catch (const std::bad_alloc&) {
    // The state of the link says it.
    return;
  }
}

bool DpdkPort::end_removal() noexcept {
  // Whoever closes the port may wait for this call, with the mutexes.
  const std::unique_lock rules(rules_mutex_, std::try_to_lock);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const auto devices = Device::try_lock_all();
  if (!rules || !lock || !devices) return false;
  if (device_ == nullptr) return true;
  if (std::ranges::any_of(receivers_, &Receiver::uses_device) ||
      std::ranges::any_of(senders_, &Sender::uses_device))
    return false;
  if (watch_) watch_->stop();
  // What no poller has read.
  const std::uint32_t unread = close_device();
  losses_.lost_card += unread;
  losses_.lost_before_engine += unread;
  for (const auto& sender : senders_) sender->note_closed();
  return true;
}

std::uint32_t DpdkPort::close_device() noexcept {
  if (clock_) clock_->stop();
  losses_ = read_losses();
  // A virtual device may still hold packets that nobody reads.
  std::uint32_t unread = 0;
  for (const auto& receiver : receivers_) unread += receiver->drain_device();
  rules_.reset();
  device_.reset();
  return unread;
}

void DpdkPort::close() noexcept {
  if (watch_) watch_->stop();
  const std::scoped_lock lock(rules_mutex_, mutex_);
  if (!owns_eal()) return;
  for (const auto& receiver : receivers_) receiver->discard_rest();
  if (device_ != nullptr) close_device();
  receivers_.clear();
  pools_.clear();
}

}  // namespace daqiri::dpdk

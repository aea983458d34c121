/// Loopback in memory: transmit queues feed receive queues within the process.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "engines/loopback/link.h"
#include "io/io_engine.h"
#include "net/headers.h"
#include "net/transforms.h"
#include "steering/transmit_flows.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

using loopback::Arrived;
using loopback::Full;
using loopback::Link;

/// State of a transmit worker for the receiving port.
struct Cable {
  explicit Cable(const Port& port) : steering(port.steering), tally(port.steering.add_tally()) {}
  steering::Steering::Reader steering;
  /// For packets that are lost on the way.
  steering::FlowTally& tally;
  /// By queue id.
  std::map<std::uint16_t, Link> links;
  /// Holds a frame while it is moved between segments of the same buffers.
  std::vector<std::uint8_t> frame;
  /// Headers that transmit flows put before a packet.
  std::vector<std::uint8_t> headers;
};
struct Sender {
  Sender(Cable* cable_of_core, bool fills) : cable(cable_of_core), fills_source_mac(fills) {}

  Cable* cable;
  /// Offload tx_eth_src: set this port's address as the source of packets.
  bool fills_source_mac;
  /// The full queue that the sender waits for. Used in messages.
  std::atomic<const RxQueue*> waits_for{nullptr};
};

/// Whether both queues use a common region.
bool share_region(const RxQueue& rx, const TxQueue& tx) {
  const auto& regions = rx.config().common_.mrs_;
  return std::ranges::find_first_of(regions, tx.config().common_.mrs_) != regions.end();
}

class LoopbackPort final : public PortIo, public StreamPort {
 public:
  LoopbackPort(const Port& port, Full full) : full_(full), flows_(port.config) {
    mac_[0] = 0x02;  // locally administered
    store_be16(&mac_[4], port.id);
    for (const auto& rx : port.rx) inbound_[rx.get()];
  }

  /// Connect the transmit queues of `from` to port `to`, whose engine side is `receiver`. `all`:
  /// the ports of the session.
  void connect(const Port& from, const Port& to, LoopbackPort& receiver,
               const std::vector<std::unique_ptr<Port>>& all) {
    for (const auto& tx : from.tx) {
      const auto [entry, is_new] = cables_.try_emplace(tx->config().common_.cpu_core_, to);
      Cable& cable = entry->second;
      cable.headers.resize(flows_.most_headers());
      senders_.try_emplace(tx.get(), &cable, tx->has_offload("tx_eth_src"));
      if (!is_new) continue;
      for (const auto& rx : to.rx) {
        // If senders held all buffers of a shared region, waiting for one would never end.
        bool senders_share = false;
        for (const auto& port : all) {
          for (const auto& other : port->tx)
            senders_share = senders_share || share_region(*rx, *other);
        }
        Link& link =
            cable.links
                .try_emplace(rx->id(), *rx, to.steering, full_, senders_share ? Full::DROP : full_)
                .first->second;
        receiver.inbound_[rx.get()].push_back(&link);
        cable.frame.resize(std::max<std::size_t>(cable.frame.size(), rx->max_packet_size()));
      }
    }
  }
  void close() noexcept { cables_.clear(); }

  std::uint32_t receive(RxQueue& queue) noexcept override {
    std::vector<Link*>& links = inbound_.find(&queue)->second;
    std::uint32_t seen = 0;
    for (Link* link : links) seen += link->deliver();
    // Rotate, so that each link in turn is the first to find space.
    if (links.size() > 1) std::rotate(links.begin(), links.begin() + 1, links.end());
    return seen;
  }
  void finish_receiving(RxQueue& queue) noexcept override {
    for (Link* link : inbound_.find(&queue)->second) link->finish();
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    Sender& sender = senders_.find(&queue)->second;
    const steering::Steering::Pass pass(sender.cable->steering);
    TransmitResult result;
    const Link* full = nullptr;
    for (; result.sent < count; ++result.sent) {
      const std::uint32_t packet = first + result.sent;
      if (sender.fills_source_mac && burst.pkt_lens[0][packet] >= ADDRESSES_SIZE) {
        auto* frame = static_cast<std::uint8_t*>(burst.pkts[0][packet]);
        std::memcpy(frame + 6, mac_.data(), mac_.size());
      }
      Pieces wire;
      result.error = flows_.transform(burst, packet, sender.cable->headers.data(), wire);
      if (result.error != 0) {
        result.failed = 1;
        break;
      }
      full = carry(sender, queue, burst, packet, wire);
      if (full != nullptr) break;
      result.bytes += wire.length;
    }
    for (auto& [id, link] : sender.cable->links) {
      if (std::exchange(link.rung, true)) continue;
      link.give_cache_back();
      link.rx.poller_doorbell->ring();
    }
    sender.waits_for.store(full == nullptr ? nullptr : &full->rx, std::memory_order_relaxed);
    if (full != nullptr) full->rx.ask_for_buffers();
    return result;
  }
  [[nodiscard]] StreamPort* stream() noexcept override { return this; }
  bool settle(TxQueue& queue, bool /*last*/) noexcept override {
    senders_.find(&queue)->second.waits_for.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue&) const noexcept override {
    return {.most_packets = 256, .overhead_bytes = flows_.most_overhead()};
  }
  [[nodiscard]] std::string held_up_by(const TxQueue& queue) const override {
    const RxQueue* full = senders_.find(&queue)->second.waits_for.load(std::memory_order_relaxed);
    if (full == nullptr) return {};
    return "; a loopback waits while no receiver reads receive queue '" +
           full->config().common_.name_ + "' (loopback_drops: true drops packets instead)";
  }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override {
    return std::make_shared<LinkLayer>();
  }
  [[nodiscard]] MacAddress mac_address() const noexcept override { return mac_; }

 private:
  /// `wire`: the packet as sent. Returns the full link if the packet must wait for it; otherwise
  /// null.
  static const Link* carry(const Sender& sender, const TxQueue& queue, Burst& burst,
                           std::uint32_t packet, const Pieces& wire) noexcept {
    Cable& cable = *sender.cable;
    const steering::Program& program = cable.steering.program();
    std::array<std::uint8_t, steering::MOST_KEY_BYTES> room;
    const auto view = steering::PacketView::of_pieces(wire, room);
    const steering::Verdict verdict = program.classify(view);
    const std::uint32_t length = verdict.length_of(wire.length);
    const auto it = cable.links.find(verdict.queue);
    Link& link = it == cable.links.end() ? cable.links.begin()->second : it->second;
    link.rung = false;
    const auto lose = [&](DropReason reason) {
      cable.tally.count(verdict.position, 1, length);
      link.lose(reason, length);
      return nullptr;
    };
    if (!verdict.matched && program.isolated()) return lose(DropReason::FILTERED);
    if (verdict.malformed) return lose(DropReason::MALFORMED);
    if (length > link.rx.max_packet_size()) return lose(DropReason::TRUNCATED);
    Arrived* arrived = link.ring.claim();
    if (arrived == nullptr) return link.waits_for_room ? &link : lose(DropReason::NIC);
    std::array<std::uint8_t, ETHERNET_SIZE> ethernet;
    Pieces taken_off;
    if (verdict.transformed) {
      verdict.remains.store_ethernet(view.bytes.data(), ethernet.data());
      taken_off.add(ethernet.data(), ETHERNET_SIZE);
      taken_off.add(wire, verdict.remains.payload, verdict.remains.end);
    }
    const Pieces& remaining = verdict.transformed ? taken_off : wire;
    if (link.waits_for_room && !link.waits_for_buffers && same_regions(queue, link.rx)) {
      hand_over(link.rx, *arrived, burst, packet, remaining, cable.frame.data());
    } else if (link.take_buffers(*arrived)) {
      copy_in(link.rx, *arrived, remaining);
    } else {
      return link.waits_for_buffers ? &link : lose(DropReason::NO_PACKET_BUFFER);
    }
    arrived->flow = verdict.flow;
    arrived->flow_position = verdict.position;
    arrived->timestamp = realtime_ns();
    link.ring.publish();
    return nullptr;
  }

  static bool same_regions(const TxQueue& tx, const RxQueue& rx) noexcept {
    bool same = tx.num_segments() == rx.num_segments();
    for (int s = 0; same && s < rx.num_segments(); ++s) same = &tx.region(s) == &rx.region(s);
    return same;
  }

  /// Moves the packet's own buffers to the receive queue, with the bytes of `remaining`. `frame`
  /// has space for all of them.
  static void hand_over(RxQueue& rx, Arrived& arrived, Burst& burst, std::uint32_t packet,
                        const Pieces& remaining, std::uint8_t* frame) noexcept {
    std::uint32_t left = remaining.length;
    bool in_place = true;
    for (int s = 0; s < rx.num_segments(); ++s) {
      const auto at = static_cast<std::size_t>(s);
      arrived.buffers[s] = std::exchange(burst.buffers[s][packet], NO_BUFFER);
      arrived.lengths[s] = std::min(left, rx.segment_capacity(s));
      left -= arrived.lengths[s];
      in_place = in_place && remaining.at[at].iov_base == burst.pkts[s][packet] &&
                 remaining.at[at].iov_len == arrived.lengths[s];
    }
    if (in_place) return;
    remaining.copy(0, remaining.length, frame);
    for (int s = 0; s < rx.num_segments(); frame += arrived.lengths[s++])
      std::memcpy(burst.pkts[s][packet], frame, arrived.lengths[s]);
  }

  static void copy_in(RxQueue& rx, Arrived& arrived, const Pieces& remaining) noexcept {
    std::uint32_t done = 0;
    for (int s = 0; s < rx.num_segments(); ++s) {
      const std::uint32_t want = std::min(remaining.length - done, rx.segment_capacity(s));
      remaining.copy(done, want,
                     static_cast<std::uint8_t*>(rx.region(s).address(arrived.buffers[s])));
      arrived.lengths[s] = want;
      done += want;
    }
  }

  Full full_;
  steering::TransmitFlows flows_;
  MacAddress mac_{};
  /// By core of the transmit queues, because those of one core share a worker.
  std::map<std::string, Cable> cables_;
  std::map<const TxQueue*, Sender> senders_;
  std::map<const RxQueue*, std::vector<Link*>> inbound_;
};

class LoopbackEngine final : public IoEngine {
 public:
  explicit LoopbackEngine(const NetworkConfig& config)
      : full_(config.common_.loopback_drops_ ? Full::DROP : Full::WAIT) {}

  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) {
      ports_.push_back(std::make_unique<LoopbackPort>(*port, full_));
      port->io = ports_.back().get();
    }
    // A port with receive queues receives its own packets; a transmit-only port sends to the first
    // receive-only port, which find_unheard has checked.
    const auto receives_only = std::find_if(
        ports.begin(), ports.end(), [](const auto& p) { return !p->rx.empty() && p->tx.empty(); });
    for (const auto& port : ports) {
      if (port->tx.empty()) continue;
      const Port& to = port->rx.empty() ? **receives_only : *port;
      ports_[port->id]->connect(*port, to, *ports_[to.id], ports);
    }
  }
  void close() noexcept override {
    for (const auto& port : ports_) port->close();
  }

 private:
  Full full_;
  std::vector<std::unique_ptr<LoopbackPort>> ports_;
};

std::unique_ptr<IoEngine> make_loopback(const NetworkConfig& config) {
  return std::make_unique<LoopbackEngine>(config);
}

/// Interfaces that transmit to no other.
void find_unheard(const NetworkConfig& config, std::vector<Error>& found) {
  const auto receives_only = [](const InterfaceConfig& interface) {
    return !interface.rx_.queues_.empty() && interface.tx_.queues_.empty();
  };
  if (std::ranges::any_of(config.ifs_, receives_only)) return;
  for (const InterfaceConfig& interface : config.ifs_) {
    if (interface.tx_.queues_.empty() || !interface.rx_.queues_.empty()) continue;
    found.emplace_back(Status::INVALID_PARAMETER,
                       "interface '" + interface.name_ +
                           "' transmits, but no interface of this loopback receives: give it rx "
                           "queues, or add an interface that has rx queues only");
  }
}

const RegisteredEngine registered{{{.name = "loopback",
                                    .addresses = AddressForm::LABEL,
                                    .in_memory = true,
                                    .rss = true,
                                    .transforms = true,
                                    .dynamic_flows = true,
                                    .flex_items = true,
                                    .ecpri = true,
                                    .direct_mode = true,
                                    .unused_keys = UNUSED_BY_RAW_ENGINES,
                                    .find_rejected = find_unheard},
                                   [](const NetworkConfig& config) {
                                     return config.common_.loopback_ ==
                                            LoopbackType::LOOPBACK_TYPE_SW;
                                   },
                                   make_loopback}};

}  // namespace

}  // namespace daqiri

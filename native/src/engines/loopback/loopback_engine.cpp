/// The wire in memory: what is sent is received, within the process.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "io/io_engine.h"
#include "system/ring.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// A packet that has arrived, in buffers of the receive queue's regions.
struct Arrived {
  std::uint32_t buffers[MAX_NUM_SEGS]{NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER};
  std::uint32_t lengths[MAX_NUM_SEGS]{};
  FlowId flow{0};
  std::uint64_t timestamp{0};
};

/// The wire from one transmit worker to one receive queue. The worker plays the NIC of the
/// receiving port: it steers, takes a buffer of the receive queue's region and copies the frame,
/// once.
struct Link {
  Link(RxQueue& queue, std::size_t capacity, std::uint32_t cache_size)
      : rx(queue), ring(capacity), cache_limit(cache_size) {
    for (auto& numbers : cache) numbers.reserve(cache_limit + 1);
  }
  RxQueue& rx;
  SpscRing<Arrived> ring;
  /// Buffers taken ahead, per segment; transmit worker only.
  std::vector<std::uint32_t> cache[MAX_NUM_SEGS];
  std::uint32_t cache_limit;
  bool rung{true};

  /// What was lost on the wire, which the poller counts in its next pass.
  struct Lost {
    std::atomic<std::uint64_t> packets{0};
    std::atomic<std::uint64_t> bytes{0};
    std::uint64_t packets_counted{0};
    std::uint64_t bytes_counted{0};
  };
  std::array<Lost, NUM_DROP_REASONS> lost;

  void lose(DropReason reason, std::uint64_t bytes) noexcept {
    Lost& entry = lost[static_cast<std::size_t>(reason)];
    entry.bytes.fetch_add(bytes, std::memory_order_relaxed);
    entry.packets.fetch_add(1, std::memory_order_release);
  }

  std::uint32_t take_buffer(int segment) noexcept {
    auto& numbers = cache[segment];
    if (numbers.empty()) {
      numbers.resize(cache_limit);
      numbers.resize(rx.region(segment).take(numbers.data(), cache_limit));
      if (numbers.empty()) return NO_BUFFER;
    }
    const std::uint32_t number = numbers.back();
    numbers.pop_back();
    return number;
  }

  /// One buffer per segment, or none.
  bool take_buffers(Arrived& packet) noexcept {
    for (int s = 0; s < rx.num_segments(); ++s) {
      packet.buffers[s] = take_buffer(s);
      if (packet.buffers[s] != NO_BUFFER) continue;
      for (int t = 0; t < s; ++t) cache[t].push_back(packet.buffers[t]);
      return false;
    }
    return true;
  }

  /// Poller.
  void count_lost() noexcept {
    for (std::size_t r = 0; r < lost.size(); ++r) {
      Lost& entry = lost[r];
      const std::uint64_t packets = entry.packets.load(std::memory_order_acquire);
      if (packets == entry.packets_counted) continue;
      const std::uint64_t bytes = entry.bytes.load(std::memory_order_relaxed);
      rx.drop(static_cast<DropReason>(r), packets - entry.packets_counted,
              bytes - entry.bytes_counted);
      entry.packets_counted = packets;
      entry.bytes_counted = bytes;
    }
  }

  std::uint32_t deliver() noexcept;
};

std::uint32_t Link::deliver() noexcept {
  constexpr std::size_t MAX_PER_PASS = 256;
  constexpr std::uint32_t AT_ONCE = 64;
  const std::size_t ready = std::min(ring.ready(), MAX_PER_PASS);
  const int segments = rx.num_segments();
  std::array<std::array<std::uint32_t, AT_ONCE>, MAX_NUM_SEGS> buffers;
  std::array<std::array<std::uint32_t, AT_ONCE>, MAX_NUM_SEGS> lengths;
  std::array<FlowId, AT_ONCE> flows;
  std::array<std::uint64_t, AT_ONCE> times;
  RxBatch batch;
  for (std::size_t s = 0; s < static_cast<std::size_t>(segments); ++s) {
    batch.segments[s].buffers = buffers[s].data();
    batch.segments[s].lengths.values = lengths[s].data();
  }
  batch.flows.values = flows.data();
  batch.times.values = times.data();
  for (std::size_t done = 0; done < ready; done += batch.count) {
    batch.count = static_cast<std::uint32_t>(std::min<std::size_t>(ready - done, AT_ONCE));
    for (std::uint32_t i = 0; i < batch.count; ++i) {
      const Arrived& packet = ring.at(i);
      for (int s = 0; s < segments; ++s) {
        buffers[static_cast<std::size_t>(s)][i] = packet.buffers[s];
        lengths[static_cast<std::size_t>(s)][i] = packet.lengths[s];
      }
      flows[i] = packet.flow;
      times[i] = packet.timestamp;
    }
    ring.consume(batch.count);
    rx.deliver(batch);
  }
  count_lost();
  return static_cast<std::uint32_t>(ready);
}

class LoopbackPort final : public PortIo {
 public:
  explicit LoopbackPort(std::uint16_t id)
      // Locally administered.
      : mac_{0x02, 0, 0, 0, static_cast<std::uint8_t>(id >> 8U), static_cast<std::uint8_t>(id)} {}

  /// What this port sends, port `to` receives.
  void connect(const Port& from, Port& to, std::vector<std::unique_ptr<LoopbackPort>>& all);
  void close() noexcept;

  std::uint32_t receive(RxQueue& queue) noexcept override {
    std::uint32_t seen = 0;
    for (Link* link : inbound_.find(&queue)->second) seen += link->deliver();
    return seen;
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override;
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue&) const noexcept override {
    return {.most_packets = 256};
  }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override {
    return std::make_shared<LinkLayer>();
  }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address() const noexcept override { return mac_; }
  void add_receiver(const RxQueue& queue) { inbound_[&queue]; }

 private:
  /// What a transmit worker needs to reach the receiving port.
  struct Cable {
    explicit Cable(const Port& port) : steering(port.steering) {}
    steering::Steering::Reader steering;
    std::vector<std::unique_ptr<Link>> links;
    /// By queue id.
    std::map<std::uint16_t, Link*> by_queue;
  };
  struct Sender {
    Cable* cable;
    /// Offload tx_eth_src: frames leave with this port's address as their source.
    bool fills_source_mac;
  };

  void carry(const Sender& sender, const Burst& burst, std::uint32_t packet,
             std::uint32_t length) noexcept;
  static void copy_in(RxQueue& rx, Arrived& arrived, const Burst& burst, std::uint32_t packet,
                      std::uint32_t length) noexcept;

  std::array<std::uint8_t, 6> mac_;
  /// By core of the transmit queues: those of one core have one worker.
  std::map<std::string, Cable> cables_;
  std::map<const TxQueue*, Sender> senders_;
  std::map<const RxQueue*, std::vector<Link*>> inbound_;
};

void LoopbackPort::connect(const Port& from, Port& to,
                           std::vector<std::unique_ptr<LoopbackPort>>& all) {
  constexpr std::uint32_t MAX_CACHE = 32;
  for (const auto& tx : from.tx) {
    const auto [entry, is_new] = cables_.try_emplace(tx->config().cpu_core_, to);
    Cable& cable = entry->second;
    const auto& offloads = tx->config().offloads_;
    senders_[tx.get()] = {
        &cable, std::find(offloads.begin(), offloads.end(), "tx_eth_src") != offloads.end()};
    if (!is_new) continue;
    for (const auto& rx : to.rx) {
      std::uint64_t smallest = rx->region(0).config().num_bufs_;
      for (int s = 1; s < rx->num_segments(); ++s)
        smallest = std::min(smallest, rx->region(s).config().num_bufs_);
      const auto cache =
          static_cast<std::uint32_t>(std::clamp<std::uint64_t>(smallest / 16, 1, MAX_CACHE));
      // As many cells as buffers: a stalled poller costs packets only once the region is
      // exhausted.
      auto link = std::make_unique<Link>(*rx, rx->region(0).config().num_bufs_, cache);
      cable.by_queue[rx->id()] = link.get();
      all[to.id]->inbound_[rx.get()].push_back(link.get());
      cable.links.push_back(std::move(link));
    }
  }
}

void LoopbackPort::close() noexcept {
  for (auto& [core, cable] : cables_) {
    for (auto& link : cable.links) {
      for (int s = 0; s < link->rx.num_segments(); ++s) {
        link->rx.region(s).give(link->cache[s].data(),
                                static_cast<std::uint32_t>(link->cache[s].size()));
        link->cache[s].clear();
      }
    }
  }
}

TransmitResult LoopbackPort::transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                                      std::uint32_t count) noexcept {
  const Sender& sender = senders_.find(&queue)->second;
  sender.cable->steering.refresh();
  TransmitResult result;
  for (std::uint32_t i = first; i < first + count; ++i) {
    const std::uint32_t length = burst.packet_length(i);
    carry(sender, burst, i, length);
    result.bytes += length;
  }
  result.sent = count;
  for (auto& link : sender.cable->links) {
    if (!link->rung) {
      link->rung = true;
      link->rx.poller_doorbell->ring();
    }
  }
  return result;
}

void LoopbackPort::carry(const Sender& sender, const Burst& burst, std::uint32_t packet,
                         std::uint32_t length) noexcept {
  Cable& cable = *sender.cable;
  // Steering reads the first segment only: headers that are split over segments match no flow.
  const auto* headers = static_cast<const std::uint8_t*>(burst.pkts[0][packet]);
  const steering::Program& program = cable.steering.program();
  const steering::Verdict verdict =
      program.classify(steering::PacketView::of_frame(headers, burst.pkt_lens[0][packet]));
  const auto it = cable.by_queue.find(verdict.queue);
  Link& link = it == cable.by_queue.end() ? *cable.links.front() : *it->second;
  link.rung = false;
  if (!verdict.matched && program.isolated()) return link.lose(DropReason::FILTERED, length);
  if (length > link.rx.max_packet_size()) return link.lose(DropReason::TRUNCATED, length);
  Arrived* arrived = link.ring.claim();
  if (arrived == nullptr) return link.lose(DropReason::NIC, length);
  if (!link.take_buffers(*arrived)) return link.lose(DropReason::NO_PACKET_BUFFER, length);
  copy_in(link.rx, *arrived, burst, packet, length);
  if (sender.fills_source_mac && arrived->lengths[0] >= 12) {
    auto* frame = static_cast<std::uint8_t*>(link.rx.region(0).address(arrived->buffers[0]));
    std::memcpy(frame + 6, mac_.data(), mac_.size());
  }
  arrived->flow = verdict.flow;
  arrived->timestamp = realtime_ns();
  link.ring.publish();
}

void LoopbackPort::copy_in(RxQueue& rx, Arrived& arrived, const Burst& burst, std::uint32_t packet,
                           std::uint32_t length) noexcept {
  int from = 0;
  std::uint32_t from_at = 0;
  for (int s = 0; s < rx.num_segments(); ++s) {
    auto* to = static_cast<std::uint8_t*>(rx.region(s).address(arrived.buffers[s]));
    const std::uint32_t want = std::min(length, rx.segment_capacity(s));
    std::uint32_t got = 0;
    while (got < want) {
      const std::uint32_t n = std::min(want - got, burst.pkt_lens[from][packet] - from_at);
      std::memcpy(to + got, static_cast<const std::uint8_t*>(burst.pkts[from][packet]) + from_at,
                  n);
      got += n;
      from_at += n;
      if (from_at == burst.pkt_lens[from][packet]) {
        ++from;
        from_at = 0;
      }
    }
    arrived.lengths[s] = want;
    length -= want;
  }
}

/// A port with receive queues hears itself; a transmit-only port is cabled to the first
/// receive-only one. Null: there is none.
Port* other_end(const Port& from, const std::vector<std::unique_ptr<Port>>& ports) {
  if (!from.rx.empty()) return ports[from.id].get();
  const auto it = std::find_if(ports.begin(), ports.end(),
                               [](const auto& p) { return !p->rx.empty() && p->tx.empty(); });
  return it == ports.end() ? nullptr : it->get();
}

class LoopbackEngine final : public IoEngine {
 public:
  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) {
      ports_.push_back(std::make_unique<LoopbackPort>(port->id));
      for (const auto& rx : port->rx) ports_.back()->add_receiver(*rx);
      port->io = ports_.back().get();
    }
    for (const auto& port : ports) {
      if (port->tx.empty()) continue;
      Port* to = other_end(*port, ports);
      if (to == nullptr) {
        throw Error(Status::INVALID_PARAMETER,
                    "interface '" + port->config.name_ +
                        "' transmits, but no interface of this loopback receives: give it rx "
                        "queues, or add an interface that has rx queues only");
      }
      ports_[port->id]->connect(*port, *to, ports_);
    }
  }
  void close() noexcept override {
    for (const auto& port : ports_) port->close();
  }

 private:
  std::vector<std::unique_ptr<LoopbackPort>> ports_;
};

constexpr UnusedKey UNUSED_KEYS[] = {
    {"debug", "use log_level: debug"},
    {"memory_regions[].owned", "the engine allocates all regions; remove the key"},
    {"memory_regions[].access", "it is for RDMA; remove the key"},
    {"interfaces[].tx.queues[].timeout_us", "bursts are sent as they come; remove the key"}};

EngineTraits traits() noexcept {
  EngineTraits traits;
  traits.name = "loopback";
  traits.unused_keys = UNUSED_KEYS;
  return traits;
}

std::unique_ptr<IoEngine> make_loopback_engine(const NetworkConfig& /*config*/) {
  return std::make_unique<LoopbackEngine>();
}

const RegisteredEngine registered{
    {traits(),
     [](const NetworkConfig& config) { return config.common_.loopback_ == LoopbackType::SW; },
     make_loopback_engine}};

}  // namespace

}  // namespace daqiri

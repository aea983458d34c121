/// The wire in memory: what is sent is received, within the process.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "io/io_engine.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// The wire from one transmit queue to one receive queue. The transmit worker plays the NIC of the
/// receiving port: it steers, takes a buffer of the receive queue's region and copies the frame,
/// once.
struct Link {
  Link(RxQueue& queue, std::size_t capacity, std::uint32_t stash_size)
      : rx(queue), ring(capacity), stash_limit(stash_size) {}
  RxQueue& rx;
  SpscRing<ReceivedPacket> ring;
  /// Buffers taken ahead, per segment; transmit worker only.
  std::vector<std::uint32_t> stash[MAX_NUM_SEGS];
  std::uint32_t stash_limit;
  bool rung{true};

  std::uint32_t take_buffer(int segment) noexcept {
    auto& numbers = stash[segment];
    if (numbers.empty()) {
      numbers.resize(stash_limit);
      numbers.resize(rx.region(segment).take(numbers.data(), stash_limit));
      if (numbers.empty()) return NO_BUFFER;
    }
    const std::uint32_t number = numbers.back();
    numbers.pop_back();
    return number;
  }

  /// One buffer per segment, or none.
  bool take_buffers(ReceivedPacket& packet) noexcept {
    for (int s = 0; s < rx.num_segments(); ++s) {
      packet.buffers[s] = take_buffer(s);
      if (packet.buffers[s] != NO_BUFFER) continue;
      for (int t = 0; t < s; ++t) stash[t].push_back(packet.buffers[t]);
      return false;
    }
    return true;
  }
};

/// The receiving port of a transmit queue, with one link per receive queue.
struct Cable {
  Port* to{nullptr};
  std::vector<std::unique_ptr<Link>> links;
  /// By queue id.
  std::map<std::uint16_t, Link*> by_queue;
  /// Offload tx_eth_src: the frame leaves with this source address.
  bool fill_source_mac{false};
  std::array<std::uint8_t, 6> source_mac{};
};

class LoopbackEngine final : public IoEngine {
 public:
  LoopbackEngine() : link_layer_(std::make_shared<LinkLayer>()) {}

  void open(std::vector<std::unique_ptr<Port>>& ports) override;
  void close() noexcept override;
  std::uint32_t receive(RxQueue& queue) noexcept override;
  TransmitResult transmit(TxQueue& queue, const Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override;

  [[nodiscard]] std::uint32_t transmit_run() const noexcept override { return 256; }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer(std::uint16_t) const override {
    return link_layer_;
  }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address(
      std::uint16_t port) const noexcept override {
    // Locally administered.
    return {0x02,
            0x00,
            0x00,
            0x00,
            static_cast<std::uint8_t>(port >> 8U),
            static_cast<std::uint8_t>(port)};
  }

 private:
  void carry(Cable& cable, const Burst& burst, std::uint32_t packet, std::uint32_t length) noexcept;
  static void copy_in(RxQueue& rx, ReceivedPacket& arrived, const Burst& burst,
                      std::uint32_t packet, std::uint32_t length) noexcept;

  std::shared_ptr<const LinkLayer> link_layer_;
  std::map<const TxQueue*, Cable> cables_;
  std::map<const RxQueue*, std::vector<Link*>> inbound_;
};

/// A port with receive queues hears itself; a transmit-only port is cabled to the first
/// receive-only one.
Port* other_end(const Port& from, const std::vector<std::unique_ptr<Port>>& ports) {
  if (!from.rx.empty()) return ports[from.id].get();
  const auto it = std::find_if(ports.begin(), ports.end(),
                               [](const auto& p) { return !p->rx.empty() && p->tx.empty(); });
  return it == ports.end() ? nullptr : it->get();
}

void LoopbackEngine::open(std::vector<std::unique_ptr<Port>>& ports) {
  constexpr std::uint32_t MAX_STASH = 32;
  for (const auto& port : ports) {
    for (const auto& rx : port->rx) inbound_[rx.get()];
    if (port->tx.empty()) continue;
    Port* to = other_end(*port, ports);
    if (to == nullptr) {
      throw Error(Status::INVALID_PARAMETER,
                  "interface '" + port->config.name_ +
                      "' transmits, but no interface of this loopback receives: give it rx "
                      "queues, or add an interface that has rx queues only");
    }
    for (const auto& tx : port->tx) {
      Cable& cable = cables_[tx.get()];
      cable.to = to;
      const auto& offloads = tx->config().offloads_;
      cable.fill_source_mac =
          std::find(offloads.begin(), offloads.end(), "tx_eth_src") != offloads.end();
      cable.source_mac = mac_address(port->id);
      for (const auto& rx : to->rx) {
        std::uint64_t smallest = rx->region(0).config().num_bufs_;
        for (int s = 1; s < rx->num_segments(); ++s)
          smallest = std::min(smallest, rx->region(s).config().num_bufs_);
        const auto stash =
            static_cast<std::uint32_t>(std::clamp<std::uint64_t>(smallest / 16, 1, MAX_STASH));
        // As many cells as buffers: a stalled poller costs packets only once the region is
        // exhausted.
        auto link = std::make_unique<Link>(*rx, rx->region(0).config().num_bufs_, stash);
        for (auto& numbers : link->stash) numbers.reserve(stash);
        cable.by_queue[rx->id()] = link.get();
        inbound_[rx.get()].push_back(link.get());
        cable.links.push_back(std::move(link));
      }
    }
  }
}

void LoopbackEngine::close() noexcept {
  for (auto& [tx, cable] : cables_) {
    for (auto& link : cable.links) {
      for (int s = 0; s < link->rx.num_segments(); ++s) {
        link->rx.region(s).give(link->stash[s].data(),
                                static_cast<std::uint32_t>(link->stash[s].size()));
        link->stash[s].clear();
      }
    }
  }
}

std::uint32_t LoopbackEngine::receive(RxQueue& queue) noexcept {
  constexpr std::size_t MAX_PER_PASS = 256;
  std::uint32_t seen = 0;
  for (Link* link : inbound_.find(&queue)->second) {
    const std::size_t n = std::min(link->ring.ready(), MAX_PER_PASS);
    for (std::size_t i = 0; i < n; ++i) queue.deliver(queue.main_channel(), link->ring.at(i));
    link->ring.consume(n);
    seen += static_cast<std::uint32_t>(n);
  }
  return seen;
}

TransmitResult LoopbackEngine::transmit(TxQueue& queue, const Burst& burst, std::uint32_t first,
                                        std::uint32_t count) noexcept {
  Cable& cable = cables_.find(&queue)->second;
  TransmitResult result;
  for (std::uint32_t i = first; i < first + count; ++i) {
    const std::uint32_t length = burst.packet_length(i);
    carry(cable, burst, i, length);
    result.bytes += length;
  }
  result.sent = count;
  for (auto& link : cable.links) {
    if (!link->rung) {
      link->rung = true;
      link->rx.poller_doorbell->ring();
    }
  }
  return result;
}

void LoopbackEngine::carry(Cable& cable, const Burst& burst, std::uint32_t packet,
                           std::uint32_t length) noexcept {
  // Steering reads the first segment only: headers that are split over segments match no flow.
  const auto* headers = static_cast<const std::uint8_t*>(burst.pkts[0][packet]);
  const steering::Verdict verdict =
      cable.to->classifier->classify_frame(headers, burst.pkt_lens[0][packet]);
  const auto it = cable.by_queue.find(verdict.queue);
  Link& link = it == cable.by_queue.end() ? *cable.links.front() : *it->second;
  link.rung = false;
  if (!verdict.matched && cable.to->config.rx_.flow_isolation_)
    return link.rx.drop_on_wire(DropReason::FILTERED, length);
  if (length > link.rx.max_packet_size())
    return link.rx.drop_on_wire(DropReason::TRUNCATED, length);
  ReceivedPacket* arrived = link.ring.claim();
  if (arrived == nullptr) return link.rx.drop_on_wire(DropReason::NIC, length);
  if (!link.take_buffers(*arrived))
    return link.rx.drop_on_wire(DropReason::NO_PACKET_BUFFER, length);
  copy_in(link.rx, *arrived, burst, packet, length);
  if (cable.fill_source_mac && arrived->lengths[0] >= 12) {
    auto* frame = static_cast<std::uint8_t*>(link.rx.region(0).address(arrived->buffers[0]));
    std::memcpy(frame + 6, cable.source_mac.data(), cable.source_mac.size());
  }
  arrived->flow = verdict.flow;
  arrived->timestamp = realtime_ns();
  link.ring.publish();
}

void LoopbackEngine::copy_in(RxQueue& rx, ReceivedPacket& arrived, const Burst& burst,
                             std::uint32_t packet, std::uint32_t length) noexcept {
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

constexpr UnusedKey UNUSED_KEYS[] = {
    {"debug", "use log_level: debug"},
    {"memory_regions[].owned", "the engine allocates all regions; remove the key"},
    {"memory_regions[].access", "it is for RDMA; remove the key"},
    {"interfaces[].tx.queues[].timeout_us", "bursts are sent as they come; remove the key"}};

EngineTraits traits() {
  EngineTraits traits;
  traits.name = "loopback";
  traits.unused_keys = UNUSED_KEYS;
  return traits;
}

const RegisteredEngine registered{
    {traits(),
     [](const NetworkConfig& config) { return config.common_.loopback_ == LoopbackType::SW; },
     [](const NetworkConfig&) -> std::unique_ptr<IoEngine> {
       return std::make_unique<LoopbackEngine>();
     }}};

}  // namespace

}  // namespace daqiri

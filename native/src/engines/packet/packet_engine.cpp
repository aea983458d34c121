/// Ethernet frames through the kernel, on any Linux network interface.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/registry.h"
#include "engines/packet/interface.h"
#include "engines/packet/receive_ring.h"
#include "engines/packet/receiver.h"
#include "engines/packet/rejected.h"
#include "engines/packet/sender.h"
#include "engines/packet/xdp_ring.h"
#include "io/io_engine.h"
#include "net/link_statistics.h"
#include "steering/frame_sizes.h"
#include "steering/transmit_flows.h"
#include "system/log.h"

namespace daqiri {

namespace {

using packet::HandOver;
using packet::NetworkInterface;
using packet::Receiver;
using packet::Sender;
using packet::wants_xdp;

class PacketPort final : public PortIo {
 public:
  PacketPort(const Port& port, const NetworkConfig& config)
      : port_(port),
        interface_(NetworkInterface::of(port.config)),
        link_(interface_.index, interface_.name, true),
        flows_(port.config) {
    warn(config);
    if (!port.rx.empty()) open_receivers();
    for (const auto& queue : port.tx)
      senders_.push_back(std::make_unique<Sender>(interface_, *queue, flows_));
    // After the receiver, so that its socket receives every frame that is counted. AF_XDP passes
    // those that no flow wants to the kernel.
    if (receivers_.empty()) return;
    using Traffic = LinkStatistics::Traffic;
    const Receiver& first = *receivers_.front();
    const Traffic traffic = first.takes_every_frame() ? Traffic::EVERY_FRAME
                            : first.in_driver()       ? Traffic::IN_DRIVER
                                                      : Traffic::SOME_FRAMES;
    losses_.emplace(port.config.name_, traffic,
                    [index = interface_.index](const File&) { return index; });
  }

  std::uint32_t receive(RxQueue& queue) noexcept override {
    const Sources& sources = sources_of(queue);
    std::uint32_t seen = is_first(sources, queue) ? sources.ring->receive() : 0;
    for (HandOver* handed : sources.handed) seen += handed->receive();
    return seen;
  }
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue& queue) const noexcept override {
    // Readers ring the doorbells of the pollers to which they hand frames over.
    const Receiver* ring = sources_of(queue).ring;
    return {.ready = ring == nullptr ? Readiness() : ring->ready(),
            .gathers_ns = receivers_.front()->gathers_ns(),
            .gathered = ring != nullptr && ring->gathered(),
            .together = true};
  }
  void finish_receiving(RxQueue& queue) noexcept override {
    const Sources& sources = sources_of(queue);
    if (is_first(sources, queue)) sources.ring->finish();
  }
  [[nodiscard]] bool expects_more(const RxQueue& queue) const noexcept override {
    return std::ranges::any_of(sources_of(queue).handed, &HandOver::expects_more);
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    return sender_of(queue).send(burst, first, count);
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue&) const noexcept override {
    return {.most_packets = Sender::BATCH, .overhead_bytes = flows_.most_overhead()};
  }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override {
    return std::make_shared<LinkLayer>();
  }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address() const noexcept override {
    return interface_.mac;
  }
  [[nodiscard]] LinkState link_state() const noexcept override { return link_.state(); }
  [[nodiscard]] PortSnapshot losses(std::uint64_t max_age) const noexcept override {
    return losses_ ? losses_->losses(max_age) : PortSnapshot{};
  }
  [[nodiscard]] int loss_interface() const noexcept override {
    return losses_ ? losses_->interface() : -1;
  }
  [[nodiscard]] std::string receive_path(const RxQueue&) const override {
    return receivers_.front()->path();
  }
  [[nodiscard]] const char* fixed_flows() const noexcept override {
    return receivers_.empty() ? nullptr : receivers_.front()->fixed_flows();
  }
  void install(steering::FlowUpdate& update) override {
    // Otherwise frames of no flow are received too.
    if (receivers_.empty() || !port_.config.rx_.flow_isolation_) return;
    for (steering::InstalledFlow& flow : update.flows) flow.offload = receivers_.front()->offload();
  }
  void close() noexcept {
    if (losses_) losses_->stop();
    for (const auto& receiver : receivers_) receiver->stop();
    for (const auto& sender : senders_) sender->close();
  }

 private:
  /// Where frames of a queue come from.
  struct Sources {
    /// The ring that the queue's poller reads; null: it reads none.
    Receiver* ring{nullptr};
    /// From the readers of other rings.
    std::vector<HandOver*> handed;
  };

  void open_receivers() {
    receivers_ = Receiver::open(port_, interface_);
    for (const auto& queue : port_.rx) {
      Sources& sources = sources_.emplace_back();
      for (const auto& receiver : receivers_) {
        if (HandOver* handed = receiver->hand_over_to(*queue); handed != nullptr) {
          sources.handed.push_back(handed);
        } else {
          sources.ring = receiver.get();
        }
      }
    }
  }
  [[nodiscard]] const Sources& sources_of(const RxQueue& queue) const noexcept {
    return sources_[position(port_.rx, queue)];
  }
  /// A poller reads its ring once a pass.
  static bool is_first(const Sources& sources, const RxQueue& queue) noexcept {
    return sources.ring != nullptr && &sources.ring->first() == &queue;
  }
  [[nodiscard]] Sender& sender_of(const TxQueue& queue) const noexcept {
    return *senders_[position(port_.tx, queue)];
  }
  void warn(const NetworkConfig& config) const {
    const auto tell = [&](const std::string& text) {
      log(LogLevel::WARN, "interface '" + port_.config.name_ + "': " + text,
          {.interface = port_.config.name_, .queue = {}});
    };
    if (!interface_.up) {
      tell("'" + interface_.name +
           "' is down; no packets are received or sent until it is up (`ip link set " +
           interface_.name + " up`)");
    }
    const std::uint32_t wanted = steering::mtu_needed(config, port_.config);
    if (interface_.mtu < wanted) {
      tell(
          "'" + interface_.name + "' has an MTU of " + std::to_string(interface_.mtu) +
          ", and frames of this configuration (buf_size of memory regions, and headers of transmit "
          "flows) need " +
          std::to_string(wanted) +
          "; longer ones are not received, and those sent are counted as send_error. If packets "
          "are that long: `ip link set dev " +
          interface_.name + " mtu " + std::to_string(wanted) + "`, also at the other end");
    }
    for (const auto& queue : port_.rx) {
      const std::uint32_t longest =
          interface_.mtu + FRAME_OVERHEAD - steering::least_removed(port_.config, queue->id());
      if (queue->max_packet_size() >= longest) continue;
      tell("queue '" + queue->config().common_.name_ + "' has buffers for packets of " +
           std::to_string(queue->max_packet_size()) + " bytes, and frames of '" + interface_.name +
           "' have up to " + std::to_string(longest) +
           " (MTU, header and two VLAN tags, less what flows remove); longer ones are dropped as "
           "truncated. Raise buf_size of "
           "its memory regions");
    }
  }

  const Port& port_;
  NetworkInterface interface_;
  InterfaceLink link_;
  steering::TransmitFlows flows_;
  /// One for each ring.
  std::vector<std::unique_ptr<Receiver>> receivers_;
  /// In the order of the port's queues.
  std::vector<Sources> sources_;
  mutable std::optional<LinkStatistics> losses_;
  /// In the order of the port's queues.
  std::vector<std::unique_ptr<Sender>> senders_;
};

class PacketEngine final : public IoEngine {
 public:
  explicit PacketEngine(const NetworkConfig& config) : config_(config) {}
  ~PacketEngine() override { close(); }

  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) {
      ports_.push_back(std::make_unique<PacketPort>(*port, config_));
      port->io = ports_.back().get();
    }
  }
  void close() noexcept override {
    for (const auto& port : ports_) port->close();
  }

 private:
  const NetworkConfig& config_;
  std::vector<std::unique_ptr<PacketPort>> ports_;
};

std::unique_ptr<IoEngine> make_packet(const NetworkConfig& config) {
  return std::make_unique<PacketEngine>(config);
}

constexpr Privilege PACKET_PRIVILEGES[] = {
    {"CAP_NET_RAW", "packet sockets"},
    {"CAP_NET_ADMIN", "hardware_timestamps", true, packet::switches_timestamps_on},
    {"CAP_NET_ADMIN", "receive_path: af_xdp", true, wants_xdp},
    {"CAP_BPF", "receive_path: af_xdp", true, wants_xdp}};

/// libpcap compiles filters for interfaces that are up.
bool requires_up(const InterfaceConfig& interface) {
  return !interface.rx_.queues_.empty() && !interface.rx_.filter_.empty();
}

KernelMemory packet_memory(const NetworkConfig& config, const InterfaceConfig& interface) {
  KernelMemory asked;
  if (!interface.tx_.queues_.empty()) asked.send_buffer = Sender::SEND_BUFFER;
  if (interface.rx_.queues_.empty()) return asked;
  std::set<const MemoryRegionConfig*> regions;
  std::set<std::string> cores;
  for (const RxQueueConfig& queue : interface.rx_.queues_) {
    cores.insert(queue.common_.cpu_core_);
    for (const std::string& name : queue.common_.mrs_) regions.insert(&config.mrs_.at(name));
  }
  asked.mapped = std::max(Receiver::ring_bytes(regions), packet::XdpRing::FEWEST_BYTES);
  if (wants_xdp(interface)) {
    const std::uint64_t each = std::max(asked.mapped / cores.size(), packet::XdpRing::FEWEST_BYTES);
    // The rings do not count towards the limit.
    asked.locked = each * cores.size();
    asked.mapped = asked.locked + cores.size() * packet::XdpShares::most_ring_bytes(each);
  } else {
    asked.mapped += (cores.size() - 1) * packet::ReceiveRing::FEWEST_BYTES;
  }
  return asked;
}

const RegisteredEngine registered{{{.name = "packet",
                                    .addresses = AddressForm::INTERFACE_NAME,
                                    .hardware_timestamps = true,
                                    .rss = true,
                                    .transforms = true,
                                    .dynamic_flows = true,
                                    .flex_items = true,
                                    .ecpri = true,
                                    .packet_filter = true,
                                    .direct_mode = true,
                                    .reads_together = true,
                                    .unused_keys = UNUSED_BY_PACKET,
                                    .privileges = PACKET_PRIVILEGES,
                                    .link_types = packet::LINK_TYPES,
                                    .requires_up = requires_up,
                                    .kernel_memory = packet_memory,
                                    .find_rejected = packet::find_rejected,
                                    .find_rejected_here = packet::find_rejected_here},
                                   [](const NetworkConfig& config) {
                                     return config.common_.loopback_ == LoopbackType::DISABLED &&
                                            config.common_.engine_type == EngineType::PACKET;
                                   },
                                   make_packet}};

}  // namespace

}  // namespace daqiri

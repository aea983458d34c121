/// Ethernet frames through the kernel, on any Linux network interface.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/registry.h"
#include "engines/packet/interface.h"
#include "engines/packet/interface_link.h"
#include "engines/packet/receiver.h"
#include "engines/packet/rejected.h"
#include "engines/packet/sender.h"
#include "engines/packet/xdp_ring.h"
#include "io/io_engine.h"
#include "net/link_statistics.h"
#include "steering/transmit_flows.h"
#include "system/log.h"

namespace daqiri {

namespace {

using packet::HandOver;
using packet::InterfaceLink;
using packet::NetworkInterface;
using packet::Receiver;
using packet::Sender;
using packet::wants_xdp;

/// Bytes of a frame that the MTU does not include: the header with a VLAN tag.
constexpr std::uint32_t AROUND = 18;

class PacketPort final : public PortIo {
 public:
  explicit PacketPort(const Port& port)
      : port_(port),
        interface_(NetworkInterface::of(port.config)),
        link_(interface_),
        flows_(port.config) {
    warn();
    if (!port.rx.empty()) receiver_ = std::make_unique<Receiver>(port, interface_);
    for (const auto& queue : port.tx)
      senders_.push_back(std::make_unique<Sender>(interface_, *queue, flows_));
    // After the receiver, so that its socket receives every frame that is counted. AF_XDP passes
    // those that no flow wants to the kernel.
    if (receiver_ == nullptr) return;
    using Traffic = LinkStatistics::Traffic;
    losses_.emplace(port.config.name_,
                    wants_xdp(port.config) ? Traffic::SOME_FRAMES : Traffic::EVERY_FRAME,
                    [index = interface_.index](const File&) { return index; });
  }

  std::uint32_t receive(RxQueue& queue) noexcept override {
    if (is_first(queue)) return receiver_->receive();
    HandOver* handed = receiver_->hand_over_to(queue);
    return handed != nullptr ? handed->receive() : 0;
  }
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue& queue) const noexcept override {
    // The reader rings the doorbells of the other pollers.
    const bool handed = receiver_->hand_over_to(queue) != nullptr;
    return {.ready_fd = handed ? -1 : receiver_->fd(),
            .gathers_ns = receiver_->gathers_ns(),
            .gathered = !handed && receiver_->gathered(),
            .together = true};
  }
  void finish_receiving(RxQueue& queue) noexcept override {
    if (is_first(queue)) receiver_->finish();
  }
  [[nodiscard]] bool expects_more(const RxQueue& queue) const noexcept override {
    const HandOver* handed = receiver_->hand_over_to(queue);
    return handed != nullptr && handed->expects_more();
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    return sender_of(queue).send(burst, first, count);
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue& queue) const noexcept override {
    return {.most_packets = Sender::BATCH,
            .overhead_bytes = flows_.most_overhead(),
            .ready_fd = sender_of(queue).fd()};
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
  [[nodiscard]] std::string receive_path(const RxQueue&) const override {
    return receiver_->path();
  }
  [[nodiscard]] const char* fixed_flows() const noexcept override {
    return receiver_ == nullptr ? nullptr : receiver_->fixed_flows();
  }
  void close() noexcept {
    if (losses_) losses_->stop();
    if (receiver_ != nullptr) receiver_->stop();
    for (const auto& sender : senders_) sender->close();
  }

 private:
  [[nodiscard]] bool is_first(const RxQueue& queue) const noexcept {
    return port_.rx.front().get() == &queue;
  }
  [[nodiscard]] Sender& sender_of(const TxQueue& queue) const noexcept {
    const auto it =
        std::ranges::find_if(port_.tx, [&](const auto& each) { return each.get() == &queue; });
    return *senders_[static_cast<std::size_t>(it - port_.tx.begin())];
  }
  void warn() const {
    const auto tell = [&](const std::string& text) {
      log(LogLevel::WARN, "interface '" + port_.config.name_ + "': " + text,
          {.interface = port_.config.name_, .queue = {}});
    };
    if (!interface_.up) {
      tell("'" + interface_.name +
           "' is down; no packets are received or sent until it is up (`ip link set " +
           interface_.name + " up`)");
    }
    for (const auto& queue : port_.rx) {
      if (queue->max_packet_size() >= interface_.mtu + AROUND) continue;
      tell("queue '" + queue->config().common_.name_ + "' has buffers for packets of " +
           std::to_string(queue->max_packet_size()) + " bytes, and frames of '" + interface_.name +
           "' have up to " + std::to_string(interface_.mtu + AROUND) +
           " (MTU, header and a VLAN tag); longer ones are dropped as truncated. Raise buf_size of "
           "its memory regions");
    }
  }

  const Port& port_;
  NetworkInterface interface_;
  InterfaceLink link_;
  steering::TransmitFlows flows_;
  std::unique_ptr<Receiver> receiver_;
  mutable std::optional<LinkStatistics> losses_;
  /// In the order of the port's queues.
  std::vector<std::unique_ptr<Sender>> senders_;
};

class PacketEngine final : public IoEngine {
 public:
  ~PacketEngine() override { close(); }

  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) {
      ports_.push_back(std::make_unique<PacketPort>(*port));
      port->io = ports_.back().get();
    }
  }
  void close() noexcept override {
    for (const auto& port : ports_) port->close();
  }

 private:
  std::vector<std::unique_ptr<PacketPort>> ports_;
};

std::unique_ptr<IoEngine> make_packet(const NetworkConfig&) {
  return std::make_unique<PacketEngine>();
}

constexpr Privilege PACKET_PRIVILEGES[] = {
    {"CAP_NET_RAW", "packet sockets"},
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
  for (const RxQueueConfig& queue : interface.rx_.queues_) {
    for (const std::string& name : queue.common_.mrs_) regions.insert(&config.mrs_.at(name));
  }
  asked.mapped = std::max(Receiver::ring_bytes(regions), packet::XdpRing::FEWEST_BYTES);
  if (wants_xdp(interface)) asked.locked = asked.mapped;
  return asked;
}

const RegisteredEngine registered{{{.name = "packet",
                                    .rss = true,
                                    .transforms = true,
                                    .dynamic_flows = true,
                                    .byte_matches = true,
                                    .packet_filter = true,
                                    .direct_mode = true,
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

/// Engines that use everything the core supports, in a module. Each keeps transmit buffers until
/// the receiver has read them, delivers packets from its own memory at odd offsets, and has its own
/// clock. In addition, "odd_device" has memory that the CPU cannot read, "odd_flows" steers like a
/// network card, and "odd_pacing" keeps the rate of its queues itself.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "engine/registry.h"
#include "io/io_engine.h"
#include "memory/buffers.h"
#include "net/link_layer.h"
#include "steering/toeplitz.h"
#include "system/ring.h"

/// Most packets that a worker has offered in one call.
extern "C" __attribute__((visibility("default"))) std::atomic<std::uint32_t> odd_most_offered;
std::atomic<std::uint32_t> odd_most_offered{0};

namespace {

using namespace daqiri;

constexpr const char* ODD_ENGINES[] = {"odd", "odd_flows", "odd_device", "odd_pacing"};

constexpr std::uint32_t CELLS = 512, CELL_SIZE = 4096;
constexpr std::size_t BYTES = std::size_t{CELLS} * CELL_SIZE;

std::uint64_t odd_clock(const void* ahead) noexcept {
  return monotonic_ns() + *static_cast<const std::uint64_t*>(ahead);
}

/// Cells in which packets begin at any byte. Memory of a device has a second address, at which the
/// CPU reads and writes nothing.
class Cells final : public memory::BufferOwner {
 public:
  explicit Cells(memory::Place place) : BufferOwner("cells", CELL_SIZE - 256, place) {
    const int file = memfd_create("cells", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, BYTES) != 0)
      throw Error(Status::NO_FREE_PACKET_BUFFERS, "memfd");
    bytes_ = mapped(file, PROT_READ | PROT_WRITE);
    on_device_ = host_readable() ? bytes_ : mapped(file, PROT_NONE);
    ::close(file);
  }
  ~Cells() override {
    if (on_device_ != bytes_) munmap(on_device_, BYTES);
    munmap(bytes_, BYTES);
  }
  void give(const std::uint32_t* cells, std::uint32_t n) noexcept override { free_.give(cells, n); }
  [[nodiscard]] memory::BufferLevels levels() const noexcept override {
    return {free_.available(), CELLS};
  }
  [[nodiscard]] bool copy_to_host(const void* data, void* to,
                                  std::size_t bytes) const noexcept override {
    std::memcpy(to, bytes_ + (static_cast<const std::byte*>(data) - on_device_), bytes);
    return true;
  }
  std::uint32_t take(std::uint32_t* cell) noexcept { return free_.take(cell, 1); }
  /// Puts a packet into a cell; returns its address.
  std::byte* put(std::uint32_t cell, const std::byte* packet, std::uint32_t length) noexcept {
    const std::size_t at = std::size_t{cell} * CELL_SIZE + 1 + cell % 255;
    std::memcpy(bytes_ + at, packet, length);
    return on_device_ + at;
  }

 private:
  static std::byte* mapped(int file, int access) {
    void* const at = mmap(nullptr, BYTES, access, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) throw Error(Status::NO_FREE_PACKET_BUFFERS, "mmap");
    return static_cast<std::byte*>(at);
  }

  memory::FreeList free_{CELLS};
  std::byte* bytes_{nullptr};
  std::byte* on_device_{nullptr};
};

/// Rules in a network card, for UDP ports only. Any thread.
class CardFlows {
 public:
  static constexpr std::uint16_t UNKNOWN_PORT = 13;

  struct Rule {
    PortRange udp_dst;
    std::vector<std::uint16_t> queues;
    FlowId flow;
    std::uint16_t position;
  };

  void install(steering::FlowUpdate& update) {
    for (const std::size_t i : update.added) {
      if (update.flows[i].config->match_.udp_dst_.lo == UNKNOWN_PORT)
        update.refused.emplace_back(i, Error(Status::NOT_SUPPORTED, "the card has no port 13"));
    }
    if (!update.refused.empty()) return;
    const std::lock_guard lock(mutex_);
    rules_.clear();
    for (steering::InstalledFlow& flow : update.flows) {
      const FlowAction& last = flow.config->action_;
      rules_.push_back({flow.config->match_.udp_dst_,
                        last.ids_.empty() ? std::vector{last.id_} : last.ids_, flow.config->id_,
                        flow.position});
      flow.offload = "card";
    }
  }
  struct Choice {
    std::uint16_t queue{0};
    FlowId flow{0};
    std::uint16_t position{steering::NO_FLOW};
  };
  [[nodiscard]] Choice choose(const std::byte* packet, std::uint32_t length) const {
    const steering::PacketKey key =
        steering::parse_frame(reinterpret_cast<const std::uint8_t*>(packet), length);
    const std::lock_guard lock(mutex_);
    for (const Rule& rule : rules_) {
      if (!key.udp() || key.udp_dst < rule.udp_dst.lo || key.udp_dst > rule.udp_dst.hi) continue;
      const std::uint32_t hash =
          steering::toeplitz(key.ipv4_src, key.ipv4_dst, key.udp_src, key.udp_dst);
      const auto turn = steering::rss_queue(hash, static_cast<std::uint32_t>(rule.queues.size()));
      return {rule.queues[turn], rule.flow, rule.position};
    }
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Rule> rules_;
};

class OddPort final : public PortIo {
 public:
  OddPort(Port& port, const std::string& engine)
      : port_(port),
        cells_(std::make_shared<Cells>(engine == "odd_device" ? memory::Place::DEVICE
                                                              : memory::Place::HOST)),
        steers_(engine == "odd_flows"),
        paces_(engine == "odd_pacing"),
        tally_(port.steering.add_tally()) {
    for (const auto& rx : port.rx) {
      if (engine == "odd_device") {
        rx->receive_into(cells_);
      } else {
        rx->share_owner(cells_);
      }
    }
  }

  /// The queues of a port have one poller.
  std::uint32_t receive(RxQueue& queue) noexcept override {
    constexpr std::uint32_t AT_ONCE = 48;
    if (&queue != port_.rx.front().get()) return 0;
    const auto ready = static_cast<std::uint32_t>(std::min<std::size_t>(wire_.ready(), AT_ONCE));
    for (std::uint32_t i = 0; i < ready; ++i) {
      const Packet& packet = wire_.at(i);
      const CardFlows::Choice chosen =
          steers_ ? card_.choose(packet.data, packet.length) : CardFlows::Choice{};
      tally_.count(chosen.position, 1, packet.length);
      receive(*port_.rx_queue(chosen.queue), packet, chosen.flow);
    }
    wire_.consume(ready);
    read_.fetch_add(ready, std::memory_order_release);
    return ready;
  }

  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    TransmitResult result;
    odd_most_offered = std::max(odd_most_offered.load(), count);
    const std::uint64_t mbps = paces_ ? queue.config().pacing_mbps_ : 0;
    for (std::uint32_t i = first; i < first + count; ++i) {
      if (mbps != 0 && monotonic_ns() < next_) break;
      Packet* packet = wire_.claim();
      if (packet == nullptr) break;
      *packet = {static_cast<const std::byte*>(burst.pkts[0][i]), burst.pkt_lens[0][i]};
      bytes_ += packet->length;
      if (mbps != 0) next_ = monotonic_ns() + packet->length * 8000U / mbps;
      wire_.publish();
      ++result.kept;
    }
    kept_ += result.kept;
    port_.rx.front()->poller_doorbell->ring();
    return result;
  }
  TransmitCompletion completed(TxQueue&, bool last) noexcept override {
    // The session stops its pollers after its workers.
    while (last && read_.load(std::memory_order_acquire) < kept_) cpu_relax();
    TransmitCompletion completion;
    completion.sent = static_cast<std::uint32_t>(read_.load(std::memory_order_acquire) - told_);
    completion.released = completion.sent;
    told_ += completion.sent;
    if (told_ == kept_) completion.bytes = std::exchange(bytes_, 0);
    completion.more = told_ < kept_;
    return completion;
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue&) const noexcept override {
    return {.keeps_buffers = true, .most_packets = 17, .paces = paces_};
  }
  void install(steering::FlowUpdate& update) override {
    if (steers_) card_.install(update);
  }

  [[nodiscard]] Clock clock() const noexcept override { return {odd_clock, &ahead_}; }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override {
    return std::make_shared<LinkLayer>();
  }

 private:
  struct Packet {
    const std::byte* data;
    std::uint32_t length;
  };

  void receive(RxQueue& queue, const Packet& packet, FlowId flow) noexcept {
    std::uint32_t cell = 0;
    if (cells_->take(&cell) == 0) return queue.drop(DropReason::NO_PACKET_BUFFER, 1, packet.length);
    void* const data = cells_->put(cell, packet.data, packet.length);
    RxBatch batch;
    batch.count = 1;
    batch.flows.constant = flow;
    batch.times.constant = clock()();
    batch.segments[0] = {&cell, &data, {nullptr, packet.length}, cells_.get()};
    queue.deliver(batch);
  }

  std::uint64_t ahead_{4'000'000'000'000'000'000U};
  Port& port_;
  std::shared_ptr<Cells> cells_;
  bool steers_, paces_;
  CardFlows card_;
  steering::FlowTally& tally_;
  SpscRing<Packet> wire_{64};
  std::atomic<std::uint64_t> read_{0};
  std::uint64_t kept_{0}, told_{0}, bytes_{0};
  /// When the next packet may leave, CLOCK_MONOTONIC ns.
  std::uint64_t next_{0};
};

class OddEngine final : public IoEngine {
 public:
  explicit OddEngine(std::string name) : name_(std::move(name)) {}
  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports)
      port->io = ports_.emplace_back(std::make_unique<OddPort>(*port, name_)).get();
  }
  void close() noexcept override {}

 private:
  std::string name_;
  std::vector<std::unique_ptr<OddPort>> ports_;
};

template <std::size_t NAME>
const RegisteredEngine ENGINE{
    {{.name = ODD_ENGINES[NAME], .rss = true, .dynamic_flows = true},
     [](const NetworkConfig& c) { return c.common_.engine_name_ == ODD_ENGINES[NAME]; },
     [](const NetworkConfig& c) -> std::unique_ptr<IoEngine> {
       return std::make_unique<OddEngine>(c.common_.engine_name_);
     }}};
template const RegisteredEngine ENGINE<0>;
template const RegisteredEngine ENGINE<1>;
template const RegisteredEngine ENGINE<2>;
template const RegisteredEngine ENGINE<3>;

}  // namespace

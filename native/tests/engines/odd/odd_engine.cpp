/// An engine that uses everything the core supports, in a module: it keeps transmit buffers until
/// the receiver has read them, delivers packets from its own memory at odd offsets, and has its own
/// clock.
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "engine/registry.h"
#include "io/io_engine.h"
#include "memory/buffers.h"
#include "system/ring.h"

namespace {

using namespace daqiri;

constexpr std::uint32_t CELLS = 512, CELL_SIZE = 4096;

std::uint64_t odd_clock(const void* ahead) noexcept {
  return monotonic_ns() + *static_cast<const std::uint64_t*>(ahead);
}

/// Cells in which packets begin at any byte.
class Cells final : public memory::BufferOwner {
 public:
  Cells() : BufferOwner("cells", CELL_SIZE - 256, true) {}
  void give(const std::uint32_t* cells, std::uint32_t n) noexcept override { free_.give(cells, n); }
  std::uint32_t take(std::uint32_t* cell) noexcept { return free_.take(cell, 1); }
  std::byte* data(std::uint32_t cell) noexcept {
    return &bytes_[std::size_t{cell} * CELL_SIZE + 1 + cell % 255];
  }

 private:
  memory::FreeList free_{CELLS};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(std::size_t{CELLS} * CELL_SIZE);
};

class OddPort final : public PortIo {
 public:
  explicit OddPort(Port& port) {
    for (const auto& rx : port.rx) {
      rx->share_owner(cells_);
      receiver_ = rx.get();
    }
  }

  std::uint32_t receive(RxQueue& queue) noexcept override {
    constexpr std::uint32_t AT_ONCE = 48;
    std::array<std::uint32_t, AT_ONCE> cells, lengths;
    std::array<std::uint64_t, AT_ONCE> times;
    std::array<void*, AT_ONCE> data;
    RxBatch batch;
    const auto ready = static_cast<std::uint32_t>(std::min<std::size_t>(wire_.ready(), AT_ONCE));
    for (std::uint32_t i = 0; i < ready; ++i) {
      const Packet& packet = wire_.at(i);
      if (cells_->take(&cells[batch.count]) == 0) {
        queue.drop(DropReason::NO_PACKET_BUFFER, 1, packet.length);
        continue;
      }
      data[batch.count] = cells_->data(cells[batch.count]);
      lengths[batch.count] = packet.length;
      times[batch.count] = clock()();
      std::memcpy(data[batch.count++], packet.data, packet.length);
    }
    batch.segments[0] = {cells.data(), data.data(), {lengths.data()}, cells_.get()};
    batch.times.values = times.data();
    if (batch.count > 0) queue.deliver(batch);
    wire_.consume(ready);
    read_.fetch_add(ready, std::memory_order_release);
    return ready;
  }

  TransmitResult transmit(TxQueue&, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    TransmitResult result;
    for (std::uint32_t i = first; i < first + count; ++i) {
      Packet* packet = wire_.claim();
      if (packet == nullptr) break;
      *packet = {static_cast<const std::byte*>(burst.pkts[0][i]), burst.pkt_lens[0][i]};
      bytes_ += packet->length;
      wire_.publish();
      ++result.kept;
    }
    kept_ += result.kept;
    receiver_->poller_doorbell->ring();
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
    return {.keeps_buffers = true, .most_packets = 17};
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

  std::uint64_t ahead_{4'000'000'000'000'000'000U};
  std::shared_ptr<Cells> cells_{std::make_shared<Cells>()};
  RxQueue* receiver_{nullptr};
  SpscRing<Packet> wire_{64};
  std::atomic<std::uint64_t> read_{0};
  std::uint64_t kept_{0}, told_{0}, bytes_{0};
};

class OddEngine final : public IoEngine {
 public:
  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) port->io = ports_.emplace_back(new OddPort(*port)).get();
  }
  void close() noexcept override {}

 private:
  std::vector<std::unique_ptr<OddPort>> ports_;
};

const RegisteredEngine engine{
    {{.name = "odd"},
     [](const NetworkConfig& c) { return c.common_.engine_name_ == "odd"; },
     [](const NetworkConfig&) -> std::unique_ptr<IoEngine> {
       return std::make_unique<OddEngine>();
     }}};

}  // namespace

/// A port: a device of DPDK with its queues.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engines/dpdk/card_clock.h"
#include "engines/dpdk/device.h"
#include "engines/dpdk/flow_rules.h"
#include "engines/dpdk/kernel_losses.h"
#include "engines/dpdk/named_losses.h"
#include "engines/dpdk/packet_pool.h"
#include "engines/dpdk/packet_sockets.h"
#include "engines/dpdk/receiver.h"
#include "engines/dpdk/removal.h"
#include "engines/dpdk/sender.h"
#include "io/io_engine.h"
#include "net/interface_link.h"
#include "steering/transmit_flows.h"

namespace daqiri::dpdk {

class DpdkPort final : public PortIo, private Removable {
 public:
  /// `device`: that of the port's interface. Throws Error.
  DpdkPort(const Port& port, const NetworkConfig& config, std::unique_ptr<Device> device);

  std::uint32_t receive(RxQueue& queue) noexcept override;
  void finish_receiving(RxQueue& queue) noexcept override;
  [[nodiscard]] bool expects_more(const RxQueue& queue) const noexcept override;
  [[nodiscard]] bool ended(const RxQueue&) const noexcept override {
    return removed_.load(std::memory_order_relaxed);
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override;
  TransmitCompletion completed(TxQueue& queue, bool last) noexcept override;
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue&) const noexcept override {
    const bool launches = CardClock::launches(port_.config);
    return {.keeps_buffers = true,
            .most_packets = Sender::AT_ONCE,
            .paces = launches,
            .overhead_bytes = flows_.most_overhead(),
            .launch_lead = launches ? CardClock::LEAD_NS : 0};
  }
  [[nodiscard]] std::string launch_times(const TxQueue& queue) const override;
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override {
    return std::make_shared<LinkLayer>();
  }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address() const noexcept override { return mac_; }
  [[nodiscard]] LinkState link_state() const noexcept override;
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue&) const noexcept override {
    return {.together = true};
  }
  [[nodiscard]] std::string receive_path(const RxQueue& queue) const override {
    if (queue.num_segments() == 1) return {};
    return splits_ ? "split by the device" : "split by the engine";
  }
  [[nodiscard]] PortSnapshot losses(std::uint64_t max_age) const noexcept override;
  void install(steering::FlowUpdate& update) override;
  /// Give the device back. Pollers and workers have ended. Idempotent.
  void close() noexcept;

 private:
  /// DPDK's settings of the port.
  struct Settings;

  /// Where packets of a queue come from.
  struct Sources {
    /// What the queue's poller reads before its first queue; null: nothing.
    Receiver* reader{nullptr};
    /// From the pollers that read other queues of the device.
    std::vector<HandOver*> handed;
  };

  /// What the device can do, of what the configuration wants.
  [[nodiscard]] Settings settings_for(const NetworkConfig& config);
  /// Of a net_af_packet, to the settings: frames as long as the interface's, and what its driver
  /// leaves out.
  void prepare_packet_sockets(std::uint32_t mtu, Settings& settings);
  void make_queues(const Settings& settings);
  /// Queue `number` of the device, which receives into the pools.
  void make_rx_queue(std::uint16_t number, const Settings& settings);
  void make_receivers(const Settings& settings);
  void start();
  /// The queues of the device that the cores of the flow's queues read.
  [[nodiscard]] std::vector<std::uint16_t> device_queues(const FlowConfig& flow) const;
  /// Refuse new flows whose packets the engine would have to read or change on a GPU.
  void refuse_for_gpu(steering::FlowUpdate& update) const;
  [[noreturn]] void fail(const std::string& what, int error, const std::string& fix) const;
  /// The device's counts of what it lost. Called with the mutex held.
  [[nodiscard]] PortSnapshot read_losses() const noexcept;
  void begin_removal() noexcept override;
  bool end_removal() noexcept override;
  /// Called with the mutex held. Returns the number of packets that nobody has read.
  std::uint32_t close_device() noexcept;

  const Port& port_;
  steering::TransmitFlows flows_;
  std::array<std::uint8_t, 6> mac_{};
  /// Of a net_af_packet or a net_tap: the device as the kernel knows it.
  std::optional<InterfaceLink> interface_;
  /// Whether the device puts the pieces of a packet into buffers of their regions.
  bool splits_{false};
  /// See Receiver.
  std::uint32_t buffers_ahead_{0};
  PacketSockets sockets_;
  /// Of each piece of a received packet: one, or as many as the device splits packets into. Empty:
  /// there are no receive queues.
  std::vector<std::unique_ptr<PacketPool>> pools_;
  /// One for each core of the receive queues, as far as the device has queues.
  std::vector<std::unique_ptr<Receiver>> receivers_;
  /// In the order of the port's queues.
  std::vector<Sources> sources_;
  /// In the order of the port's queues.
  std::vector<std::unique_ptr<Sender>> senders_;
  /// Held while rules change, during which counters are read: drivers lock what the two share.
  /// The device is closed with both mutexes.
  std::mutex rules_mutex_;
  /// Held by any thread that asks the device for its state.
  mutable std::mutex mutex_;
  /// Closed before the memory that it uses is freed.
  std::unique_ptr<Device> device_;
  /// Ended before the device is closed.
  std::unique_ptr<FlowRules> rules_;
  /// The host takes the device away, or has done so. Stays.
  std::atomic<bool> removed_{false};
  /// Null: times are those of the host. Ended before the device is closed.
  std::unique_ptr<CardClock> clock_;
  /// Ended before the device is closed by others.
  std::optional<RemovalWatch> watch_;
  NamedLosses named_losses_;
  mutable KernelLosses kernel_losses_;
  /// Counts of the device when it was opened, and since then.
  PortSnapshot losses_before_;
  mutable PortSnapshot losses_;
  /// When they were read, CLOCK_MONOTONIC ns.
  mutable std::uint64_t losses_read_{0};
};

}  // namespace daqiri::dpdk

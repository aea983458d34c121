/// The interface that an I/O engine implements. An engine uses no other part of the library.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daqiri/config.h"
#include "io/rx_queue.h"
#include "io/tx_queue.h"
#include "memory/region.h"
#include "metrics/counters.h"
#include "net/interface_link.h"
#include "net/link_layer.h"
#include "steering/flow_table.h"
#include "steering/steering.h"
#include "system/socket_events.h"
#include "timing/clock.h"

namespace daqiri {

/// Result of `PortIo::transmit`: packets in their order.
struct TransmitResult {
  /// Packets that have left.
  std::uint32_t sent{0};
  std::uint64_t bytes{0};
  /// Packets that the engine keeps; `completed` reports what happens to them.
  std::uint32_t kept{0};
  /// Packets directly after these that can never be sent. They are counted and skipped.
  std::uint32_t failed{0};
  /// errno of the failed packets.
  int error{0};
  /// Nothing was accepted because no peer is connected; this can last long.
  bool unconnected{false};
  /// Nothing was accepted because the device is full, and nothing will tell when it is not: the
  /// worker retries after a pause.
  bool device_full{false};
};

/// What happened to packets that `transmit` kept, since the last call.
struct TransmitCompletion {
  /// Packets on the wire.
  std::uint32_t sent{0};
  std::uint64_t bytes{0};
  /// Packets dropped because they were late for their launch times.
  std::uint32_t missed{0};
  /// Packets that will never leave.
  std::uint32_t failed{0};
  /// Those of the dropped packets that were reported in `sent` before.
  std::uint32_t recalled{0};
  std::uint64_t recalled_bytes{0};
  /// Number of additional packets, in the order in which they were kept, whose buffers are no
  /// longer read and can be reused.
  std::uint32_t released{0};
  /// Whether reports for other packets will follow.
  bool more{false};
};

/// How a transmit queue is served. Fixed while the port is open.
struct TransmitTraits {
  /// `transmit` keeps buffers until `completed` releases them; false: they are free when it
  /// returns, regardless of the packets.
  bool keeps_buffers{false};
  /// Largest number of packets worth giving to one `transmit`.
  std::uint32_t most_packets{64};
  /// Whether the engine keeps within the queue's `pacing_mbps`; false: the worker does.
  bool paces{false};
  /// L2 bytes on the wire in addition to the packet's own (headers that a socket adds), for pacing.
  std::uint32_t overhead_bytes{0};
  /// How long before its launch time a packet is submitted, ns: the kernel or the hardware waits
  /// for the launch time. 0: `transmit` is called at the launch time.
  std::uint64_t launch_lead{0};
  /// Tells when `transmit`, which accepted nothing, may accept packets again; none: the worker
  /// retries after a pause.
  Readiness ready{};
};

/// How a receive queue is polled. Fixed while the port is open.
struct ReceiveTraits {
  /// Tells when `receive` has work; none: the doorbell of the queue's poller is rung instead.
  Readiness ready{};
  /// Packets can wait for `receive` this long, which reduces the cost per packet; 0: they cannot
  /// wait.
  std::uint64_t gathers_ns{0};
  /// `ready` tells only when enough packets have arrived, or have waited long enough.
  bool gathered{false};
  /// One thread at a time receives for all queues of the port that have no thread.
  bool together{false};
};

/// A port whose packets have receivers that may be absent or slow: streams, and memory of this
/// process. Threads: the queue's worker calls `cut` and `settle`; any thread calls the others.
class StreamPort {
 public:
  virtual ~StreamPort() = default;

  /// Why packets for `connection` (0: the port's peer) cannot be delivered; null: a peer is
  /// connected or being connected.
  [[nodiscard]] virtual const char* unreachable(std::uintptr_t /*connection*/) const noexcept {
    return nullptr;
  }
  /// What else, besides the wire, may prevent packets of the queue from leaving, and how to fix it;
  /// part of a message, or empty.
  [[nodiscard]] virtual std::string held_up_by(const TxQueue&) const { return {}; }
  /// Whether a part of the queue's next packet has left: it must be completed before the queue is
  /// flushed.
  [[nodiscard]] virtual bool cut(const TxQueue&) const noexcept { return false; }
  /// Called while the queue is being flushed. Returns true when nothing that `transmit` accepted
  /// still waits in this host for its receiver. `last`: the time is over; drop what waits, so that
  /// the queue's next packet begins a new stream.
  virtual bool settle(TxQueue&, bool /*last*/) noexcept { return true; }
};

/// An open port of an engine. Threads: the queue's poller calls `receive`; the queue's worker calls
/// `transmit` and `completed`; any thread calls the others.
class PortIo {
 public:
  virtual ~PortIo() = default;

  /// Move arrived packets to `queue` with RxQueue::deliver and drop. Returns the number of packets
  /// seen (0: idle).
  virtual std::uint32_t receive(RxQueue& queue) noexcept = 0;
  [[nodiscard]] virtual ReceiveTraits receive_traits(const RxQueue&) const noexcept { return {}; }

  /// How packets reach the queue, for engines with several ways: "af_xdp native", "split by the
  /// device"; otherwise empty. Any thread.
  [[nodiscard]] virtual std::string receive_path(const RxQueue&) const { return {}; }
  /// The queue is about to close: discard what `receive` has not delivered. Poller.
  virtual void finish_receiving(RxQueue&) noexcept {}
  /// Called after `finish_receiving`: whether another thread will still leave packets for
  /// `receive`. Poller.
  [[nodiscard]] virtual bool expects_more(const RxQueue&) const noexcept { return false; }

  /// Whether nothing will arrive any longer, because the device was removed: the poller sleeps.
  /// Any thread.
  [[nodiscard]] virtual bool ended(const RxQueue&) const noexcept { return false; }

  /// Put packets [first, first + count) of `burst` on the wire.
  virtual TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                                  std::uint32_t count) noexcept = 0;
  /// What happened to packets that were kept. `last`: the last call; decide on all packets and
  /// release all buffers.
  virtual TransmitCompletion completed(TxQueue&, bool /*last*/) noexcept { return {}; }
  [[nodiscard]] virtual TransmitTraits transmit_traits(const TxQueue&) const noexcept { return {}; }
  /// What waits for the launch times of the queue: "worker", "fq on eth0".
  [[nodiscard]] virtual std::string launch_times(const TxQueue&) const { return "worker"; }

  /// The port's clock, for receive times and launch times.
  [[nodiscard]] virtual Clock clock() const noexcept { return {}; }
  [[nodiscard]] virtual std::shared_ptr<const LinkLayer> link_layer() const = 0;
  /// Zeros if the port has none.
  [[nodiscard]] virtual std::array<std::uint8_t, 6> mac_address() const noexcept { return {}; }
  /// Null: packets wait for nothing but the wire.
  [[nodiscard]] virtual StreamPort* stream() noexcept { return nullptr; }
  /// Why flows cannot be changed while the port is open, and what to do about it; null: they can be
  /// changed. Any thread.
  [[nodiscard]] virtual const char* fixed_flows() const noexcept { return nullptr; }
  /// See steering::InstallFlows: called with all flows after the port was opened, and at every
  /// change. A port that offloads a flow delivers its packets with the flow's id, to the queue that
  /// the program would choose (steering::RSS_KEY, rss_queue), and counts them at the flow's
  /// position of a tally. Threads that change flows, one at a time.
  virtual void install(steering::FlowUpdate& /*update*/) {}
  /// The current state. Any thread.
  [[nodiscard]] virtual LinkState link_state() const noexcept { return {}; }
  /// What this host lost of the port's frames before the engine. `max_age`: how old the numbers may
  /// be, ns; after the port is closed, they are those of its end. Any thread.
  [[nodiscard]] virtual PortSnapshot losses(std::uint64_t /*max_age*/) const noexcept { return {}; }
  /// Index of the network interface of the latest `losses`; 0: all of this host, negative: none.
  [[nodiscard]] virtual int loss_interface() const noexcept { return -1; }
};

/// A port: one configured interface with its queues.
struct Port {
  InterfaceConfig config;
  std::uint16_t id{0};
  std::vector<std::unique_ptr<RxQueue>> rx;
  std::vector<std::unique_ptr<TxQueue>> tx;
  /// Each thread of the engine that steers packets, or delivers steered packets, counts in its own
  /// tally.
  steering::Steering steering;
  /// The flows; can be changed while the port is running. Never null in a session.
  std::unique_ptr<steering::FlowTable> flows;
  /// Set by IoEngine::open; owned by the engine.
  PortIo* io{nullptr};

  /// By queue id; null if the queue does not exist.
  [[nodiscard]] RxQueue* rx_queue(int queue) const noexcept { return find(rx, queue); }
  [[nodiscard]] TxQueue* tx_queue(int queue) const noexcept { return find(tx, queue); }

 private:
  template <typename Queue>
  static Queue* find(const std::vector<std::unique_ptr<Queue>>& queues, int wanted) noexcept {
    const auto it = std::find_if(queues.begin(), queues.end(),
                                 [=](const auto& queue) { return queue->id() == wanted; });
    return it == queues.end() ? nullptr : it->get();
  }
};

/// Index of a queue in its port.
template <typename Queue>
std::size_t position(const std::vector<std::unique_ptr<Queue>>& queues,
                     const Queue& queue) noexcept {
  const auto is_it = [&](const auto& each) { return each.get() == &queue; };
  return static_cast<std::size_t>(std::find_if(queues.begin(), queues.end(), is_it) -
                                  queues.begin());
}

enum class ConnectionState : std::uint8_t { LISTENING, CONNECTING, CONNECTED, CLOSED };

/// A connection of a socket stream, as listed. Addresses are "192.0.2.1:5000", "[::1]:5000"; empty:
/// none.
struct ConnectionInfo {
  std::uintptr_t id{0};
  std::string peer;
  std::string local;
  ConnectionState state{ConnectionState::CLOSED};
  /// Why the connection was lost or cannot be made; empty: no error.
  std::string error;
};

/// The connections of an engine that has them. Any thread. The functions throw Error.
class Connections {
 public:
  virtual ~Connections() = default;

  /// Connect a client; returns the connection id. `source` may be empty.
  virtual std::uintptr_t connect(const std::string& address, std::uint16_t port,
                                 const std::string& source) = 0;
  /// Port and queue of a connection.
  [[nodiscard]] virtual std::pair<std::uint16_t, std::uint16_t> queue_of(
      std::uintptr_t connection) const = 0;
  /// Whether the connection is a server with all of its peers.
  [[nodiscard]] virtual bool is_server(std::uintptr_t connection) const = 0;
  /// Connection id of the server that listens at address:port.
  [[nodiscard]] virtual std::uintptr_t server_at(const std::string& address,
                                                 std::uint16_t port) const = 0;
  /// The first accepted client of a server that is still connected; 0: none. For a server with one
  /// socket for all clients (UDP), the server itself.
  [[nodiscard]] virtual std::uintptr_t first_client(std::uintptr_t server) const = 0;
  /// setsockopt(2) on the connection's socket.
  virtual void set_socket_option(std::uintptr_t connection, int level, int option,
                                 const void* value, std::size_t length) = 0;
  [[nodiscard]] virtual std::vector<ConnectionInfo> list(std::uint16_t port) const = 0;
};

/// All ports of a session. Called by the thread that opens and closes the session.
class IoEngine {
 public:
  virtual ~IoEngine() = default;

  /// Requirements for a memory region on this host, before it is allocated: whether its packets are
  /// staged depends on the GPU, too. By default, they are.
  [[nodiscard]] virtual memory::RegionNeeds needs(const MemoryRegionConfig&) {
    memory::RegionNeeds needs;
    needs.staged = true;
    return needs;
  }
  /// The region was allocated. Throws Error if the engine cannot use it.
  virtual void attach(memory::MemoryRegion&) {}
  /// Acquire resources outside the process (sockets) and set `io` of each port. Throws Error.
  virtual void open(std::vector<std::unique_ptr<Port>>& ports) = 0;
  /// Workers have ended, pollers have not: wait, at most a few seconds, until the peers have
  /// received what was sent.
  virtual void finish_sending() noexcept {}
  /// Called after pollers and workers have ended.
  virtual void close() noexcept = 0;
  /// Null if the engine has no connections.
  [[nodiscard]] virtual Connections* connections() noexcept { return nullptr; }
};

}  // namespace daqiri

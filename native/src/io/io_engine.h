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
#include "net/link_layer.h"
#include "steering/flow_table.h"
#include "steering/steering.h"
#include "timing/clock.h"

namespace daqiri {

/// What became of packets given to `PortIo::transmit`, in their order.
struct TransmitResult {
  /// They have left.
  std::uint32_t sent{0};
  std::uint64_t bytes{0};
  /// Or the engine keeps them: `completed` tells what becomes of them.
  std::uint32_t kept{0};
  /// Right behind these, packets that can never be sent. They are counted and skipped.
  std::uint32_t failed{0};
  /// errno of these.
  int error{0};
  /// Nothing was taken because nobody is connected; it may take long until somebody is.
  bool unconnected{false};
};

/// What became of packets that `transmit` kept, since the last call.
struct TransmitCompletion {
  /// They are on the wire.
  std::uint32_t sent{0};
  std::uint64_t bytes{0};
  /// They were dropped, since they were late for their launch times.
  std::uint32_t missed{0};
  /// Those of the dropped ones that were reported in `sent` before.
  std::uint32_t recalled{0};
  std::uint64_t recalled_bytes{0};
  /// So many more packets, in the order in which they were kept, are no longer read: their buffers
  /// may be used again.
  std::uint32_t released{0};
  /// Others are still to be told of.
  bool more{false};
};

/// How a transmit queue is served. Fixed while the port is open.
struct TransmitTraits {
  /// `transmit` keeps buffers until `completed` has released them; false: they are free when it
  /// returns, whatever becomes of the packets.
  bool keeps_buffers{false};
  /// Largest number of packets worth giving to one `transmit`.
  std::uint32_t most_packets{64};
  /// L2 bytes on the wire beside a packet's own (headers that a socket adds), for pacing.
  std::uint32_t overhead_bytes{0};
  /// How long before its launch time a packet is wanted, ns: the kernel or the hardware keeps the
  /// time. 0: `transmit` is called at the launch time.
  std::uint64_t launch_lead{0};
  /// A descriptor that is readable when `transmit`, having taken nothing, may do so again; -1: only
  /// trying tells.
  int ready_fd{-1};
};

/// How a receive queue is polled. Fixed while the port is open.
struct ReceiveTraits {
  /// A descriptor that is readable when `receive` has work; -1: the queue's poller is rung instead.
  int ready_fd{-1};
  /// What arrives may wait for `receive` this long, and is cheaper then; 0: not at all.
  std::uint64_t gathers_ns{0};
  /// `ready_fd` is readable only once enough has arrived, or has waited long enough.
  bool gathered{false};
  /// One thread at a time receives for all queues of the port that have no thread.
  bool together{false};
};

/// Of a port's network interface, as the kernel tells it.
struct LinkState {
  /// "up", "down" (switched off, or no carrier), "removed", "none" (the port has no interface of
  /// its own).
  const char* state{"none"};
  /// Mb/s; 0: not known.
  std::uint32_t speed{0};
  /// Bytes; 0: not known.
  std::uint32_t mtu{0};
};

/// One open port of an engine. Threads: `receive` is called by the queue's poller, `transmit`,
/// `cut`, `settle` and `completed` by the queue's worker, the rest by any thread.
class PortIo {
 public:
  virtual ~PortIo() = default;

  /// Move what has arrived to `queue` with RxQueue::deliver and drop. Returns packets seen (0:
  /// idle).
  virtual std::uint32_t receive(RxQueue& queue) noexcept = 0;
  [[nodiscard]] virtual ReceiveTraits receive_traits(const RxQueue&) const noexcept { return {}; }

  /// What brings the packets of the queue, where an engine has several ways: "af_xdp native"; else
  /// empty. Any thread.
  [[nodiscard]] virtual std::string receive_path(const RxQueue&) const { return {}; }
  /// The queue is about to close: what `receive` has not delivered is discarded. Poller.
  virtual void finish_receiving(RxQueue&) noexcept {}
  /// After that: whether another thread is about to leave something there for `receive`. Poller.
  [[nodiscard]] virtual bool expects_more(const RxQueue&) const noexcept { return false; }

  /// Put packets [first, first + count) of `burst` on the wire.
  virtual TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                                  std::uint32_t count) noexcept = 0;
  /// Why packets for `connection` (0: the port's peer) can go nowhere; null: somebody is there, or
  /// is being connected to. Any thread.
  [[nodiscard]] virtual const char* unreachable(std::uintptr_t /*connection*/) const noexcept {
    return nullptr;
  }
  /// Who, besides the wire, may keep packets of the queue from leaving, and what to do about it; a
  /// part of a message, or empty.
  [[nodiscard]] virtual std::string held_up_by(const TxQueue&) const { return {}; }
  /// A part of the queue's next packet has left: it is to be finished before the queue is flushed.
  [[nodiscard]] virtual bool cut(const TxQueue&) const noexcept { return false; }
  /// The queue is being flushed. True when nothing of what `transmit` has taken waits in this host
  /// for its receiver. `last`: there is no more time; end what waits, so that the queue's next
  /// packet begins a new stream.
  virtual bool settle(TxQueue&, bool /*last*/) noexcept { return true; }
  /// What became of packets that were kept. `last`: nobody asks again; decide on all of them and
  /// release all buffers.
  virtual TransmitCompletion completed(TxQueue&, bool /*last*/) noexcept { return {}; }
  [[nodiscard]] virtual TransmitTraits transmit_traits(const TxQueue&) const noexcept { return {}; }
  /// What keeps the launch times of the queue: "worker", "fq on eth0".
  [[nodiscard]] virtual std::string launch_times(const TxQueue&) const { return "worker"; }

  /// The port's clock, on which receive times and launch times are.
  [[nodiscard]] virtual Clock clock() const noexcept { return {}; }
  [[nodiscard]] virtual std::shared_ptr<const LinkLayer> link_layer() const = 0;
  /// Zeros when the port has none.
  [[nodiscard]] virtual std::array<std::uint8_t, 6> mac_address() const noexcept { return {}; }
  /// Why flows cannot be changed while the port is open, and what to do about it; null: they can.
  /// Any thread.
  [[nodiscard]] virtual const char* fixed_flows() const noexcept { return nullptr; }
  /// Now. Any thread.
  [[nodiscard]] virtual LinkState link_state() const noexcept { return {}; }
};

/// A port: one configured interface with its queues.
struct Port {
  InterfaceConfig config;
  std::uint16_t id{0};
  std::vector<std::unique_ptr<RxQueue>> rx;
  std::vector<std::unique_ptr<TxQueue>> tx;
  /// Each thread of the engine that steers, or that delivers what was steered, counts packets in a
  /// tally of its own.
  steering::Steering steering;
  /// The flows; can be changed while the port runs. Never null in a session.
  std::unique_ptr<steering::FlowTable> flows;
  /// Set by IoEngine::open, which keeps it.
  PortIo* io{nullptr};

  /// By queue id; null when there is none.
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

enum class ConnectionState : std::uint8_t { LISTENING, CONNECTING, CONNECTED, CLOSED };

/// A connection of a socket stream, as listed. Addresses are "192.0.2.1:5000", "[::1]:5000"; empty:
/// none.
struct ConnectionInfo {
  std::uintptr_t id{0};
  std::string peer;
  std::string local;
  ConnectionState state{ConnectionState::CLOSED};
  /// Why it was lost or cannot be made; empty: all is well.
  std::string error;
};

/// Connections, of engines that have them. Any thread. Throw Error.
class Connections {
 public:
  virtual ~Connections() = default;

  /// Connect a client; returns the connection id. `source` may be empty.
  virtual std::uintptr_t connect(const std::string& address, std::uint16_t port,
                                 const std::string& source) = 0;
  /// Port and queue that carry a connection.
  [[nodiscard]] virtual std::pair<std::uint16_t, std::uint16_t> queue_of(
      std::uintptr_t connection) const = 0;
  /// Whether it stands for a server itself and all of its peers.
  [[nodiscard]] virtual bool is_server(std::uintptr_t connection) const = 0;
  /// Connection id of the server that listens at address:port.
  [[nodiscard]] virtual std::uintptr_t server_at(const std::string& address,
                                                 std::uint16_t port) const = 0;
  /// Of that server: the client that was accepted first of those that are connected; 0: none is.
  /// The server itself where it has one socket for all clients (UDP).
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

  /// What it needs of a memory region, before that is allocated.
  [[nodiscard]] virtual memory::RegionNeeds needs(const MemoryRegionConfig&) const { return {}; }
  /// The region was allocated. Throws Error when the engine cannot use it.
  virtual void attach(memory::MemoryRegion&) {}
  /// Acquire what is outside of the process (sockets) and set `io` of each port. Throws Error.
  virtual void open(std::vector<std::unique_ptr<Port>>& ports) = 0;
  /// Workers have ended, pollers have not: wait, for a few seconds at most, until the peers have
  /// what was sent.
  virtual void finish_sending() noexcept {}
  /// After pollers and workers have ended.
  virtual void close() noexcept = 0;
  /// Null: it has no connections.
  [[nodiscard]] virtual Connections* connections() noexcept { return nullptr; }
};

}  // namespace daqiri

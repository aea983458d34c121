/// What an io engine implements; it touches nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daqiri/config.h"
#include "io/port.h"
#include "net/link_layer.h"

namespace daqiri {

/// How many packets of a run were taken by the wire, and how many must be given up.
struct TransmitResult {
  std::uint32_t sent{0};
  std::uint64_t bytes{0};
  /// Nothing was sent because nobody is connected; it may take long until somebody is.
  bool unconnected{false};
  /// Packets right behind the sent ones that can never be sent (send error). They are counted and
  /// skipped.
  std::uint32_t failed{0};
  /// errno of these.
  int error{0};
};

/// What became of packets that `transmit` gave to the kernel before their launch times.
struct LaunchResult {
  /// They are on the wire.
  std::uint32_t left{0};
  std::uint64_t left_bytes{0};
  /// The kernel dropped them: they were late.
  std::uint32_t missed{0};
  /// Those of the dropped ones that were reported in `left` before.
  std::uint32_t recalled{0};
  std::uint64_t recalled_bytes{0};
  /// Others are still in the kernel.
  bool more{false};
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

/// One engine serves all ports of a session. Threads: `open` and `close` are called by the thread
/// that opens and closes the session, `receive` by the queue's poller, `transmit` by the queue's
/// worker.
class IoEngine {
 public:
  virtual ~IoEngine() = default;

  /// Acquire what is outside of the process (sockets). Throws Error.
  virtual void open(std::vector<std::unique_ptr<Port>>& ports) = 0;
  /// Workers have ended, pollers have not: wait, for a few seconds at most, until the peers have
  /// what was sent.
  virtual void finish_sending() noexcept {}
  /// After pollers and workers have ended.
  virtual void close() noexcept = 0;

  /// Move what has arrived to `queue` with RxQueue::deliver and drop. Returns packets seen (0:
  /// idle).
  virtual std::uint32_t receive(RxQueue& queue) noexcept = 0;
  /// Put packets [first, first + count) of `burst` on the wire.
  virtual TransmitResult transmit(TxQueue& queue, const Burst& burst, std::uint32_t first,
                                  std::uint32_t count) noexcept = 0;
  /// A descriptor that is readable when `receive` has work; -1: the queue's poller doorbell is rung
  /// instead.
  [[nodiscard]] virtual int receive_fd(const RxQueue&) const noexcept { return -1; }
  /// Whether what arrives may wait for `receive` a little, and is cheaper then.
  [[nodiscard]] virtual bool gathers(const RxQueue&) const noexcept { return false; }
  /// A descriptor that is readable when `transmit`, having sent nothing, may do so again; -1: only
  /// trying tells.
  [[nodiscard]] virtual int transmit_fd(const TxQueue&) const noexcept { return -1; }
  /// Largest number of packets worth giving to one `transmit`.
  [[nodiscard]] virtual std::uint32_t transmit_run() const noexcept { return 64; }

  /// How long before its launch time the engine wants a packet of the queue, ns: the kernel or the
  /// hardware keeps the time. 0: `transmit` is called at the launch time. Set by `open`.
  [[nodiscard]] virtual std::uint64_t launch_lead(const TxQueue&) const noexcept { return 0; }
  /// What keeps the launch times of the queue: "worker", "fq on eth0".
  [[nodiscard]] virtual std::string launch_keeper(const TxQueue&) const { return "worker"; }
  /// With a launch lead: what became of packets that `transmit` said were sent. By the queue's
  /// worker. `last`: nobody asks again, decide on all.
  virtual LaunchResult launched(TxQueue&, bool /*last*/) noexcept { return {}; }

  [[nodiscard]] virtual std::shared_ptr<const LinkLayer> link_layer(std::uint16_t port) const = 0;
  /// Six bytes; zeros when the port has none.
  [[nodiscard]] virtual std::array<std::uint8_t, 6> mac_address(
      std::uint16_t port) const noexcept = 0;

  // Connections of socket engines; the rest refuse with NOT_SUPPORTED.

  /// Connect a client; returns the connection id. `source` may be empty.
  virtual std::uintptr_t connect(const std::string& address, std::uint16_t port,
                                 const std::string& source);
  /// Port and queue that carry a connection.
  virtual std::pair<std::uint16_t, std::uint16_t> connection_queue(std::uintptr_t connection) const;
  /// Connection id of the server that listens at address:port.
  virtual std::uintptr_t server_connection(const std::string& address, std::uint16_t port) const;
  /// setsockopt(2) on the connection's socket.
  virtual void set_socket_option(std::uintptr_t connection, int level, int option,
                                 const void* value, std::size_t length);
  /// Connections of a port; none on engines without connections.
  [[nodiscard]] virtual std::vector<ConnectionInfo> connections(std::uint16_t /*port*/) const {
    return {};
  }
};

}  // namespace daqiri

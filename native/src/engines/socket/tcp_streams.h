/// Addresses of TCP streams, for captures.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "metrics/counters.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

/// The latest 2048 sockets of an interface by running number, so that a burst's addresses are known
/// after its connection has got another socket. TcpConnections adds; any thread looks up.
class TcpStreams {
 public:
  struct Ends {
    SocketAddress local;
    SocketAddress peer;
  };

  /// Number of a new stream, never 0.
  std::uint32_t begin(std::uintptr_t connection, const Ends& ends) noexcept {
    const std::uint32_t number = latest() + 1;
    const AddressKey local = ends.local.key();
    const AddressKey peer = ends.peer.key();
    Entry& entry = (*entries_)[number % CAPACITY];
    entry.values.publish(
        {number, connection, local[0], local[1], local[2], peer[0], peer[1], peer[2]});
    entry.sent.store(0, std::memory_order_relaxed);
    latest_.store(number, std::memory_order_release);
    return number;
  }
  [[nodiscard]] std::uint32_t latest() const noexcept {
    return latest_.load(std::memory_order_acquire);
  }
  /// Newest stream of a connection (0: of any); 0: none.
  [[nodiscard]] std::uint32_t of(std::uintptr_t connection) const noexcept {
    const std::uint32_t last = latest();
    for (std::uint32_t n = last; n > 0 && last - n < CAPACITY; --n) {
      if (connection == 0 || (*entries_)[n % CAPACITY].values.read()[1] == connection) return n;
    }
    return 0;
  }
  /// No addresses when it is unknown by now.
  [[nodiscard]] Ends ends(std::uint32_t number) const noexcept {
    const auto values = (*entries_)[number % CAPACITY].values.read();
    if (number == 0 || values[0] != number) return {};
    return {SocketAddress(AddressKey{values[2], values[3], values[4]}),
            SocketAddress(AddressKey{values[5], values[6], values[7]})};
  }
  /// Bytes of bursts to be sent that have their place in the stream (LinkLayer::place_in_stream).
  [[nodiscard]] std::atomic<std::uint64_t>& sent(std::uint32_t number) const noexcept {
    return (*entries_)[number % CAPACITY].sent;
  }

 private:
  static constexpr std::uint32_t CAPACITY = 2048;
  struct Entry {
    CounterGroup<8> values;
    std::atomic<std::uint64_t> sent{0};
  };
  std::unique_ptr<std::array<Entry, CAPACITY>> entries_ =
      std::make_unique<std::array<Entry, CAPACITY>>();
  std::atomic<std::uint32_t> latest_{0};
};

}  // namespace daqiri::sockets

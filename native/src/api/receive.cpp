#include <algorithm>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr api::Call GET_RX_BURST = api::often("get_rx_burst");
/// A session that closes is noticed this soon.
constexpr std::uint64_t SLICE_NS = 100'000'000;
/// More than anybody waits, and few enough for a sum of ns.
constexpr std::int64_t LONGEST_US = 1'000'000'000'000'000;

/// Run `next`, which returns a burst of the running session or null. "Nothing yet" is no failure:
/// it leaves no text, and costs nothing but the look.
template <typename Next>
Status receive(const api::Call& call, BurstParams** out, Next&& next) noexcept {
  // Not NULL_PTR, which a program takes for "nothing yet".
  if (out == nullptr) return api::fail(Status::INVALID_PARAMETER, call, "burst is null");
  *out = nullptr;
  return api::with_session(call, [&](Session& session) {
    *out = next(session);
    return *out == nullptr ? Status::NULL_PTR : Status::SUCCESS;
  });
}

}  // namespace

Status get_rx_burst(BurstParams** burst, int port, int queue) {
  return receive(GET_RX_BURST, burst,
                 [=](const Session& session) { return session.rx_queue(port, queue).receive(); });
}

Status get_rx_burst(BurstParams** burst, int port) {
  return receive(GET_RX_BURST, burst,
                 [=](Session& session) { return session.any_rx_queue(port).receive(); });
}

Status get_rx_burst(BurstParams** burst) {
  return receive(GET_RX_BURST, burst,
                 [](Session& session) { return session.any_rx_queue().receive(); });
}

Status wait_rx_burst(BurstParams** burst, int port, int queue, std::int64_t timeout_us) {
  return receive(api::often("wait_rx_burst"), burst, [=](const Session& session) -> Burst* {
    if (timeout_us < 0) {
      throw Error(Status::INVALID_PARAMETER,
                  "timeout_us is " + std::to_string(timeout_us) + "; accepted is 0 or more");
    }
    RxQueue& rx = session.rx_queue(port, queue);
    const std::uint64_t end =
        monotonic_ns() + static_cast<std::uint64_t>(std::min(timeout_us, LONGEST_US)) * 1000;
    for (;;) {
      // In this order: what was handed over before the queue closed is seen.
      const bool closed = rx.closed();
      if (Burst* next = rx.receive()) return next;
      const std::uint64_t now = monotonic_ns();
      if (closed || now >= end) return nullptr;
      // The program may want to know of a signal.
      if (!rx.wait(static_cast<std::int64_t>(std::min(end - now, SLICE_NS)))) return nullptr;
    }
  });
}

Status get_rx_burst(BurstParams** burst, std::uintptr_t conn_id, bool server) {
  return receive(GET_RX_BURST, burst, [=](Session& session) -> Burst* {
    const Connections& connections = session.connections();
    const Port& port = session.port(connections.queue_of(conn_id).first);
    const bool is_server = port.config.socket_.mode_ == SocketMode::SERVER;
    if (is_server != server) {
      throw Error(Status::INVALID_PARAMETER, "connection " + std::to_string(conn_id) +
                                                 " is on the " +
                                                 (is_server ? "server's" : "client's") + " side");
    }
    if (port.rx.empty()) {
      throw Error(Status::INVALID_PARAMETER,
                  "interface '" + port.config.name_ + "' has no receive queues");
    }
    if (connections.is_server(conn_id)) return session.any_rx_queue(port.id).receive();
    // A peer may be received on several queues.
    for (const auto& queue : port.rx) {
      if (Burst* next = queue->receive_from(conn_id)) return next;
    }
    return nullptr;
  });
}

}  // namespace daqiri

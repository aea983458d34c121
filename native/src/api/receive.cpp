#include "api/failure.h"
#include "api/sessions.h"
#include "daqiri/daqiri.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::string_view GET_RX_BURST = "get_rx_burst";
constexpr std::string_view WAIT_CALL = "wait_rx_burst";
/// A session that closes is noticed this soon.
constexpr std::uint64_t SLICE_NS = 100'000'000;

/// Run `next`, which returns a burst of the running session or null. "Nothing yet" is no failure:
/// it leaves no text, and costs nothing but the look.
template <typename Next>
Status receive(BurstParams** out, Next&& next, std::string_view call = GET_RX_BURST) noexcept {
  // Not NULL_PTR, which a program takes for "nothing yet".
  if (out == nullptr)
    return api::refuse(Status::INVALID_PARAMETER, call, std::string_view("burst is null"));
  *out = nullptr;
  const auto running = api::running();
  if (running == nullptr) return api::refuse(Status::NOT_READY, call, api::not_running());
  try {
    *out = next(*running);
  } catch (const Error& error) {
    return api::refuse(error.status(), call, std::string_view(error.what()));
  } catch (const std::exception& error) {
    return api::refuse(Status::GENERIC_FAILURE, call, std::string_view(error.what()));
  }
  return *out == nullptr ? Status::NULL_PTR : Status::SUCCESS;
}

}  // namespace

Status get_rx_burst(BurstParams** burst, int port, int queue) {
  return receive(burst, [=](const api::Running& running) {
    return running.session->rx_queue(port, queue).receive();
  });
}

Status get_rx_burst(BurstParams** burst, int port) {
  return receive(burst, [=](const api::Running& running) {
    return running.ports[running.session->port(port).id]->receive();
  });
}

Status get_rx_burst(BurstParams** burst) {
  return receive(burst, [](const api::Running& running) { return running.all->receive(); });
}

Status wait_rx_burst(BurstParams** burst, int port, int queue, std::int64_t timeout_us) {
  return receive(
      burst,
      [=](const api::Running& running) -> Burst* {
        if (timeout_us < 0) {
          throw Error(Status::INVALID_PARAMETER,
                      "timeout_us is " + std::to_string(timeout_us) + "; accepted is 0 or more");
        }
        RxQueue& rx = running.session->rx_queue(port, queue);
        const std::uint64_t begin = monotonic_ns();
        for (;;) {
          // In this order: what was handed over before the queue closed is seen.
          const bool closed = rx.closed();
          if (Burst* next = rx.receive()) return next;
          const std::uint64_t waited = monotonic_ns() - begin;
          if (closed || waited / 1000 >= static_cast<std::uint64_t>(timeout_us)) return nullptr;
          const std::uint64_t left = static_cast<std::uint64_t>(timeout_us) - waited / 1000;
          const std::uint64_t slice = left < SLICE_NS / 1000 ? left * 1000 : SLICE_NS;
          // The program may want to know of the signal.
          if (!rx.wait(static_cast<std::int64_t>(slice))) return nullptr;
        }
      },
      WAIT_CALL);
}

Status get_rx_burst(BurstParams** burst, std::uintptr_t conn_id, bool server) {
  return receive(burst, [=](const api::Running& running) -> Burst* {
    const Connections& connections = running.session->connections();
    const Port& port = running.session->port(connections.queue_of(conn_id).first);
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
    if (connections.is_server(conn_id)) return running.ports[port.id]->receive();
    // A peer may be received on several queues.
    for (const auto& queue : port.rx) {
      if (Burst* next = queue->receive_from(conn_id)) return next;
    }
    return nullptr;
  });
}

}  // namespace daqiri

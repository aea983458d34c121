#include "api/failure.h"
#include "api/sessions.h"
#include "daqiri/daqiri.h"

namespace daqiri {

namespace {

constexpr std::string_view CALL = "get_rx_burst";

/// Run `next`, which returns a burst of the running session or null. "Nothing yet" is no failure:
/// it leaves no text, and costs nothing but the look.
template <typename Next>
Status receive(BurstParams** out, Next&& next) noexcept {
  // Not NULL_PTR, which a program takes for "nothing yet".
  if (out == nullptr)
    return api::refuse(Status::INVALID_PARAMETER, CALL, std::string_view("burst is null"));
  *out = nullptr;
  const auto running = api::running();
  if (running == nullptr) return api::refuse(Status::NOT_READY, CALL, api::not_running());
  try {
    *out = next(*running);
  } catch (const Error& error) {
    return api::refuse(error.status(), CALL, std::string_view(error.what()));
  } catch (const std::exception& error) {
    return api::refuse(Status::GENERIC_FAILURE, CALL, std::string_view(error.what()));
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

Status get_rx_burst(BurstParams** burst, std::uintptr_t conn_id, bool server) {
  return receive(burst, [=](const api::Running& running) -> Burst* {
    const Port& port =
        running.session->port(running.session->engine().connection_queue(conn_id).first);
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
    // A peer may be heard on several queues.
    bool peer = false;
    for (const auto& queue : port.rx) {
      if (!queue->has_connection(conn_id)) continue;
      peer = true;
      Burst* next = queue->receive_from(conn_id);
      if (next != nullptr) return next;
    }
    // A server's own connection stands for all of its peers.
    return peer ? nullptr : running.ports[port.id]->receive();
  });
}

}  // namespace daqiri

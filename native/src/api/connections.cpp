#include "api/failure.h"
#include "api/sessions.h"
#include "daqiri/daqiri.h"

namespace daqiri {

using api::fail;
using std::string_view;

namespace {

/// Run `action` with the connections of the running session; what it throws becomes a status.
template <typename Action>
Status with_connections(string_view call, bool outputs_given, Action&& action) noexcept {
  if (!outputs_given)
    return fail(Status::NULL_PTR, call, string_view("a pointer for the result is null"));
  const auto running = api::running();
  if (running == nullptr) return fail(Status::NOT_READY, call, api::not_running());
  return api::guarded(call, [&] {
    action(running->session->connections());
    return Status::SUCCESS;
  });
}

}  // namespace

Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                std::uintptr_t* conn_id) {
  return socket_connect_to_server(server_addr, server_port, "", conn_id);
}

Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                const std::string& src_addr, std::uintptr_t* conn_id) {
  return with_connections("socket_connect_to_server", conn_id != nullptr,
                          [&](Connections& connections) {
                            *conn_id = connections.connect(server_addr, server_port, src_addr);
                          });
}

Status socket_get_port_queue(std::uintptr_t conn_id, std::uint16_t* port, std::uint16_t* queue) {
  return with_connections("socket_get_port_queue", port != nullptr && queue != nullptr,
                          [&](const Connections& connections) {
                            const auto found = connections.queue_of(conn_id);
                            *port = found.first;
                            *queue = found.second;
                          });
}

Status socket_get_server_conn_id(const std::string& server_addr, std::uint16_t server_port,
                                 std::uintptr_t* conn_id) {
  return with_connections("socket_get_server_conn_id", conn_id != nullptr,
                          [&](const Connections& connections) {
                            *conn_id = connections.server_at(server_addr, server_port);
                          });
}

Status socket_setsockopt(std::uintptr_t conn_id, int level, int optname, const void* optval,
                         std::size_t optlen) {
  return with_connections("socket_setsockopt", optval != nullptr || optlen == 0,
                          [&](Connections& connections) {
                            connections.set_socket_option(conn_id, level, optname, optval, optlen);
                          });
}

}  // namespace daqiri

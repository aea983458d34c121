// Ports, and connections of socket streams.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <tuple>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "net/headers.h"

namespace daqiri {

using api::fail;
using api::with_session;

namespace {

Status set_drop_all(const char* call, int port, bool on) noexcept {
  return with_session(call, [=](const Session& session) {
    for (const auto& queue : session.port(port).rx) queue->set_drop_all(on);
  });
}

/// Run `action` with the connections of the running session; no pointer may be null.
template <typename Action>
Status with_connections(const char* call, std::initializer_list<const void*> pointers,
                        Action&& action) noexcept {
  if (std::ranges::count(pointers, nullptr) > 0)
    return fail(Status::NULL_PTR, call, "a pointer for the result is null");
  return with_session(call, [&](const Session& session) { return action(session.connections()); });
}

}  // namespace

Status get_mac_addr(int port, char* mac) {
  if (mac == nullptr) return fail(Status::NULL_PTR, __func__, "mac is null");
  return with_session(__func__, [&](const Session& session) {
    const Port& found = session.port(port);
    const MacAddress address = found.io->mac_address();
    std::ranges::copy(address, reinterpret_cast<std::uint8_t*>(mac));
    if (address == MacAddress{}) {
      throw Error(Status::NOT_SUPPORTED,
                  "interface '" + found.config.name_ + "' has no Ethernet address");
    }
  });
}

int get_port_id(const std::string& name_or_address) {
  int id = -1;
  with_session(__func__, [&](const Session& session) {
    std::string known;
    for (const InterfaceConfig& interface : session.config().ifs_) {
      known += (known.empty() ? "" : ", ") + interface.name_;
      if (id < 0 && (interface.name_ == name_or_address || interface.address_ == name_or_address))
        id = interface.port_id_;
    }
    if (id >= 0) return;
    throw Error(Status::INVALID_PARAMETER,
                "no interface has name or address '" + name_or_address + "'; there are " + known);
  });
  return id;
}

std::uint16_t get_num_rx_queues(int port) {
  std::uint16_t n = 0;
  with_session(__func__, [&](const Session& session) {
    n = static_cast<std::uint16_t>(session.port(port).rx.size());
  });
  return n;
}

Status drop_all_traffic(int port) { return set_drop_all(__func__, port, true); }

Status allow_all_traffic(int port) { return set_drop_all(__func__, port, false); }

Status flush_port_queue(int port, int queue) {
  return with_session(
      __func__, [=](const Session& session) { session.rx_queue(port, queue).request_flush(); });
}

Status flush_tx_queue(int port, int queue, std::uint64_t* dropped) {
  if (dropped != nullptr) *dropped = 0;
  return with_session(__func__, [=](const Session& session) {
    const std::uint64_t packets = session.tx_queue(port, queue).flush();
    if (dropped != nullptr) *dropped = packets;
  });
}

void format_eth_addr(char* dst, const std::string& addr) {
  if (dst == nullptr) {
    fail(Status::NULL_PTR, __func__, "dst is null");
    return;
  }
  MacAddress mac{};
  if (!parse_mac(addr, mac)) {
    mac = {};
    fail(Status::INVALID_PARAMETER, __func__, "'", addr,
         "' is not an address of the form aa:bb:cc:dd:ee:ff");
  }
  std::ranges::copy(mac, reinterpret_cast<std::uint8_t*>(dst));
}

Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                std::uintptr_t* conn_id) {
  return socket_connect_to_server(server_addr, server_port, "", conn_id);
}

Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                const std::string& src_addr, std::uintptr_t* conn_id) {
  return with_connections(__func__, {conn_id}, [&](Connections& connections) {
    *conn_id = connections.connect(server_addr, server_port, src_addr);
  });
}

Status socket_get_port_queue(std::uintptr_t conn_id, std::uint16_t* port, std::uint16_t* queue) {
  return with_connections(__func__, {port, queue}, [&](Connections& connections) {
    std::tie(*port, *queue) = connections.queue_of(conn_id);
  });
}

Status socket_get_server_conn_id(const std::string& server_addr, std::uint16_t server_port,
                                 std::uintptr_t* conn_id) {
  const char* call = __func__;
  return with_connections(call, {conn_id}, [&](Connections& connections) {
    *conn_id = connections.first_client(connections.server_at(server_addr, server_port));
    if (*conn_id != 0) return Status::SUCCESS;
    return api::decline(Status::NULL_PTR, call, "no client is connected to the server yet");
  });
}

Status socket_setsockopt(std::uintptr_t conn_id, int level, int optname, const void* optval,
                         std::size_t optlen) {
  // Without a value, optval may be null.
  const void* needed = optlen == 0 ? "" : optval;
  return with_connections(__func__, {needed}, [&](Connections& connections) {
    connections.set_socket_option(conn_id, level, optname, optval, optlen);
  });
}

}  // namespace daqiri

/// Kernel sockets: UDP and TCP.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "engines/socket/rejected.h"
#include "engines/socket/tcp_endpoint.h"
#include "engines/socket/udp_launch.h"
#include "io/io_engine.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

using sockets::Endpoint;
using sockets::is_tcp;

/// Limit for all connections of a session that is closed.
constexpr std::uint64_t LINGER_NS = 2'000'000'000U;

std::unique_ptr<Endpoint> make_endpoint(const Port& port) {
  if (is_tcp(port.config)) return std::make_unique<sockets::TcpEndpoint>(port);
  return sockets::make_udp_endpoint(port);
}

class SocketEngine final : public IoEngine, public Connections {
 public:
  ~SocketEngine() override { close(); }

  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) {
      endpoints_.push_back(make_endpoint(*port));
      port->io = endpoints_.back().get();
    }
    for (const auto& endpoint : endpoints_) endpoint->count_losses();
    for (const auto& endpoint : endpoints_) endpoint->start();
  }
  void finish_sending() noexcept override {
    // For all endpoints first, so that waiting for one peer does not delay the others.
    for (const auto& endpoint : endpoints_) endpoint->end_sending();
    const std::uint64_t deadline = monotonic_ns() + LINGER_NS;
    for (const auto& endpoint : endpoints_) endpoint->finish_sending(deadline);
  }
  void close() noexcept override {
    for (const auto& endpoint : endpoints_) endpoint->end_losses();
    for (const auto& endpoint : endpoints_) endpoint->close();
  }
  [[nodiscard]] Connections* connections() noexcept override { return this; }

  std::uintptr_t connect(const std::string& address, std::uint16_t port,
                         const std::string& source) override {
    const SocketAddress remote = SocketAddress::parse(address, port);
    if (port == 0)
      throw Error(Status::INVALID_PARAMETER,
                  "cannot connect to port 0 of " + address + "; ports are 1 to 65535");
    const SocketAddress from = source.empty() ? SocketAddress() : SocketAddress::parse(source, 0);
    for (const auto& endpoint : endpoints_) {
      if (endpoint->client() && endpoint->remote().key() == remote.key() &&
          (!from.given() || from.same_host(endpoint->local())))
        return endpoint->connection();
    }
    for (const auto& endpoint : endpoints_) {
      if (endpoint->can_connect(remote, from)) return endpoint->connect(remote, from);
    }
    throw Error(
        Status::CONNECT_FAILURE,
        none("interface can connect to", remote, source.empty() ? "" : " from " + source) +
            ". Add a client with this remote_addr, or (UDP) a server, which can send to any "
            "peer");
  }
  [[nodiscard]] std::pair<std::uint16_t, std::uint16_t> queue_of(
      std::uintptr_t connection) const override {
    const Endpoint& endpoint = endpoint_of(connection);
    return {endpoint.port_id(), endpoint.queue_of(connection)};
  }
  [[nodiscard]] bool is_server(std::uintptr_t connection) const override {
    const Endpoint& endpoint = endpoint_of(connection);
    return !endpoint.client() && endpoint.connection() == connection;
  }
  [[nodiscard]] std::uintptr_t server_at(const std::string& address,
                                         std::uint16_t port) const override {
    const SocketAddress wanted = SocketAddress::parse(address, port);
    const Endpoint* found = nullptr;
    for (const auto& endpoint : endpoints_) {
      const SocketAddress& local = endpoint->local();
      if (endpoint->client() || local.family() != wanted.family() || local.port() != port) continue;
      if (local.key() == wanted.key()) return endpoint->connection();
      if (local.wildcard()) found = endpoint.get();
    }
    if (found != nullptr) return found->connection();
    throw Error(Status::INVALID_PARAMETER, none("server at", wanted, ""));
  }
  [[nodiscard]] std::uintptr_t first_client(std::uintptr_t server) const override {
    return endpoint_of(server).first_client();
  }
  void set_socket_option(std::uintptr_t connection, int level, int option, const void* value,
                         std::size_t length) override {
    Endpoint& endpoint = endpoint_of(connection);
    const auto refuse = [&](Status status, const std::string& why) {
      throw sockets::interface_error(
          endpoint.name(), status,
          "socket option " + std::to_string(option) + " of level " + std::to_string(level) + why);
    };
    endpoint.for_sockets(connection, [&](int fd) {
      if (fd < 0) refuse(Status::NOT_READY, ": the connection has no open socket now");
      if (setsockopt(fd, level, option, value, static_cast<socklen_t>(length)) == 0) return;
      refuse(
          Status::GENERIC_FAILURE,
          " (" + std::to_string(length) +
              " bytes) was rejected: " + std::generic_category().message(errno) +
              "; see socket(7), ip(7), tcp(7) and udp(7) for the values that the kernel accepts");
    });
  }
  [[nodiscard]] std::vector<ConnectionInfo> list(std::uint16_t port) const override {
    return endpoints_.at(port)->connections();
  }

 private:
  [[nodiscard]] Endpoint& endpoint_of(std::uintptr_t connection) const {
    for (const auto& endpoint : endpoints_) {
      if (endpoint->has_connection(connection)) return *endpoint;
    }
    throw Error(Status::INVALID_PARAMETER,
                "no connection " + std::to_string(connection) +
                    " in this session; a client has one connection, a server its own and one for "
                    "each peer from which it has received");
  }
  /// "no ... udp://192.0.2.1:5000 ...; there are" all endpoints, which use the same transport.
  [[nodiscard]] std::string none(const std::string& what, const SocketAddress& address,
                                 const std::string& more) const {
    std::string text = "no " + what + " ";
    text += endpoints_.empty() ? address.text() : uri(endpoints_.front()->transport(), address);
    text += more + "; there are";
    for (const auto& endpoint : endpoints_)
      text += (endpoint == endpoints_.front() ? " " : ", ") + endpoint->text();
    return text;
  }

  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

/// Only a TCP client connects.
bool never_connects(const InterfaceConfig& interface) {
  return interface.socket_.mode_ == SocketMode::SERVER || !is_tcp(interface);
}

constexpr UnusedKey UNUSED_KEYS[] = {
    {"interfaces[].rx.receive_path", "it is for engine 'packet'; remove the key"},
    {"debug", "use log_level: debug"},
    {"memory_regions[].owned", "the engine allocates all regions; remove the key"},
    {"memory_regions[].access", "it is for RDMA; remove the key"},
    {"interfaces[].socket_config.min_ipg_ns",
     "use pacing_mbps of the transmit queue, or launch times"},
    {"interfaces[].socket_config.max_burst_interval_ms", "use timeout_us of the receive queue"},
    {"interfaces[].socket_config.retry_connect_s", "only a TCP client connects; remove the key",
     never_connects},
    {"interfaces[].tx.queues[].timeout_us", "bursts are sent as they come; remove the key"},
    {"interfaces[].tx.queues[].offloads", "the kernel writes all headers; remove the key"}};

std::unique_ptr<IoEngine> make_socket(const NetworkConfig&) {
  return std::make_unique<SocketEngine>();
}

constexpr Privilege SOCKET_PRIVILEGES[] = {
    {"CAP_BPF", "counting each datagram that the kernel drops of a batch", false,
     [](const InterfaceConfig& interface) {
       return !is_tcp(interface) && !interface.rx_.queues_.empty();
     }}};

KernelMemory socket_memory(const NetworkConfig& config, const InterfaceConfig& interface) {
  KernelMemory asked;
  if (is_tcp(interface)) return asked;
  for (const RxQueueConfig& queue : interface.rx_.queues_) {
    std::vector<const MemoryRegionConfig*> regions;
    regions.reserve(queue.common_.mrs_.size());
    for (const std::string& name : queue.common_.mrs_) regions.push_back(&config.mrs_.at(name));
    asked.receive_buffer = std::max(asked.receive_buffer, sockets::receive_buffer_for(regions));
  }
  if (interface.tx_.accurate_send_ && !interface.tx_.queues_.empty())
    asked.send_buffer = sockets::LAUNCH_SEND_BUFFER;
  return asked;
}

constexpr SocketProtocol TRANSPORTS[] = {SocketProtocol::UDP, SocketProtocol::TCP};

const RegisteredEngine registered{
    {{.name = "socket",
      .raw = false,
      .transports = TRANSPORTS,
      .addresses = AddressForm::LABEL,
      .rx_ring = false,
      .many_sources = true,
      .timed_send = true,
      .flex_items = true,
      .unused_keys = UNUSED_KEYS,
      .privileges = SOCKET_PRIVILEGES,
      .kernel_memory = socket_memory,
      .find_rejected = sockets::find_rejected,
      .find_rejected_here = sockets::find_rejected_here},
     [](const NetworkConfig& config) { return config.common_.engine_type == EngineType::SOCKET; },
     make_socket}};

}  // namespace

}  // namespace daqiri

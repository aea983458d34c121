/// Kernel sockets: UDP and TCP.
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "engines/socket/tcp_endpoint.h"
#include "engines/socket/udp_endpoint.h"
#include "io/io_engine.h"

namespace daqiri {

namespace {

using sockets::Endpoint;
using sockets::UdpEndpoint;

void refuse_missing(const InterfaceConfig& interface) {
  const auto refuse = [&](Status status, const std::string& what) {
    throw Error(status, "interface '" + interface.name_ + "': " + what);
  };
  if (!interface.has_socket_)
    refuse(Status::INVALID_PARAMETER, "a socket stream needs socket_config");
  for (const SocketEndpoint* endpoint :
       {&interface.socket_.local_addr_, &interface.socket_.remote_addr_}) {
    if (!endpoint->given() || endpoint->protocol_ != SocketProtocol::ROCE) continue;
    refuse(Status::NOT_SUPPORTED,
           "roce:// endpoints are not part of this build: they need rdma-core (Debian: "
           "libibverbs-dev, librdmacm-dev); use udp:// or tcp://");
  }
}

bool is_tcp(const InterfaceConfig& interface) {
  const SocketConfig& socket = interface.socket_;
  const SocketEndpoint& endpoint =
      socket.local_addr_.given() ? socket.local_addr_ : socket.remote_addr_;
  return endpoint.protocol_ == SocketProtocol::TCP;
}

std::unique_ptr<Endpoint> make_endpoint(const Port& port) {
  if (is_tcp(port.config)) return std::make_unique<sockets::TcpEndpoint>(port);
  return std::make_unique<UdpEndpoint>(port);
}

class SocketEngine final : public IoEngine {
 public:
  explicit SocketEngine(std::uint32_t run) : run_(run) {}
  ~SocketEngine() override { close(); }

  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) endpoints_.push_back(make_endpoint(*port));
    for (const auto& endpoint : endpoints_) endpoint->start();
  }

  void finish_sending() noexcept override {
    for (const auto& endpoint : endpoints_) endpoint->finish_sending();
  }

  void close() noexcept override {
    for (const auto& endpoint : endpoints_) endpoint->close();
  }

  std::uint32_t receive(RxQueue& queue) noexcept override {
    return endpoints_[queue.port_id()]->receive(queue);
  }

  TransmitResult transmit(TxQueue& queue, const Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    return endpoints_[queue.port_id()]->transmit(queue, burst, first, count);
  }

  [[nodiscard]] int receive_fd(const RxQueue& queue) const noexcept override {
    return endpoints_[queue.port_id()]->receive_fd(queue);
  }
  [[nodiscard]] bool gathers(const RxQueue& queue) const noexcept override {
    return endpoints_[queue.port_id()]->gathers();
  }
  [[nodiscard]] int transmit_fd(const TxQueue& queue) const noexcept override {
    return endpoints_[queue.port_id()]->transmit_fd(queue);
  }
  [[nodiscard]] std::uint32_t transmit_run() const noexcept override { return run_; }

  [[nodiscard]] std::uint64_t launch_lead(const TxQueue& queue) const noexcept override {
    return endpoints_[queue.port_id()]->launch_lead();
  }
  [[nodiscard]] std::string launch_keeper(const TxQueue& queue) const override {
    return endpoints_[queue.port_id()]->launch_keeper();
  }
  LaunchResult launched(TxQueue& queue, bool last) noexcept override {
    return endpoints_[queue.port_id()]->launched(last);
  }

  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer(std::uint16_t port) const override {
    return endpoints_.at(port)->link_layer();
  }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address(
      std::uint16_t port) const noexcept override {
    return port < endpoints_.size() ? endpoints_[port]->mac() : std::array<std::uint8_t, 6>{};
  }

  std::uintptr_t connect(const std::string& address, std::uint16_t port,
                         const std::string& source) override;
  [[nodiscard]] std::pair<std::uint16_t, std::uint16_t> connection_queue(
      std::uintptr_t connection) const override {
    return endpoint_of(connection).port_queue(connection);
  }
  [[nodiscard]] std::uintptr_t server_connection(const std::string& address,
                                                 std::uint16_t port) const override;
  void set_socket_option(std::uintptr_t connection, int level, int option, const void* value,
                         std::size_t length) override {
    endpoint_of(connection).set_option(connection, level, option, value, length);
  }
  [[nodiscard]] std::vector<ConnectionInfo> connections(std::uint16_t port) const override {
    return endpoints_.at(port)->connections();
  }

 private:
  [[nodiscard]] Endpoint& endpoint_of(std::uintptr_t connection) const;
  [[nodiscard]] std::string listed() const;
  /// All endpoints have one transport.
  [[nodiscard]] std::string uri(const SocketAddress& address) const {
    return (endpoints_.empty() ? "" : endpoints_.front()->scheme()) + address.text();
  }

  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::uint32_t run_;
};

std::string SocketEngine::listed() const {
  std::string text;
  for (const auto& endpoint : endpoints_) text += (text.empty() ? "" : ", ") + endpoint->text();
  return text;
}

Endpoint& SocketEngine::endpoint_of(std::uintptr_t connection) const {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->has_connection(connection)) return *endpoint;
  }
  throw Error(Status::INVALID_PARAMETER,
              "no connection " + std::to_string(connection) +
                  " in this session; a client has "
                  "one, a server its own and one for each peer it has received from");
}

std::uintptr_t SocketEngine::connect(const std::string& address, std::uint16_t port,
                                     const std::string& source) {
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
  throw Error(Status::CONNECT_FAILURE,
              "no interface can connect to " + uri(remote) +
                  (source.empty() ? "" : " from " + source) + "; there are " + listed() +
                  ". Add a client with this remote_addr, or (UDP) a server, which can send to any "
                  "peer");
}

std::uintptr_t SocketEngine::server_connection(const std::string& address,
                                               std::uint16_t port) const {
  const SocketAddress wanted = SocketAddress::parse(address, port);
  const Endpoint* found = nullptr;
  for (const auto& endpoint : endpoints_) {
    const SocketAddress local = endpoint->local();
    if (endpoint->client() || local.family() != wanted.family() || local.port() != port) continue;
    if (local.key() == wanted.key()) return endpoint->connection();
    if (local.wildcard()) found = endpoint.get();
  }
  if (found != nullptr) return found->connection();
  throw Error(Status::INVALID_PARAMETER, "no server at " + uri(wanted) + "; there are " + listed());
}

std::unique_ptr<IoEngine> make_socket_engine(const NetworkConfig& config) {
  for (const InterfaceConfig& interface : config.ifs_) refuse_missing(interface);
  const bool tcp = !config.ifs_.empty() && is_tcp(config.ifs_.front());
  return std::make_unique<SocketEngine>(tcp ? sockets::TcpSender::RUN : sockets::UdpSender::BATCH);
}

/// Only a TCP client connects.
bool never_connects(const InterfaceConfig& interface) {
  return interface.socket_.mode_ == SocketMode::SERVER || !is_tcp(interface);
}

constexpr UnusedKey UNUSED_KEYS[] = {
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

EngineTraits traits() {
  EngineTraits traits;
  traits.name = "socket";
  traits.unused_keys = UNUSED_KEYS;
  traits.rx_ring = false;
  traits.timed_send = true;
  return traits;
}

const RegisteredEngine registered{
    {traits(),
     [](const NetworkConfig& config) { return config.common_.engine_type == EngineType::SOCKET; },
     make_socket_engine}};

}  // namespace

}  // namespace daqiri

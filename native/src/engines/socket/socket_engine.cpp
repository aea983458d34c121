#include "engines/socket/socket_engine.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <vector>

#include "daqiri/error.h"
#include "engines/socket/udp_endpoint.h"

namespace daqiri {

namespace {

using sockets::SocketAddress;
using sockets::UdpEndpoint;

void refuse_missing(const InterfaceConfig& interface) {
  const auto refuse = [&](Status status, const std::string& what) {
    throw Error(status, "interface '" + interface.name_ + "': " + what);
  };
  if (!interface.has_socket_)
    refuse(Status::INVALID_PARAMETER, "a socket stream needs socket_config");
  for (const SocketEndpoint* endpoint :
       {&interface.socket_.local_addr_, &interface.socket_.remote_addr_}) {
    if (!endpoint->given() || endpoint->protocol_ == SocketProtocol::UDP) continue;
    if (endpoint->protocol_ == SocketProtocol::TCP) {
      refuse(Status::NOT_SUPPORTED,
             "tcp:// endpoints are not part of this build: the socket engine has no stream "
             "connections yet; use udp://");
    }
    refuse(Status::NOT_SUPPORTED,
           "roce:// endpoints are not part of this build: they need rdma-core (Debian: "
           "libibverbs-dev, librdmacm-dev); use udp://");
  }
}

class SocketEngine final : public IoEngine {
 public:
  ~SocketEngine() override { close(); }

  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) endpoints_.push_back(std::make_unique<UdpEndpoint>(*port));
  }

  void close() noexcept override {
    const std::lock_guard lock(options_);
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
    return endpoints_[queue.port_id()]->socket().fd();
  }
  [[nodiscard]] std::uint32_t transmit_run() const noexcept override {
    return sockets::UdpSender::BATCH;
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
    return endpoint_of(connection).port_queue();
  }
  [[nodiscard]] std::uintptr_t server_connection(const std::string& address,
                                                 std::uint16_t port) const override;
  void set_socket_option(std::uintptr_t connection, int level, int option, const void* value,
                         std::size_t length) override;

 private:
  [[nodiscard]] UdpEndpoint& endpoint_of(std::uintptr_t connection) const;
  /// "'tx0' (udp client to 192.0.2.1:5000)", for messages.
  [[nodiscard]] std::string listed() const;

  std::vector<std::unique_ptr<UdpEndpoint>> endpoints_;
  /// A socket is not closed while an option is set on it.
  std::mutex options_;
};

std::string SocketEngine::listed() const {
  std::string text;
  for (const auto& endpoint : endpoints_) {
    const sockets::UdpSocket& socket = endpoint->socket();
    if (!text.empty()) text += ", ";
    text += "'" + endpoint->name() + "' (";
    text += socket.client() ? "client of udp://" + socket.remote().text()
                            : "server at udp://" + socket.local().text();
    text += ")";
  }
  return text;
}

UdpEndpoint& SocketEngine::endpoint_of(std::uintptr_t connection) const {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->has_connection(connection)) return *endpoint;
  }
  throw Error(Status::INVALID_PARAMETER,
              "no connection " + std::to_string(connection) +
                  " in this session; a client has "
                  "one, a server its own and one for each peer it has heard");
}

std::uintptr_t SocketEngine::connect(const std::string& address, std::uint16_t port,
                                     const std::string& source) {
  const SocketAddress remote = SocketAddress::parse(address, port);
  if (port == 0)
    throw Error(Status::INVALID_PARAMETER,
                "cannot connect to port 0 of " + address + "; ports are 1 to 65535");
  const SocketAddress from = source.empty() ? SocketAddress() : SocketAddress::parse(source, 0);
  const auto fits = [&](const sockets::UdpSocket& socket) {
    return socket.local().family() == remote.family() &&
           (!from.given() || from.same_host(socket.local()));
  };
  for (const auto& endpoint : endpoints_) {
    const sockets::UdpSocket& socket = endpoint->socket();
    if (socket.client() && socket.remote().key() == remote.key() && fits(socket))
      return endpoint->connection();
  }
  // A server's socket can send to anybody.
  for (const auto& endpoint : endpoints_) {
    const sockets::UdpSocket& socket = endpoint->socket();
    if (!socket.client() && fits(socket)) return endpoint->add_peer(remote);
  }
  throw Error(Status::CONNECT_FAILURE,
              "no interface can connect to udp://" + remote.text() +
                  (source.empty() ? "" : " from " + source) + "; there are " + listed() +
                  ". Add a client with this remote_addr, or a server (which can send to any peer)");
}

std::uintptr_t SocketEngine::server_connection(const std::string& address,
                                               std::uint16_t port) const {
  const SocketAddress wanted = SocketAddress::parse(address, port);
  const UdpEndpoint* found = nullptr;
  for (const auto& endpoint : endpoints_) {
    const SocketAddress& local = endpoint->socket().local();
    if (endpoint->socket().client() || local.family() != wanted.family() || local.port() != port)
      continue;
    if (local.key() == wanted.key()) return endpoint->connection();
    if (local.wildcard()) found = endpoint.get();
  }
  if (found != nullptr) return found->connection();
  throw Error(Status::INVALID_PARAMETER,
              "no server at udp://" + wanted.text() + "; there are " + listed());
}

void SocketEngine::set_socket_option(std::uintptr_t connection, int level, int option,
                                     const void* value, std::size_t length) {
  const UdpEndpoint& endpoint = endpoint_of(connection);
  const std::lock_guard lock(options_);
  const std::string what = "interface '" + endpoint.name() + "': socket option " +
                           std::to_string(option) + " of level " + std::to_string(level);
  const int fd = endpoint.socket().fd();
  if (fd < 0) throw Error(Status::NOT_READY, what + ": the session is closed");
  if (setsockopt(fd, level, option, value, static_cast<socklen_t>(length)) != 0) {
    const int error = errno;
    throw Error(Status::INVALID_PARAMETER,
                what + " (" + std::to_string(length) +
                    " bytes) was refused: " + std::generic_category().message(error) +
                    "; see socket(7), ip(7) and udp(7) for what the kernel accepts");
  }
}

}  // namespace

std::unique_ptr<IoEngine> make_socket_engine(const NetworkConfig& config) {
  for (const InterfaceConfig& interface : config.ifs_) refuse_missing(interface);
  return std::make_unique<SocketEngine>();
}

}  // namespace daqiri

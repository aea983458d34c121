#include "engines/socket/tcp_socket.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "daqiri/error.h"
#include "engines/socket/socket_errors.h"

namespace daqiri::sockets {

namespace {

constexpr int BACKLOG = 1024;
constexpr int KEEPALIVE_IDLE_S = 10;
constexpr int KEEPALIVE_INTERVAL_S = 5;
constexpr int KEEPALIVE_PROBES = 3;

File make_socket(const SocketAddress& address) noexcept {
  File made = File::private_to_process([&] {
    return socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  });
  if (!made.is_open()) return made;
  // A restarted process takes its port back although old connections linger in TIME_WAIT.
  set_int_option(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ipv6()) set_int_option(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return made;
}

}  // namespace

TcpConfig::TcpConfig(const InterfaceConfig& config)
    : interface(config.name_),
      client(config.socket_.mode_ == SocketMode::CLIENT),
      retry_ns(std::uint64_t{config.socket_.retry_connect_s_} * 1'000'000'000U) {
  const SocketAddresses addresses = addresses_of(config, Transport::TCP);
  local = addresses.local;
  remote = addresses.remote;
}

File listen_at(const TcpConfig& config) {
  const SocketAddress& local = config.local;
  File listener = make_socket(local);
  if (!listener.is_open() || bind(listener.fd(), local.data(), local.length()) != 0 ||
      listen(listener.fd(), BACKLOG) != 0) {
    throw Error(Status::CONNECT_FAILURE, "interface '" + config.interface +
                                             "': cannot listen at tcp://" + local.text() + ": " +
                                             socket_error_text(errno, local, Transport::TCP));
  }
  return listener;
}

File begin_connect(const SocketAddress& peer, const SocketAddress& source, int& error) noexcept {
  File made = make_socket(peer);
  error = 0;
  if (made.is_open() && (!source.given() || bind(made.fd(), source.data(), source.length()) == 0) &&
      connect(made.fd(), peer.data(), peer.length()) == 0)
    return made;
  error = errno;
  if (error != EINPROGRESS) made.close();
  return made;
}

void prepare_connected(int fd) noexcept {
  set_int_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
  set_int_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
  set_int_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
  set_int_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

int pending_error(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

bool all_acknowledged(int fd) noexcept {
  int bytes = 0;
  if (ioctl(fd, SIOCOUTQ, &bytes) != 0 || bytes == 0) return true;
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state == TCP_CLOSE;
}

}  // namespace daqiri::sockets

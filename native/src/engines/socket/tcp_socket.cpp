#include "engines/socket/tcp_socket.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "daqiri/error.h"

namespace daqiri::sockets {

namespace {

constexpr int BACKLOG = 1024;
constexpr int KEEPALIVE_IDLE_S = 10;
constexpr int KEEPALIVE_INTERVAL_S = 5;
constexpr int KEEPALIVE_PROBES = 3;

bool set_int_option(int fd, int level, int option, int value) noexcept {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

int make_socket(const SocketAddress& address) noexcept {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd < 0) return fd;
  // A restarted process takes its port back although old connections linger in TIME_WAIT.
  set_int_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ipv6()) set_int_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return fd;
}

SocketAddress parse_endpoint(const std::string& interface, const char* key,
                             const SocketEndpoint& endpoint) {
  try {
    return SocketAddress::parse(endpoint.host_, endpoint.port_);
  } catch (const Error& e) {
    throw Error(e.status(),
                "interface '" + interface + "': socket_config." + key + ": " + e.what());
  }
}

std::string fix_for(int error, const SocketAddress& address) {
  const std::string port = std::to_string(address.port());
  switch (error) {
    case ECONNREFUSED:
      return "nothing listens there (`ss -ltn sport = :" + port + "` on that host shows it)";
    case ETIMEDOUT:
      return "no answer; a firewall may drop the packets, or the host is down";
    case EADDRINUSE:
      return "another socket has this port (`ss -ltnp sport = :" + port +
             "` names its process); end that process or choose another port";
    case EADDRNOTAVAIL:
      return "this host has no such address (`ip -brief address` lists those it has), or no free "
             "port";
    case EACCES:
    case EPERM:
      return "for a port below 1024 grant CAP_NET_BIND_SERVICE or choose a higher port; a firewall "
             "may forbid it";
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "there is no route to it (`ip route get` with the address says why)";
    case EINVAL:
      return "an IPv6 link-local address needs its interface: fe80::1%eth0";
    case EMFILE:
    case ENFILE:
      return "the process has no file descriptor left (`ulimit -n` raises the limit)";
    case EAFNOSUPPORT:
      return "the kernel has no support for this address family";
    default:
      return "check the address in socket_config";
  }
}

}  // namespace

TcpConfig::TcpConfig(const InterfaceConfig& config)
    : interface(config.name_),
      client(config.socket_.mode_ == SocketMode::CLIENT),
      retry_ns(std::uint64_t{config.socket_.retry_connect_s_} * 1'000'000'000U) {
  const SocketConfig& socket = config.socket_;
  const auto refuse = [&](const std::string& what) {
    throw Error(Status::INVALID_PARAMETER, "interface '" + interface + "': " + what);
  };
  if (client && !socket.remote_addr_.given())
    refuse("socket_config.remote_addr is missing; a TCP client needs it (tcp://ADDRESS:PORT)");
  if (!client && !socket.local_addr_.given())
    refuse("socket_config.local_addr is missing; a TCP server needs it (tcp://ADDRESS:PORT)");
  if (socket.local_addr_.given())
    local = parse_endpoint(interface, "local_addr", socket.local_addr_);
  if (client) remote = parse_endpoint(interface, "remote_addr", socket.remote_addr_);
  if (client && local.given() && local.family() != remote.family()) {
    refuse("local_addr " + local.text() + " and remote_addr " + remote.text() +
           " are of different address families; use IPv4 or IPv6 for both");
  }
}

int listen_at(const TcpConfig& config) {
  const int fd = make_socket(config.local);
  if (fd >= 0 && bind(fd, config.local.data(), config.local.length()) == 0 &&
      listen(fd, BACKLOG) == 0) {
    return fd;
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  throw Error(Status::CONNECT_FAILURE, "interface '" + config.interface +
                                           "': cannot listen at tcp://" + config.local.text() +
                                           ": " + connect_error_text(error, config.local));
}

int begin_connect(const SocketAddress& peer, const SocketAddress& source, int& error) noexcept {
  const int fd = make_socket(peer);
  if (fd >= 0 && (!source.given() || bind(fd, source.data(), source.length()) == 0) &&
      connect(fd, peer.data(), peer.length()) == 0) {
    error = 0;
    return fd;
  }
  error = errno;
  if (fd < 0 || error == EINPROGRESS) return fd;
  ::close(fd);
  return -1;
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

std::string connect_error_text(int error, const SocketAddress& peer) {
  return std::generic_category().message(error) + ": " + fix_for(error, peer);
}

}  // namespace daqiri::sockets

#include "engines/socket/sockets.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "burst/burst.h"
#include "system/log.h"

namespace daqiri::sockets {

namespace {

std::string fix_for(int error, const SocketAddress& address, Transport transport) {
  const std::string port = std::to_string(address.port());
  switch (error) {
    case ECONNREFUSED:
      return "nothing listens there (`ss -ltn sport = :" + port + "` on that host shows it)";
    case ETIMEDOUT:
      return "no answer; a firewall may drop the packets, or the host is down";
    case EADDRINUSE:
      return std::string("another socket has this port (`ss -l") +
             (transport == Transport::UDP ? "u" : "t") + "np sport = :" + port +
             "` names its process); end that process or choose another port";
    case EADDRNOTAVAIL:
      return "this host has no such address (`ip -brief address` lists those it has), or no free "
             "port";
    case EACCES:
    case EPERM:
      return "for a port below 1024 grant CAP_NET_BIND_SERVICE or choose a higher port; a "
             "broadcast address needs a server interface with SO_BROADCAST set on its connection; "
             "a firewall may forbid it";
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "there is no route to it (`ip route get` with the address says why)";
    case EINVAL:
      return "an IPv6 link-local address needs its interface: fe80::1%eth0";
    case ENODEV:
      return "no network interface leads to the group; name one with the interface's `address` "
             "(eth0, or an IP address of it)";
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

std::string uri(Transport transport, const SocketAddress& address) {
  return (transport == Transport::UDP ? "udp://" : "tcp://") + address.text();
}

SocketAddresses addresses_of(const InterfaceConfig& interface) {
  const auto parse = [&](const char* key, const std::string& ip, std::uint16_t port) {
    try {
      return ip.empty() ? SocketAddress() : SocketAddress::parse(ip, port);
    } catch (const Error& error) {
      throw interface_error(interface.name_, error.status(),
                            std::string("socket_config.") + key + ": " + error.what());
    }
  };
  const SocketConfig& config = interface.socket_;
  const bool client = config.mode_ == SocketMode::CLIENT;
  return {parse("local_addr", config.local_ip_, config.local_port_),
          client ? parse("remote_addr", config.remote_ip_, config.remote_port_) : SocketAddress()};
}

std::uintptr_t next_connection_id() noexcept {
  static std::atomic<std::uintptr_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

steering::PacketKey key_of(const SocketAddress& peer, const SocketAddress& local,
                           std::uint16_t length) noexcept {
  steering::PacketKey key{.ipv4_udp = !peer.ipv6(),
                          .ipv6_udp = peer.ipv6(),
                          .udp_src = peer.port(),
                          .udp_dst = local.port()};
  if (key.ipv6_udp) return key;
  key.ipv4_len = length;
  key.ipv4_src = peer.ipv4();
  key.ipv4_dst = local.ipv4();
  return key;
}

Error interface_error(const std::string& interface, Status status, const std::string& what) {
  return {status, "interface '" + interface + "': " + what};
}

Error socket_error(const std::string& interface, const char* action, Transport transport,
                   const SocketAddress& address, int error) {
  return interface_error(interface, Status::CONNECT_FAILURE,
                         std::string("cannot ") + action + " " + uri(transport, address) + ": " +
                             socket_error_text(error, address, transport));
}

std::string socket_error_text(int error, const SocketAddress& address, Transport transport) {
  return std::generic_category().message(error) + ": " + fix_for(error, address, transport);
}

void log_about(const std::string& interface, LogLevel level, const std::string& text) {
  log(level, "interface '" + interface + "': " + text, {.interface = interface, .queue = {}});
}

File make_socket(const SocketAddress& address, Transport transport) noexcept {
  const int type = transport == Transport::UDP ? SOCK_DGRAM : SOCK_STREAM;
  File made = File::private_to_process(
      [&] { return socket(address.family(), type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (made.is_open() && address.ipv6()) set_int_option(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return made;
}

bool set_int_option(int fd, int level, int option, int value) noexcept {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

int enlarge_buffer(int fd, int buffer, int bytes) noexcept {
  // The kernel reports twice the size.
  const auto granted = [&] {
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, buffer, &value, &length) == 0 ? value / 2 : 0;
  };
  // Exceeding net.core.rmem_max or wmem_max requires CAP_NET_ADMIN.
  const int forced = buffer == SO_RCVBUF ? SO_RCVBUFFORCE : SO_SNDBUFFORCE;
  if (bytes > granted() && !set_int_option(fd, SOL_SOCKET, forced, bytes))
    set_int_option(fd, SOL_SOCKET, buffer, bytes);
  return granted();
}

TransmitResult too_long(const Burst& burst, std::uint32_t first, std::uint32_t count,
                        std::uint32_t limit) noexcept {
  TransmitResult result{.error = EMSGSIZE};
  while (result.failed < count && burst.packet_length(first + result.failed) > limit)
    ++result.failed;
  return result;
}

}  // namespace daqiri::sockets

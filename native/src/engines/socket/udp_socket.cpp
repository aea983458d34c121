#include "engines/socket/udp_socket.h"

#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <system_error>

#include "daqiri/error.h"
#include "net/interfaces.h"
#include "system/log.h"

namespace daqiri::sockets {

namespace {

std::string errno_text(int error) { return std::generic_category().message(error); }

/// What to do about an errno from bind(2) or connect(2).
std::string fix_for(int error, const SocketAddress& address) {
  const std::string port = std::to_string(address.port());
  switch (error) {
    case EADDRINUSE:
      return "another socket has this port (`ss -ulnp sport = :" + port +
             "` names its process); end that process or "
             "choose another port";
    case EADDRNOTAVAIL:
      return "this host has no such address (`ip -brief address` lists those it has)";
    case EACCES:
      return "for a port below 1024 grant CAP_NET_BIND_SERVICE or choose a higher port; a "
             "broadcast address needs a "
             "server interface with SO_BROADCAST set on its connection";
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

SocketAddress parse_endpoint(const std::string& interface, const char* key,
                             const SocketEndpoint& endpoint) {
  try {
    return SocketAddress::parse(endpoint.host_, endpoint.port_);
  } catch (const Error& e) {
    throw Error(e.status(),
                "interface '" + interface + "': socket_config." + key + ": " + e.what());
  }
}

int int_option(int fd, int option) noexcept {
  int value = 0;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : 0;
}

bool set_int_option(int fd, int level, int option, int value) noexcept {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

}  // namespace

UdpSocket::UdpSocket(const InterfaceConfig& interface, bool shared) : interface_(interface.name_) {
  const SocketConfig& config = interface.socket_;
  const bool client = config.mode_ == SocketMode::CLIENT;
  const auto missing = [&](const char* key, const char* mode) {
    return Error(Status::INVALID_PARAMETER, "interface '" + interface_ + "': socket_config." + key +
                                                " is missing; a UDP " + mode +
                                                " needs it (udp://ADDRESS:PORT)");
  };
  if (client && !config.remote_addr_.given()) throw missing("remote_addr", "client");
  if (!client && !config.local_addr_.given()) throw missing("local_addr", "server");
  if (config.local_addr_.given())
    local_ = parse_endpoint(interface_, "local_addr", config.local_addr_);
  SocketAddress remote;
  if (client) remote = parse_endpoint(interface_, "remote_addr", config.remote_addr_);
  if (client && local_.given() && local_.family() != remote.family()) {
    throw Error(Status::INVALID_PARAMETER,
                "interface '" + interface_ + "': local_addr " + local_.text() +
                    " and remote_addr " + remote.text() +
                    " are of different address families; use IPv4 or IPv6 for both");
  }
  const SocketAddress& shown = client ? remote : local_;
  fd_ = socket(shown.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
  if (fd_ < 0) fail("make a socket for", shown, errno);
  try {
    if (!interface.rx_.queues_.empty()) arrivals_.attach(fd_);
    bind(interface, shared);
    if (client) connect(interface, remote);
  } catch (...) {
    close();
    throw;
  }
  local_ = SocketAddress::local_of(fd_);
}

void UdpSocket::bind(const InterfaceConfig& interface, bool shared) {
  if (!local_.given()) return;
  // An IPv6 socket then never sees IPv4 peers under mapped addresses.
  if (local_.ipv6()) set_int_option(fd_, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (shared) set_int_option(fd_, SOL_SOCKET, SO_REUSEPORT, 1);
  const bool group = local_.multicast();
  if (group) set_int_option(fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd_, local_.data(), local_.length()) != 0) fail("bind", local_, errno);
  if (!group) return;
  const unsigned index = choose_multicast_interface(local_, interface.address_);
  if (const int error = join_group(fd_, local_, index); error != 0)
    fail("join the group of", local_, error);
}

void UdpSocket::connect(const InterfaceConfig& interface, const SocketAddress& remote) {
  if (remote.multicast())
    multicast_egress_ = choose_multicast_interface(remote, interface.address_);
  if (::connect(fd_, remote.data(), remote.length()) != 0) fail("connect to", remote, errno);
  // Others may have sent between bind and connect.
  char byte = 0;
  while (foreign_ < 1024 && recv(fd_, &byte, 1, MSG_DONTWAIT) >= 0) ++foreign_;
  remote_ = remote;
}

unsigned UdpSocket::choose_multicast_interface(const SocketAddress& group,
                                               const std::string& address) {
  unsigned index = 0;
  try {
    index = multicast_interface(group, address);
  } catch (const Error& e) {
    throw Error(e.status(), "interface '" + interface_ + "': " + e.what());
  }
  if (const int error = send_to_groups_through(fd_, group.family(), index); error != 0)
    fail("send from the chosen network interface to", group, error);
  return index;
}

void UdpSocket::fail(const char* what, const SocketAddress& address, int error) const {
  throw Error(Status::CONNECT_FAILURE, "interface '" + interface_ + "': cannot " + what +
                                           " udp://" + address.text() + ": " + errno_text(error) +
                                           ": " + fix_for(error, address));
}

void UdpSocket::prepare_receive(std::uint64_t bytes) {
  const auto asked =
      static_cast<int>(std::min<std::uint64_t>(bytes, std::numeric_limits<int>::max() / 2));
  if (asked > int_option(fd_, SO_RCVBUF) / 2) {
    // Past net.core.rmem_max with CAP_NET_ADMIN only.
    if (!set_int_option(fd_, SOL_SOCKET, SO_RCVBUFFORCE, asked))
      set_int_option(fd_, SOL_SOCKET, SO_RCVBUF, asked);
    const std::uint64_t granted = receive_buffer();
    if (granted < static_cast<std::uint64_t>(asked)) {
      log(LogLevel::WARN,
          "interface '" + interface_ + "': the kernel grants " + std::to_string(granted) +
              " of the " + std::to_string(asked) + " bytes of receive buffer asked for udp://" +
              local_.text() +
              "; bursts may be lost. Raise the limit: sysctl -w net.core.rmem_max=" +
              std::to_string(asked),
          {.interface = interface_, .queue = {}});
    }
  }
  // Before Linux 5.0 datagrams come one by one.
  set_int_option(fd_, SOL_UDP, UDP_GRO, 1);
  if (!set_int_option(fd_, SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
    const int error = errno;
    log(LogLevel::WARN,
        "interface '" + interface_ + "': no kernel receive timestamps (" + errno_text(error) +
            "); packets carry the time at which they were read",
        {.interface = interface_, .queue = {}});
  }
}

void UdpSocket::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::uint64_t UdpSocket::receive_buffer() const noexcept {
  return static_cast<std::uint64_t>(int_option(fd_, SO_RCVBUF)) / 2;
}

std::uint32_t UdpSocket::kernel_drops() const noexcept {
  // SO_RXQ_OVFL has the same count, but reports it with the next datagram only: drops at the end of
  // a burst would stay unseen.
  std::uint32_t info[SK_MEMINFO_VARS]{};
  socklen_t length = sizeof(info);
  if (getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, info, &length) != 0) return 0;
  return info[SK_MEMINFO_DROPS];
}

}  // namespace daqiri::sockets

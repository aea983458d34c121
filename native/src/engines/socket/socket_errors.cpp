#include "engines/socket/socket_errors.h"

#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "daqiri/error.h"

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

const char* name_of(Transport transport) noexcept {
  return transport == Transport::UDP ? "udp" : "tcp";
}

SocketAddresses addresses_of(const InterfaceConfig& interface, Transport transport) {
  const SocketConfig& config = interface.socket_;
  const bool client = config.mode_ == SocketMode::CLIENT;
  const auto refuse = [&](Status status, const std::string& what) {
    throw Error(status, "interface '" + interface.name_ + "': " + what);
  };
  const auto parse = [&](const char* key, const SocketEndpoint& endpoint, const char* needed_by) {
    if (!endpoint.given() && needed_by != nullptr) {
      const std::string name = name_of(transport);
      refuse(Status::INVALID_PARAMETER, std::string("socket_config.") + key + " is missing; a " +
                                            (transport == Transport::UDP ? "UDP " : "TCP ") +
                                            needed_by + " needs it (" + name + "://ADDRESS:PORT)");
    }
    SocketAddress address;
    if (!endpoint.given()) return address;
    try {
      address = SocketAddress::parse(endpoint.host_, endpoint.port_);
    } catch (const Error& error) {
      refuse(error.status(), std::string("socket_config.") + key + ": " + error.what());
    }
    return address;
  };
  SocketAddresses result;
  result.local = parse("local_addr", config.local_addr_, client ? nullptr : "server");
  if (!client) return result;
  result.remote = parse("remote_addr", config.remote_addr_, "client");
  if (result.local.given() && result.local.family() != result.remote.family()) {
    refuse(Status::INVALID_PARAMETER,
           "local_addr " + result.local.text() + " and remote_addr " + result.remote.text() +
               " are of different address families; use IPv4 or IPv6 for both");
  }
  return result;
}

std::string socket_error_text(int error, const SocketAddress& address, Transport transport) {
  return std::generic_category().message(error) + ": " + fix_for(error, address, transport);
}

bool set_int_option(int fd, int level, int option, int value) noexcept {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

}  // namespace daqiri::sockets

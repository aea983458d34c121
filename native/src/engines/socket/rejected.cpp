#include "engines/socket/rejected.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "engines/socket/sockets.h"
#include "engines/socket/udp_cores.h"
#include "engines/socket/udp_launch.h"
#include "engines/socket/udp_socket.h"

namespace daqiri::sockets {

namespace {

/// An address of the configuration. Its scope, which this host may not have, is a text.
struct Given {
  SocketAddress address;
  std::string scope;

  Given(const std::string& ip, std::uint16_t port) {
    const std::size_t percent = std::min(ip.find('%'), ip.size());
    if (!ip.empty()) address = SocketAddress::parse(ip.substr(0, percent), port);
    // The kernel ignores that of other addresses.
    if (needs_scope()) scope = ip.substr(percent);
  }

  /// Whether the kernel has to know the network interface.
  [[nodiscard]] bool needs_scope() const {
    if (!address.ipv6()) return false;
    const in6_addr& ip = address.ipv6_bytes();
    return IN6_IS_ADDR_LINKLOCAL(&ip) || IN6_IS_ADDR_MC_LINKLOCAL(&ip) ||
           IN6_IS_ADDR_MC_NODELOCAL(&ip);
  }
  [[nodiscard]] bool lacks_scope() const { return needs_scope() && scope.empty(); }
  [[nodiscard]] bool is_ipv4_inside() const {
    return address.ipv6() && IN6_IS_ADDR_V4MAPPED(&address.ipv6_bytes());
  }
  /// Whether sockets cannot have both addresses.
  [[nodiscard]] bool excludes(const Given& other) const {
    if (!address.given() || !other.address.given() || address.port() == 0) return false;
    if (address.family() != other.address.family() || address.port() != other.address.port())
      return false;
    if (address.wildcard() || other.address.wildcard()) return true;
    return scope == other.scope && address.same_host(other.address);
  }
};

/// Of one interface.
class Subject {
 public:
  Subject(const InterfaceConfig& interface, std::vector<Error>& found)
      : interface_(interface), found_(found) {}

  void find_rejected() const {
    find_addresses();
    if (is_tcp(interface_)) return;
    if (interface_.tx_.accurate_send_ && !interface_.tx_.queues_.empty()) find_launches();
    if (interface_.rx_.queues_.empty()) return;
    if (spreads(interface_)) find_group();
    find_sharing();
  }
  /// Of an interface that comes before this one.
  void find_conflict(const InterfaceConfig& earlier) const {
    const bool tcp = is_tcp(interface_);
    // Clients that cannot have an address try again.
    if (tcp && (!is_server() || earlier.socket_.mode_ != SocketMode::SERVER)) return;
    const Given own = local();
    const Given other(earlier.socket_.local_ip_, earlier.socket_.local_port_);
    const bool groups = own.address.multicast() && other.address.multicast();
    if (!own.excludes(other) || (groups && !tcp)) return;
    reject(Status::CONNECT_FAILURE, "cannot bind " + uri(transport(), own.address) +
                                        ": interface '" + earlier.name_ + "' has " +
                                        uri(transport(), other.address) + "; choose another port");
  }

 private:
  [[nodiscard]] bool is_server() const noexcept {
    return interface_.socket_.mode_ == SocketMode::SERVER;
  }
  [[nodiscard]] Transport transport() const {
    return is_tcp(interface_) ? Transport::TCP : Transport::UDP;
  }
  [[nodiscard]] Given local() const {
    return {interface_.socket_.local_ip_, interface_.socket_.local_port_};
  }
  void reject(Status status, const std::string& what) const {
    found_.push_back(interface_error(interface_.name_, status, what));
  }

  /// Addresses that the kernel does not accept.
  void find_addresses() const {
    const bool tcp = is_tcp(interface_);
    // A TCP client tries again.
    if (tcp && !is_server()) return;
    const Given own = local();
    check("local_addr", tcp ? "listen at" : "bind", own);
    if (tcp && own.address.multicast())
      reject(Status::CONNECT_FAILURE, "cannot listen at " + uri(transport(), own.address) +
                                          ": TCP has no multicast groups; use udp:// endpoints");
    if (is_server()) return;
    const Given peer(interface_.socket_.remote_ip_, interface_.socket_.remote_port_);
    // The socket's own address, or the interface of a group, may say where a peer is.
    if (peer.address.multicast() || !own.scope.empty()) return;
    check("remote_addr", "connect to", peer);
    if (peer.address.family() == AF_INET && peer.address.ipv4() == INADDR_BROADCAST)
      found_.push_back(
          socket_error(interface_.name_, "connect to", Transport::UDP, peer.address, EACCES));
  }
  void check(const char* key, const char* action, const Given& given) const {
    if (given.lacks_scope()) {
      found_.push_back(socket_error(interface_.name_, action, transport(), given.address, EINVAL));
    } else if (given.is_ipv4_inside()) {
      reject(Status::CONNECT_FAILURE,
             std::string("cannot ") + action + " " + uri(transport(), given.address) + ": " + key +
                 " is an IPv4 address in the form of IPv6; give it as IPv4, such as "
                 "udp://192.0.2.1:5000");
    }
  }

  /// What the kernel cannot keep launch times of.
  void find_launches() const {
    const std::string asked = "tx.accurate_send is true, ";
    if (is_server()) {
      return reject(Status::NOT_SUPPORTED,
                    asked +
                        "but the peers of a server, and so the network interface that keeps "
                        "launch times, are unknown at the start; send from a client "
                        "(socket_config.mode client), or set it to false");
    }
    const auto& queues = interface_.tx_.queues_;
    if (queues.size() > 1) {
      reject(Status::NOT_SUPPORTED, asked + "and it has " + std::to_string(queues.size()) +
                                        " transmit queues on one socket, whose packets the kernel "
                                        "sorts together; use one queue");
    }
    if (queues.front().pacing_mbps_ != 0) {
      reject(Status::NOT_SUPPORTED, asked + "and queue '" + queues.front().common_.name_ +
                                        "' has pacing_mbps " +
                                        std::to_string(queues.front().pacing_mbps_) +
                                        ", which the worker keeps and the kernel would undo; set "
                                        "it to 0");
    }
  }

  void find_group() const {
    const Given own = local();
    if (!own.address.multicast()) return;
    reject(Status::INVALID_PARAMETER,
           std::to_string(interface_.rx_.queues_.size()) +
               " rx queues on different cores would each receive all packets of the group " +
               own.address.text() + "; use one cpu_core for them");
  }

  /// Queues that share a socket get their buffers before their datagrams are known.
  void find_sharing() const {
    const auto& queues = interface_.rx_.queues_;
    const std::vector<std::size_t> sockets = sockets_of(interface_);
    for (const RxQueueConfig& queue : queues) {
      const std::size_t number = sockets[static_cast<std::size_t>(&queue - queues.data())];
      const RxQueueConfig& first =
          queues[static_cast<std::size_t>(std::ranges::find(sockets, number) - sockets.begin())];
      const std::string same = different(first, queue);
      if (same.empty()) continue;
      return reject(Status::INVALID_PARAMETER,
                    "rx queues '" + first.common_.name_ + "' and '" + queue.common_.name_ +
                        "' read one socket and must have the same " + same);
    }
  }
  /// What two queues of a socket may not differ in; empty: they do not.
  [[nodiscard]] static std::string different(const RxQueueConfig& first,
                                             const RxQueueConfig& queue) {
    if (queue.common_.cpu_core_ != first.common_.cpu_core_) {
      return "cpu_core; found '" + first.common_.cpu_core_ + "' and '" + queue.common_.cpu_core_ +
             "'. A client has one peer, which one core serves; use that core for both";
    }
    if (queue.common_.mrs_ != first.common_.mrs_) return "memory_regions, in the same order";
    if (queue.common_.split_boundary_ != first.common_.split_boundary_) return "split_boundary";
    return {};
  }

  const InterfaceConfig& interface_;
  std::vector<Error>& found_;
};

/// A socket at the address of an interface, on any port: the one of the configuration may be in use
/// by this very engine. Throws Error as the engine does.
File require_bindable(const InterfaceConfig& interface, const SocketAddresses& addresses) {
  const Transport transport = is_tcp(interface) ? Transport::TCP : Transport::UDP;
  const SocketAddress& shown = addresses.remote.given() ? addresses.remote : addresses.local;
  const bool tcp = transport == Transport::TCP;
  File made = make_socket(shown, transport);
  if (!made.is_open())
    throw socket_error(interface.name_, tcp ? "listen at" : "make a socket for", transport, shown,
                       errno);
  if (!addresses.local.given()) return made;
  SocketAddress any_port = addresses.local;
  any_port.set_port(0);
  if (bind(made.fd(), any_port.data(), any_port.length()) != 0)
    throw socket_error(interface.name_, tcp ? "listen at" : "bind", transport, addresses.local,
                       errno);
  return made;
}

/// Asks for a route to a group: without an interface of the configuration, the kernel joins it
/// where the route leads. To join would send packets. Throws Error as the engine does.
void require_joinable(const InterfaceConfig& interface, const SocketAddress& group) {
  if (group_interface(interface.name_, interface.address_, group) != 0) return;
  const File question = make_socket(group, Transport::UDP);
  if (group.ipv6()) {
    // The interface needs no address to send from: any will do, also one of no interface.
    const SocketAddress source = SocketAddress::parse("2001:db8::1", 0);
    set_int_option(question.fd(), IPPROTO_IPV6, IPV6_FREEBIND, 1);
    if (bind(question.fd(), source.data(), source.length()) != 0) return;
  }
  if (connect(question.fd(), group.data(), group.length()) == 0) return;
  throw socket_error(interface.name_, "join the group of", Transport::UDP, group, ENODEV);
}

/// Connects a UDP socket, which sends nothing. Returns the network interface of a group; 0: none is
/// given. Throws Error as the engine does.
unsigned require_reachable(const InterfaceConfig& interface, const File& socket,
                           const SocketAddress& remote) {
  unsigned egress = 0;
  if (remote.multicast()) {
    egress = group_interface(interface.name_, interface.address_, remote);
    send_to_groups_through(socket.fd(), remote.family(), egress);
  }
  if (connect(socket.fd(), remote.data(), remote.length()) != 0)
    throw socket_error(interface.name_, "connect to", Transport::UDP, remote, errno);
  return egress;
}

}  // namespace

bool is_tcp(const InterfaceConfig& interface) {
  const SocketConfig& socket = interface.socket_;
  const std::string& address =
      socket.local_addr_.empty() ? socket.remote_addr_ : socket.local_addr_;
  return address.starts_with("tcp://");
}

void find_rejected(const NetworkConfig& config, std::vector<Error>& found) {
  for (auto interface = config.ifs_.begin(); interface != config.ifs_.end(); ++interface) {
    const Subject subject(*interface, found);
    subject.find_rejected();
    for (auto earlier = config.ifs_.begin(); earlier != interface; ++earlier)
      subject.find_conflict(*earlier);
  }
}

void find_rejected_here(const NetworkConfig& config, std::vector<Error>& found) {
  for (const InterfaceConfig& interface : config.ifs_) {
    try {
      const SocketAddresses addresses = addresses_of(interface);
      const bool tcp = is_tcp(interface);
      // A TCP client tries again.
      if (tcp && addresses.remote.given()) continue;
      const File bound = require_bindable(interface, addresses);
      if (!tcp && addresses.local.multicast()) require_joinable(interface, addresses.local);
      if (!addresses.remote.given()) continue;
      const unsigned egress = require_reachable(interface, bound, addresses.remote);
      if (!interface.tx_.accurate_send_ || interface.tx_.queues_.empty()) continue;
      require_launch_times(find_launch_qdisc(addresses.local, addresses.remote, egress),
                           addresses.remote, interface);
    } catch (const Error& error) {
      found.push_back(error);
    }
  }
}

}  // namespace daqiri::sockets

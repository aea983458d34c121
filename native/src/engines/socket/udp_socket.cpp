#include "engines/socket/udp_socket.h"

#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "daqiri/error.h"
#include "engines/socket/socket_errors.h"
#include "net/interfaces.h"
#include "system/log.h"

namespace daqiri::sockets {

namespace {

[[noreturn]] void fail(const std::string& interface, const char* what, const SocketAddress& address,
                       int error) {
  throw Error(Status::CONNECT_FAILURE, "interface '" + interface + "': cannot " + what + " udp://" +
                                           address.text() + ": " +
                                           socket_error_text(error, address, Transport::UDP));
}

File make_socket(const SocketAddress& address) noexcept {
  File made = File::private_to_process([&] {
    return socket(address.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
  });
  // An IPv6 socket then never sees IPv4 peers under mapped addresses.
  if (address.ipv6()) set_int_option(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return made;
}

int int_option(int fd, int option) noexcept {
  int value = 0;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : 0;
}

}  // namespace

UdpSocket::UdpSocket(const InterfaceConfig& interface, bool shared) : interface_(interface.name_) {
  const auto [local, remote] = addresses_of(interface, Transport::UDP);
  local_ = local;
  const SocketAddress& shown = remote.given() ? remote : local;
  socket_ = make_socket(shown);
  if (!socket_.is_open()) fail(interface_, "make a socket for", shown, errno);
  if (!interface.rx_.queues_.empty()) arrivals_.attach(fd());
  bind(interface.address_, shared);
  if (remote.given()) connect(interface.address_, remote);
  local_ = SocketAddress::local_of(fd());
}

void UdpSocket::bind(const std::string& network_interface, bool shared) {
  if (!local_.given()) return;
  if (shared) set_int_option(fd(), SOL_SOCKET, SO_REUSEPORT, 1);
  const bool group = local_.multicast();
  if (group) set_int_option(fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd(), local_.data(), local_.length()) != 0) fail(interface_, "bind", local_, errno);
  if (!group) return;
  const unsigned index = choose_multicast_interface(local_, network_interface);
  if (const int error = join_group(fd(), local_, index); error != 0)
    fail(interface_, "join the group of", local_, error);
}

void UdpSocket::connect(const std::string& network_interface, const SocketAddress& remote) {
  if (remote.multicast()) multicast_egress_ = choose_multicast_interface(remote, network_interface);
  if (::connect(fd(), remote.data(), remote.length()) != 0)
    fail(interface_, "connect to", remote, errno);
  // Others may have sent between bind and connect.
  char byte = 0;
  while (foreign_ < 1024 && recv(fd(), &byte, 1, MSG_DONTWAIT) >= 0) ++foreign_;
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
  if (const int error = send_to_groups_through(fd(), group.family(), index); error != 0)
    fail(interface_, "send from the chosen network interface to", group, error);
  return index;
}

void UdpSocket::prepare_receive(std::uint64_t bytes) {
  const auto asked =
      static_cast<int>(std::min<std::uint64_t>(bytes, std::numeric_limits<int>::max() / 2));
  if (asked > int_option(fd(), SO_RCVBUF) / 2) {
    // Past net.core.rmem_max with CAP_NET_ADMIN only.
    if (!set_int_option(fd(), SOL_SOCKET, SO_RCVBUFFORCE, asked))
      set_int_option(fd(), SOL_SOCKET, SO_RCVBUF, asked);
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
  uncounted_ = set_int_option(fd(), SOL_UDP, UDP_GRO, 1) && !counts_arrivals();
  if (!set_int_option(fd(), SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
    const int error = errno;
    log(LogLevel::WARN,
        "interface '" + interface_ + "': no kernel receive timestamps (" +
            std::generic_category().message(error) +
            "); packets carry the time at which they were read",
        {.interface = interface_, .queue = {}});
  }
}

std::uint64_t UdpSocket::receive_buffer() const noexcept {
  return static_cast<std::uint64_t>(int_option(fd(), SO_RCVBUF)) / 2;
}

std::uint32_t UdpSocket::kernel_drops() const noexcept {
  // SO_RXQ_OVFL has the same count, but reports it with the next datagram only: drops at the end of
  // a burst would stay unseen.
  std::uint32_t info[SK_MEMINFO_VARS]{};
  socklen_t length = sizeof(info);
  if (getsockopt(fd(), SOL_SOCKET, SO_MEMINFO, info, &length) != 0) return 0;
  return info[SK_MEMINFO_DROPS];
}

void UdpSocket::warn_of_uncounted_drops() noexcept {
  if (!std::exchange(uncounted_, false)) return;
  try {
    log(LogLevel::WARN,
        "interface '" + interface_ + "': the kernel drops datagrams for udp://" + local_.text() +
            ", and more are lost than the counter `kernel` says: those that came together count "
            "as one, because this process may not count arrivals. Grant CAP_BPF "
            "(AmbientCapabilities=CAP_BPF of systemd, `setcap cap_bpf+ep` of the program)",
        {.interface = interface_, .queue = {}});
  } catch (const std::bad_alloc&) {
    return;
  }
}

File claim_address(const std::string& interface, const SocketAddress& address) {
  // Another engine that is between this question and its own sockets has this name.
  const std::string name = "daqiri-udp://" + address.text();
  sockaddr_un lock{};
  lock.sun_family = AF_UNIX;
  std::copy_n(name.data(), std::min(name.size(), sizeof(lock.sun_path) - 1), lock.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  File claim =
      File::private_to_process([] { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (::bind(claim.fd(), reinterpret_cast<const sockaddr*>(&lock), length) != 0)
    fail(interface, "bind", address, errno);
  const File question = make_socket(address);
  if (::bind(question.fd(), address.data(), address.length()) != 0)
    fail(interface, "bind", address, errno);
  return claim;
}

}  // namespace daqiri::sockets

#include "engines/socket/udp_socket.h"

#include <ifaddrs.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <system_error>
#include <vector>

#include "engines/socket/sockets.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

[[noreturn]] void fail(const std::string& interface, const char* what, const SocketAddress& address,
                       int error) {
  throw socket_error(interface, what, Transport::UDP, address, error);
}

/// The kernel rounds the size of a map shared with user space up to whole pages.
constexpr std::size_t MAP_BYTES = 4096;

int bpf(bpf_cmd command, bpf_attr& attributes) noexcept {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

int make_counter() noexcept {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_ARRAY;
  attributes.key_size = sizeof(std::uint32_t);
  // Arrivals and rejected copies.
  attributes.value_size = 2 * sizeof(std::uint64_t);
  attributes.max_entries = 1;
  attributes.map_flags = BPF_F_MMAPABLE;
  return bpf(BPF_MAP_CREATE, attributes);
}

/// Adds gso_segs of a packet, or 1 if it is 0, to the counter, and passes the packet completely.
/// Rejects packets to the addresses, and adds 1 to the second counter, as the kernel does with the
/// drops of the socket.
int load_filter(int counter, std::span<const std::uint32_t> rejected) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-cstyle-cast): offsetof of a C struct
  constexpr int GSO_SEGS = offsetof(struct __sk_buff, gso_segs);
  constexpr int IPV4_DESTINATION = SKF_NET_OFF + 16;
  constexpr std::size_t PASS_SIZE = 8;
  // Code, destination, source, offset, immediate.
  std::vector<bpf_insn> program{{BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_6, BPF_REG_1, 0, 0}};
  if (!rejected.empty()) program.push_back({BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, IPV4_DESTINATION});
  for (std::size_t i = 0; i < rejected.size(); ++i) {
    const auto skipped = static_cast<std::int16_t>(rejected.size() - 1 - i + PASS_SIZE);
    program.push_back({BPF_JMP32 | BPF_JEQ | BPF_K, BPF_REG_0, 0, skipped,
                       static_cast<std::int32_t>(rejected[i])});
  }
  const auto add = [&](std::int16_t offset, int result) {
    program.push_back({BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_VALUE, 0, counter});
    program.push_back({});
    program.push_back({BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_1, BPF_REG_2, offset, BPF_ADD});
    program.push_back({BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, result});
    program.push_back({BPF_JMP | BPF_EXIT, 0, 0, 0, 0});
  };
  program.push_back({BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_6, GSO_SEGS, 0});
  program.push_back({BPF_JMP | BPF_JNE | BPF_K, BPF_REG_2, 0, 1, 0});
  program.push_back({BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 1});
  add(0, -1);
  if (!rejected.empty()) {
    program.push_back({BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 1});
    add(sizeof(std::uint64_t), 0);
  }
  static constexpr char LICENSE[] = "Apache-2.0";
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  attributes.insns = reinterpret_cast<std::uintptr_t>(program.data());
  attributes.insn_cnt = static_cast<std::uint32_t>(program.size());
  attributes.license = reinterpret_cast<std::uintptr_t>(LICENSE);
  return bpf(BPF_PROG_LOAD, attributes);
}

/// IPv4 addresses, in host order, at which all sockets of this host receive.
std::vector<std::uint32_t> broadcast_addresses() {
  constexpr std::size_t MOST = 64;
  std::vector<std::uint32_t> found{INADDR_BROADCAST};
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  const auto number = [](const sockaddr* address) {
    sockaddr_in ipv4{};
    if (address != nullptr) std::memcpy(&ipv4, address, sizeof ipv4);
    return ntohl(ipv4.sin_addr.s_addr);
  };
  for (const ifaddrs* a = all; a != nullptr && found.size() < MOST; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
    const std::uint32_t mask = number(a->ifa_netmask);
    const std::uint32_t own = number(a->ifa_addr);
    // The kernel adds it for networks of more than two hosts (fib_add_ifaddr), and the given one.
    if (~mask > 1 && (own | ~mask) != own) found.push_back(own | ~mask);
    const std::uint32_t given =
        (a->ifa_flags & IFF_BROADCAST) != 0 ? number(a->ifa_broadaddr) : INADDR_ANY;
    if (given != INADDR_ANY && given != own) found.push_back(given);
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

void UnmapArrivals::operator()(std::uint64_t* count) const noexcept { munmap(count, MAP_BYTES); }

UdpArrivals count_arrivals(int fd, std::span<const std::uint32_t> rejected) noexcept try {
  const File counter(make_counter());
  if (!counter.is_open()) return nullptr;
  const File filter(load_filter(counter.fd(), rejected));
  if (!filter.is_open()) return nullptr;
  void* shared = mmap(nullptr, MAP_BYTES, PROT_READ, MAP_SHARED, counter.fd(), 0);
  if (shared == MAP_FAILED) return nullptr;
  UdpArrivals count(static_cast<std::uint64_t*>(shared));
  const int program = filter.fd();
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) != 0) return nullptr;
  return count;
} catch (const std::bad_alloc&) {
  return nullptr;
}

UdpSocket::UdpSocket(const InterfaceConfig& interface, Sharing sharing)
    : interface_(interface.name_) {
  const auto [local, remote] = addresses_of(interface);
  local_ = local;
  const SocketAddress& shown = remote.given() ? remote : local;
  socket_ = make_socket(shown, Transport::UDP);
  if (!socket_.is_open()) fail(interface_, "make a socket for", shown, errno);
  before_ = read_udp_statistics(shown.ipv6());
  std::vector<std::uint32_t> rejected;
  if (sharing == Sharing::FURTHER) {
    if (!local_.ipv6()) rejected = broadcast_addresses();
    // Otherwise a wildcard address receives for groups that any socket of the host has joined.
    set_int_option(fd(), IPPROTO_IP, IP_MULTICAST_ALL, 0);
    if (local_.ipv6()) set_int_option(fd(), IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
  }
  if (!interface.rx_.queues_.empty()) arrivals_ = count_arrivals(fd(), rejected);
  bind(interface.address_, sharing != Sharing::ALONE);
  if (remote.given()) connect(interface.address_, remote);
  local_ = SocketAddress::local_of(fd());
  uri_ = uri(Transport::UDP, local_);
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
  // Other hosts may have sent between bind and connect.
  discard_waiting();
  remote_ = remote;
}

void UdpSocket::discard_waiting() noexcept {
  // More than the default buffer holds; others may arrive meanwhile.
  constexpr std::uint64_t MOST = 1024;
  char byte = 0;
  while (foreign_ < MOST && recv(fd(), &byte, 1, MSG_DONTWAIT) >= 0) ++foreign_;
}

void UdpSocket::report_destinations() noexcept {
  if (local_.ipv6()) {
    set_int_option(fd(), IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  } else {
    set_int_option(fd(), IPPROTO_IP, IP_PKTINFO, 1);
  }
}

unsigned UdpSocket::choose_multicast_interface(const SocketAddress& group,
                                               const std::string& address) {
  const unsigned index = group_interface(interface_, address, group);
  if (const int error = send_to_groups_through(fd(), group.family(), index); error != 0)
    fail(interface_, "send from the chosen network interface to", group, error);
  return index;
}

unsigned group_interface(const std::string& interface, const std::string& address,
                         const SocketAddress& group) {
  try {
    return multicast_interface(group, address);
  } catch (const Error& error) {
    throw interface_error(interface, error.status(), error.what());
  }
}

std::uint64_t receive_buffer_for(std::span<const MemoryRegionConfig* const> regions) noexcept {
  /// The size of the regions, within a limit: the kernel accounts twice this, and more memory would
  /// only hide a slow consumer.
  constexpr std::uint64_t MOST = 64U << 20U;
  std::uint64_t bytes = 0;
  for (const MemoryRegionConfig* region : regions)
    bytes += std::min(region->num_bufs_ * region->buf_size_, MOST);
  return std::min(bytes, MOST);
}

void UdpSocket::prepare_receive(std::uint64_t bytes) {
  const auto asked =
      static_cast<int>(std::min<std::uint64_t>(bytes, std::numeric_limits<int>::max() / 2));
  const int granted = enlarge_buffer(fd(), SO_RCVBUF, asked);
  if (granted < asked) {
    log_about(interface_, LogLevel::WARN,
              "the kernel grants " + std::to_string(granted) + " of the " + std::to_string(asked) +
                  " bytes of receive buffer requested for " + uri(Transport::UDP, local_) +
                  "; bursts may be lost. Raise the limit: sysctl -w net.core.rmem_max=" +
                  std::to_string(asked));
  }
  // Before Linux 5.0, datagrams arrive one by one.
  if (set_int_option(fd(), SOL_UDP, UDP_GRO, 1) && !counts_arrivals()) {
    uncounted_ =
        "interface '" + interface_ + "': the kernel drops datagrams for " +
        uri(Transport::UDP, local_) +
        ", and more are lost than the counter `kernel` shows: datagrams that arrive merged count "
        "as one, because this process lacks the privilege to count arrivals. Grant CAP_BPF "
        "(AmbientCapabilities=CAP_BPF of systemd, `setcap cap_bpf+ep` of the program)";
  }
  if (!set_int_option(fd(), SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
    log_about(interface_, LogLevel::WARN,
              "no kernel receive timestamps (" + std::generic_category().message(errno) +
                  "); packets carry the time at which they were read");
  }
}

void UdpSocket::report_refusals() noexcept {
  // udp_send_skb and udp_v6_send_skb swallow ENOBUFS unless these are set.
  reports_ = local_.ipv6() ? set_int_option(fd(), SOL_IPV6, IPV6_RECVERR, 1)
                           : set_int_option(fd(), SOL_IP, IP_RECVERR, 1);
}

void UdpSocket::discard_reports() const noexcept {
  constexpr int MOST = 1024;
  msghdr header{};
  for (int i = 0; reports_ && i < MOST; ++i)
    if (recvmsg(fd(), &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
}

std::uint32_t UdpSocket::kernel_drops(std::uint32_t otherwise) const noexcept {
  // SO_RXQ_OVFL has the same count, but reports it only with the next datagram: drops at the end of
  // a burst would not be seen.
  std::uint32_t info[SK_MEMINFO_VARS]{};
  socklen_t length = sizeof(info);
  if (getsockopt(fd(), SOL_SOCKET, SO_MEMINFO, info, &length) != 0) return otherwise;
  if (arrivals_ == nullptr) return info[SK_MEMINFO_DROPS];
  // A copy is counted first as rejected, then as dropped: in the opposite order here.
  const auto rejected = std::atomic_ref(arrivals_.get()[1]).load(std::memory_order_acquire);
  return info[SK_MEMINFO_DROPS] - static_cast<std::uint32_t>(rejected);
}

void UdpSocket::warn_of_uncounted_drops() noexcept {
  if (uncounted_.empty()) return;
  log(LogLevel::WARN, uncounted_, {.interface = interface_, .queue = {}});
  uncounted_.clear();
}

void UdpSocket::warn_of_wrong_checksums() noexcept {
  constexpr std::uint64_t SECOND_NS = 1'000'000'000;
  const std::uint64_t now = monotonic_ns();
  if (warned_of_checksums_ || (checked_ != 0 && now - checked_ < SECOND_NS)) return;
  checked_ = now;
  const UdpStatistics found = read_udp_statistics(local_.ipv6());
  if (found.wrong_checksum == before_.wrong_checksum) return;
  warned_of_checksums_ = true;
  // The poller calls this: a string might throw.
  std::array<char, 640> text{};
  std::snprintf(
      text.data(), text.size(),
      "interface '%s': the kernel drops datagrams with wrong UDP checksums; those to %s are in the "
      "counter `kernel`. On this host, %llu had a wrong checksum since it was opened, and %llu "
      "found "
      "a full receive buffer. A larger buffer does not help against wrong checksums: check the "
      "sender, and devices that change packets on their way",
      interface_.c_str(), uri_.c_str(),
      static_cast<unsigned long long>(found.wrong_checksum - before_.wrong_checksum),
      static_cast<unsigned long long>(found.full_buffer - before_.full_buffer));
  log(LogLevel::WARN, text.data(), {.interface = interface_, .queue = {}});
}

File claim_address(const std::string& interface, const SocketAddress& address) {
  // Another engine that has checked the address but not yet opened its sockets holds this name.
  const std::string name = "daqiri-udp://" + address.text();
  sockaddr_un lock{};
  lock.sun_family = AF_UNIX;
  std::copy_n(name.data(), std::min(name.size(), sizeof(lock.sun_path) - 1), lock.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  File claim =
      File::private_to_process([] { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (!claim.is_open()) fail(interface, "make a socket for", address, errno);
  if (::bind(claim.fd(), reinterpret_cast<const sockaddr*>(&lock), length) != 0)
    fail(interface, "bind", address, errno);
  const File question = make_socket(address, Transport::UDP);
  if (!question.is_open()) fail(interface, "make a socket for", address, errno);
  if (::bind(question.fd(), address.data(), address.length()) != 0)
    fail(interface, "bind", address, errno);
  return claim;
}

}  // namespace daqiri::sockets

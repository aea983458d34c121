#include "engines/dpdk/virtual_device.h"

#include <fcntl.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <system_error>
#include <thread>

#include "engines/dpdk/traits.h"
#include "net/interfaces.h"
#include "system/privileges.h"

namespace daqiri::dpdk {

namespace {

constexpr int PROBES = 3;
constexpr std::chrono::milliseconds BETWEEN_PROBES{10};

std::string text_of(int error) { return std::generic_category().message(error); }

int new_lock() noexcept { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

/// Bind a lock that the kernel releases with the process, for all processes of the calling thread's
/// network namespace, to which interfaces and abstract names of sockets belong. Not open: another
/// has it. Throws Error.
File lock_in_network(File socket, const std::string& name) {
  if (!socket.is_open()) throw file_error("cannot lock", name, errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // After a null byte.
  const std::size_t length =
      ("daqiri-ophyd/" + name).copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) == 0) return socket;
  if (errno != EADDRINUSE) throw file_error("cannot lock", name, errno);
  return {};
}

/// Whether a program listens to a socket, of a name in the file system or an abstract one. Returns
/// errno; 0: one does.
int try_socket(int type, const std::string& name, bool abstract) noexcept {
  const File socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t first = abstract ? 1 : 0;
  const std::size_t length =
      name.copy(address.sun_path + first, sizeof address.sun_path - 1 - first);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + first + length + (abstract ? 0 : 1));
  return connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) == 0 ? 0 : errno;
}

}  // namespace

std::string device_of(const InterfaceConfig& interface) {
  return "interface '" + interface.name_ + "': device '" + interface.address_ + "' ";
}

unsigned packet_group(unsigned interface) noexcept {
  return (static_cast<unsigned>(getpid()) ^ interface) & UINT16_MAX;
}

void refuse(const InterfaceConfig& interface, const std::string& what, const std::string& fix,
            Status status) {
  throw Error(status, device_of(interface) + what + "; " + fix);
}

VirtualDevice::VirtualDevice(const InterfaceConfig& interface) : interface_(interface) {
  const std::string& address = interface.address_;
  const std::size_t comma = std::min(address.find(','), address.size());
  name_ = address.substr(0, comma);
  arguments_ = address.substr(std::min(comma + 1, address.size()));
}

std::optional<std::string> VirtualDevice::argument(std::string_view key) const {
  for (std::size_t at = 0; at < arguments_.size();) {
    const std::size_t end = std::min(arguments_.find(',', at), arguments_.size());
    const std::string_view each = std::string_view(arguments_).substr(at, end - at);
    if (each.starts_with(key) && each.substr(key.size()).starts_with('='))
      return std::string(each.substr(key.size() + 1));
    at = end + 1;
  }
  return {};
}

File VirtualDevice::claim() const {
  if (is(TAP_DRIVER)) return claim_tap();
  if (is(AF_PACKET_DRIVER)) return claim_packet_sockets();
  if (is("net_vhost") && argument("client").value_or("0") != "1") return claim_socket("iface");
  if (is("net_virtio_user") && argument("server").value_or("0") == "1") return claim_socket("path");
  return {};
}

void VirtualDevice::require_privilege(bool granted) const {
  if (granted) return;
  for (const Privilege& each : PRIVILEGES) {
    if (!each.when(interface_)) continue;
    const std::string capability(each.capability);
    refuse(interface_, "needs " + capability + ", for " + std::string(each.use),
           "grant it: " + how_to_grant(capability), Status::NOT_SUPPORTED);
  }
}

File VirtualDevice::claim_tap() const {
  if (const File tun(open(TUN, O_RDWR | O_CLOEXEC)); !tun.is_open()) {
    const int error = errno;
    const bool denied = error == EACCES || error == EPERM;
    refuse(interface_,
           std::string("cannot have an interface of its own: ") + TUN + ": " + text_of(error),
           denied ? std::string("as root: chmod 666 ") + TUN
                  : "as root: modprobe tun (of a container: --device " + std::string(TUN) + ")",
           Status::NOT_SUPPORTED);
  }
  require_privilege(may_change_network());
  const auto given = argument("iface");
  // The kernel chooses a name that nobody has.
  if (!given || given->find('%') != std::string::npos) return {};
  const std::string named = "network interface '" + *given + "'";
  const std::string other = "give it another name (iface=)";
  // Their queues would be those of one interface: the kernel divides packets among them.
  const auto refuse_shared = [&] {
    refuse(interface_,
           "would share " + named +
               " with another device or program, and get only a part of its "
               "packets",
           other + ", or end that program (fuser -v " + TUN + ")");
  };
  File lock = lock_in_network(File::private_to_process(new_lock), "tap/" + *given);
  if (!lock.is_open()) refuse_shared();
  const TapState tap = TapState::of(*given);
  if (!tap.exists) return lock;
  if (!tap.is_tap) refuse(interface_, "has the name of " + named + ", which is no tap", other);
  if (!tap.multi_queue) {
    refuse(interface_, "has the name of " + named + ", a tap that has one queue only",
           other + ", or remove that one: ip link delete " + *given);
  }
  if (tap.queues > 0) refuse_shared();
  return lock;
}

void VirtualDevice::require_interface() const {
  if (!is(AF_PACKET_DRIVER)) return;
  const auto given = argument("iface");
  // Refused whatever the host is.
  if (!given || given->empty()) return;
  if (if_nametoindex(given->c_str()) != 0) {
    if (!interface_.rx_.queues_.empty()) refuse_merging(interface_, *given);
    return;
  }
  refuse(interface_, "has iface=" + *given + ", and this host has no such network interface",
         "give one of " + interfaces_of_this_host() + " (`ip -brief link` shows their state)");
}

File VirtualDevice::claim_packet_sockets() const {
  require_privilege(may_open_packet_sockets());
  require_interface();
  const std::string name = argument("iface").value_or("");
  const unsigned index = if_nametoindex(name.c_str());
  const unsigned group = packet_group(index);
  // A forked child keeps it, as it keeps the driver's sockets.
  File lock = lock_in_network(File(new_lock()), "packet-fanout/" + std::to_string(group));
  if (!lock.is_open()) {
    refuse(
        interface_,
        "would be in one group of packet sockets (PACKET_FANOUT " + std::to_string(group) +
            ", of the numbers of the process and of network interface '" + name +
            "') with another device, of this process, a forked child or another process, and get "
            "only a part of the packets",
        "open the interface once in a process, start the program again for another number, or "
        "use engine 'packet'");
  }
  return lock;
}

File VirtualDevice::claim_socket(std::string_view key) const {
  const auto given = argument(key);
  if (!given) return {};
  const auto refuse_served = [&] {
    refuse(interface_,
           "would serve socket '" + *given + "', which another device or program serves",
           "give it another name (" + std::string(key) + "=), or end that program (fuser -v " +
               *given + ")");
  };
  // Until it is served: another process would take the new one for that of a killed server.
  File lock = lock_in_network(File::private_to_process(new_lock), "socket/" + *given);
  if (!lock.is_open()) refuse_served();
  struct stat found{};
  if (lstat(given->c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return lock;
  int error = ECONNREFUSED;
  // A server that has its name listens a moment later.
  for (int probe = 0; probe < PROBES && error == ECONNREFUSED; ++probe) {
    if (probe > 0) std::this_thread::sleep_for(BETWEEN_PROBES);
    error = try_socket(SOCK_STREAM, *given, false);
  }
  if (error == 0 || error == EAGAIN) refuse_served();
  struct stat now{};
  if (error == ECONNREFUSED && lstat(given->c_str(), &now) == 0 && now.st_ino == found.st_ino &&
      now.st_dev == found.st_dev)
    unlink(given->c_str());
  return lock;
}

void VirtualDevice::explain_failed_start() const {
  if (!is(MEMIF_DRIVER)) return;
  const std::string path = argument("socket").value_or("/run/memif.sock");
  const bool abstract = argument("socket-abstract").value_or("yes") == "yes";
  const int error = try_socket(SOCK_SEQPACKET, path, abstract);
  if (error == 0) return;
  refuse(interface_,
         "finds no server at socket '" + path + "'" +
             (abstract ? " (an abstract name, not a file: socket-abstract=yes)" : "") + ": " +
             text_of(error),
         std::string("start the other program first, as the server of that socket, or give its "
                     "name: ") +
             name_ + ",socket=PATH" + (abstract ? ", with socket-abstract=no for a file" : ""));
}

}  // namespace daqiri::dpdk

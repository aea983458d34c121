#include "engines/dpdk/packet_sockets.h"

#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "engines/dpdk/virtual_device.h"
#include "net/packet_socket.h"
#include "system/file.h"

namespace daqiri::dpdk {

namespace {

template <typename Value>
bool ask(int socket, int level, int option, Value& value) noexcept {
  socklen_t bytes = sizeof value;
  return getsockopt(socket, level, option, &value, &bytes) == 0;
}

}  // namespace

PacketSockets::PacketSockets(unsigned interface) {
  for (const int socket : open_descriptors()) {
    int domain = 0;
    int fanout = 0;
    sockaddr_ll address{};
    socklen_t bytes = sizeof address;
    if (ask(socket, SOL_SOCKET, SO_DOMAIN, domain) && domain == AF_PACKET &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sll_ifindex == static_cast<int>(interface) &&
        ask(socket, SOL_PACKET, PACKET_FANOUT, fanout) &&
        // 0: in no group. A group's has its kind in the upper half.
        fanout != 0 && (static_cast<unsigned>(fanout) & UINT16_MAX) == packet_group(interface))
      sockets_.push_back(socket);
  }
}

void PacketSockets::leave_out_sent() const {
  // Of a group, which PACKET_IGNORE_OUTGOING does not know.
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PKTTYPE)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, PACKET_OUTGOING},
      {BPF_RET | BPF_K, 0, 0, 0},
      {BPF_RET | BPF_K, 0, 0, UINT32_MAX}};
  const sock_fprog filter{static_cast<unsigned short>(std::size(code)), &code[0]};
  for (const int socket : sockets_) {
    if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
      throw file_error("cannot set a filter of", "a net_af_packet's socket", errno);
  }
}

std::uint64_t PacketSockets::dropped() const noexcept {
  std::uint64_t sum = 0;
  for (const int socket : sockets_) sum += packet_statistics(socket).tp_drops;
  return sum;
}

bool PacketSockets::push() const noexcept {
  bool all = true;
  for (const int socket : sockets_) {
    ssize_t sent = 0;
    do {
      sent = sendto(socket, nullptr, 0, MSG_DONTWAIT, nullptr, 0);
    } while (sent > 0 || (sent < 0 && errno == EINTR));
    // None are left if nothing was sent, and nothing went wrong.
    all = all && sent == 0;
  }
  return all;
}

}  // namespace daqiri::dpdk

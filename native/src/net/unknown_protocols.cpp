#include "net/unknown_protocols.h"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace daqiri {

namespace {

/// What the kernel knows of a frame besides its bytes.
constexpr std::uint32_t about_frame(int which) noexcept {
  return static_cast<std::uint32_t>(SKF_AD_OFF + which);
}

void require(bool done) {
  if (!done) throw std::system_error(errno, std::generic_category(), "a packet socket");
}

}  // namespace

UnknownProtocols::UnknownProtocols(int interface) : socket_(new_packet_socket()) {
  require(socket_.is_open());
  // Frames without a tag cost two of these instructions.
  std::array<sock_filter, 8> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, about_frame(SKF_AD_VLAN_TAG_PRESENT)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, about_frame(SKF_AD_PROTOCOL)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_ARP, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 1),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  const sock_fprog filter{code.size(), code.data()};
  const int fd = socket_.fd();
  require(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
  constexpr int LEAST = 1;
  require(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &LEAST, sizeof LEAST) == 0);
  constexpr int YES = 1;
  require(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &YES, sizeof YES) == 0);
  errno = bind_to_interface(socket_, interface, ETH_P_ALL);
  require(errno == 0);
}

}  // namespace daqiri

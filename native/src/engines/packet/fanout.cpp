#include "engines/packet/fanout.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <cerrno>

namespace daqiri::packet {

void join_fanout(const NetworkInterface& interface, std::span<const int> sockets,
                 std::span<const sock_filter> program) {
  std::uint32_t group = PACKET_FANOUT_CBPF << 16U;
  for (const int socket : sockets) {
    const bool first = socket == sockets.front();
    // The kernel finds a free number for the first one (since 4.12).
    const std::uint32_t asked = first ? group | PACKET_FANOUT_FLAG_UNIQUEID << 16U : group;
    if (setsockopt(socket, SOL_PACKET, PACKET_FANOUT, &asked, sizeof asked) != 0) {
      const int error = errno;
      // Until Linux 6.12, a socket joins only while it receives.
      if (error == EINVAL && !interface.up) {
        throw Error(Status::NOT_READY,
                    "'" + interface.name +
                        "' is down, and this kernel distributes frames among several cores only "
                        "for an interface that is up; `ip link set " +
                        interface.name +
                        " up` before the engine is opened, or give its receive queues the same "
                        "cpu_core");
      }
      throw packet_error(interface, "distribute frames among several sockets", error);
    }
    socklen_t length = sizeof group;
    if (first && getsockopt(socket, SOL_PACKET, PACKET_FANOUT, &group, &length) != 0)
      throw packet_error(interface, "distribute frames among several sockets", errno);
  }
  const sock_fprog code{static_cast<unsigned short>(program.size()),
                        const_cast<sock_filter*>(program.data())};
  if (setsockopt(sockets.front(), SOL_PACKET, PACKET_FANOUT_DATA, &code, sizeof code) != 0)
    throw packet_error(interface, "set the distribution of frames", errno);
}

}  // namespace daqiri::packet

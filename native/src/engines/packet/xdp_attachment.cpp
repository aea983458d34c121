#include "engines/packet/xdp_attachment.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <cerrno>

namespace daqiri::packet {

namespace {

File watch(const NetworkInterface& interface) {
  File socket = open_packet_socket(interface);
  make_promiscuous(socket, interface);
  return socket;
}

ifreq request_for(const NetworkInterface& interface) {
  ifreq request{};
  interface.name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

/// Receive queues of the network card; 0: its driver does not report them.
std::uint32_t num_queues(const NetworkInterface& interface, const File& socket) {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request = request_for(interface);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  const bool told = ioctl(socket.fd(), SIOCETHTOOL, &request) == 0;
  return told ? channels.rx_count + channels.combined_count : 0;
}

}  // namespace

XdpAttachment::XdpAttachment(const NetworkInterface& interface, const XdpFilter& filter,
                             bool or_generic)
    : interface_(interface),
      watch_(watch(interface)),
      queues_told_(num_queues(interface, watch_)),
      takes_any_flow_(filter.takes_any_flow()),
      program_(interface, filter, most_queues()) {
  attach(or_generic);
}

void XdpAttachment::attach(bool or_generic) {
  int refused = 0;
  try {
    link_.emplace(interface_, program_, XdpMode::NATIVE, refused);
    return;
  } catch (const Error& error) {
    // These errors would be the same for both modes.
    if (!or_generic || refused == EPERM || refused == EBUSY || refused == EEXIST) throw;
    why_generic_ = error.what();
  }
  mode_ = XdpMode::GENERIC;
  link_.emplace(interface_, program_, mode_, refused);
}

const char* XdpAttachment::fixed_flows() const noexcept {
  if (takes_any_flow_) return nullptr;
  return "its XDP program receives only frames of the flows that existed when it was opened; set "
         "dynamic_flow_capacity to receive frames of added flows, or open the engine again";
}

int XdpAttachment::take_error(bool queue_lost) noexcept {
  if (queue_lost || (link_ && !link_->attached()))
    return detached_.exchange(true, std::memory_order_relaxed) ? 0 : ENOLINK;
  ifreq request{};
  request.ifr_ifindex = interface_.index;
  const bool up = ioctl(watch_.fd(), SIOCGIFNAME, &request) == 0 &&
                  ioctl(watch_.fd(), SIOCGIFFLAGS, &request) == 0 &&
                  (request.ifr_flags & IFF_UP) != 0;
  return was_up_.exchange(up, std::memory_order_relaxed) && !up ? ENETDOWN : 0;
}

void XdpAttachment::stop() noexcept {
  link_.reset();
  program_.close();
  watch_.close();
}

}  // namespace daqiri::packet

#include "engines/packet/receive_path.h"

#include <string>

#include "daqiri/error.h"
#include "engines/packet/receive_ring.h"
#include "engines/packet/xdp_filter.h"
#include "engines/packet/xdp_ring.h"
#include "system/log.h"
#include "system/thread.h"

namespace daqiri::packet {

namespace {

void tell(const Port& port, LogLevel level, const std::string& text) {
  log(level, "interface '" + port.config.name_ + "': " + text,
      {.interface = port.config.name_, .queue = {}});
}

std::shared_ptr<FrameRing> open_xdp(const Port& port, const NetworkInterface& interface,
                                    std::uint64_t bytes, bool or_generic) {
  const RxConfig& rx = port.config.rx_;
  XdpRing::Options options;
  options.filter = XdpFilter(rx);
  options.bytes = bytes;
  options.busy_poll = core_available(rx.queues_.front().common_.cpu_core_);
  options.or_generic = or_generic;
  auto ring = std::make_shared<XdpRing>(interface, options);
  tell(port, LogLevel::INFO, "frames of '" + interface.name + "' come by " + ring->path());
  if (!ring->why_generic().empty()) {
    tell(
        port, LogLevel::WARN,
        "the kernel runs the XDP program, since the driver does not, and receives more slowly than "
        "rx.receive_path: af_packet: " +
            ring->why_generic());
  }
  return ring;
}

}  // namespace

std::shared_ptr<FrameRing> open_receive_path(const Port& port, const NetworkInterface& interface,
                                             std::uint64_t bytes, std::uint32_t patience_ms) {
  const RxConfig& rx = port.config.rx_;
  std::string reason;
  if (rx.receive_path_ == ReceivePath::XDP) {
    if (!rx.filter_.empty()) {
      throw Error(Status::NOT_SUPPORTED,
                  "interface '" + port.config.name_ +
                      "': rx.receive_path: af_xdp has no rx.filter ('" + rx.filter_ +
                      "'), which is for sockets; use af_packet, or flows and "
                      "flow_isolation");
    }
    if (!rx.flow_isolation_) {
      tell(port, LogLevel::WARN,
           "AF_XDP takes all frames of '" + interface.name +
               "' from the kernel: nothing else on this host receives from it, ssh included; "
               "flow_isolation: true leaves what no flow matches");
    }
    if (interface.takes_tags_out) {
      tell(port, LogLevel::WARN,
           "'" + interface.name +
               "' takes VLAN tags out of frames, and AF_XDP does not see them: flows without "
               "vlan_pop take frames of any VLAN, those with it none; `ethtool -K " +
               interface.name + " rxvlan off`, or receive_path: af_packet");
    }
    if (rx.flow_isolation_ && rx.dynamic_flow_capacity_ > 0) {
      tell(port, LogLevel::WARN,
           "with dynamic_flow_capacity AF_XDP takes all UDP, GRE and eCPRI frames of '" +
               interface.name + "' from the kernel, whatever flows there are");
    }
    try {
      return open_xdp(port, interface, bytes, true);
    } catch (const Error& error) {
      throw Error(error.status(), "interface '" + port.config.name_ +
                                      "': rx.receive_path: af_xdp: " + error.what());
    }
  }
  if (rx.receive_path_ == ReceivePath::AUTO) {
    if (!rx.filter_.empty()) {
      reason = ", as AF_XDP has no rx.filter";
    } else if (!rx.flow_isolation_) {
      reason = ", as without flow_isolation AF_XDP would take all frames from the kernel";
    } else if (rx.dynamic_flow_capacity_ > 0) {
      reason = ", as with dynamic_flow_capacity AF_XDP would take all UDP from the kernel";
    } else if (interface.takes_tags_out) {
      reason =
          ", as AF_XDP does not see the VLAN tags that the interface takes out of frames "
          "(`ethtool -K " +
          interface.name + " rxvlan off`)";
    } else {
      try {
        return open_xdp(port, interface, bytes, false);
      } catch (const Error& error) {
        reason = std::string(", as AF_XDP cannot be had: ") + error.what();
      }
    }
  }
  auto ring = std::make_shared<ReceiveRing>(interface, rx.filter_, bytes, patience_ms);
  tell(port, LogLevel::INFO, "frames of '" + interface.name + "' come by af_packet" + reason);
  return ring;
}

}  // namespace daqiri::packet

#include "engines/packet/receive_path.h"

#include <algorithm>
#include <map>
#include <string>

#include "daqiri/error.h"
#include "engines/packet/fanout.h"
#include "engines/packet/receive_ring.h"
#include "engines/packet/xdp_filter.h"
#include "engines/packet/xdp_ring.h"
#include "net/interfaces.h"
#include "steering/distribution.h"
#include "system/log.h"
#include "system/thread.h"

namespace daqiri::packet {

namespace {

std::string in_threads(std::size_t count) {
  return count == 1 ? "" : " in " + std::to_string(count) + " threads";
}

void tell(const Port& port, LogLevel level, const std::string& text) {
  log(level, "interface '" + port.config.name_ + "': " + text,
      {.interface = port.config.name_, .queue = {}});
}

/// A ring for each reader, if the card has as many queues: the first reads the first queue of the
/// card, the second the second, and so on in turn.
std::vector<std::shared_ptr<FrameRing>> open_xdp(const Port& port,
                                                 const NetworkInterface& interface,
                                                 const std::vector<Reader>& readers,
                                                 bool or_generic) {
  const auto attachment =
      std::make_shared<XdpAttachment>(interface, XdpFilter(port.config.rx_), or_generic);
  const std::size_t count =
      std::min<std::size_t>(readers.size(), std::max(attachment->queues_told(), 1U));
  std::uint64_t bytes = 0;
  for (const Reader& reader : readers) bytes += reader.ring_bytes;
  std::vector<std::shared_ptr<XdpRing>> rings;
  std::size_t queues = 0;
  std::uint64_t kernel_bytes = 0;
  std::uint64_t frame_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    XdpRing::Options options;
    // Which queue of the card has the most frames is not known.
    options.bytes = bytes / count;
    options.first = static_cast<std::uint32_t>(i);
    options.of = static_cast<std::uint32_t>(count);
    options.busy_poll = core_available(readers[i].first->config().common_.cpu_core_);
    rings.push_back(std::make_shared<XdpRing>(attachment, options));
    queues += rings.back()->queues();
    kernel_bytes += rings.back()->kernel_bytes();
    frame_bytes += rings.back()->frame_bytes();
  }
  const std::string memory = "the card has " + std::to_string(queues) +
                             (queues == 1 ? " queue" : " queues") +
                             ", for which the kernel needs " + std::to_string(kernel_bytes >> 20U) +
                             " MiB, and frames have " + std::to_string(frame_bytes >> 20U) + " MiB";
  tell(port, LogLevel::INFO,
       "frames of '" + interface.name + "' are received by " + rings.front()->path() +
           in_threads(rings.size()) + "; " + memory);
  if (kernel_bytes > frame_bytes && queues > rings.size()) {
    const std::string enough = std::to_string(rings.size());
    tell(port, LogLevel::WARN,
         "'" + interface.name + "' has more queues than AF_XDP needs here: " + memory +
             "; run `ethtool -L " + interface.name + " combined " + enough + "` (`rx " + enough +
             "` for some drivers) before the engine is opened");
  }
  if (rings.size() < readers.size()) {
    tell(port, LogLevel::WARN,
         "the receive queues have " + std::to_string(readers.size()) + " cores, of which only " +
             std::to_string(rings.size()) + " read frames, because '" + interface.name +
             "' has not more queues; the others receive theirs from these (`ethtool -L " +
             interface.name + " combined " + std::to_string(readers.size()) + "`)");
  }
  if (!attachment->why_generic().empty()) {
    tell(port, LogLevel::WARN,
         "the kernel runs the XDP program because the driver does not, which is slower than "
         "rx.receive_path: af_packet: " +
             attachment->why_generic());
  }
  return {rings.begin(), rings.end()};
}

/// A socket with a ring for each reader.
std::vector<std::shared_ptr<FrameRing>> open_rings(const Port& port,
                                                   const NetworkInterface& interface,
                                                   const std::vector<Reader>& readers,
                                                   std::uint32_t patience_ms) {
  std::shared_ptr<const CardTimestamps> timestamps;
  if (port.config.rx_.hardware_timestamps_)
    timestamps = std::make_shared<const CardTimestamps>(port.config, interface);
  std::vector<std::shared_ptr<ReceiveRing>> rings;
  std::vector<int> sockets;
  for (const Reader& reader : readers) {
    rings.push_back(
        std::make_shared<ReceiveRing>(interface, reader.ring_bytes, patience_ms, timestamps));
    sockets.push_back(rings.back()->fd());
  }
  if (rings.size() > 1) {
    std::map<int, std::uint32_t> by_queue;
    for (const auto& queue : port.rx) {
      const auto reader =
          std::ranges::find_if(readers, [&](const Reader& each) { return each.polls(*queue); });
      by_queue[queue->id()] = static_cast<std::uint32_t>(reader - readers.begin());
    }
    join_fanout(interface, sockets, steering::distribution(port.config.rx_, by_queue));
  }
  for (const auto& ring : rings) ring->begin(port.config.rx_.filter_, rings.size() > 1);
  return {rings.begin(), rings.end()};
}

}  // namespace

std::vector<std::shared_ptr<FrameRing>> open_receive_path(const Port& port,
                                                          const NetworkInterface& interface,
                                                          const std::vector<Reader>& readers,
                                                          std::uint32_t patience_ms) {
  const RxConfig& rx = port.config.rx_;
  std::string reason;
  if (rx.receive_path_ == ReceivePath::XDP) {
    if (!rx.flow_isolation_) {
      tell(port, LogLevel::WARN,
           "AF_XDP takes all frames of '" + interface.name +
               "' from the kernel: no other program on this host receives from it, including ssh; "
               "with flow_isolation: true it takes only frames that match a flow");
    }
    if (interface.takes_tags_out) {
      tell(port, LogLevel::WARN,
           "'" + interface.name +
               "' removes VLAN tags from frames, and AF_XDP does not see them: flows without "
               "vlan_pop match frames of any VLAN, flows with vlan_pop none; run `ethtool -K " +
               interface.name + " rxvlan off`, or use receive_path: af_packet");
    }
    if (rx.flow_isolation_ && rx.dynamic_flow_capacity_ > 0) {
      tell(port, LogLevel::WARN,
           "with dynamic_flow_capacity AF_XDP takes all UDP, GRE and eCPRI frames of '" +
               interface.name + "' from the kernel, independent of the flows");
    }
    try {
      return open_xdp(port, interface, readers, true);
    } catch (const Error& error) {
      throw Error(error.status(), "interface '" + port.config.name_ +
                                      "': rx.receive_path: af_xdp: " + error.what());
    }
  }
  if (rx.receive_path_ == ReceivePath::AUTO) {
    if (!rx.filter_.empty()) {
      reason = ", because AF_XDP does not support rx.filter";
    } else if (rx.hardware_timestamps_) {
      reason = ", because AF_XDP has no times of the network card";
    } else if (!rx.flow_isolation_) {
      reason = ", because without flow_isolation AF_XDP would take all frames from the kernel";
    } else if (rx.dynamic_flow_capacity_ > 0) {
      reason = ", because with dynamic_flow_capacity AF_XDP would take all UDP from the kernel";
    } else if (interface.takes_tags_out) {
      reason =
          ", because AF_XDP does not see the VLAN tags that the interface removes from frames "
          "(`ethtool -K " +
          interface.name + " rxvlan off`)";
    } else {
      try {
        return open_xdp(port, interface, readers, false);
      } catch (const Error& error) {
        reason = std::string(", because AF_XDP is not available: ") + error.what();
      }
    }
  }
  refuse_merging(port.config, interface.name);
  auto rings = open_rings(port, interface, readers, patience_ms);
  tell(port, LogLevel::INFO,
       "frames of '" + interface.name + "' are received by af_packet" + in_threads(rings.size()) +
           reason);
  return rings;
}

}  // namespace daqiri::packet

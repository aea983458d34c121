#include "engines/packet/rejected.h"

#include <optional>
#include <string>

#include "engines/packet/card_timestamps.h"
#include "engines/packet/interface.h"
#include "engines/packet/packet_filter.h"
#include "net/interfaces.h"

namespace daqiri::packet {

namespace {

/// libpcap takes a time for an expression that grows with the third power of its length: this is
/// some seconds at worst.
constexpr std::size_t LONGEST_FILTER = 8192;

void find_timestamps(const InterfaceConfig& interface, std::vector<Error>& found) {
  if (!wants_xdp(interface) || !interface.rx_.hardware_timestamps_) return;
  found.emplace_back(Status::NOT_SUPPORTED,
                     "interface '" + interface.name_ +
                         "': rx.receive_path: af_xdp does not support hardware_timestamps: true; "
                         "use af_packet, or set it to false, for timestamps in software");
}

void find_filter(const InterfaceConfig& interface, std::vector<Error>& found) {
  const std::string& filter = interface.rx_.filter_;
  if (wants_xdp(interface) && !filter.empty()) {
    found.emplace_back(Status::NOT_SUPPORTED,
                       "interface '" + interface.name_ +
                           "': rx.receive_path: af_xdp does not support rx.filter ('" + filter +
                           "'); use af_packet, or flows and flow_isolation");
  } else if (filter.size() > LONGEST_FILTER) {
    found.emplace_back(Status::INVALID_PARAMETER,
                       "interface '" + interface.name_ + "': rx.filter: found a text of " +
                           std::to_string(filter.size()) + " bytes; accepts " +
                           std::to_string(LONGEST_FILTER) +
                           " at most; to select many ports or hosts, use flows and "
                           "flow_isolation");
  }
}

/// One XDP program of an interface receives for one port.
void find_conflict(const InterfaceConfig& earlier, const InterfaceConfig& interface,
                   std::vector<Error>& found) {
  if (!wants_xdp(earlier) || !wants_xdp(interface) || earlier.address_ != interface.address_)
    return;
  found.emplace_back(Status::GENERIC_FAILURE,
                     "interface '" + interface.name_ + "': rx.receive_path: af_xdp: interface '" +
                         earlier.name_ + "' already receives from '" + interface.address_ +
                         "' by af_xdp, which one can; put the queues on one interface, or use "
                         "af_packet");
}

}  // namespace

bool wants_xdp(const InterfaceConfig& interface) noexcept {
  return interface.rx_.receive_path_ == ReceivePath::XDP && !interface.rx_.queues_.empty();
}

bool switches_timestamps_on(const InterfaceConfig& interface) noexcept {
  return !interface.rx_.queues_.empty() && interface.rx_.hardware_timestamps_ &&
         !card_stamps({.name = interface.address_});
}

void find_rejected(const NetworkConfig& config, std::vector<Error>& found) {
  for (auto interface = config.ifs_.begin(); interface != config.ifs_.end(); ++interface) {
    // Without queues nothing is received or filtered.
    if (interface->rx_.queues_.empty()) continue;
    find_filter(*interface, found);
    find_timestamps(*interface, found);
    for (auto earlier = config.ifs_.begin(); earlier != interface; ++earlier)
      find_conflict(*earlier, *interface, found);
  }
}

void find_rejected_here(const NetworkConfig& config, std::vector<Error>& found) {
  for (const InterfaceConfig& interface : config.ifs_) {
    if (interface.rx_.queues_.empty()) continue;
    std::optional<NetworkInterface> network;
    File socket;
    try {
      network = NetworkInterface::of(interface);
      socket = open_packet_socket(*network);
    } catch (const Error&) {
      // Of an interface that is absent, or of a privilege.
      if (!network) continue;
    }
    const auto try_to = [&](auto&& act) {
      try {
        act();
      } catch (const Error& error) {
        found.push_back(error);
      }
    };
    if (interface.rx_.receive_path_ == ReceivePath::PACKET)
      try_to([&] { refuse_merging(interface, network->name); });
    if (interface.rx_.hardware_timestamps_ && !wants_xdp(interface))
      try_to([&] { CardTimestamps::require(interface, *network); });
    if (socket.is_open() && !interface.rx_.filter_.empty())
      try_to([&] { attach_filter(socket, *network, interface.rx_.filter_); });
  }
}

}  // namespace daqiri::packet

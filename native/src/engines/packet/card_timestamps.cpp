#include "engines/packet/card_timestamps.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "daqiri/error.h"
#include "net/ethtool.h"
#include "timing/clock.h"

namespace daqiri::packet {

namespace {

constexpr std::int64_t SECOND_NS = 1'000'000'000;
/// What is left of the difference of clocks that some service keeps together.
constexpr std::int64_t MOST_APART_NS = 1'000'000;

File any_socket() { return File(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

/// Returns errno, 0: done. `request`: SIOCGHWTSTAMP, or SIOCSHWTSTAMP, which returns what is set.
int ask(const File& socket, const NetworkInterface& interface, unsigned long request,
        hwtstamp_config& config) noexcept {
  ifreq asked{};
  interface.name.copy(asked.ifr_name, IFNAMSIZ - 1);
  asked.ifr_data = reinterpret_cast<char*>(&config);
  return ioctl(socket.fd(), request, &asked) == 0 ? 0 : errno;
}

[[noreturn]] void refuse(Status status, const InterfaceConfig& config,
                         const NetworkInterface& interface, const std::string& why,
                         const std::string& remedy) {
  throw Error(status, "interface '" + config.name_ + "': hardware_timestamps: true, which '" +
                          interface.name + "' does not have" + why + "; " + remedy +
                          "set it to false, for timestamps in software");
}

/// How the card is set now. Throws Error.
hwtstamp_config setting(const File& question, const InterfaceConfig& config,
                        const NetworkInterface& interface) {
  hwtstamp_config now{};
  const int error = ask(question, interface, SIOCGHWTSTAMP, now);
  // To set it blindly would switch off the transmit times that ptp4l may need.
  if (error == EOPNOTSUPP) {
    refuse(Status::NOT_SUPPORTED, config, interface,
           ": its driver does not tell how they are set now (SIOCGHWTSTAMP)", "");
  }
  if (error != 0) throw packet_error(interface, "query the timestamps of the card", error);
  return now;
}

/// By how much the card's clock is ahead of CLOCK_REALTIME, ns. Throws Error.
std::int64_t find_clock(const InterfaceConfig& config, const NetworkInterface& interface) {
  const File question = any_socket();
  const auto can = Ethtool(question.fd(), interface.name.c_str()).timestamping();
  constexpr std::uint32_t STAMPS = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
  if ((can.kinds & STAMPS) != STAMPS) refuse(Status::NOT_SUPPORTED, config, interface, "", "");
  if ((can.receive_filters >> HWTSTAMP_FILTER_ALL & 1U) == 0) {
    refuse(
        Status::NOT_SUPPORTED, config, interface,
        ": it stamps only some frames, such as those of PTP (`ethtool -T " + interface.name + "`)",
        "");
  }
  const std::string path = "/dev/ptp" + std::to_string(can.clock);
  const File clock(can.clock < 0 ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (can.clock < 0) errno = ENODEV;
  if (!clock.is_open()) {
    const std::string error = std::generic_category().message(errno);
    refuse(
        Status::NOT_SUPPORTED, config, interface,
        ": its clock" + (can.clock < 0 ? std::string() : " " + path) + " cannot be read: " + error,
        "give this process access to it, or ");
  }
  // FD_TO_CLOCKID of clock_gettime(2).
  const auto id = static_cast<clockid_t>(~static_cast<unsigned>(clock.fd()) << 3U | 3U);
  const std::int64_t ahead = ahead_of_realtime(id);
  const std::int64_t apart = ahead - whole_seconds(ahead);
  if (std::abs(apart) <= MOST_APART_NS) return whole_seconds(ahead);
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(apart) / 1e6);
  throw Error(Status::NOT_READY,
              "interface '" + config.name_ + "': hardware_timestamps: true, and the clock of '" +
                  interface.name + "' (" + path + ") differs from the system clock by " + text +
                  " ms, apart from whole seconds; accepts 1 ms. Synchronize them, with ptp4l and "
                  "phc2sys, or without PTP by `phc2sys -s CLOCK_REALTIME -c " +
                  interface.name + " -O 0`");
}

}  // namespace

std::int64_t whole_seconds(std::int64_t difference_ns) noexcept {
  const std::int64_t half = difference_ns < 0 ? -SECOND_NS / 2 : SECOND_NS / 2;
  return (difference_ns + half) / SECOND_NS * SECOND_NS;
}

bool card_stamps(const NetworkInterface& interface) noexcept {
  hwtstamp_config now{};
  return ask(any_socket(), interface, SIOCGHWTSTAMP, now) == 0 &&
         now.rx_filter == HWTSTAMP_FILTER_ALL;
}

void CardTimestamps::require(const InterfaceConfig& config, const NetworkInterface& interface) {
  static_cast<void>(find_clock(config, interface));
  static_cast<void>(setting(any_socket(), config, interface));
}

CardTimestamps::CardTimestamps(const InterfaceConfig& config, const NetworkInterface& interface)
    : interface_(interface), ahead_ns_(find_clock(config, interface)), socket_(any_socket()) {
  const hwtstamp_config now = setting(socket_, config, interface);
  if (now.rx_filter == HWTSTAMP_FILTER_ALL) return;
  hwtstamp_config wanted = now;
  wanted.rx_filter = HWTSTAMP_FILTER_ALL;
  const int error = ask(socket_, interface, SIOCSHWTSTAMP, wanted);
  if (error == EPERM) {
    refuse(Status::NOT_SUPPORTED, config, interface, " on: switching them on needs CAP_NET_ADMIN",
           "grant it (AmbientCapabilities=CAP_NET_ADMIN of systemd), or ");
  }
  if (error != 0) throw packet_error(interface, "switch on the timestamps of the card", error);
  // Drivers return what they have set.
  if (wanted.rx_filter == HWTSTAMP_FILTER_ALL) {
    filter_before_ = now.rx_filter;
    return;
  }
  hwtstamp_config before = now;
  ask(socket_, interface, SIOCSHWTSTAMP, before);
  refuse(Status::NOT_SUPPORTED, config, interface,
         ": asked to stamp all frames, its driver has set another filter (" +
             std::to_string(wanted.rx_filter) + " of linux/net_tstamp.h)",
         "");
}

CardTimestamps::~CardTimestamps() {
  if (!filter_before_ || getpid() != process_) return;
  // What another program has changed meanwhile stays.
  hwtstamp_config now{};
  if (ask(socket_, interface_, SIOCGHWTSTAMP, now) != 0 || now.rx_filter != HWTSTAMP_FILTER_ALL)
    return;
  now.rx_filter = *filter_before_;
  ask(socket_, interface_, SIOCSHWTSTAMP, now);
}

}  // namespace daqiri::packet

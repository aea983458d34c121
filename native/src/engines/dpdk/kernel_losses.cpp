#include "engines/dpdk/kernel_losses.h"

#include <exception>
#include <map>
#include <system_error>

#include "engines/dpdk/traits.h"
#include "system/file.h"
#include "system/log.h"

namespace daqiri::dpdk {

namespace {

/// What found no place in the queues of a tap since it was made; 0: not known.
std::uint64_t dropped_for(LinkReader& reader, int tap) noexcept try {
  const std::map<int, LinkCounters> found = reader.read(tap);
  const auto own = found.find(tap);
  return own == found.end() ? 0 : own->second.unsent;
} catch (const std::exception&) {
  return 0;
}

}  // namespace

void KernelLosses::begin(const std::string& port, std::string_view driver, unsigned interface,
                         const PacketSockets& sockets) {
  if (driver == AF_PACKET_DRIVER) {
    link_.emplace(port, LinkStatistics::Traffic::EVERY_FRAME,
                  [=](const File&) { return static_cast<int>(interface); });
    sockets_ = &sockets;
    static_cast<void>(read());
    dropped_by_sockets_ = 0;
  } else if (driver == TAP_DRIVER) {
    try {
      reader_.emplace();
    } catch (const std::system_error& error) {
      log(LogLevel::WARN,
          "interface '" + port +
              "': what the kernel drops for its tap is not counted: " + error.what());
      return;
    }
    tap_ = static_cast<int>(interface);
    dropped_before_ = dropped_for(*reader_, tap_);
  }
}

PortSnapshot KernelLosses::read() noexcept {
  PortSnapshot lost;
  if (link_) lost = link_->losses(0);
  if (sockets_ != nullptr) dropped_by_sockets_ += sockets_->dropped();
  std::uint64_t dropped = dropped_by_sockets_;
  // Of a tap that is gone, nothing is known.
  if (const std::uint64_t now = reader_ ? dropped_for(*reader_, tap_) : 0; now > dropped_before_)
    dropped += now - dropped_before_;
  lost.lost_dropped += dropped;
  lost.lost_before_engine += dropped;
  return lost;
}

}  // namespace daqiri::dpdk

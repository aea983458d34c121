#include "engines/socket/endpoint.h"

#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "daqiri/error.h"

namespace daqiri::sockets {

namespace {

std::uint16_t first_queue_id(const Port& port) noexcept {
  if (!port.rx.empty()) return port.rx.front()->id();
  return port.tx.empty() ? std::uint16_t{0} : port.tx.front()->id();
}

}  // namespace

Endpoint::Endpoint(const Port& port)
    : name_(port.config.name_), port_id_(port.id), queue_id_(first_queue_id(port)) {}

std::pair<std::uint16_t, std::uint16_t> Endpoint::port_queue(std::uintptr_t) const noexcept {
  return {port_id_, queue_id_};
}

std::uint32_t Endpoint::packet_overhead() const noexcept {
  constexpr std::uint32_t ETHERNET = 14;
  const bool ipv6 = (client() ? remote() : local()).ipv6();
  return ETHERNET + (ipv6 ? 40U : 20U) + transport_header();
}

std::string Endpoint::text() const {
  return "'" + name_ + "' (" + (client() ? "client of " : "server at ") + scheme() +
         (client() ? remote() : local()).text() + ")";
}

void Endpoint::set_option_of(int fd, int level, int option, const void* value,
                             std::size_t length) const {
  const std::string what = "interface '" + name_ + "': socket option " + std::to_string(option) +
                           " of level " + std::to_string(level);
  if (fd < 0) throw Error(Status::NOT_READY, what + ": the connection has no open socket now");
  if (setsockopt(fd, level, option, value, static_cast<socklen_t>(length)) != 0) {
    const int error = errno;
    throw Error(Status::INVALID_PARAMETER,
                what + " (" + std::to_string(length) +
                    " bytes) was refused: " + std::generic_category().message(error) +
                    "; see socket(7), ip(7), tcp(7) and udp(7) for what the kernel accepts");
  }
}

}  // namespace daqiri::sockets

#include "engines/socket/endpoint.h"

#include <cerrno>

#include "net/headers.h"
#include "net/interfaces.h"

namespace daqiri::sockets {

TransmitResult too_long(const Burst& burst, std::uint32_t first, std::uint32_t count,
                        std::uint32_t limit) noexcept {
  TransmitResult result{.error = EMSGSIZE};
  while (result.failed < count && burst.packet_length(first + result.failed) > limit)
    ++result.failed;
  return result;
}

Endpoint::Endpoint(const Port& port, Transport transport)
    : port_(port),
      transport_(transport),
      addresses_(addresses_of(port.config, transport)),
      connection_(next_connection_id()) {}

std::uint16_t Endpoint::first_queue() const noexcept {
  if (!port_.rx.empty()) return port_.rx.front()->id();
  return port_.tx.empty() ? std::uint16_t{0} : port_.tx.front()->id();
}

std::uint32_t Endpoint::packet_overhead() const noexcept {
  return ETHERNET_SIZE + ip_size((client() ? remote() : local()).ipv6()) +
         (transport_ == Transport::UDP ? UDP_SIZE : TCP_SIZE);
}

std::string Endpoint::text() const {
  return "'" + name() + "' (" + (client() ? "client of " : "server at ") +
         uri(transport_, client() ? remote() : local()) + ")";
}

std::array<std::uint8_t, 6> Endpoint::mac_address() const noexcept {
  return mac_of(local().given() ? local() : source_towards(remote()));
}

ConnectionInfo Endpoint::listening(bool open) const {
  return {connection_, "", local().text(),
          open ? ConnectionState::LISTENING : ConnectionState::CLOSED, ""};
}

}  // namespace daqiri::sockets

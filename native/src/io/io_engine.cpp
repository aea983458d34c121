#include "io/io_engine.h"

#include "daqiri/error.h"

namespace daqiri {

namespace {

[[noreturn]] void no_connections() {
  throw Error(Status::NOT_SUPPORTED,
              "connections exist on socket streams only; this session's engine has none");
}

}  // namespace

std::uintptr_t IoEngine::connect(const std::string&, std::uint16_t, const std::string&) {
  no_connections();
}
std::pair<std::uint16_t, std::uint16_t> IoEngine::connection_queue(std::uintptr_t) const {
  no_connections();
}
std::uintptr_t IoEngine::server_connection(const std::string&, std::uint16_t) const {
  no_connections();
}
void IoEngine::set_socket_option(std::uintptr_t, int, int, const void*, std::size_t) {
  no_connections();
}

}  // namespace daqiri

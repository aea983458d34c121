#include "session/io_engine.h"

#include "daqiri/error.h"
#include "engines/loopback/loopback_engine.h"
#include "engines/socket/socket_engine.h"

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

std::unique_ptr<IoEngine> make_io_engine(const NetworkConfig& config) {
  if (config.common_.loopback_ == LoopbackType::SW) {
    if (config.common_.stream_type == StreamType::RAW) return make_loopback_engine();
    throw Error(Status::NOT_SUPPORTED,
                "loopback 'sw' connects the queues of raw streams; for a socket stream leave "
                "`loopback` out and use an address of 127.0.0.0/8 or ::1");
  }
  const auto missing = [](const char* engine, const char* dependency) {
    return Error(Status::NOT_SUPPORTED, std::string("engine '") + engine +
                                            "' is not part of this build: it needs " + dependency +
                                            "; use `loopback: sw`, or a socket stream");
  };
  switch (config.common_.engine_type) {
    case EngineType::SOCKET:
      return make_socket_engine(config);
    case EngineType::DPDK:
      throw missing("dpdk", "DPDK (Debian: libdpdk-dev)");
    case EngineType::IBVERBS:
    case EngineType::RDMA:
      throw missing("ibverbs", "rdma-core (Debian: libibverbs-dev, librdmacm-dev)");
    case EngineType::PACKET:
      throw missing("packet", "the AF_PACKET engine, which is not written yet");
    case EngineType::DEFAULT:
    case EngineType::UNKNOWN:
      break;
  }
  throw Error(Status::INTERNAL_ERROR,
              "the configuration was not validated: its engine is not resolved");
}

}  // namespace daqiri

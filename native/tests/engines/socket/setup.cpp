#include <sys/socket.h>

#include "engines/engine_setup.h"
#include "engines/socket/udp_socket.h"
#include "free_port.h"

namespace {

using namespace daqiri;

template <SocketProtocol PROTOCOL>
NetworkConfig sockets(const test::SuiteOptions& options) {
  NetworkConfig config = test::suite_config(options, true);
  config.common_.stream_type = StreamType::SOCKET;
  const std::uint16_t port =
      test::free_port_for(PROTOCOL == SocketProtocol::UDP ? SOCK_DGRAM : SOCK_STREAM);
  for (InterfaceConfig& interface : config.ifs_) {
    interface.address_ = "127.0.0.1";
    interface.has_socket_ = true;
  }
  const std::string address =
      (PROTOCOL == SocketProtocol::UDP ? "udp://127.0.0.1:" : "tcp://127.0.0.1:") +
      std::to_string(port);
  config.ifs_[0].socket_.mode_ = SocketMode::CLIENT;
  config.ifs_[0].socket_.remote_addr_ = address;
  config.ifs_[1].socket_.mode_ = SocketMode::SERVER;
  config.ifs_[1].socket_.local_addr_ = address;
  return config;
}

/// Without CAP_BPF, a merged row of dropped datagrams is counted as one.
bool counts_arrivals() {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const bool counts = daqiri::sockets::count_arrivals(fd) != nullptr;
  close(fd);
  return counts;
}

const test::RegisteredSetup udp{{.name = "udp",
                                 .config = sockets<SocketProtocol::UDP>,
                                 .tx_port = 0,
                                 .rx_port = 1,
                                 .counts_all = counts_arrivals()}};
const test::RegisteredSetup tcp{{.name = "tcp",
                                 .config = sockets<SocketProtocol::TCP>,
                                 .tx_port = 0,
                                 .rx_port = 1,
                                 .keeps_boundaries = false,
                                 .waits = true}};

}  // namespace

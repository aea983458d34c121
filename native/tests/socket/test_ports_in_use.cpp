// A port belongs to one engine, even with other sockets and forked children.
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include "net/socket_address.h"
#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A server with one socket for each of two cores.
NetworkConfig two_cores(const std::string& host, std::uint16_t port, bool flows) {
  NetworkConfig config = udp_server(host, port);
  auto& queues = config.ifs_[0].rx_.queues_;
  queues.push_back(queues[0]);
  queues[0].common_.cpu_core_ = "0";
  queues[1].common_.name_ = "rx1";
  queues[1].common_.id_ = 1;
  if (flows) {
    FlowConfig flow;
    flow.name_ = "all";
    flow.id_ = 1;
    flow.match_.udp_src_ = {1, 65535};
    flow.action_.id_ = 1;
    config.ifs_[0].rx_.flows_.push_back(flow);
  }
  return config;
}

/// A child process that only waits for its end.
class Child {
 public:
  Child() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no pair");
    process_ = fork();
    if (process_ == 0) {
      ::close(ends[1]);
      char byte = 0;
      // The child runs; it does not have the files that were private to the parent.
      [[maybe_unused]] ssize_t n = write(ends[0], &byte, 1);
      n = read(ends[0], &byte, 1);
      _exit(0);
    }
    ::close(ends[0]);
    leash_ = ends[1];
    char byte = 0;
    if (read(leash_, &byte, 1) != 1) throw std::runtime_error("no child");
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::close(leash_);
    waitpid(process_, nullptr, 0);
  }

 private:
  pid_t process_;
  int leash_;
};

}  // namespace

TEST_CASE("Queues on several cores do not share a port with anybody", "[udp][errors]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const bool flows = GENERATE(false, true);
  const std::uint16_t port = free_port(host);
  const auto refused = [&](const NetworkConfig& config) {
    const auto [status, text] = error_of([&] { Session::open(config); });
    INFO(text);
    CHECK(status == Status::CONNECT_FAILURE);
    CHECK_THAT(text, Catch::Contains("'udp0'") &&
                         Catch::Contains("udp://" + SocketAddress::parse(host, port).text()) &&
                         Catch::Contains("another socket has this port") &&
                         Catch::Contains("ss -lunp"));
  };
  {
    const auto session = Session::open(two_cores(host, port, flows));
    refused(two_cores(host, port, flows));
    refused(udp_server(host, port));
    const Child child;
    session->close();
    // While the child is running.
    const auto again = Session::open(two_cores(host, port, flows));
    const PlainSocket peer(host);
    REQUIRE(peer.send(host, port, numbered(1, 100)));
    CHECK(eventually([&] {
      return again->rx_queue(0, 0).counters().received +
                 again->rx_queue(0, 1).counters().received ==
             1;
    }));
  }
  // A program that allows sharing its port.
  const bool ipv6 = host.find(':') != std::string::npos;
  const int other = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  REQUIRE(setsockopt(other, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
  const SocketAddress address = SocketAddress::parse(host, port);
  REQUIRE(bind(other, address.data(), address.length()) == 0);
  refused(two_cores(host, port, flows));
  ::close(other);
  Session::open(two_cores(host, port, flows));
}

TEST_CASE("A forked child keeps no socket of an engine", "[udp][tcp]") {
  // An address of this process only: other programs use ports that are free for a moment.
  const std::string host =
      "127.9." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(getpid() % 250 + 1);
  const std::uint16_t udp_port = free_port(host);
  const std::uint16_t tcp_port = free_tcp_port(host);
  // From another address than the server, so that no socket can connect to itself.
  const auto connect = [&] { return Stream::connect_to(host, tcp_port, 0, "127.0.0.1"); };
  auto udp = Session::open(udp_server(host, udp_port));
  auto tcp = Session::open(tcp_server(host, tcp_port));
  const Stream peer = connect();
  REQUIRE(eventually([&] { return count_in(*tcp, ConnectionState::CONNECTED) == 1; }));
  const Child child;
  // The sockets of the parent still work.
  const PlainSocket sender("127.0.0.1");
  REQUIRE(sender.send(host, udp_port, numbered(1, 100)));
  CHECK(receive_packets(udp->rx_queue(0, 0), 1).size() == 1);
  REQUIRE(peer.send(stream_of(100)));
  CHECK((receive_bytes(tcp->rx_queue(0, 0), 100) == stream_of(100)));

  udp->close();
  tcp->close();
  CHECK(peer.at_end());
  CHECK_THROWS_WITH(connect(), Catch::Contains("refused"));
  udp = Session::open(udp_server(host, udp_port));
  tcp = Session::open(tcp_server(host, tcp_port));
  const Stream next = connect();
  REQUIRE(next.send(stream_of(50)));
  CHECK((receive_bytes(tcp->rx_queue(0, 0), 50) == stream_of(50)));
}

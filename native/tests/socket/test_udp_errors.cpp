#include <catch2/catch.hpp>

#include <ifaddrs.h>
#include <poll.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "log_taker.h"
#include "socket/tcp_session.h"
#include "socket/udp_session.h"
#include "system/file.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

TEST_CASE("A port in use is an error that names it, and leaves nothing behind", "[udp][errors]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const PlainSocket other(host);
  const std::size_t before = open_descriptors().size();
  const auto [status, text] = error_of([&] { Session::open(udp_server(host, other.port())); });
  REQUIRE(status == Status::CONNECT_FAILURE);
  CHECK_THAT(text, Contains("interface 'udp0'"));
  CHECK_THAT(text, Contains(host));
  CHECK_THAT(text, Contains(":" + std::to_string(other.port())));
  CHECK_THAT(text, Contains("Address already in use"));
  CHECK_THAT(text, Contains("choose another port"));
  REQUIRE(open_descriptors().size() == before);
}

TEST_CASE("Two servers on one port are an error", "[udp][errors]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto first = Session::open(udp_server("127.0.0.1", port));
  const auto [status, text] = error_of([&] { Session::open(udp_server("127.0.0.1", port)); });
  REQUIRE(status == Status::CONNECT_FAILURE);
  CHECK_THAT(text, Contains("Address already in use"));
  const PlainSocket peer("127.0.0.1");
  REQUIRE(peer.send("127.0.0.1", port, numbered(1, 10)));
  REQUIRE(receive_packets(first->rx_queue(0, 0), 1).size() == 1);
}

TEST_CASE("An address that is not this host's is an error", "[udp][errors]") {
  auto [status, text] = error_of([] { Session::open(udp_server("203.0.113.77", 5000)); });
  REQUIRE(status == Status::CONNECT_FAILURE);
  CHECK_THAT(text, Contains("203.0.113.77:5000"));
  CHECK_THAT(text, Contains("this host has no such address"));
  auto config = udp_client("127.0.0.1", 5000);
  config.ifs_[0].socket_.local_addr_ = udp_at("::1", 5001);
  std::tie(status, text) = error_of([&] { Session::open(config); });
  REQUIRE(status == Status::INVALID_PARAMETER);
}

TEST_CASE("Errors of packets that nobody received leave no socket readable", "[udp][errors]") {
  // The poller of the socket would find it readable again and again.
  const auto with_error = [] {
    for (int fd = 3; fd < 200; ++fd) {
      pollfd socket{fd, 0, 0};
      if (poll(&socket, 1, 0) > 0 && (socket.revents & POLLERR) != 0) return true;
    }
    return false;
  };
  const std::string host = GENERATE("127.0.0.1", "::1");
  const auto session = Session::open(udp_client(host, free_port(host)));
  for (int round = 0; round < 20; ++round) {
    REQUIRE(send_packets(session->tx_queue(0, 0), std::vector<Bytes>(7, Bytes(10, 1))));
    REQUIRE(session->tx_queue(0, 0).wait_idle(10'000'000'000));
    REQUIRE(eventually([&] { return !with_error(); }));
  }
  CHECK(session->tx_queue(0, 0).counters().sent == 140);
}

TEST_CASE("Queues that cannot share a socket are refused", "[udp][errors]") {
  auto config = udp_server("127.0.0.1", free_port("127.0.0.1"));
  auto& queues = config.ifs_[0].rx_.queues_;
  queues.push_back(queues[0]);
  queues[1].common_.name_ = "rx1";
  queues[1].common_.id_ = 1;
  SECTION("another region on the same core, with flows and other cores") {
    queues.push_back(queues[0]);
    queues[2].common_.name_ = "rx2";
    queues[2].common_.id_ = 2;
    queues[1].common_.cpu_core_ = queues[2].common_.cpu_core_ = "0";
    queues[2].common_.mrs_ = {"tx_data"};
    FlowConfig flow;
    flow.name_ = "all";
    flow.id_ = 1;
    flow.match_.udp_src_ = {1, 65535};
    flow.action_.id_ = 1;
    config.ifs_[0].rx_.flows_.push_back(flow);
    const auto [status, text] = error_of([&] { Session::open(config); });
    REQUIRE(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("'rx1' and 'rx2'") && Contains("memory_regions"));
  }
  SECTION("another core, for a client") {
    queues[1].common_.cpu_core_ = "0";
    config.ifs_[0].socket_ = udp_client("127.0.0.1", 5000).ifs_[0].socket_;
    const auto [status, text] = error_of([&] { Session::open(config); });
    REQUIRE(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("cpu_core") && Contains("A client has one peer"));
  }
  SECTION("another region") {
    queues[1].common_.mrs_ = {"tx_data"};
    const auto [status, text] = error_of([&] { Session::open(config); });
    REQUIRE(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("rx0") && Contains("rx1") && Contains("memory_regions"));
  }
}

TEST_CASE("Connections that do not exist are refused", "[udp][errors]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const PlainSocket peer("127.0.0.1");
  const auto session = Session::open(udp_client("127.0.0.1", peer.port()));
  Connections& connections = session->connections();
  const int on = 1;
  auto [status, text] = error_of(
      [&] { connections.set_socket_option(0xFFFFFF, SOL_SOCKET, SO_BROADCAST, &on, sizeof on); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("16777215"));
  std::tie(status, text) = error_of([&] { static_cast<void>(connections.queue_of(0)); });
  CHECK(status == Status::INVALID_PARAMETER);
  std::tie(status, text) =
      error_of([&] { static_cast<void>(connections.server_at("127.0.0.1", port)); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("client of udp://127.0.0.1:" + std::to_string(peer.port())));
  std::tie(status, text) = error_of([&] { connections.connect("127.0.0.1", port, ""); });
  CHECK(status == Status::CONNECT_FAILURE);
  std::tie(status, text) = error_of([&] { connections.connect("localhost", port, ""); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("localhost"));
}

TEST_CASE("Socket options reach the kernel, and its refusal comes back", "[udp][errors]") {
  const PlainSocket peer("127.0.0.1");
  const auto session = Session::open(udp_client("127.0.0.1", peer.port()));
  Connections& connections = session->connections();
  const std::uintptr_t connection = connections.connect("127.0.0.1", peer.port(), "");
  const int ttl = 7;
  connections.set_socket_option(connection, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
  const int bad_ttl = 1000;
  auto [status, text] = error_of([&] {
    connections.set_socket_option(connection, IPPROTO_IP, IP_TTL, &bad_ttl, sizeof bad_ttl);
  });
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK_THAT(text, Contains("Invalid argument"));
  session->close();
  std::tie(status, text) = error_of(
      [&] { connections.set_socket_option(connection, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl); });
  CHECK(status == Status::NOT_READY);
}

TEST_CASE("A socket has the MAC address of its network interface, zeros on loopback", "[udp]") {
  ifaddrs* all = nullptr;
  REQUIRE(getifaddrs(&all) == 0);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(all, &freeifaddrs);
  std::size_t checked = 0;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char host[INET_ADDRSTRLEN]{};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, host,
              sizeof host);
    std::ifstream file(std::string("/sys/class/net/") + one->ifa_name + "/address");
    std::string expected;
    if (!(file >> expected) || expected.size() != 17) continue;
    const auto session = Session::open(udp_server(host, free_port(host), {.num_bufs = 64}));
    char found[18]{};
    const auto mac = session->port(0).io->mac_address();
    std::snprintf(found, sizeof found, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
                  mac[3], mac[4], mac[5]);
    CHECK(found == expected);
    ++checked;
  }
  REQUIRE(checked > 0);
}

TEST_CASE("Queues on cores that are not there run without, and one line names them all",
          "[udp][errors]") {
  const std::uint16_t port = free_port("127.0.0.1");
  NetworkConfig config = udp_server("127.0.0.1", port);
  config.log_level_ = LogLevel::WARN;
  config.ifs_[0].rx_.queues_[0].common_.cpu_core_ = "1021";
  config.ifs_[0].tx_.queues_[0].common_.cpu_core_ = "8000";
  LogTaker log;
  const auto session = Session::open(config);
  const PlainSocket peer("127.0.0.1");
  REQUIRE(peer.send("127.0.0.1", port, Bytes(10, 1)));
  const auto packets = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(packets.size() == 1);
  REQUIRE(send_packets(session->tx_queue(0, 0), {Bytes(10, 2)}, packets[0].connection));
  REQUIRE(peer.receive().has_value());
  CHECK(log.lines_with("1021 (queue 'rx0' of interface 'udp0'), 8000 (queue 'tx0' of interface "
                       "'udp0'); it may use ") == 1);
  // Other warnings are about the buffers of the kernel.
  CHECK(log.lines_with("core") == 1);
  CHECK(session->config().ifs_[0].rx_.queues_[0].common_.cpu_core_ == "1021");
}

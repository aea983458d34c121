#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A server with two queues on different cores.
NetworkConfig two_cores(const std::string& host, std::uint16_t port) {
  NetworkConfig config = udp_server(host, port, {.timeout_us = 200});
  auto& queues = config.ifs_[0].rx_.queues_;
  queues.push_back(queues[0]);
  queues[0].common_.cpu_core_ = "0";
  queues[1].common_.cpu_core_ = "any";
  queues[1].common_.name_ = "rx1";
  queues[1].common_.id_ = 1;
  return config;
}

}  // namespace

TEST_CASE("Peers are spread over queues on different cores", "[udp][rx][peers]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  const auto session = Session::open(two_cores(host, port));
  constexpr std::uint32_t PEERS = 24;
  constexpr std::uint32_t PACKETS = 20;
  std::vector<PlainSocket> peers;
  for (std::uint32_t p = 0; p < PEERS; ++p) peers.emplace_back(host);
  for (std::uint32_t i = 0; i < PACKETS; ++i) {
    for (std::uint32_t p = 0; p < PEERS; ++p)
      REQUIRE(peers[p].send(host, port, numbered(p * 1000 + i, 100)));
  }
  for (int wait = 0; wait < 20'000; ++wait) {
    if (session->rx_queue(0, 0).counters().received + session->rx_queue(0, 1).counters().received ==
        PEERS * PACKETS)
      break;
    usleep(1000);
  }
  std::map<std::uint32_t, std::set<std::uint16_t>> queues_of;
  std::map<std::uint32_t, std::uintptr_t> connection_of;
  for (std::uint16_t q = 0; q < 2; ++q) {
    RxQueue& rx = session->rx_queue(0, q);
    const std::uint64_t received = rx.counters().received;
    REQUIRE(received > 0);
    std::map<std::uint32_t, std::uint32_t> next;
    for (const Received& packet : receive_packets(rx, received)) {
      const std::uint32_t p = number_of(packet.bytes) / 1000;
      REQUIRE(number_of(packet.bytes) == p * 1000 + next[p]++);
      queues_of[p].insert(q);
      const auto [known, added] = connection_of.emplace(p, packet.connection);
      REQUIRE((added || known->second == packet.connection));
    }
  }
  REQUIRE(queues_of.size() == PEERS);
  std::set<std::uintptr_t> connections;
  for (std::uint32_t p = 0; p < PEERS; ++p) {
    REQUIRE(queues_of[p].size() == 1);
    connections.insert(connection_of[p]);
    REQUIRE(session->connections().queue_of(connection_of[p]).second == *queues_of[p].begin());
    // Peers of both sockets receive replies.
    REQUIRE(send_packets(session->tx_queue(0, 0), {numbered(p, 30)}, connection_of[p]));
    const auto answer = peers[p].receive();
    REQUIRE(answer);
    REQUIRE((answer->first == numbered(p, 30)));
    REQUIRE(answer->second == port);
  }
  REQUIRE(connections.size() == PEERS);
  // The last sender, on either socket.
  for (std::uint32_t p : {3U, 11U, 17U, 5U}) {
    REQUIRE(peers[p].send(host, port, numbered(p, 10)));
    RxQueue& rx = session->rx_queue(0, *queues_of[p].begin());
    REQUIRE(receive_packets(rx, 1).size() == 1);
    REQUIRE(send_packets(session->tx_queue(0, 0), {numbered(p, 31)}));
    const auto answer = peers[p].receive();
    REQUIRE(answer);
    REQUIRE((answer->first == numbered(p, 31)));
  }
}

TEST_CASE("A group is not spread over cores", "[udp][multicast][errors]") {
  auto config = two_cores("239.255.78.37", free_port("127.0.0.1"));
  config.ifs_[0].address_ = "lo";
  if (GENERATE(false, true)) {
    FlowConfig flow;
    flow.name_ = "some";
    flow.id_ = 1;
    flow.match_.udp_src_ = 5000;
    flow.action_.id_ = 1;
    config.ifs_[0].rx_.flows_.push_back(flow);
  }
  const auto [status, text] = error_of([&] { Session::open(config); });
  REQUIRE(status == Status::INVALID_PARAMETER);
  REQUIRE_THAT(text, Catch::Contains("would each receive all packets of the group") &&
                         Catch::Contains("use one cpu_core"));
}

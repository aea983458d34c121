#include <catch2/catch.hpp>
#include <fstream>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

void send_through_loopback(const PlainSocket& peer) {
  const in_addr lo{htonl(INADDR_LOOPBACK)};
  REQUIRE(setsockopt(peer.fd(), IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof lo) == 0);
}

NetworkConfig member(const char* group, std::uint16_t port, const char* address) {
  NetworkConfig config = udp_server(group, port);
  config.ifs_[0].address_ = address;
  return config;
}

}  // namespace

TEST_CASE("Servers at a group all receive what is sent to it", "[udp][rx][multicast]") {
  const char* group = "239.255.78.33";
  const char* host = "127.0.0.1";
  const char* address = GENERATE(as<const char*>(), "127.0.0.1", "lo");
  const std::uint16_t port = free_port(host);
  const auto first = Session::open(member(group, port, address));
  const auto second = Session::open(member(group, port, address));
  const PlainSocket peer(host);
  send_through_loopback(peer);
  for (std::uint32_t i = 0; i < 50; ++i) REQUIRE(peer.send(group, port, numbered(i, 200)));
  for (const auto& session : {first, second}) {
    const auto packets = receive_packets(session->rx_queue(0, 0), 50);
    REQUIRE(packets.size() == 50);
    for (std::uint32_t i = 0; i < 50; ++i) REQUIRE((packets[i].bytes == numbered(i, 200)));
    // A reply goes to the sender.
    REQUIRE(send_packets(session->tx_queue(0, 0), {numbered(99, 20)}, packets[0].connection));
    const auto answer = peer.receive();
    REQUIRE(answer);
    REQUIRE((answer->first == numbered(99, 20)));
  }
  // Datagrams to another group at the same port are not received.
  const char* other = "239.255.78.34";
  REQUIRE(peer.send(other, port, numbered(1, 10)));
  REQUIRE(peer.send(group, port, numbered(2, 10)));
  const auto packets = receive_packets(first->rx_queue(0, 0), 1);
  REQUIRE(packets.size() == 1);
  REQUIRE((packets[0].bytes == numbered(2, 10)));
}

TEST_CASE("A client sends to a group through the interface of its address",
          "[udp][tx][multicast]") {
  const char* group = "239.255.78.35";
  const char* host = "127.0.0.1";
  const std::uint16_t port = free_port(host);
  const auto receiver = Session::open(member(group, port, "lo"));
  NetworkConfig config = udp_client(group, port);
  config.ifs_[0].address_ = host;
  const auto sender = Session::open(config);
  std::vector<Bytes> sent;
  for (std::uint32_t i = 0; i < 100; ++i) sent.push_back(numbered(i, 700));
  REQUIRE(send_packets(sender->tx_queue(0, 0), sent));
  const auto packets = receive_packets(receiver->rx_queue(0, 0), sent.size());
  REQUIRE(packets.size() == sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) REQUIRE((packets[i].bytes == sent[i]));
}

TEST_CASE("An IPv6 group is joined on the interface of its scope, or of the address",
          "[udp][rx][multicast]") {
  const auto [group, address] = GENERATE(table<const char*, const char*>(
      {{"ff15::4e24%lo", "::"}, {"ff15::4e24", "lo"}, {"ff15::4e24", "::1"}}));
  const auto joined = [] {
    std::ifstream groups("/proc/net/igmp6");
    for (std::string line; std::getline(groups, line);) {
      if (line.find(" lo ") != std::string::npos &&
          line.find("ff150000000000000000000000004e24") != std::string::npos)
        return true;
    }
    return false;
  };
  REQUIRE_FALSE(joined());
  const auto session = Session::open(member(group, free_port("::1"), address));
  REQUIRE(joined());
  session->close();
  REQUIRE_FALSE(joined());
}

TEST_CASE("Where a group cannot be joined, the address and the fix are named",
          "[udp][multicast][errors]") {
  const auto [address, text] = GENERATE(table<const char*, const char*>(
      {{"nosuch0", "is neither a network interface of this host nor"},
       {"192.0.2.77", "no network interface of this host has the address 192.0.2.77"}}));
  const auto [status, what] =
      error_of([&, address = address] { Session::open(member("239.255.78.36", 40'001, address)); });
  REQUIRE(status == Status::INVALID_PARAMETER);
  REQUIRE_THAT(what, Catch::Contains(text) && Catch::Contains("interface 'udp0'") &&
                         Catch::Contains("239.255.78.36:40001"));
}

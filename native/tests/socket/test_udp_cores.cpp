// One UDP port read by several cores.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <map>

#include "engines/socket/udp_cores.h"
#include "socket/own_network.h"
#include "socket/tcp_session.h"
#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Queues 0, 1, ... on cores of their own, with regions of their own.
NetworkConfig on_cores(const std::string& host, std::uint16_t port, int queues) {
  NetworkConfig config = udp_server(host, port, {.timeout_us = 200});
  auto& rx = config.ifs_[0].rx_;
  const char* cores[]{"any", "0", "1"};
  for (int i = 0; i < queues; ++i) {
    if (i > 0) rx.queues_.push_back(rx.queues_[0]);
    RxQueueConfig& queue = rx.queues_.back();
    queue.common_.name_ = "rx" + std::to_string(i);
    queue.common_.id_ = i;
    queue.common_.cpu_core_ = cores[i % 3];
    MemoryRegionConfig region = config.mrs_.at("rx_data");
    region.name_ = "region" + std::to_string(i);
    queue.common_.mrs_ = {region.name_};
    config.mrs_.emplace(region.name_, region);
  }
  return config;
}

FlowMatch& add_flow(NetworkConfig& config, FlowId id, std::uint16_t queue) {
  FlowConfig flow;
  flow.name_ = "flow" + std::to_string(id);
  flow.id_ = id;
  flow.action_.id_ = queue;
  auto& flows = config.ifs_[0].rx_.flows_;
  flows.push_back(flow);
  return flows.back().match_;
}

/// Sockets of the configuration that nobody reads.
struct Unread {
  File claim;
  std::vector<std::unique_ptr<sockets::UdpSocket>> all;

  explicit Unread(const NetworkConfig& config)
      : all(sockets::open_sockets(config.ifs_[0], claim)) {}
  /// Number of the only socket that has a datagram, which is read; -1: several have one.
  [[nodiscard]] int arrived() const {
    std::vector<pollfd> fds;
    for (const auto& socket : all) fds.push_back({socket->fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), 5000) != 1) return -1;
    int found = 0;
    while ((fds[static_cast<std::size_t>(found)].revents & POLLIN) == 0) ++found;
    char bytes[64];
    return recv(fds[static_cast<std::size_t>(found)].fd, bytes, sizeof bytes, 0) > 0 ? found : -1;
  }
};

std::uint64_t drops(const RxSnapshot& snapshot) { return snapshot.dropped_total(); }

}  // namespace

TEST_CASE("The kernel puts datagrams into the socket of their flow's core", "[udp][cores]") {
  const auto [host, to] = GENERATE(table<std::string, std::string>(
      {{"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.3"}, {"::1", "::1"}, {"::", "::1"}}));
  const std::uint16_t port = free_port(host);
  std::vector<PlainSocket> peers;
  for (int i = 0; i < 4; ++i) peers.emplace_back(to == "::1" ? "::1" : "127.0.0.1");
  NetworkConfig config = on_cores(host, port, 4);
  // Queue 3 has the core, and the region, of queue 0.
  config.ifs_[0].rx_.queues_[3].common_.mrs_ = {"region0"};
  for (std::uint16_t i = 0; i < 3; ++i)
    add_flow(config, i + 1U, (i + 1) % 4).udp_src_ = peers[i].port();
  // Not the first that matches.
  add_flow(config, 9, 1).udp_src_ = {1, 65535};
  const Unread sockets(config);
  REQUIRE(sockets.all.size() == 3);
  const int expected[]{1, 2, 0, 1};
  for (std::size_t i = 0; i < peers.size(); ++i) {
    REQUIRE(peers[i].send(to, port, numbered(1, 40)));
    CHECK(sockets.arrived() == expected[i]);
  }
}

TEST_CASE("Lengths do not choose a socket, because the kernel merges datagrams", "[udp][cores]") {
  const std::uint16_t port = free_port("127.0.0.1");
  NetworkConfig config = on_cores("127.0.0.1", port, 3);
  const PlainSocket peer("127.0.0.1");
  add_flow(config, 1, 1).ipv4_len_ = 28 + 40;
  FlowMatch& host = add_flow(config, 2, 2);
  host.ipv4_src_ = htonl(INADDR_LOOPBACK);
  host.ipv4_dst_ = htonl(INADDR_LOOPBACK);
  const Unread sockets(config);
  for (const std::size_t length : {40U, 41U}) {
    REQUIRE(peer.send("127.0.0.1", port, numbered(1, length)));
    CHECK(sockets.arrived() == 2);
  }
}

TEST_CASE("Without flows, a peer stays on one socket, and others cannot take part",
          "[udp][cores]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  const Unread sockets(on_cores(host, port, 3));
  // A program of the same user that joins later.
  const SocketAddress address = SocketAddress::parse(host, port);
  const File other(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  REQUIRE(setsockopt(other.fd(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
  REQUIRE(bind(other.fd(), address.data(), address.length()) == 0);
  std::map<int, int> peers_of;
  for (int i = 0; i < 64; ++i) {
    const PlainSocket peer(host);
    REQUIRE(peer.send(host, port, numbered(1, 40)));
    const int socket = sockets.arrived();
    ++peers_of[socket];
    for (int again = 0; again < 3; ++again) {
      REQUIRE(peer.send(host, port, numbered(1, 40)));
      REQUIRE(sockets.arrived() == socket);
    }
  }
  // The kernel chooses by a hash: 21 of 64 on average, and fewer than 4 once in ten million runs.
  for (int i = 0; i < 3; ++i) CHECK(peers_of[i] >= 4);
  CHECK(peers_of.size() == 3);
  CHECK_FALSE(readable(other.fd()));
}

TEST_CASE("A full socket of one core does not cost the others", "[udp][cores]") {
  const std::uint16_t port = free_port("127.0.0.1");
  NetworkConfig config = on_cores("127.0.0.1", port, 2);
  const PlainSocket full("127.0.0.1");
  const PlainSocket other("127.0.0.1");
  add_flow(config, 1, 1).udp_src_ = full.port();
  const Unread sockets(config);
  while (sockets.all[1]->kernel_drops(0) == 0)
    REQUIRE(full.send("127.0.0.1", port, numbered(1, 1000)));
  for (std::uint32_t i = 0; i < 50; ++i) REQUIRE(other.send("127.0.0.1", port, numbered(i, 1000)));
  CHECK(sockets.all[0]->kernel_drops(0) == 0);
  for (std::uint32_t i = 0; i < 50; ++i) {
    Bytes bytes(1000);
    REQUIRE(recv(sockets.all[0]->fd(), bytes.data(), bytes.size(), 0) == 1000);
    CHECK(bytes == numbered(i, 1000));
  }
}

TEST_CASE("Several cores receive what one core does", "[udp][cores]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const bool several = GENERATE(false, true);
  const std::uint16_t port = free_port(host);
  constexpr std::uint32_t PEERS = 12;
  constexpr std::uint32_t EACH = 150;
  std::vector<PlainSocket> peers;
  for (std::uint32_t p = 0; p < PEERS; ++p) peers.emplace_back(host);
  NetworkConfig config = on_cores(host, port, 3);
  if (!several) {
    for (auto& queue : config.ifs_[0].rx_.queues_) {
      queue.common_.cpu_core_ = "any";
      queue.common_.mrs_ = {"region0"};
    }
  }
  const auto queue_of = [](std::uint32_t peer) { return static_cast<std::uint16_t>(peer % 3); };
  // The last peers have no flow.
  for (std::uint32_t p = 0; p < 9; ++p)
    add_flow(config, p + 1, queue_of(p)).udp_src_ = peers[p].port();
  const auto session = Session::open(config);
  for (std::uint32_t i = 0; i < EACH; ++i)
    for (std::uint32_t p = 0; p < PEERS; ++p)
      REQUIRE(peers[p].send(host, port, numbered(p * 1000 + i, 50 + p)));
  std::map<std::uint32_t, std::uintptr_t> connections;
  for (std::uint16_t q = 0; q < 3; ++q) {
    const std::uint32_t count = q == 0 ? 6 * EACH : 3 * EACH;
    const auto packets = receive_packets(session->rx_queue(0, q), count);
    REQUIRE(packets.size() == count);
    std::map<std::uint32_t, std::uint32_t> next;
    for (const Received& packet : packets) {
      const std::uint32_t p = number_of(packet.bytes) / 1000;
      REQUIRE(packet.bytes == numbered(p * 1000 + next[p]++, 50 + p));
      REQUIRE(packet.flow == (p < 9 ? p + 1 : 0));
      REQUIRE((p < 9 ? queue_of(p) : 0) == q);
      REQUIRE(connections.try_emplace(p, packet.connection).first->second == packet.connection);
    }
    const RxSnapshot counters = session->rx_queue(0, q).counters();
    CHECK(counters.received == count);
    CHECK(drops(counters) == 0);
  }
  for (std::uint32_t p = 0; p < 9; ++p) {
    CHECK(counts_of(*session, p) == std::pair<std::uint64_t, std::uint64_t>{EACH, EACH * (50 + p)});
    CHECK(session->connections().queue_of(connections[p]).second == queue_of(p));
  }
  REQUIRE(connections.size() == PEERS);
  // Each is answered by the one address.
  for (std::uint32_t p = 0; p < PEERS; ++p) {
    REQUIRE(send_packets(session->tx_queue(0, 0), {numbered(p, 30)}, connections[p]));
    const auto answer = peers[p].receive();
    REQUIRE(answer);
    CHECK((answer->first == numbered(p, 30)));
    CHECK(answer->second == port);
  }
  session->close();
  for (int q = 0; q < (several ? 3 : 1); ++q)
    CHECK(session->memory()->regions.at("region" + std::to_string(q))->available() == 4096);
}

TEST_CASE("Datagrams in the socket of another core are handed over", "[udp][cores]") {
  const std::string host = "127.0.0.1";
  const std::uint16_t port = free_port(host);
  const PlainSocket peer(host);
  NetworkConfig config = on_cores(host, port, 3);
  // By lengths, which the kernel does not know.
  add_flow(config, 1, 1).ipv4_len_ = 28 + 100;
  add_flow(config, 2, 2).ipv4_len_ = 28 + 3000;
  // Queue 1 has small buffers, queue 2 larger ones than the queue whose poller reads, in two parts.
  config.mrs_.at("region1").buf_size_ = 64;
  MemoryRegionConfig second = config.mrs_.at("region2");
  second.name_ = "second2";
  second.buf_size_ = 4096;
  config.mrs_.emplace(second.name_, second);
  auto& queue = config.ifs_[0].rx_.queues_[2].common_;
  queue.mrs_ = {"region2", "second2"};
  queue.split_boundary_ = 42;
  constexpr std::uint32_t EACH = 200;

  SECTION("in their order, to regions of other sizes") {
    const auto session = Session::open(config);
    for (std::uint32_t i = 0; i < EACH; ++i)
      for (const std::size_t length : {100U, 3000U, 500U})
        REQUIRE(peer.send(host, port, numbered(i, length)));
    const auto small = receive_packets(session->rx_queue(0, 1), EACH);
    const auto large = receive_packets(session->rx_queue(0, 2), EACH);
    const auto rest = receive_packets(session->rx_queue(0, 0), EACH);
    REQUIRE((small.size() == EACH && large.size() == EACH && rest.size() == EACH));
    for (std::uint32_t i = 0; i < EACH; ++i) {
      Bytes truncated = numbered(i, 100);
      truncated.resize(64);
      REQUIRE(small[i].bytes == truncated);
      REQUIRE(large[i].bytes == numbered(i, 3000));
      REQUIRE(rest[i].bytes == numbered(i, 500));
      REQUIRE((small[i].flow == 1 && large[i].flow == 2 && rest[i].flow == 0));
      REQUIRE(small[i].connection == rest[i].connection);
      REQUIRE(large[i].connection == rest[i].connection);
      REQUIRE((small[i].timestamp != 0 && small[i].timestamp <= large[i].timestamp));
    }
    CHECK(session->rx_queue(0, 1).counters().truncated == EACH);
    CHECK(session->rx_queue(0, 2).counters().truncated == 0);
    CHECK(counts_of(*session, 0) == std::pair<std::uint64_t, std::uint64_t>{EACH, EACH * 64});
    CHECK(counts_of(*session, 1) == std::pair<std::uint64_t, std::uint64_t>{EACH, EACH * 3000});
  }
  SECTION("if their queue has no buffers, they are lost there, and others are not") {
    config.mrs_.at("region1").num_bufs_ = 64;
    config.ifs_[0].rx_.queues_[1].common_.batch_size_ = 8;
    const auto session = Session::open(config);
    // The queue's poller has taken buffers for its own socket: a quarter.
    REQUIRE(peer.send(host, port, numbered(0, 100)));
    REQUIRE(receive_packets(session->rx_queue(0, 1), 1).size() == 1);
    REQUIRE(
        eventually([&] { return session->memory()->regions.at("region1")->available() == 48; }));
    for (std::uint32_t i = 0; i < EACH; ++i) {
      REQUIRE(peer.send(host, port, numbered(i, 100)));
      REQUIRE(peer.send(host, port, numbered(i, 500)));
    }
    REQUIRE(receive_packets(session->rx_queue(0, 0), EACH).size() == EACH);
    const RxSnapshot counters = counters_after(session->rx_queue(0, 1), EACH + 1);
    CHECK(counters.received == EACH + 1);
    CHECK(balanced(counters));
    CHECK(dropped(counters, DropReason::NO_PACKET_BUFFER) == EACH - 48);
    CHECK(counters.received_bytes == (EACH + 1) * 64);
    CHECK(counts_of(*session, 0) ==
          std::pair<std::uint64_t, std::uint64_t>{EACH + 1, (EACH + 1) * 64});
    CHECK(drops(session->rx_queue(0, 0).counters()) == 0);
  }
  SECTION("if the queue of the reading core has no buffers, others are not lost") {
    config.mrs_.at("region0").num_bufs_ = 64;
    config.ifs_[0].rx_.queues_[0].common_.batch_size_ = 8;
    const auto session = Session::open(config);
    RxQueue& full = session->rx_queue(0, 0);
    for (std::uint32_t i = 0; i < 100; ++i) REQUIRE(peer.send(host, port, numbered(i, 500)));
    REQUIRE(counters_after(full, 100).received == 100);
    REQUIRE(dropped(full.counters(), DropReason::NO_PACKET_BUFFER) == 100 - 64);
    // Also of a peer that is not known yet.
    const PlainSocket other(host);
    for (std::uint32_t i = 0; i < EACH; ++i) {
      REQUIRE(other.send(host, port, numbered(i, 3000)));
      REQUIRE(other.send(host, port, numbered(i, 500)));
      // A few at a time, because the socket's buffer is as small as the region.
      if (i % 10 == 9) REQUIRE(counters_after(session->rx_queue(0, 2), i + 1).received == i + 1);
    }
    const auto large = receive_packets(session->rx_queue(0, 2), EACH);
    REQUIRE(large.size() == EACH);
    for (std::uint32_t i = 0; i < EACH; ++i) REQUIRE(large[i].bytes == numbered(i, 3000));
    CHECK(drops(session->rx_queue(0, 2).counters()) == 0);
    CHECK(dropped(counters_after(full, 100 + EACH), DropReason::NO_PACKET_BUFFER) ==
          100 - 64 + EACH);
    // The queue's own buffers are used again.
    REQUIRE(receive_packets(full, 64).size() == 64);
    REQUIRE(eventually([&] { return session->memory()->regions.at("region0")->available() > 0; }));
    REQUIRE(other.send(host, port, numbered(1, 500)));
    const auto again = receive_packets(full, 1);
    REQUIRE(again.size() == 1);
    CHECK(again[0].bytes == numbered(1, 500));
  }
  SECTION("a flush discards those that the other core has not read, and no later ones") {
    const auto session = Session::open(config);
    RxQueue& rx = session->rx_queue(0, 1);
    std::uint64_t sent = 0;
    for (int round = 0; round < 20; ++round) {
      for (std::uint32_t i = 0; i < 100; ++i, ++sent)
        REQUIRE(peer.send(host, port, numbered(i, 100)));
      rx.request_flush();
      REQUIRE(peer.send(host, port, numbered(7777, 100)));
      ++sent;
      const auto packets = receive_packets(rx, 1);
      REQUIRE(packets.size() == 1);
      REQUIRE(number_of(packets[0].bytes) == 7777);
    }
    CHECK(rx.counters().received == sent);
    CHECK(dropped(rx.counters(), DropReason::FLUSHED) == sent - 20);
    CHECK(drops(session->rx_queue(0, 0).counters()) == 0);
  }
  SECTION("at the end, each is received or counted") {
    const auto session = Session::open(config);
    for (std::uint32_t i = 0; i < EACH; ++i) REQUIRE(peer.send(host, port, numbered(i, 100)));
    session->close();
    RxQueue& rx = session->rx_queue(0, 1);
    const RxSnapshot counters = rx.counters();
    CHECK(counters.received == EACH);
    CHECK(balanced(counters));
    CHECK(receive_packets(rx, counters.received - drops(counters)).size() ==
          counters.received - drops(counters));
    CHECK(session->memory()->regions.at("region1")->available() == 4096);
  }
}

TEST_CASE("A broadcast is received once by several cores", "[udp][cores]") {
  const std::uint16_t port = free_port("0.0.0.0");
  NetworkConfig config = on_cores("0.0.0.0", port, 3);
  const PlainSocket peer("127.0.0.1");
  const int on = 1;
  REQUIRE(setsockopt(peer.fd(), SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
  const std::uint16_t queue = GENERATE(0, 1);
  add_flow(config, 1, queue).udp_src_ = peer.port();
  const auto session = Session::open(config);
  for (std::uint32_t i = 0; i < 10; ++i) {
    REQUIRE(peer.send("127.255.255.255", port, numbered(i, 100)));
    REQUIRE(peer.send("127.0.0.1", port, numbered(1000 + i, 100)));
  }
  const auto packets = receive_packets(session->rx_queue(0, queue), 20);
  REQUIRE(packets.size() == 20);
  session->close();
  std::uint64_t received = 0;
  for (int q = 0; q < 3; ++q) received += session->rx_queue(0, q).counters().received;
  CHECK(received == 20);
}

TEST_CASE("Copies of broadcasts and multicasts stay out of all sockets but the first",
          "[udp][cores]") {
  in_own_network(
      {"ip link set lo up", "ip link add near type veth peer name far",
       "ip address add 10.9.0.2/24 dev near",
       "ip address add 10.8.0.2/24 broadcast 10.8.0.254 dev near", "ip link set far up",
       "ip link set near up", "ip route add 239.0.0.0/8 dev near"},
      [] {
        const std::uint16_t port = free_port("0.0.0.0");
        NetworkConfig config = on_cores("0.0.0.0", port, 2);
        const PlainSocket peer("10.9.0.2");
        const int on = 1;
        REQUIRE(setsockopt(peer.fd(), SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
        add_flow(config, 1, 1).udp_src_ = peer.port();
        const Unread sockets(config);
        const PlainSocket member("0.0.0.0");
        const ip_mreqn group{{inet_addr("239.1.1.1")}, {inet_addr("10.9.0.2")}, 0};
        REQUIRE(setsockopt(member.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0);
        const auto& first = sockets.all[0];
        const auto& further = sockets.all[1];
        const auto receive = [](const auto& socket) {
          char bytes[64];
          return recv(socket->fd(), bytes, sizeof bytes, MSG_DONTWAIT);
        };
        if (!first->counts_arrivals()) {
          WARN("arrivals are not counted here: left out");
          return;
        }
        for (const char* to : {"10.9.0.255", "10.8.0.254", "255.255.255.255", "239.1.1.1"}) {
          CAPTURE(to);
          for (std::uint32_t i = 0; i < 20; ++i) REQUIRE(peer.send(to, port, numbered(i, 40)));
          for (int i = 0; i < 20; ++i) {
            REQUIRE(eventually([&] { return readable(first->fd()); }));
            CHECK(receive(first) == 40);
          }
          CHECK_FALSE(readable(further->fd()));
        }
        REQUIRE(peer.send("10.9.0.2", port, numbered(1, 40)));
        CHECK(sockets.arrived() == 1);
        CHECK(further->arrived() == 1);
        CHECK(further->kernel_drops(1) == 0);
        CHECK(first->arrived() == 80);
      });
}

// Effects of a full send buffer, and of an unread error, on other sockets.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "engines/socket/endpoint.h"
#include "engines/socket/tcp_endpoint.h"
#include "engines/socket/udp_queues.h"
#include "socket/own_network.h"
#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::sockets;
using namespace daqiri::test;

namespace {

/// A link to 10.77.0.2 that takes a packet about every ten seconds, and holds more packets than
/// sockets do.
const std::initializer_list<std::string> SLOW_LINK{
    "ip link set lo up",
    "ip link add slow type veth peer name far",
    "ip addr add 10.77.0.1/24 dev slow",
    "ip link set far address 02:00:00:00:00:02 up",
    "ip link set slow up",
    "ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev slow",
    "tc qdisc add dev slow root tbf rate 1kbit burst 1540 limit 100000000"};

Burst* filled(TxQueue& tx, std::uint32_t count, std::uint32_t length) {
  Burst* burst = nullptr;
  if (tx.allocate(count, &burst) != Status::SUCCESS) return nullptr;
  for (std::uint32_t i = 0; i < count; ++i) burst->pkt_lens[0][i] = length;
  return burst;
}

long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

TEST_CASE("A full socket is not waited for; a descriptor tells when it takes more", "[udp][tx]") {
  in_own_network(SLOW_LINK, [] {
    const NetworkConfig config = udp_client("10.77.0.2", 5000);
    const auto session = Session::open(config);
    const UdpSocket socket(config.ifs_[0], Sharing::ALONE);
    const int small = 20'000;
    REQUIRE(setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    UdpPeers peers(socket.local(), 1);
    const std::uintptr_t connection = peers.enter(socket.remote().key()).connection;
    UdpSender sender(socket, peers, 0, connection, nullptr, true);
    Burst* burst = filled(session->tx_queue(0, 0), 64, 1400);
    REQUIRE(burst != nullptr);
    std::uint32_t sent = 0;
    for (int i = 0; i < 1000 && !readable(sender.ready().fd()); ++i) {
      const TransmitResult result = sender.send(*burst, 0, 64);
      REQUIRE(result.failed == 0);
      sent += result.sent;
      if (result.sent == 0) break;
    }
    REQUIRE(sent > 0);
    REQUIRE(!readable(sender.ready().fd()));
    const long before = sleeps();
    for (int i = 0; i < 200; ++i) REQUIRE(sender.send(*burst, 0, 64).sent == 0);
    REQUIRE(sleeps() - before < 100);
    // Make the link fast.
    REQUIRE(std::system("tc qdisc del dev slow root") == 0);
    REQUIRE(readable(sender.ready().fd(), 10'000));
    REQUIRE(sender.send(*burst, 0, 64).sent > 0);
    burst->release();
  });
}

TEST_CASE("Packets of a queue go on while another of its core has a full socket", "[udp][tx]") {
  in_own_network(SLOW_LINK, [] {
    const PlainSocket peer("127.0.0.1");
    NetworkConfig config = udp_client("10.77.0.2", 5000);
    config.ifs_[0].rx_.queues_.clear();
    config.ifs_.push_back(config.ifs_[0]);
    config.ifs_[1].name_ = "udp1";
    config.ifs_[1].address_ = "127.0.0.1";
    config.ifs_[1].socket_ = udp_client("127.0.0.1", peer.port()).ifs_[0].socket_;
    const auto session = Session::open(config);
    TxQueue& slow = session->tx_queue(0, 0);
    TxQueue& other = session->tx_queue(1, 0);
    // More than the socket and the link hold.
    for (int i = 0; i < 20; ++i) {
      Burst* burst = filled(slow, 64, 1400);
      REQUIRE(burst != nullptr);
      REQUIRE(slow.send(burst) == Status::SUCCESS);
    }
    std::vector<Bytes> packets;
    for (std::uint32_t i = 0; i < 64; ++i) packets.push_back(numbered(i, 100));
    for (int round = 0; round < 10; ++round) {
      REQUIRE(send_packets(other, packets));
      for (const Bytes& packet : packets) {
        const auto datagram = peer.receive();
        REQUIRE(datagram);
        REQUIRE((datagram->first == packet));
      }
    }
    REQUIRE(other.counters().sent == 640);
    REQUIRE(slow.counters().held > 0);
    REQUIRE(balanced(slow.counters()));
    // Packets in the full socket are not lost either.
    REQUIRE(std::system("tc qdisc del dev slow root") == 0);
    REQUIRE(slow.wait_idle(10'000'000'000));
    REQUIRE(slow.counters().sent == 20 * 64);
  });
}

TEST_CASE("An error that nobody has read is one event, not one after the other", "[udp][rx]") {
  const PlainSocket peer("127.0.0.1");
  const std::uint16_t nobody = free_port("127.0.0.1");
  const int on = 1;
  REQUIRE(setsockopt(peer.fd(), IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
  SocketEvents events("test");
  REQUIRE(events.watch(peer.fd(), EPOLLIN | EPOLLET) == 0);
  std::array<epoll_event, 2> taken{};
  events.take(taken);
  // The error waits in the error queue of the socket.
  REQUIRE(peer.send("127.0.0.1", nobody, numbered(0, 10)));
  REQUIRE(readable(events.fd(), 5000));
  REQUIRE(events.take(taken) == 1);
  REQUIRE((taken[0].events & EPOLLERR) != 0);
  pollfd error{peer.fd(), POLLIN, 0};
  REQUIRE(poll(&error, 1, 0) == 1);
  REQUIRE(!readable(events.fd()));
  // A datagram is a new event.
  REQUIRE(PlainSocket("127.0.0.1").send("127.0.0.1", peer.port(), numbered(1, 10)));
  REQUIRE(readable(events.fd(), 5000));
}

TEST_CASE("A wake-up comes from any thread, at once or later", "[udp]") {
  SocketEvents events("test");
  std::array<epoll_event, 2> taken{};
  REQUIRE(!readable(events.fd()));
  for (const std::uint64_t after : {std::uint64_t{1}, std::uint64_t{20'000'000}}) {
    events.wake(after);
    REQUIRE(readable(events.fd(), 5000));
    REQUIRE(events.take(taken) == 1);
    void* const pointer = taken[0].data.ptr;  // a packed struct's, to which nothing can refer
    REQUIRE(pointer == nullptr);
    REQUIRE(!readable(events.fd()));
  }
}

TEST_CASE("An endpoint tells the headers of a packet on the wire", "[udp][tcp]") {
  const auto port_of = [](NetworkConfig config) {
    REQUIRE(validate_config(config).ok());
    auto port = std::make_unique<Port>();
    port->config = config.ifs_[0];
    port->config.rx_.queues_.clear();
    port->config.tx_.queues_.clear();
    return port;
  };
  const auto udp4 = port_of(udp_client("127.0.0.1", 9));
  REQUIRE(make_udp_endpoint(*udp4)->packet_overhead() == 14 + 20 + 8);
  const auto udp6 = port_of(udp_server("::1", free_port("::1")));
  REQUIRE(make_udp_endpoint(*udp6)->packet_overhead() == 14 + 40 + 8);
  const auto tcp4 = port_of(tcp_server("127.0.0.1", free_port("127.0.0.1")));
  REQUIRE(TcpEndpoint(*tcp4).packet_overhead() == 14 + 20 + 20);
  const auto tcp6 = port_of(tcp_server("::1", free_port("::1")));
  REQUIRE(TcpEndpoint(*tcp6).packet_overhead() == 14 + 40 + 20);
}

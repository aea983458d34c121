#include <netinet/udp.h>

#include <catch2/catch.hpp>
#include <random>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

std::vector<Bytes> numbered_packets(std::uint32_t first, std::uint32_t count, std::size_t size) {
  std::vector<Bytes> packets;
  for (std::uint32_t i = 0; i < count; ++i) packets.push_back(numbered(first + i, size));
  return packets;
}

}  // namespace

TEST_CASE("A client sends packets byte for byte, in order", "[udp][tx]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const PlainSocket peer(host);
  const auto session = Session::open(udp_client(host, peer.port()));
  TxQueue& tx = session->tx_queue(0, 0);
  std::vector<Bytes> packets;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < 80; ++i) {
    packets.push_back(numbered(i, i * 18));
    bytes += packets.back().size();
  }
  REQUIRE(send_packets(tx, packets));
  for (const Bytes& expected : packets) {
    const auto datagram = peer.receive();
    REQUIRE(datagram);
    REQUIRE((datagram->first == expected));
  }
  const TxSnapshot counters = tx.counters();
  REQUIRE(counters.sent == 80);
  REQUIRE(counters.sent_bytes == bytes);
  REQUIRE(balanced(counters));
}

TEST_CASE("Segments of a packet leave as one datagram", "[udp][tx]") {
  const PlainSocket peer("127.0.0.1");
  auto config = udp_client("127.0.0.1", peer.port());
  MemoryRegionConfig headers = config.mrs_.at("tx_data");
  headers.name_ = "tx_headers";
  headers.buf_size_ = 64;
  config.mrs_.emplace(headers.name_, headers);
  config.ifs_[0].tx_.queues_[0].common_.mrs_ = {"tx_headers", "tx_data"};
  const auto session = Session::open(config);
  const std::vector<Bytes> packets{numbered(1, 10), numbered(2, 64), numbered(3, 1500)};
  REQUIRE(send_packets(session->tx_queue(0, 0), packets));
  for (const Bytes& expected : packets) {
    const auto datagram = peer.receive();
    REQUIRE(datagram);
    REQUIRE((datagram->first == expected));
  }
}

TEST_CASE("Runs of equal packets leave as segments of one message", "[udp][tx]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const PlainSocket peer(host);
  const int on = 1;
  REQUIRE(setsockopt(peer.fd(), SOL_UDP, UDP_GRO, &on, sizeof on) == 0);
  auto config = udp_client(host, peer.port());
  // Also with a limit equal to the length of the packets.
  config.ifs_[0].socket_.max_payload_size_ = GENERATE(0U, 1000U);
  const auto session = Session::open(config);
  std::vector<Bytes> packets = numbered_packets(0, 40, 1000);
  packets.push_back(numbered(40, 7));
  REQUIRE(send_packets(session->tx_queue(0, 0), packets));
  // The peer supports merged segments and receives them as one message.
  const auto message = peer.receive();
  REQUIRE(message);
  Bytes expected;
  for (const Bytes& packet : packets) expected.insert(expected.end(), packet.begin(), packet.end());
  REQUIRE((message->first == expected));
  REQUIRE(session->tx_queue(0, 0).counters().sent == 41);
  REQUIRE(session->tx_queue(0, 0).counters().sent_bytes == expected.size());
}

TEST_CASE("Runs of any lengths arrive as the datagrams they were", "[udp][tx]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const auto seed = GENERATE(1U, 2U, 3U, 4U);
  std::mt19937 random(seed);
  const PlainSocket peer(host);
  const auto session = Session::open(udp_client(host, peer.port(), {.buf_size = 40'000}));
  std::vector<Bytes> packets;
  while (packets.size() < 600) {
    constexpr std::size_t LENGTHS[]{0, 1, 100, 1000, 1472, 9000, 33'000};
    const std::size_t length = LENGTHS[random() % std::size(LENGTHS)];
    const std::uint32_t count = 1 + random() % (length > 2000 ? 4 : 80);
    for (std::uint32_t i = 0; i < count; ++i)
      packets.push_back(numbered(static_cast<std::uint32_t>(packets.size()), length));
    const std::size_t last = random() % (length + 1);
    packets.push_back(numbered(static_cast<std::uint32_t>(packets.size()), last));
  }
  // In portions that fit the buffer of the peer.
  for (std::size_t i = 0; i < packets.size();) {
    std::vector<Bytes> portion;
    for (std::size_t bytes = 0; i < packets.size() && portion.size() < 60; ++i) {
      bytes += packets[i].size();
      if (!portion.empty() && bytes > 60'000) break;
      portion.push_back(packets[i]);
    }
    REQUIRE(send_packets(session->tx_queue(0, 0), portion));
    for (const Bytes& expected : portion) {
      const auto datagram = peer.receive();
      REQUIRE(datagram);
      REQUIRE((datagram->first == expected));
    }
  }
  REQUIRE(session->tx_queue(0, 0).counters().sent == packets.size());
}

TEST_CASE("Where segments are refused, datagrams go singly", "[udp][tx]") {
  const PlainSocket peer("127.0.0.1");
  const auto session = Session::open(udp_client("127.0.0.1", peer.port()));
  // The kernel then does not compute checksums for segments, and returns an error.
  const int on = 1;
  session->connections().set_socket_option(
      session->connections().connect("127.0.0.1", peer.port(), ""), SOL_SOCKET, SO_NO_CHECK, &on,
      sizeof on);
  for (int round = 0; round < 2; ++round) {
    REQUIRE(send_packets(session->tx_queue(0, 0), numbered_packets(0, 30, 1000)));
    for (std::uint32_t i = 0; i < 30; ++i) REQUIRE(peer.receive()->first == numbered(i, 1000));
  }
  REQUIRE(session->tx_queue(0, 0).counters().sent == 60);
  REQUIRE(session->tx_queue(0, 0).counters().dropped_total() == 0);
}

TEST_CASE("A server answers the peer that a burst names", "[udp][tx][peers]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  const auto session = Session::open(udp_server(host, port));
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);

  SECTION("nobody heard yet: a send error, counted") {
    REQUIRE(send_packets(tx, numbered_packets(0, 3, 10)));
    REQUIRE(dropped(tx.counters(), DropReason::SEND_ERROR) == 3);
    REQUIRE(balanced(tx.counters()));
  }
  SECTION("by connection, or to the one heard last") {
    const PlainSocket peers[2]{PlainSocket(host), PlainSocket(host)};
    std::uintptr_t connections[2]{};
    for (std::uint32_t p = 0; p < 2; ++p) {
      REQUIRE(peers[p].send(host, port, numbered(p, 20)));
      const auto packets = receive_packets(rx, 1);
      REQUIRE(packets.size() == 1);
      connections[p] = packets[0].connection;
    }
    REQUIRE(send_packets(tx, numbered_packets(100, 5, 30), connections[0]));
    REQUIRE(send_packets(tx, numbered_packets(200, 5, 30), connections[1]));
    REQUIRE(send_packets(tx, numbered_packets(300, 1, 30)));
    REQUIRE(send_packets(tx, numbered_packets(301, 1, 30),
                         session->connections().server_at(host, port)));
    for (std::uint32_t p = 0; p < 2; ++p) {
      for (std::uint32_t i = 0; i < 5; ++i) {
        const auto datagram = peers[p].receive();
        REQUIRE(datagram);
        REQUIRE(datagram->first == numbered(100 * (p + 1) + i, 30));
        REQUIRE(datagram->second == port);
      }
    }
    for (std::uint32_t i = 300; i < 302; ++i) {
      const auto datagram = peers[1].receive();
      REQUIRE(datagram);
      REQUIRE(datagram->first == numbered(i, 30));
    }
    REQUIRE_FALSE(peers[0].receive(1));
    REQUIRE(tx.counters().sent == 12);
  }
  SECTION("a peer that has not sent anything, after connect") {
    const PlainSocket peer(host);
    const std::uintptr_t connection = session->connections().connect(host, peer.port(), "");
    REQUIRE(rx.receive_from(connection) == nullptr);
    REQUIRE(send_packets(tx, numbered_packets(7, 1, 12), connection));
    const auto datagram = peer.receive();
    REQUIRE(datagram);
    REQUIRE(peer.send(host, datagram->second, numbered(8, 12)));
    const auto answers = receive_packets(rx, 1);
    REQUIRE(answers.size() == 1);
    REQUIRE(answers[0].connection == connection);
    REQUIRE(session->connections().connect(host, peer.port(), "") == connection);
  }
  SECTION("an unknown connection: a send error, counted") {
    REQUIRE(send_packets(tx, numbered_packets(0, 3, 10), 0xFFFFFF));
    REQUIRE(dropped(tx.counters(), DropReason::SEND_ERROR) == 3);
  }
}

TEST_CASE("Packets beyond the payload limit fail alone", "[udp][tx]") {
  const PlainSocket peer("127.0.0.1");
  SECTION("max_payload_size") {
    auto config = udp_client("127.0.0.1", peer.port());
    config.ifs_[0].socket_.max_payload_size_ = 100;
    const auto session = Session::open(config);
    TxQueue& tx = session->tx_queue(0, 0);
    REQUIRE(send_packets(tx, {numbered(0, 101), numbered(1, 200), numbered(2, 100),
                              numbered(3, 101), numbered(4, 50)}));
    REQUIRE(peer.receive()->first == numbered(2, 100));
    REQUIRE(peer.receive()->first == numbered(4, 50));
    REQUIRE(tx.counters().sent == 2);
    REQUIRE(dropped(tx.counters(), DropReason::SEND_ERROR) == 3);
    REQUIRE(balanced(tx.counters()));
  }
  SECTION("the protocol's own") {
    const auto session =
        Session::open(udp_client("127.0.0.1", peer.port(), {.num_bufs = 64, .buf_size = 66'000}));
    TxQueue& tx = session->tx_queue(0, 0);
    REQUIRE(send_packets(tx, {numbered(0, 65'508), numbered(1, 65'507)}));
    REQUIRE(peer.receive()->first == numbered(1, 65'507));
    REQUIRE(tx.counters().sent == 1);
    REQUIRE(dropped(tx.counters(), DropReason::SEND_ERROR) == 1);
  }
}

TEST_CASE("A client outlives its peer and finds it again", "[udp][tx]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  std::optional<PlainSocket> peer(std::in_place, host);
  const std::uint16_t port = peer->port();
  auto config = udp_client(host, port);
  config.ifs_[0].socket_.local_addr_ = udp_at(host, free_port(host));
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_packets(tx, numbered_packets(0, 10, 40)));
  for (std::uint32_t i = 0; i < 10; ++i) REQUIRE(peer->receive()->first == numbered(i, 40));

  peer.reset();
  REQUIRE(send_packets(tx, numbered_packets(100, 200, 40)));
  TxSnapshot counters = tx.counters();
  REQUIRE(counters.submitted == 210);
  REQUIRE(counters.held == 0);
  REQUIRE(balanced(counters));

  peer.emplace(host, port);
  // An error of the last datagram may still be pending; it must not cause a drop.
  const std::uint64_t failed = counters.dropped_total();
  REQUIRE(send_packets(tx, numbered_packets(1000, 10, 40)));
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto datagram = peer->receive();
    REQUIRE(datagram);
    REQUIRE(datagram->first == numbered(1000 + i, 40));
    REQUIRE(peer->send(host, datagram->second, datagram->first));
  }
  REQUIRE(tx.counters().dropped_total() == failed);
  const auto echoes = receive_packets(session->rx_queue(0, 0), 10);
  REQUIRE(echoes.size() == 10);
  REQUIRE(echoes[9].bytes == numbered(1009, 40));
}

TEST_CASE("A client and a server of one session talk to each other", "[udp][tx]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  auto config = udp_server(host, port);
  InterfaceConfig client = udp_client(host, port).ifs_[0];
  client.name_ = "udp1";
  for (auto& queue : client.rx_.queues_) queue.common_.name_ = "rx1";
  for (auto& queue : client.tx_.queues_) queue.common_.name_ = "tx1";
  client.rx_.queues_[0].common_.mrs_ = config.ifs_[0].rx_.queues_[0].common_.mrs_;
  config.ifs_.push_back(client);
  const auto session = Session::open(config);
  REQUIRE(send_packets(session->tx_queue(1, 0), numbered_packets(0, 100, 500)));
  const auto requests = receive_packets(session->rx_queue(0, 0), 100);
  REQUIRE(requests.size() == 100);
  REQUIRE(send_packets(session->tx_queue(0, 0), numbered_packets(500, 100, 300),
                       requests[0].connection));
  const auto answers = receive_packets(session->rx_queue(1, 0), 100);
  REQUIRE(answers.size() == 100);
  for (std::uint32_t i = 0; i < 100; ++i) {
    REQUIRE(requests[i].bytes == numbered(i, 500));
    REQUIRE(answers[i].bytes == numbered(500 + i, 300));
  }
  REQUIRE(session->connections().queue_of(answers[0].connection).first == 1);
  session->close();
  REQUIRE(session->memory()->regions.at("rx_data")->available() == 4096);
}

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <thread>

#include "burst/burst.h"
#include "engines/socket/peer_table.h"
#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;
using sockets::Peer;
using sockets::PeerTable;

namespace {

constexpr std::uint32_t MOST = RxQueue::MAX_CHANNELS - 1;

/// Peer `i` of some thousands: its own address of this host, and the port that all of them use.
std::string host_of(std::uint32_t i) {
  return "127.7." + std::to_string(1 + i / 250) + "." + std::to_string(1 + i % 250);
}

struct Senders {
  std::uint16_t source;
  std::uint16_t port;
  void send(std::uint32_t i, std::uint32_t number) const {
    REQUIRE(PlainSocket(host_of(i), source).send("127.0.0.1", port, numbered(number, 20)));
  }
};

Senders senders_to(std::uint16_t port) { return {free_port("0.0.0.0"), port}; }

NetworkConfig crowded(std::uint16_t port, const UdpOptions& options) {
  auto config = udp_server("0.0.0.0", port, options);
  config.rx_meta_buffers_ = 4096;
  return config;
}

/// The source address that a capture of the burst would have.
std::string recorded_source(const LinkLayer& link, const Burst& burst) {
  std::byte prefix[MAX_LINK_PREFIX];
  link.prefix(burst, 0, prefix);
  char text[INET_ADDRSTRLEN]{};
  inet_ntop(AF_INET, prefix + 12, text, sizeof text);
  return text;
}

Burst* next_burst(RxQueue& rx) {
  for (int i = 0; i < 200; ++i) {
    Burst* burst = rx.receive();
    if (burst != nullptr) return burst;
    rx.wait(10'000'000);
  }
  return nullptr;
}

AddressKey key_of(std::uint32_t i) { return SocketAddress::parse(host_of(i), 4000).key(); }

}  // namespace

TEST_CASE("The peer heard least recently makes room in the table", "[udp][peers]") {
  PeerTable table(8, 1);
  std::map<std::uint32_t, std::uintptr_t> ids;
  for (std::uint32_t i = 0; i < 8; ++i) ids[i] = table.enter(key_of(i), key_of(100), i).connection;
  REQUIRE(table.evictions() == 0);
  table.heard(table.find(key_of(0)).number, 8);
  const Peer late = table.enter(key_of(8), key_of(100), 9);
  REQUIRE(table.evictions() == 1);
  REQUIRE_FALSE(table.find(key_of(1)).known());
  REQUIRE_FALSE(table.find(ids[1]).known());
  REQUIRE(table.find(late.connection).address == key_of(8));
  REQUIRE(table.find(key_of(0)).connection == ids[0]);
  const Peer again = table.enter(key_of(1), key_of(100), 10);
  REQUIRE(again.connection != ids[1]);
  REQUIRE_FALSE(table.find(key_of(2)).known());
  REQUIRE(table.enter(key_of(1), key_of(100), 11).connection == again.connection);
  REQUIRE(table.all().size() == 8);
  REQUIRE_FALSE(table.find(std::uintptr_t{0}).known());
}

TEST_CASE("Peers are found while others come and go", "[udp][peers]") {
  PeerTable table(64, 1);
  std::vector<AddressKey> keys;
  for (std::uint32_t i = 0; i < 1000; ++i) keys.push_back(key_of(i));
  // Eight that are heard all the time.
  std::uint64_t ns = 1;
  std::vector<Peer> lasting;
  for (std::uint32_t i = 0; i < 8; ++i) lasting.push_back(table.enter(keys[i], keys[0], ns));
  std::atomic<bool> wrong{false};
  std::jthread reading([&](const std::stop_token& stop) {
    for (std::uint32_t i = 0; !stop.stop_requested(); ++i) {
      const Peer& peer = lasting[i % 8];
      if (table.find(peer.connection).address != peer.address) wrong = true;
      if (table.find(peer.address).connection != peer.connection) wrong = true;
      const Peer any = table.find(keys[8 + i % 992]);
      if (any.known() && any.address != keys[8 + i % 992]) wrong = true;
    }
  });
  std::set<std::uintptr_t> ids;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    for (const Peer& peer : lasting) table.heard(peer.number, ns + 1);
    ids.insert(table.enter(keys[8 + i % 992], keys[0], ns).connection);
    ns += 2;
  }
  reading.request_stop();
  reading.join();
  REQUIRE_FALSE(wrong);
  REQUIRE(ids.size() == 20'000);
  REQUIRE(table.all().size() == 64);
}

TEST_CASE("More peers than connections lose nothing, read or not", "[udp][peers][eviction]") {
  const std::uint16_t port = free_port("0.0.0.0");
  const auto session = Session::open(crowded(port, {.batch = 1}));
  RxQueue& rx = session->rx_queue(0, 0);
  const auto link = session->engine().link_layer(0);
  const Senders senders = senders_to(port);
  constexpr std::uint32_t COUNT = 1500;
  for (std::uint32_t i = 0; i < COUNT; ++i) {
    senders.send(i, i);
    // Half of the time nobody reads: what the first ones sent waits while they make room.
    if (i % 100 == 99) REQUIRE(settled(rx, i + 1).received == i + 1);
  }
  REQUIRE(settled(rx, COUNT).held == COUNT);
  REQUIRE(session->engine().connections(0).size() == MOST + 1);
  std::set<std::uintptr_t> connections;
  std::set<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < COUNT; ++i) {
    Burst* burst = next_burst(rx);
    REQUIRE(burst != nullptr);
    REQUIRE(burst->num_packets() == 1);
    const std::uint32_t number = number_of(bytes_of(*burst, 0));
    numbers.insert(number);
    connections.insert(burst->connection_id);
    REQUIRE(recorded_source(*link, *burst) == host_of(number));
    burst->release();
  }
  REQUIRE(numbers.size() == COUNT);
  REQUIRE(connections.size() == COUNT);
  REQUIRE(connections.count(0) == 0);
  const RxSnapshot end = rx.counters();
  REQUIRE(end.received == COUNT);
  REQUIRE(end.delivered == COUNT);
  REQUIRE(end.dropped_total() == 0);
  REQUIRE(balanced(end));
}

TEST_CASE("Open bursts of a peer that makes room are delivered", "[udp][peers][eviction]") {
  const std::uint16_t port = free_port("0.0.0.0");
  // Only full bursts are handed over.
  const auto session = Session::open(crowded(port, {.batch = 64, .timeout_us = 0}));
  RxQueue& rx = session->rx_queue(0, 0);
  const Senders senders = senders_to(port);
  constexpr std::uint32_t MORE = 50;
  for (std::uint32_t i = 0; i < MOST; ++i) {
    senders.send(i, i);
    senders.send(i, 10'000 + i);
  }
  REQUIRE(settled(rx, 2 * MOST).received == 2 * MOST);
  REQUIRE(rx.receive() == nullptr);
  for (std::uint32_t i = MOST; i < MOST + MORE; ++i) senders.send(i, i);
  const auto packets = receive_packets(rx, std::size_t{2} * MORE);
  REQUIRE(packets.size() == std::size_t{2} * MORE);
  for (std::uint32_t i = 0; i < MORE; ++i) {
    REQUIRE(packets[2 * i].bytes == numbered(i, 20));
    REQUIRE(packets[2 * i + 1].bytes == numbered(10'000 + i, 20));
    REQUIRE(packets[2 * i].connection == packets[2 * i + 1].connection);
  }
  const RxSnapshot now = settled(rx, 2 * MOST + MORE);
  REQUIRE(now.received == 2 * MOST + MORE);
  REQUIRE(now.delivered == 2 * MORE);
  REQUIRE(now.dropped_total() == 0);
  REQUIRE(balanced(now));
  session->close();
  REQUIRE(receive_packets(rx, 2 * MOST - MORE).size() == 2 * MOST - MORE);
  REQUIRE(rx.counters().held == 0);
}

TEST_CASE("A peer that made room comes back under another id", "[udp][peers][eviction]") {
  const std::uint16_t port = free_port("0.0.0.0");
  const auto session = Session::open(crowded(port, {.batch = 1}));
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);
  IoEngine& engine = session->engine();
  const Senders senders = senders_to(port);
  std::map<std::uint32_t, std::uintptr_t> ids;
  const auto hear = [&](std::uint32_t i) {
    senders.send(i, i);
    const auto packets = receive_packets(rx, 1);
    REQUIRE(packets.size() == 1);
    REQUIRE(packets[0].bytes == numbered(i, 20));
    ids[i] = packets[0].connection;
  };
  for (std::uint32_t i = 0; i < MOST; ++i) hear(i);
  const auto first = ids;
  hear(0);
  REQUIRE(ids[0] == first.at(0));
  hear(MOST);
  // Peer 1 was the one heard least recently.
  const std::uintptr_t retired = ids[1];
  REQUIRE(error_of([&] { engine.connection_queue(retired); }).first == Status::INVALID_PARAMETER);
  const auto [status, text] = error_of([&] { rx.receive_from(retired); });
  REQUIRE(status == Status::INVALID_PARAMETER);
  REQUIRE_THAT(text, Catch::Contains("1023 others"));
  REQUIRE(send_packets(tx, {numbered(1, 10)}, retired));
  REQUIRE(dropped(tx.counters(), DropReason::SEND_ERROR) == 1);
  hear(1);
  REQUIRE(ids[1] != retired);
  hear(0);
  REQUIRE(ids[0] == first.at(0));
  // The ring that peer 2 had, which made room for peer 1, is peer 1's alone.
  senders.send(1, 77);
  senders.send(2, 78);
  REQUIRE(settled(rx, MOST + 6).held == 2);
  Burst* burst = rx.receive_from(ids[1]);
  REQUIRE(burst != nullptr);
  REQUIRE(bytes_of(*burst, 0) == numbered(77, 20));
  burst->release();
  REQUIRE(rx.receive_from(ids[1]) == nullptr);
  REQUIRE(receive_packets(rx, 1).size() == 1);

  SECTION("and one that the application names makes room too") {
    const PlainSocket peer("127.0.0.1");
    const std::uintptr_t connection = engine.connect("127.0.0.1", peer.port(), "");
    REQUIRE(rx.receive_from(connection) == nullptr);
    REQUIRE(engine.connections(0).size() == MOST + 1);
    REQUIRE(send_packets(tx, {numbered(5, 12)}, connection));
    REQUIRE(peer.receive());
    REQUIRE(peer.send("127.0.0.1", port, numbered(6, 12)));
    const auto packets = receive_packets(rx, 1);
    REQUIRE(packets.size() == 1);
    REQUIRE(packets[0].connection == connection);
  }
  REQUIRE(balanced(rx.counters()));
}

TEST_CASE("Peers come and go on queues of different cores", "[udp][peers][eviction]") {
  const std::uint16_t port = free_port("0.0.0.0");
  NetworkConfig config = crowded(port, {.batch = 2, .timeout_us = 0, .num_bufs = 16384});
  auto& queues = config.ifs_[0].rx_.queues_;
  queues.push_back(queues[0]);
  queues[0].cpu_core_ = "0";
  queues[1].name_ = "rx1";
  queues[1].id_ = 1;
  const auto session = Session::open(config);
  const Senders senders = senders_to(port);
  constexpr std::uint32_t PEERS = 1300;
  constexpr std::uint32_t ROUNDS = 2;
  std::jthread connecting([&](const std::stop_token& stop) {
    for (std::uint32_t i = 0; !stop.stop_requested(); ++i) {
      session->engine().connect("127.8.0.1", static_cast<std::uint16_t>(1 + i % 50'000), "");
      session->engine().connections(0);
      usleep(2000);
    }
  });
  std::set<std::uint32_t> numbers;
  std::atomic<std::uint32_t> seen{0};
  bool wrong = false;
  std::jthread reading([&] {
    const std::uint64_t limit = monotonic_ns() + 20'000'000'000ULL;
    for (std::uint16_t q = 0; seen < PEERS * ROUNDS && monotonic_ns() < limit; q ^= 1U) {
      RxQueue& rx = session->rx_queue(0, q);
      Burst* burst = rx.receive();
      if (burst == nullptr) {
        if (rx.closed() && session->rx_queue(0, q ^ 1U).counters().held == 0 &&
            rx.counters().held == 0)
          break;
        usleep(100);
        continue;
      }
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
        const std::uint32_t number = number_of(bytes_of(*burst, i));
        if (recorded_source(*session->engine().link_layer(0), *burst) != host_of(number % 10'000))
          wrong = true;
        if (!numbers.insert(number).second) wrong = true;
        ++seen;
      }
      burst->release();
    }
  });
  for (std::uint32_t round = 0; round < ROUNDS; ++round) {
    for (std::uint32_t i = 0; i < PEERS; ++i) senders.send(i, round * 10'000 + i);
  }
  const auto received = [&] {
    return session->rx_queue(0, 0).counters().received +
           session->rx_queue(0, 1).counters().received;
  };
  for (int i = 0; i < 30'000 && received() < PEERS * ROUNDS; ++i) usleep(1000);
  REQUIRE(received() == PEERS * ROUNDS);
  connecting.request_stop();
  connecting.join();
  session->close();
  reading.join();
  REQUIRE(seen == PEERS * ROUNDS);
  REQUIRE_FALSE(wrong);
  for (std::uint16_t q = 0; q < 2; ++q) REQUIRE(balanced(session->rx_queue(0, q).counters()));
}

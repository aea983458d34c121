#include <catch2/catch.hpp>

#include <netinet/udp.h>

#include <set>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("A server receives datagrams byte for byte, in order, stamped by the kernel", "[udp]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  const auto session = Session::open(udp_server(host, port));
  const PlainSocket peer(host);
  const std::uint64_t before = realtime_ns();
  constexpr std::uint32_t COUNT = 500;
  for (std::uint32_t i = 0; i < COUNT; ++i) REQUIRE(peer.send(host, port, numbered(i, i % 1400)));
  const auto packets = receive_packets(session->rx_queue(0, 0), COUNT);
  const std::uint64_t after = realtime_ns();
  REQUIRE(packets.size() == COUNT);
  std::uint64_t last = before;
  for (std::uint32_t i = 0; i < COUNT; ++i) {
    REQUIRE(packets[i].bytes == numbered(i, i % 1400));
    REQUIRE(packets[i].timestamp >= last);
    REQUIRE(packets[i].timestamp <= after);
    REQUIRE(packets[i].connection == packets[0].connection);
    last = packets[i].timestamp;
  }
  REQUIRE(packets[0].connection > 0);
  const RxSnapshot counters = session->rx_queue(0, 0).counters();
  REQUIRE(counters.received == COUNT);
  REQUIRE(counters.delivered == COUNT);
  REQUIRE(counters.dropped_total() == 0);
  REQUIRE(counters.truncated == 0);
}

TEST_CASE("Two interleaved peers have a connection each, and can be read apart", "[udp][peers]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  const auto session = Session::open(udp_server(host, port));
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peers[2]{PlainSocket(host), PlainSocket(host)};
  constexpr std::uint32_t COUNT = 300;
  for (std::uint32_t i = 0; i < COUNT; ++i)
    REQUIRE(peers[i % 2].send(host, port, numbered(i, 100)));
  REQUIRE(counters_after(rx, COUNT).received == COUNT);

  const std::uintptr_t first = session->connections().connect(host, peers[0].port(), "");
  const std::uintptr_t second = session->connections().connect(host, peers[1].port(), host);
  REQUIRE(first != second);
  for (const auto& [connection, parity] : {std::pair{first, 0U}, std::pair{second, 1U}}) {
    REQUIRE(session->connections().queue_of(connection) ==
            std::pair<std::uint16_t, std::uint16_t>(0, 0));
    std::uint32_t expected = parity;
    const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
    while (expected < COUNT && monotonic_ns() < end) {
      Burst* burst = rx.receive_from(connection);
      if (burst == nullptr) continue;
      REQUIRE(burst->connection_id == connection);
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i, expected += 2) {
        REQUIRE(bytes_of(*burst, i) == numbered(expected, 100));
      }
      burst->release();
    }
    REQUIRE(expected == COUNT + parity);
  }
}

TEST_CASE("Connection ids are unique over sessions of the process", "[udp][peers]") {
  std::set<std::uintptr_t> ids;
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) {
    const std::uint16_t port = free_port("127.0.0.1");
    sessions.push_back(Session::open(udp_server("127.0.0.1", port)));
    ids.insert(sessions.back()->connections().server_at("127.0.0.1", port));
    const PlainSocket peer("127.0.0.1");
    peer.send("127.0.0.1", port, numbered(1, 10));
    const auto packets = receive_packets(sessions.back()->rx_queue(0, 0), 1);
    REQUIRE(packets.size() == 1);
    ids.insert(packets[0].connection);
  }
  REQUIRE(ids.size() == 6);
  REQUIRE(*ids.begin() > 0);
}

TEST_CASE("A datagram longer than the buffer is cut and counted", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server("127.0.0.1", port, {.buf_size = 512}));
  const PlainSocket peer("127.0.0.1");
  for (std::uint32_t i = 0; i < 20; ++i)
    REQUIRE(peer.send("127.0.0.1", port, numbered(i, i % 2 == 0 ? 512 : 513 + i)));
  const auto packets = receive_packets(session->rx_queue(0, 0), 20);
  REQUIRE(packets.size() == 20);
  for (std::uint32_t i = 0; i < 20; ++i) {
    Bytes expected = numbered(i, 1024);
    expected.resize(512);
    REQUIRE(packets[i].bytes == expected);
  }
  REQUIRE(session->rx_queue(0, 0).counters().truncated == 10);
  REQUIRE(session->rx_queue(0, 0).counters().delivered == 20);
}

TEST_CASE("With two regions a datagram is split at the boundary", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  auto config = udp_server("127.0.0.1", port);
  MemoryRegionConfig headers = config.mrs_.at("rx_data");
  headers.name_ = "rx_headers";
  headers.buf_size_ = 128;
  config.mrs_.emplace(headers.name_, headers);
  config.ifs_[0].rx_.queues_[0].common_.mrs_ = {"rx_headers", "rx_data"};
  config.ifs_[0].rx_.queues_[0].common_.split_boundary_ = 42;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peer("127.0.0.1");
  const std::vector<std::uint32_t> sizes{0, 1, 42, 43, 1000, 42 + 2048, 42 + 2049};
  for (const std::uint32_t size : sizes)
    REQUIRE(peer.send("127.0.0.1", port, numbered(size, size)));
  REQUIRE(counters_after(rx, sizes.size()).received == sizes.size());
  std::size_t seen = 0;
  const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
  while (seen < sizes.size() && monotonic_ns() < end) {
    Burst* burst = rx.receive();
    if (burst == nullptr) continue;
    REQUIRE(burst->hdr.hdr.num_segs == 2);
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i, ++seen) {
      Bytes expected = numbered(sizes[seen], sizes[seen]);
      expected.resize(std::min<std::size_t>(expected.size(), 42 + 2048));
      REQUIRE(burst->pkt_lens[0][i] == std::min<std::size_t>(expected.size(), 42));
      REQUIRE(bytes_of(*burst, i) == expected);
    }
    burst->release();
  }
  REQUIRE(seen == sizes.size());
  REQUIRE(rx.counters().truncated == 1);
}

TEST_CASE("A client hears its peer only", "[udp]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const PlainSocket peer(host);
  const PlainSocket stranger(host);
  auto config = udp_client(host, peer.port());
  const std::uint16_t port = free_port(host);
  config.ifs_[0].socket_.local_addr_ = udp_at(host, port);
  const auto session = Session::open(config);
  for (std::uint32_t i = 0; i < 10; ++i) {
    REQUIRE(stranger.send(host, port, numbered(1000 + i, 50)));
    REQUIRE(peer.send(host, port, numbered(i, 50)));
  }
  const auto packets = receive_packets(session->rx_queue(0, 0), 10);
  REQUIRE(packets.size() == 10);
  const std::uintptr_t connection = session->connections().connect(host, peer.port(), "");
  for (std::uint32_t i = 0; i < 10; ++i) {
    REQUIRE(packets[i].bytes == numbered(i, 50));
    REQUIRE(packets[i].connection == connection);
  }
  REQUIRE(session->rx_queue(0, 0).counters().received == 10);
}

TEST_CASE("A flow counts datagrams that find no buffer, and the bytes that a buffer takes",
          "[udp][steering]") {
  const std::uint16_t port = free_port("127.0.0.1");
  auto config = udp_server("127.0.0.1", port, {.num_bufs = 64, .buf_size = 512});
  FlowConfig flow;
  flow.name_ = "all";
  flow.id_ = 1;
  config.ifs_[0].rx_.flows_ = {flow};
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peer("127.0.0.1");
  for (std::uint32_t i = 0; i < 10; ++i) REQUIRE(peer.send("127.0.0.1", port, numbered(i, 700)));
  REQUIRE(counters_after(rx, 10).truncated == 10);
  REQUIRE(counts_of(*session, 0) == std::pair<std::uint64_t, std::uint64_t>{10, 10 * 512});
  for (std::uint32_t i = 0; i < 100; ++i) REQUIRE(peer.send("127.0.0.1", port, numbered(i, 100)));
  const RxSnapshot counters = counters_after(rx, 110);
  REQUIRE(dropped(counters, DropReason::NO_PACKET_BUFFER) > 0);
  REQUIRE(counts_of(*session, 0) ==
          std::pair<std::uint64_t, std::uint64_t>{110, std::uint64_t{counters.received_bytes}});
}

TEST_CASE("Flows steer a socket's datagrams to queues", "[udp][steering]") {
  const PlainSocket peers[3]{PlainSocket("127.0.0.1"), PlainSocket("127.0.0.1"),
                             PlainSocket("127.0.0.1")};
  const std::uint16_t port = free_port("127.0.0.1");
  auto config = udp_server("127.0.0.1", port);
  auto& rx = config.ifs_[0].rx_;
  rx.queues_.push_back(rx.queues_[0]);
  rx.queues_[1].common_.name_ = "rx7";
  rx.queues_[1].common_.id_ = 7;
  // One socket, or two.
  rx.queues_[1].common_.cpu_core_ = GENERATE("any", "0");
  const auto add_flow = [&](FlowId id, std::uint16_t queue) -> FlowMatch& {
    FlowConfig flow;
    flow.name_ = "flow" + std::to_string(id);
    flow.id_ = id;
    flow.action_.id_ = queue;
    flow.actions_ = {flow.action_};
    rx.flows_.push_back(flow);
    return rx.flows_.back().match_;
  };
  FlowMatch& by_length = add_flow(21, 7);
  by_length.udp_src_ = {peers[1].port(), peers[1].port()};
  by_length.ipv4_len_ = 28 + 200;
  FlowMatch& by_source = add_flow(22, 0);
  by_source.udp_src_ = {peers[1].port(), peers[1].port()};
  by_source.udp_dst_ = {port, port};
  by_source.ipv4_dst_ = htonl(INADDR_LOOPBACK);

  SECTION("unmatched datagrams go to the first queue with flow 0") {
    const auto session = Session::open(config);
    for (std::uint32_t i = 0; i < 30; ++i) {
      REQUIRE(peers[i % 2].send("127.0.0.1", port, numbered(i, i % 3 == 0 ? 200 : 100)));
    }
    const auto lengthy = receive_packets(session->rx_queue(0, 7), 5);
    REQUIRE(lengthy.size() == 5);
    for (const Received& packet : lengthy) {
      REQUIRE(packet.flow == 21);
      REQUIRE(packet.bytes.size() == 200);
      REQUIRE(number_of(packet.bytes) % 2 == 1);
    }
    const auto others = receive_packets(session->rx_queue(0, 0), 25);
    REQUIRE(others.size() == 25);
    for (const Received& packet : others)
      REQUIRE(packet.flow == (number_of(packet.bytes) % 2 == 1 ? 22U : 0U));
    // A peer has one connection, whichever queue receives its packets.
    for (const Received& packet : others) {
      if (packet.flow == 22) REQUIRE(packet.connection == lengthy[0].connection);
    }
    REQUIRE(counts_of(*session, 0) == std::pair<std::uint64_t, std::uint64_t>{5, 1000});
    REQUIRE(counts_of(*session, 1) == std::pair<std::uint64_t, std::uint64_t>{10, 1000});
  }
  SECTION("isolated, they are filtered and counted, and keep no buffer") {
    rx.flow_isolation_ = true;
    const auto session = Session::open(config);
    for (std::uint32_t i = 0; i < 300; ++i)
      REQUIRE(peers[i % 3].send("127.0.0.1", port, numbered(i, 100)));
    REQUIRE(counters_after(session->rx_queue(0, 0), 300).received == 300);
    const RxSnapshot counters = session->rx_queue(0, 0).counters();
    REQUIRE(dropped(counters, DropReason::FILTERED) == 200);
    const auto packets = receive_packets(session->rx_queue(0, 0), 100);
    REQUIRE(packets.size() == 100);
    for (std::uint32_t i = 0; i < 100; ++i) REQUIRE(packets[i].bytes == numbered(3 * i + 1, 100));
    REQUIRE(counts_of(*session, 0).first == 0);
    REQUIRE(counts_of(*session, 1) == std::pair<std::uint64_t, std::uint64_t>{100, 10'000});
    session->close();
    REQUIRE(session->memory()->regions.at("rx_data")->available() == 4096);
  }
}

TEST_CASE("Flows by ports match IPv6 too, flows by IPv4 fields do not", "[udp][rx]") {
  const std::uint16_t port = free_port("::1");
  const PlainSocket peers[2]{PlainSocket("::1"), PlainSocket("::1")};
  auto config = udp_server("::1", port);
  const auto add_flow = [&](FlowId id) -> FlowMatch& {
    FlowConfig flow;
    flow.name_ = "flow" + std::to_string(id);
    flow.id_ = id;
    config.ifs_[0].rx_.flows_.push_back(flow);
    return config.ifs_[0].rx_.flows_.back().match_;
  };
  add_flow(31).ipv4_len_ = 28 + 100;
  FlowMatch& by_source = add_flow(32);
  by_source.udp_src_ = {peers[1].port(), peers[1].port()};
  by_source.udp_dst_ = {port, port};
  const auto session = Session::open(config);
  for (std::uint32_t i = 0; i < 20; ++i) REQUIRE(peers[i % 2].send("::1", port, numbered(i, 100)));
  const auto packets = receive_packets(session->rx_queue(0, 0), 20);
  REQUIRE(packets.size() == 20);
  for (const Received& packet : packets)
    REQUIRE(packet.flow == (number_of(packet.bytes) % 2 == 1 ? 32U : 0U));
}

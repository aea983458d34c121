#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("a server receives a stream byte for byte", "[tcp]") {
  const auto [host, buf_size, batch] =
      GENERATE(table<std::string, std::uint64_t, int>({{"127.0.0.1", 2048, 16},
                                                       {"::1", 2048, 16},
                                                       {"127.0.0.1", 333, 7},
                                                       {"127.0.0.1", 65536, 1}}));
  const std::uint16_t port = free_tcp_port(host);
  TcpOptions options;
  options.buf_size = buf_size;
  options.batch = batch;
  const auto session = Session::open(tcp_server(host, port, options));
  RxQueue& rx = session->rx_queue(0, 0);
  const Bytes data = stream_of(3'000'001);
  const Stream peer = Stream::connect_to(host, port);
  std::jthread sender([&] { peer.send(data); });
  const Bytes got = receive_bytes(rx, data.size());
  sender.join();
  CHECK((got == data));
  const RxSnapshot counters = rx.counters();
  CHECK(counters.received_bytes == data.size());
  CHECK(counters.dropped_total() == 0);
  CHECK(counters.held == 0);
  CHECK(counters.received == counters.delivered);
}

TEST_CASE("segments of a packet are filled in turn", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  NetworkConfig config = tcp_server("127.0.0.1", port);
  MemoryRegionConfig headers = config.mrs_.at("rx_data");
  headers.name_ = "rx_headers";
  headers.buf_size_ = 64;
  config.mrs_.emplace(headers.name_, headers);
  config.ifs_[0].rx_.queues_[0].common_.mrs_ = {"rx_headers", "rx_data"};
  config.ifs_[0].rx_.queues_[0].common_.split_boundary_ = 50;
  const auto session = Session::open(config);
  const Bytes data = stream_of(500'003);
  const Stream peer = Stream::connect_to("127.0.0.1", port);
  std::jthread sender([&] { peer.send(data); });
  const auto longest = std::size_t{50} + 2048;
  Bytes got;
  std::uint64_t last = monotonic_ns();
  RxQueue& rx = session->rx_queue(0, 0);
  while (got.size() < data.size() && monotonic_ns() - last < 10'000'000'000ULL) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(20'000'000);
      continue;
    }
    last = monotonic_ns();
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      const Bytes packet = bytes_of(*burst, i);
      CHECK(packet.size() <= longest);
      CHECK((burst->pkt_lens[1][i] == 0 || burst->pkt_lens[0][i] == 50));
      got.insert(got.end(), packet.begin(), packet.end());
    }
    burst->release();
  }
  sender.join();
  CHECK((got == data));
}

TEST_CASE("each of many peers is a connection of its own", "[tcp]") {
  constexpr std::size_t PEERS = 200;
  const int queues = GENERATE(1, 3);
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.rx_queues = queues;
  // Peers are read one after the other, so there must be bursts for the data of all of them.
  NetworkConfig config = tcp_server("127.0.0.1", port, options);
  config.rx_meta_buffers_ = 2048;
  config.mrs_.at("rx_data").num_bufs_ = 4096;
  const auto session = Session::open(config);
  std::vector<Stream> peers;
  for (std::size_t i = 0; i < PEERS; ++i) peers.push_back(Stream::connect_to("127.0.0.1", port));
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == PEERS; }));
  std::map<std::uint16_t, std::size_t> by_port;
  for (std::size_t i = 0; i < PEERS; ++i) by_port[peers[i].port()] = i;
  std::vector<Bytes> sent;
  for (std::size_t i = 0; i < PEERS; ++i)
    sent.push_back(stream_of(5000 + i, static_cast<std::uint32_t>(i)));
  std::jthread sender([&] {
    for (std::size_t at = 0; at < 5000; at += 1000) {
      for (std::size_t i = 0; i < PEERS; ++i) {
        const auto from = sent[i].begin() + static_cast<std::ptrdiff_t>(at);
        const bool last = at + 1000 >= 5000;
        peers[i].send(Bytes(from, last ? sent[i].end() : from + 1000));
      }
    }
  });
  std::vector<std::size_t> per_queue(static_cast<std::size_t>(queues));
  for (const ConnectionInfo& each : connections(*session)) {
    if (each.state != ConnectionState::CONNECTED) continue;
    const auto peer_port =
        static_cast<std::uint16_t>(std::stoi(each.peer.substr(each.peer.find(':') + 1)));
    const std::size_t i = by_port.at(peer_port);
    const auto [port_id, queue] = session->connections().queue_of(each.id);
    ++per_queue[queue];
    CHECK((receive_bytes(session->rx_queue(0, queue), sent[i].size(), each.id) == sent[i]));
  }
  sender.join();
  for (const std::size_t n : per_queue) CHECK(n >= PEERS / static_cast<std::size_t>(queues) - 1);
}

TEST_CASE("flows choose the queue by TCP ports", "[tcp]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_tcp_port(host);
  const std::uint16_t special = free_tcp_port(host);
  const bool isolated = GENERATE(false, true);
  TcpOptions options;
  options.rx_queues = 2;
  NetworkConfig config = tcp_server(host, port, options);
  FlowConfig flow;
  flow.name_ = "special";
  flow.id_ = 7;
  flow.match_.udp_src_ = {special, special};
  flow.action_.id_ = 1;
  config.ifs_[0].rx_.flows_ = {flow};
  config.ifs_[0].rx_.flow_isolation_ = isolated;
  const auto session = Session::open(config);
  const Stream wanted = Stream::connect_to(host, port, special);
  const Stream other = Stream::connect_to(host, port);
  REQUIRE(wanted.send(stream_of(100)));
  const auto packets = receive_packets(session->rx_queue(0, 1), 1);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].flow == 7);
  if (isolated) {
    CHECK(other.at_end());
  } else {
    REQUIRE(other.send(stream_of(100)));
    CHECK(receive_packets(session->rx_queue(0, 0), 1)[0].flow == 0);
  }
  CHECK(counts_of(*session, 0) == std::pair<std::uint64_t, std::uint64_t>{1, 100});
  // Flushed data was matched, too.
  REQUIRE(wanted.send(stream_of(5000)));
  session->rx_queue(0, 1).request_flush();
  REQUIRE(eventually([&] { return session->rx_queue(0, 1).counters().received_bytes == 5100; }));
  CHECK(counts_of(*session, 0) ==
        std::pair<std::uint64_t, std::uint64_t>{session->rx_queue(0, 1).counters().received, 5100});
}

TEST_CASE("what a slow consumer does not take is never lost", "[tcp]") {
  const auto [num_bufs, buf_size, batch, timeout_us] =
      GENERATE(table<std::uint64_t, std::uint64_t, int, std::uint32_t>(
          {{64, 512, 8, 500}, {16, 256, 64, 0}, {1024, 2048, 16, 500}, {1, 100, 1, 0}}));
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.num_bufs = num_bufs;
  options.buf_size = buf_size;
  options.batch = batch;
  options.timeout_us = timeout_us;
  NetworkConfig config = tcp_server("127.0.0.1", port, options);
  config.rx_meta_buffers_ = 8;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const Bytes data = stream_of(num_bufs == 1 ? 20'000 : 300'001);
  const Stream peer = Stream::connect_to("127.0.0.1", port);
  const int small = 8192;
  setsockopt(peer.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  std::jthread sender([&] {
    peer.send(data);
    peer.finish();
  });
  Bytes got;
  int naps = 0;
  std::uint64_t last = monotonic_ns();
  while (got.size() < data.size() && monotonic_ns() - last < 10'000'000'000ULL) {
    if (naps < 10) {
      usleep(20'000);
      ++naps;
      CHECK(balanced(rx.counters()));
    }
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(20'000'000);
      continue;
    }
    last = monotonic_ns();
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      const Bytes packet = bytes_of(*burst, i);
      got.insert(got.end(), packet.begin(), packet.end());
    }
    burst->release();
  }
  sender.join();
  CHECK((got == data));
  const RxSnapshot counters = rx.counters();
  CHECK(counters.dropped_total() == 0);
  CHECK(counters.received == counters.delivered);
  CHECK(counters.received_bytes == data.size());
}

TEST_CASE("a peer that nobody reads leaves room for the others", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.num_bufs = 256;
  options.buf_size = 512;
  NetworkConfig config = tcp_server("127.0.0.1", port, options);
  config.rx_meta_buffers_ = 32;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const Stream flood = Stream::connect_to("127.0.0.1", port);
  const Stream quiet = Stream::connect_to("127.0.0.1", port);
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 2; }));
  const Bytes much = stream_of(4'000'000, 1);
  const Bytes little = stream_of(50'000, 2);
  std::jthread sender([&] { flood.send(much); });
  REQUIRE(eventually([&] { return rx.counters().held > 50; }));
  std::jthread second([&] { quiet.send(little); });
  std::uintptr_t flood_id = 0;
  std::uintptr_t quiet_id = 0;
  for (const ConnectionInfo& each : connections(*session)) {
    if (each.peer.ends_with(":" + std::to_string(flood.port()))) flood_id = each.id;
    if (each.peer.ends_with(":" + std::to_string(quiet.port()))) quiet_id = each.id;
  }
  CHECK((receive_bytes(rx, little.size(), quiet_id) == little));
  CHECK((receive_bytes(rx, much.size(), flood_id) == much));
  sender.join();
  second.join();
}

TEST_CASE("flush and drop-all drop what the sockets hold, and nothing later", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.num_bufs = 16;
  options.buf_size = 512;
  const auto session = Session::open(tcp_server("127.0.0.1", port, options));
  RxQueue& rx = session->rx_queue(0, 0);
  const Stream peer = Stream::connect_to("127.0.0.1", port);
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 1; }));
  // Fits the initial receive window of a socket.
  const Bytes old = stream_of(30'000, 1);
  const Bytes fresh = stream_of(5'000, 2);
  for (int round = 0; round < 3; ++round) {
    // More than the buffers hold; the rest waits in the kernel.
    REQUIRE(peer.send(old));
    REQUIRE(eventually([&] { return peer.all_arrived(); }));
    if (round < 2) {
      rx.request_flush();
    } else {
      rx.set_drop_all(true);
      REQUIRE(peer.send(old));
      REQUIRE(eventually([&] { return peer.all_arrived(); }));
      rx.set_drop_all(false);
    }
    REQUIRE(peer.send(fresh));
    CHECK((receive_bytes(rx, fresh.size()) == fresh));
  }
  const RxSnapshot counters = counters_after(rx, 0);
  CHECK(counters.received_bytes == 4 * old.size() + 3 * fresh.size());
  CHECK(balanced(counters));
  CHECK(dropped(counters, DropReason::FLUSHED) > 0);
  CHECK(dropped(counters, DropReason::FILTERED) > 0);
}

TEST_CASE("data in flight arrives when both ends close", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto server = Session::open(tcp_server("127.0.0.1", port));
  const auto client = Session::open(tcp_client("127.0.0.1", port));
  const Bytes data = stream_of(400'000);
  CHECK(send_packets(client->tx_queue(0, 0), pieces_of(data, 2000)));
  client->close();
  REQUIRE(eventually([&] { return server->rx_queue(0, 0).counters().received_bytes > 0; }));
  server->close();
  CHECK((receive_bytes(server->rx_queue(0, 0), data.size()) == data));
}

TEST_CASE("open bursts of one queue do not keep the region's buffers from another", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.num_bufs = 64;
  options.timeout_us = 0;
  options.rx_queues = 2;
  NetworkConfig config = tcp_server("127.0.0.1", port, options);
  config.ifs_[0].rx_.queues_[1].common_.cpu_core_ = GENERATE("any", "0");
  const auto session = Session::open(config);
  RxQueue& full = session->rx_queue(0, 0);
  RxQueue& waiting = session->rx_queue(0, 1);
  // Peers are assigned to the queues in turn.
  std::vector<Stream> peers;
  while (full.region(0).available() > 0) {
    REQUIRE(peers.size() < 200);
    peers.push_back(Stream::connect_to("127.0.0.1", port));
    peers.push_back(Stream::connect_to("127.0.0.1", port));
    const std::uint64_t received = full.counters().received;
    REQUIRE(peers[peers.size() - 2].send(stream_of(10)));
    REQUIRE(eventually([&] { return full.counters().received > received; }));
  }
  REQUIRE(peers.back().send(stream_of(10, 7)));
  REQUIRE(eventually([&] {
    if (Burst* other = full.receive()) other->release();
    return waiting.counters().received == 1;
  }));
}

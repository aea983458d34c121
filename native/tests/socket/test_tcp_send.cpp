#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("a client's packets are one stream, byte for byte", "[tcp]") {
  const auto [host, piece] = GENERATE(table<std::string, std::size_t>(
      {{"127.0.0.1", 1000}, {"::1", 1000}, {"127.0.0.1", 7}, {"127.0.0.1", 65536}}));
  const Listener listener(host);
  TcpOptions options;
  options.buf_size = 65536;
  options.num_bufs = 256;
  const auto session = Session::open(tcp_client(host, listener.port(), options));
  const Stream peer = listener.accept();
  const Bytes data = stream_of(piece == 7 ? 70'001 : 2'000'003);
  Bytes got;
  std::jthread reader([&] { got = peer.receive(data.size()); });
  TxQueue& tx = session->tx_queue(0, 0);
  CHECK(send_packets(tx, pieces_of(data, piece)));
  reader.join();
  CHECK((got == data));
  const TxSnapshot counters = tx.counters();
  CHECK(counters.sent == (data.size() + piece - 1) / piece);
  CHECK(counters.sent_bytes == data.size());
  CHECK(counters.dropped_total() == 0);
}

TEST_CASE("small socket buffers cut packets anywhere, and nothing is lost", "[tcp]") {
  const Listener listener("127.0.0.1");
  const int small = 2304;
  setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  TcpOptions options;
  options.buf_size = 50'000;
  options.num_bufs = 64;
  options.tx_queues = 2;
  const auto session = Session::open(tcp_client("127.0.0.1", listener.port(), options));
  const std::uintptr_t id = connections(*session)[0].id;
  session->connections().set_socket_option(id, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const Stream peer = listener.accept();
  // Two queues share the connection. Packets are contiguous and in the order of each queue.
  constexpr std::size_t PACKETS = 12;
  constexpr std::size_t SIZE = 40'000;
  std::jthread senders[2];
  for (int q = 0; q < 2; ++q) {
    senders[q] = std::jthread([&, q] {
      std::vector<Bytes> packets;
      for (std::uint32_t i = 0; i < PACKETS; ++i) {
        packets.push_back(Bytes(SIZE, static_cast<std::uint8_t>(i)));
        packets.back()[0] = static_cast<std::uint8_t>(q);
      }
      send_packets(session->tx_queue(0, q), packets);
    });
  }
  const Bytes got = peer.receive(2 * PACKETS * SIZE);
  for (std::jthread& sender : senders) sender.join();
  REQUIRE(got.size() == 2 * PACKETS * SIZE);
  std::size_t next[2]{};
  for (std::size_t at = 0; at < got.size(); at += SIZE) {
    const std::uint8_t queue = got[at];
    REQUIRE(queue < 2);
    const auto expected = static_cast<std::uint8_t>(next[queue]++);
    const auto begin = got.begin() + static_cast<std::ptrdiff_t>(at);
    REQUIRE(std::all_of(begin + 1, begin + SIZE, [&](std::uint8_t b) { return b == expected; }));
  }
}

TEST_CASE("a peer that does not read holds up its own queue only", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.tx_queues = 2;
  options.num_bufs = 8192;
  const auto session = Session::open(tcp_server("127.0.0.1", port, options));
  const Stream deaf = Stream::connect_to("127.0.0.1", port);
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 1; }));
  const Stream good = Stream::connect_to("127.0.0.1", port);
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 2; }));
  const auto all = connections(*session);
  const std::uintptr_t deaf_id = all[1].id;
  const std::uintptr_t good_id = all[2].id;
  const int small = 4608;
  session->connections().set_socket_option(deaf_id, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const Bytes much = stream_of(8'000'000, 1);
  const Bytes some = stream_of(200'000, 2);
  std::jthread stuck(
      [&] { send_packets(session->tx_queue(0, 0), pieces_of(much, 2000), deaf_id); });
  REQUIRE(eventually([&] { return session->tx_queue(0, 0).counters().sent > 0; }));
  Bytes got;
  std::jthread reader([&] { got = good.receive(some.size()); });
  CHECK(send_packets(session->tx_queue(0, 1), pieces_of(some, 2000), good_id));
  reader.join();
  CHECK((got == some));
  CHECK(eventually([&] { return session->tx_queue(0, 0).counters().held > 0; }));
  CHECK((deaf.receive(much.size()) == much));
  stuck.join();
  CHECK(session->tx_queue(0, 0).counters().dropped_total() == 0);
}

TEST_CASE("a server answers each peer by its connection, or the one heard last", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto session = Session::open(tcp_server("127.0.0.1", port));
  const Stream alice = Stream::connect_to("127.0.0.1", port);
  const Stream bob = Stream::connect_to("127.0.0.1", port);
  REQUIRE(alice.send(stream_of(10, 1)));
  const auto from_alice = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(bob.send(stream_of(10, 2)));
  const auto from_bob = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(from_alice.size() == 1);
  REQUIRE(from_bob.size() == 1);
  CHECK(from_alice[0].connection != from_bob[0].connection);
  TxQueue& tx = session->tx_queue(0, 0);
  CHECK(send_packets(tx, {stream_of(100, 3)}, from_alice[0].connection));
  CHECK(send_packets(tx, {stream_of(100, 4)}));
  CHECK(send_packets(tx, {stream_of(100, 5)}, session->connections().server_at("127.0.0.1", port)));
  CHECK((alice.receive(100) == stream_of(100, 3)));
  CHECK((bob.receive(100) == stream_of(100, 4)));
  CHECK((bob.receive(100) == stream_of(100, 5)));
  CHECK(send_packets(tx, {stream_of(100, 6)}, 999'999));
  CHECK(dropped(tx.counters(), DropReason::SEND_ERROR) == 1);
}

TEST_CASE("packets beyond max_payload_size fail, empty ones count as sent", "[tcp]") {
  const Listener listener("127.0.0.1");
  NetworkConfig config = tcp_client("127.0.0.1", listener.port());
  config.ifs_[0].socket_.max_payload_size_ = 500;
  const auto session = Session::open(config);
  const Stream peer = listener.accept();
  TxQueue& tx = session->tx_queue(0, 0);
  CHECK(send_packets(tx, {Bytes{}, stream_of(500, 1), stream_of(501, 2), stream_of(502, 3),
                          stream_of(499, 4), Bytes{}}));
  CHECK((peer.receive(500) == stream_of(500, 1)));
  CHECK((peer.receive(499) == stream_of(499, 4)));
  CHECK(tx.counters().sent == 4);
  CHECK(dropped(tx.counters(), DropReason::SEND_ERROR) == 2);
}

TEST_CASE("what was accepted before close is delivered, and the stream ends in order", "[tcp]") {
  const Listener listener("127.0.0.1");
  TcpOptions options;
  options.num_bufs = 4096;
  const auto session = Session::open(tcp_client("127.0.0.1", listener.port(), options));
  const Stream peer = listener.accept();
  const Bytes data = stream_of(3'000'000);
  const auto packets = pieces_of(data, 2000);
  TxQueue& tx = session->tx_queue(0, 0);
  for (std::size_t i = 0; i < packets.size();) {
    Burst* burst = nullptr;
    const auto n = std::min<std::uint32_t>(16, static_cast<std::uint32_t>(packets.size() - i));
    if (tx.allocate(n, &burst) != Status::SUCCESS) {
      tx.wait_free(5'000'000);
      continue;
    }
    for (std::uint32_t k = 0; k < n; ++k, ++i) {
      std::memcpy(burst->pkts[0][k], packets[i].data(), packets[i].size());
      burst->pkt_lens[0][k] = static_cast<std::uint32_t>(packets[i].size());
    }
    REQUIRE(tx.send(burst) == Status::SUCCESS);
    // The peer starts to read late.
    if (tx.counters().held > 1000) break;
  }
  const std::uint64_t submitted = tx.counters().submitted;
  Bytes got;
  std::jthread reader([&] {
    usleep(100'000);
    got = peer.receive(data.size());
  });
  session->close();
  reader.join();
  CHECK(tx.counters().sent == submitted);
  CHECK((got == Bytes(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(got.size()))));
  CHECK(got.size() == tx.counters().sent_bytes);
  CHECK(peer.at_end());
}

TEST_CASE("a peer that takes little at a time does not hold up close for long", "[tcp]") {
  const Listener listener("127.0.0.1");
  const int small = 65536;
  setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  TcpOptions options;
  options.num_bufs = 4096;
  options.buf_size = 4096;
  const auto session = Session::open(tcp_client("127.0.0.1", listener.port(), options));
  const Stream peer = listener.accept();
  TxQueue& tx = session->tx_queue(0, 0);
  for (Burst* burst = nullptr; tx.allocate(16, &burst) == Status::SUCCESS;) {
    std::fill_n(burst->pkt_lens[0], 16, 4000U);
    REQUIRE(tx.send(burst) == Status::SUCCESS);
  }
  std::atomic<bool> closed{false};
  // Sending all of it would take a minute.
  std::jthread reader([&] {
    while (!closed) {
      [[maybe_unused]] const Bytes some = peer.receive(32'000);
      usleep(150'000);
    }
  });
  const std::uint64_t begin = monotonic_ns();
  session->close();
  const std::uint64_t took = monotonic_ns() - begin;
  closed = true;
  CHECK(took < 30'000'000'000);
  const TxSnapshot counters = tx.counters();
  CHECK(counters.held == 0);
  CHECK(dropped(counters, DropReason::FLUSHED) > 0);
  CHECK(counters.submitted == counters.sent + counters.dropped_total());
}

TEST_CASE("peers that do not read hold up close together, not one after the other", "[tcp]") {
  const Listener listener("127.0.0.1");
  TcpOptions options;
  options.num_bufs = 16'384;
  NetworkConfig config = tcp_client("127.0.0.1", listener.port(), options);
  for (int i = 1; i < 4; ++i) {
    config.ifs_.push_back(config.ifs_[0]);
    config.ifs_.back().name_ = "tcp" + std::to_string(i);
  }
  const auto session = Session::open(config);
  const Stream deaf[4] = {listener.accept(), listener.accept(), listener.accept(),
                          listener.accept()};
  // More than the kernel accepts, on each port in turn.
  for (Status status = Status::SUCCESS; status == Status::SUCCESS;) {
    for (int port = 0; port < 4 && status == Status::SUCCESS; ++port) {
      Burst* burst = nullptr;
      status = session->tx_queue(port, 0).allocate(16, &burst);
      if (status != Status::SUCCESS) break;
      std::fill_n(burst->pkt_lens[0], 16, 2000U);
      REQUIRE(session->tx_queue(port, 0).send(burst) == Status::SUCCESS);
    }
  }
  const std::uint64_t begin = monotonic_ns();
  session->close();
  // Each connection takes 2 s.
  CHECK(monotonic_ns() - begin < 7'500'000'000);
  for (int port = 0; port < 4; ++port) {
    const TxSnapshot counters = session->tx_queue(port, 0).counters();
    CHECK(counters.submitted == counters.sent + counters.dropped_total());
  }
}

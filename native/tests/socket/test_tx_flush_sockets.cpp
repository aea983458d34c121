// Flushing transmit queues of sockets.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "socket/own_network.h"
#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint64_t HOUR_NS = 3'600'000'000'000;

/// Submits packets of `size` bytes, filled with `value`, until the queue is out of buffers. Returns
/// their number.
std::uint32_t fill(TxQueue& tx, std::size_t size, std::uint8_t value, std::uint64_t launch = 0) {
  std::uint32_t count = 0;
  for (Burst* burst = nullptr; tx.allocate(16, &burst) == Status::SUCCESS; count += 16) {
    for (std::uint32_t i = 0; i < 16; ++i) {
      std::memset(burst->pkts[0][i], value, size);
      burst->pkt_lens[0][i] = static_cast<std::uint32_t>(size);
      burst->timestamps[i] = launch;
    }
    REQUIRE(tx.send(burst) == Status::SUCCESS);
  }
  return count;
}

/// True if packets are held and none was sent for 50 ms.
bool stuck(const TxQueue& tx) {
  return eventually([&] {
    const std::uint64_t sent = tx.counters().sent;
    usleep(50'000);
    return tx.counters().held > 0 && tx.counters().sent == sent;
  });
}

/// True if all bytes are `value`.
bool is_all(const Bytes& bytes, std::uint8_t value) {
  return std::all_of(bytes.begin(), bytes.end(), [=](std::uint8_t b) { return b == value; });
}

void require_flushed(const TxQueue& tx, std::uint64_t submitted, std::uint64_t flushed) {
  const TxSnapshot counters = tx.counters();
  CHECK(counters.submitted == submitted);
  CHECK(counters.held == 0);
  CHECK(dropped(counters, DropReason::FLUSHED) == flushed);
  CHECK(counters.sent + flushed == submitted);
}

}  // namespace

TEST_CASE("a flush ends the connection of a TCP peer that does not read", "[tcp][txflush]") {
  const bool server = GENERATE(false, true);
  CAPTURE(server);
  const Listener listener("127.0.0.1");
  TcpOptions options;
  options.num_bufs = 16'384;
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto session = Session::open(server ? tcp_server("127.0.0.1", port, options)
                                            : tcp_client("127.0.0.1", listener.port(), options));
  const auto connect = [&] {
    return server ? Stream::connect_to("127.0.0.1", port) : listener.accept();
  };
  const Stream deaf = connect();
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 1; }));
  const std::uint32_t submitted = fill(tx, 2000, 7);
  REQUIRE(stuck(tx));
  const std::uint64_t held = tx.counters().held;

  // The kernel may send the rest of a packet that it has in part.
  const std::uint64_t flushed = tx.flush();
  CHECK((flushed == held || flushed + 1 == held));
  require_flushed(tx, submitted, flushed);
  CHECK(session->memory()->regions.at("tx_data")->available() == options.num_bufs);
  // Only the data that the kernel of the peer already had.
  const Bytes got = deaf.receive(std::size_t{submitted} * 2000);
  CHECK(got.size() > 0);
  CHECK(got.size() < tx.counters().sent_bytes);
  CHECK(is_all(got, 7));

  const Stream next = connect();
  REQUIRE(eventually([&] {
    return count_in(*session, ConnectionState::CONNECTED) == 1 && tx.unreachable(0) == nullptr;
  }));
  const Bytes fresh = stream_of(500'000, 3);
  Bytes arrived;
  std::jthread reader([&] { arrived = next.receive(fresh.size()); });
  CHECK(send_packets(tx, pieces_of(fresh, 2000)));
  reader.join();
  CHECK((arrived == fresh));
}

TEST_CASE("a flush leaves a TCP peer that reads whole packets, and its connection",
          "[tcp][txflush]") {
  const Listener listener("127.0.0.1");
  const int small = 2304;
  setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  constexpr std::size_t SIZE = 40'000;
  TcpOptions options;
  options.buf_size = 50'000;
  options.num_bufs = 64;
  options.tx_queues = 2;
  const auto session = Session::open(tcp_client("127.0.0.1", listener.port(), options));
  const std::uintptr_t id = connections(*session)[0].id;
  session->connections().set_socket_option(id, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  // One connection after the other: a peer that is not scheduled for 25 ms counts as one that does
  // not read, and loses its connection. The next connection follows after a second.
  std::vector<Bytes> streams;
  bool lost = false;
  std::atomic<std::uint64_t> sent{0};
  std::jthread reader([&](const std::stop_token& all) {
    for (;;) {
      const bool no_more = all.stop_requested();
      if (!readable(listener.fd(), 10)) {
        if (no_more) return;
        continue;
      }
      const Stream peer = listener.accept();
      Bytes& got = streams.emplace_back();
      for (ssize_t n = 1; n > 0;) {
        const bool last = all.stop_requested();
        const bool missing = streams.size() == 1 && got.size() < sent;
        if (!readable(peer.fd(), !last ? 10 : missing ? 10'000 : 200)) {
          if (last) return;
          continue;
        }
        const std::size_t had = got.size();
        got.resize(had + 50'000);
        n = recv(peer.fd(), got.data() + had, 50'000, 0);
        got.resize(had + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
      }
      lost = true;
    }
  });
  TxQueue& tx = session->tx_queue(0, 0);
  TxQueue& other = session->tx_queue(0, 1);
  std::uint64_t dropped_here = 0;
  std::uint64_t others = 0;
  for (int round = 0; round < 20; ++round) {
    fill(tx, SIZE, 1);
    if (round % 2 == 0) {
      REQUIRE(send_packets(other, {Bytes(SIZE, 2)}));
      ++others;
    }
    dropped_here += tx.flush();
    REQUIRE(tx.counters().held == 0);
  }
  REQUIRE(eventually([&] { return other.counters().held == 0; }));
  sent = tx.counters().sent_bytes + other.counters().sent_bytes;
  reader.request_stop();
  reader.join();
  CHECK(dropped_here > 0);
  CHECK(dropped_here == tx.counters().dropped_total());
  CHECK(other.counters().sent + other.counters().dropped_total() == others);
  for (const Bytes& got : streams) {
    for (std::size_t at = 0; at < got.size(); at += SIZE) {
      const auto begin = got.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(SIZE, got.size() - at));
      REQUIRE(std::all_of(begin, end, [&](std::uint8_t b) { return b == *begin; }));
    }
  }
  REQUIRE_FALSE(streams.empty());
  if (lost) return;
  CHECK(streams[0].size() % SIZE == 0);
  CHECK(streams[0].size() == sent);
  CHECK(other.counters().sent == others);
  CHECK(connections(*session)[0].error.empty());
}

TEST_CASE("a flush drops what waits for a TCP server that is not there", "[tcp][txflush]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  NetworkConfig config = tcp_client("127.0.0.1", port);
  config.ifs_[0].socket_.retry_connect_s_ = 1;
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  const std::uint32_t submitted = fill(tx, 100, 1);
  CHECK(tx.flush() == submitted);
  require_flushed(tx, submitted, submitted);
  const Listener listener("127.0.0.1", port);
  const Stream peer = listener.accept();
  CHECK(send_packets(tx, {stream_of(1000, 2)}));
  CHECK((peer.receive(1000) == stream_of(1000, 2)));
}

TEST_CASE("a flush drops datagrams whose launch time is far", "[udp][txflush]") {
  const PlainSocket peer("127.0.0.1");
  const auto session = Session::open(udp_client("127.0.0.1", peer.port()));
  TxQueue& tx = session->tx_queue(0, 0);
  const std::uint32_t submitted = fill(tx, 100, 1, tx.clock()() + HOUR_NS);
  CHECK(tx.flush() == submitted);
  require_flushed(tx, submitted, submitted);
  CHECK(send_packets(tx, {numbered(5, 60)}));
  const auto first = peer.receive();
  REQUIRE(first.has_value());
  CHECK((first->first == numbered(5, 60)));
}

TEST_CASE("a flush drops datagrams that a full socket does not take", "[udp][txflush]") {
  // A link that takes a packet about every ten seconds, and holds more packets than sockets do.
  in_own_network(
      {"ip link set lo up", "ip link add slow type veth peer name far",
       "ip addr add 10.77.0.1/24 dev slow", "ip link set far address 02:00:00:00:00:02 up",
       "ip link set slow up", "ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev slow",
       "tc qdisc add dev slow root tbf rate 1kbit burst 1540 limit 100000000"},
      [] {
        const auto session = Session::open(udp_client("10.77.0.2", 5000));
        TxQueue& tx = session->tx_queue(0, 0);
        const std::uint32_t submitted = fill(tx, 1400, 1);
        REQUIRE(stuck(tx));
        const std::uint64_t held = tx.counters().held;
        CHECK(tx.flush() == held);
        require_flushed(tx, submitted, held);
      });
}

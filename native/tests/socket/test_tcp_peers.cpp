// The default peer of a server while clients connect and disconnect.
#include <catch2/catch.hpp>

#include "io/io_engine.h"
#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A server and its connection id.
struct Server {
  explicit Server(std::uint16_t at)
      : port(at), session(Session::open(tcp_server("127.0.0.1", at))) {
    own = session->connections().server_at("127.0.0.1", port);
  }
  [[nodiscard]] std::uintptr_t first() const { return session->connections().first_client(own); }
  /// Why packets of a connection cannot be sent; empty if they can.
  [[nodiscard]] std::string why(std::uintptr_t connection) const {
    const char* text = session->tx_queue(0, 0).unreachable(connection);
    return text == nullptr ? "" : text;
  }
  /// A client and its connection id.
  [[nodiscard]] std::pair<Stream, std::uintptr_t> client() const {
    const std::size_t before = count_in(*session, ConnectionState::CONNECTED);
    Stream stream = Stream::connect_to("127.0.0.1", port);
    REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) > before; }));
    for (const ConnectionInfo& each : connections(*session)) {
      if (each.peer == "127.0.0.1:" + std::to_string(stream.port()))
        return {std::move(stream), each.id};
    }
    return {std::move(stream), 0};
  }

  std::uint16_t port;
  std::shared_ptr<Session> session;
  std::uintptr_t own{0};
};

}  // namespace

TEST_CASE("a server's connection is its first client's, while that is there", "[tcp]") {
  const Server server(free_tcp_port("127.0.0.1"));
  CHECK(server.first() == 0);
  CHECK(server.why(0) == "no client is connected to the server");
  CHECK(server.why(server.own) == "no client is connected to the server");
  CHECK(server.why(999999) == "the interface has no such connection");

  auto [alice, first] = server.client();
  CHECK(server.first() == first);
  CHECK(server.why(0).empty());
  CHECK(server.why(first).empty());
  auto [bob, second] = server.client();
  REQUIRE(second != first);
  CHECK(server.first() == first);

  TxQueue& tx = server.session->tx_queue(0, 0);
  REQUIRE(send_packets(tx, {stream_of(10, 1)}, server.first()));
  CHECK((alice.receive(10) == stream_of(10, 1)));
  SECTION("it has gone") {
    alice.reset();
    REQUIRE(eventually([&, second = second] { return server.first() == second; }));
    CHECK(server.why(first) == "the peer has closed the connection");
  }
  SECTION("it has finished sending, which one that has not comes before") {
    alice.finish();
    REQUIRE(eventually([&, second = second] { return server.first() == second; }));
    // The client still reads.
    CHECK(server.why(first).empty());
    REQUIRE(send_packets(tx, {stream_of(10, 2)}, first));
    CHECK((alice.receive(10) == stream_of(10, 2)));
    bob.reset();
    REQUIRE(eventually([&, first = first] { return server.first() == first; }));
    alice.reset();
  }
  bob.reset();
  REQUIRE(eventually([&] { return server.first() == 0; }));
  CHECK(server.why(0) == "no client is connected to the server");
  CHECK(server.why(second) == "the peer has closed the connection");
  auto [carol, third] = server.client();
  CHECK(server.first() == third);
  CHECK(server.why(0).empty());
}

TEST_CASE("packets for no one in particular go to a client that is there", "[tcp]") {
  const Server server(free_tcp_port("127.0.0.1"));
  TxQueue& tx = server.session->tx_queue(0, 0);
  auto [alice, first] = server.client();
  auto [bob, second] = server.client();
  REQUIRE(send_packets(tx, {stream_of(10, 1)}));
  CHECK((alice.receive(10) == stream_of(10, 1)));
  // The peer that sent last is the default.
  REQUIRE(bob.send(Bytes(1)));
  REQUIRE(receive_bytes(server.session->rx_queue(0, 0), 1).size() == 1);
  REQUIRE(send_packets(tx, {stream_of(10, 2)}));
  CHECK((bob.receive(10) == stream_of(10, 2)));
  bob.reset();
  REQUIRE(eventually([&, second = second] { return !server.why(second).empty(); }));
  CHECK(server.why(0).empty());
  REQUIRE(send_packets(tx, {stream_of(10, 3)}));
  CHECK((alice.receive(10) == stream_of(10, 3)));
  CHECK(tx.counters().sent == 3);
  CHECK(tx.counters().dropped_total() == 0);
}

#include <fcntl.h>
#include <catch2/catch.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "engines/socket/tcp_endpoint.h"
#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

ConnectionInfo only_peer(const Session& session) {
  const auto all = connections(session);
  REQUIRE(all.size() == 2);
  return all[1];
}

}  // namespace

TEST_CASE("a client waits for its server and comes back to it, under one id", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto session = Session::open(tcp_client("127.0.0.1", port));
  const auto first = connections(*session);
  REQUIRE(first.size() == 1);
  CHECK(first[0].state == ConnectionState::CONNECTING);
  CHECK(first[0].error == "Connection refused");
  // Packets sent in this state wait.
  TxQueue& tx = session->tx_queue(0, 0);
  Burst* burst = nullptr;
  REQUIRE(tx.allocate(1, &burst) == Status::SUCCESS);
  burst->pkt_lens[0][0] = 3;
  std::memcpy(burst->pkts[0][0], "one", 3);
  REQUIRE(tx.send(burst) == Status::SUCCESS);

  std::optional<Listener> listener(std::in_place, "127.0.0.1", port);
  Stream peer = listener->accept();
  CHECK((peer.receive(3) == Bytes{'o', 'n', 'e'}));
  REQUIRE(peer.send(stream_of(100, 1)));
  const auto before = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(before.size() == 1);
  CHECK(before[0].connection == first[0].id);
  CHECK(connections(*session)[0].error.empty());

  SECTION("after a reset") { peer.reset(); }
  SECTION("after an orderly end") { peer.close(); }
  SECTION("after the server was away") {
    listener.reset();
    peer.reset();
    REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTING) == 1; }));
    listener.emplace("127.0.0.1", port);
  }
  peer = listener->accept();
  REQUIRE(peer.send(stream_of(100, 2)));
  const auto after = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(after.size() == 1);
  CHECK(after[0].connection == first[0].id);
  CHECK((after[0].bytes == stream_of(100, 2)));
  CHECK(send_packets(tx, {stream_of(50, 3)}, first[0].id));
  CHECK((peer.receive(50) == stream_of(50, 3)));
}

TEST_CASE("a packet that a loss has cut is not resumed on the next connection", "[tcp]") {
  const Listener listener("127.0.0.1");
  const int small = 2304;
  setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  TcpOptions options;
  options.buf_size = 8'000'000;
  options.num_bufs = 4;
  options.batch = 2;
  const auto session = Session::open(tcp_client("127.0.0.1", listener.port(), options));
  TxQueue& tx = session->tx_queue(0, 0);
  Stream peer = listener.accept();
  std::jthread sender([&] { send_packets(tx, {Bytes(8'000'000, 1), Bytes(100'000, 2)}); });
  CHECK(peer.receive(10'000).size() == 10'000);
  peer.reset();
  peer = listener.accept();
  CHECK((peer.receive(100'000) == Bytes(100'000, 2)));
  sender.join();
  CHECK(balanced(tx.counters()));
  CHECK(dropped(tx.counters(), DropReason::SEND_ERROR) == 1);
  CHECK(balanced(tx.counters()));
}

TEST_CASE("a server's peers have ids of their own, also one that returns", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto session = Session::open(tcp_server("127.0.0.1", port));
  RxQueue& rx = session->rx_queue(0, 0);
  const std::uint16_t own = free_tcp_port("127.0.0.1");
  Stream peer = Stream::connect_to("127.0.0.1", port, own);
  REQUIRE(peer.send(stream_of(10, 1)));
  const auto first = receive_packets(rx, 1);
  REQUIRE(first.size() == 1);
  // TIME_WAIT does not block the same addresses.
  peer.reset();
  REQUIRE(eventually([&] { return only_peer(*session).state == ConnectionState::CLOSED; }));
  CHECK(only_peer(*session).error == "Connection reset by peer");
  peer = Stream::connect_to("127.0.0.1", port, own);
  REQUIRE(peer.send(stream_of(10, 2)));
  const auto second = receive_packets(rx, 1);
  REQUIRE(second.size() == 1);
  CHECK(second[0].connection != first[0].connection);
  const auto all = connections(*session);
  REQUIRE(all.size() == 3);
  CHECK(all[1].state == ConnectionState::CLOSED);
  CHECK(all[2].id == second[0].connection);
  CHECK(all[2].peer == all[1].peer);
  CHECK(all[2].state == ConnectionState::CONNECTED);
  CHECK(all[2].error.empty());
}

TEST_CASE("more peers than there are connections: those that are gone make room", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  NetworkConfig config = tcp_server("127.0.0.1", port);
  config.ifs_[0].tx_.queues_.clear();
  config.mrs_.erase("tx_data");
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  std::uintptr_t latest = 0;
  for (std::uint32_t i = 0; i < 1100; ++i) {
    const std::string source =
        "127.1." + std::to_string(i / 250) + "." + std::to_string(i % 250 + 1);
    Stream peer = Stream::connect_to("127.0.0.1", port, 0, source);
    REQUIRE(peer.send(stream_of(10, i)));
    const auto packets = receive_packets(rx, 1);
    REQUIRE(packets.size() == 1);
    REQUIRE((packets[0].bytes == stream_of(10, i)));
    REQUIRE(packets[0].connection > latest);
    latest = packets[0].connection;
    peer.reset();
  }
  CHECK(connections(*session).size() <= 1024);
}

TEST_CASE("peers that connected and closed hold no places", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  // With a transmit queue, packets could still be sent to them.
  const auto session = Session::open(tcp_server("127.0.0.1", port));
  const std::uint32_t places = sockets::TcpEndpoint::CAPACITY;
  for (std::uint32_t i = 0; i < places; ++i) {
    const std::string source =
        "127.1." + std::to_string(i / 250) + "." + std::to_string(i % 250 + 1);
    Stream::connect_to("127.0.0.1", port, 0, source);
  }
  REQUIRE(eventually([&] { return connections(*session).size() == places + 1; }));
  // The next peer takes the slot of one of them. Packets to the ended connections are dropped.
  TxQueue& tx = session->tx_queue(0, 0);
  const auto gone = connections(*session);
  const auto send_to_gone = [&] {
    for (std::uint32_t i = 1; i <= places; ++i)
      CHECK(send_packets(tx, {stream_of(30, i)}, gone[i].id));
  };
  send_to_gone();
  const Stream next = Stream::connect_to("127.0.0.1", port);
  REQUIRE(next.send(stream_of(10, 7)));
  const auto packets = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(packets.size() == 1);
  CHECK((packets[0].bytes == stream_of(10, 7)));
  send_to_gone();
  CHECK(send_packets(tx, {stream_of(20, 8)}, packets[0].connection));
  CHECK((next.receive(20) == stream_of(20, 8)));
  CHECK(balanced(tx.counters()));
}

TEST_CASE("the thread of TCP connections leaves signals to the program", "[tcp]") {
  const auto session = Session::open(tcp_server("127.0.0.1", free_tcp_port("127.0.0.1")));
  const auto field = [](const std::filesystem::path& file, const std::string& key) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(key + ":\t")) return line.substr(key.size() + 2);
    }
    return std::string();
  };
  const auto blocked = [&] {
    std::optional<unsigned long long> mask;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (field(task.path() / "status", "Name") == "daqiri-tcp")
        mask = std::stoull(field(task.path() / "status", "SigBlk"), nullptr, 16);
    }
    return mask;
  };
  // Wait until the thread has started.
  REQUIRE(eventually([&] { return blocked().value_or(0) != 0; }));
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    INFO(signal);
    CHECK((*blocked() >> static_cast<unsigned>(signal - 1) & 1U) == 1U);
  }
}

TEST_CASE("a peer that has finished sending is still answered", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto session = Session::open(tcp_server("127.0.0.1", port));
  const Stream peer = Stream::connect_to("127.0.0.1", port);
  const Bytes request = stream_of(100'000, 1);
  const Bytes answer = stream_of(500'000, 2);
  std::jthread asking([&] {
    peer.send(request);
    peer.finish();
  });
  CHECK((receive_bytes(session->rx_queue(0, 0), request.size()) == request));
  asking.join();
  usleep(20'000);
  Bytes got;
  std::jthread reader([&] { got = peer.receive(answer.size()); });
  CHECK(send_packets(session->tx_queue(0, 0), pieces_of(answer, 1000), only_peer(*session).id));
  reader.join();
  CHECK((got == answer));
  session->close();
  CHECK(peer.at_end());
}

TEST_CASE("sending to a server's peer that is gone fails, and is counted", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto session = Session::open(tcp_server("127.0.0.1", port));
  Stream peer = Stream::connect_to("127.0.0.1", port);
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 1; }));
  const std::uintptr_t id = only_peer(*session).id;
  peer.reset();
  REQUIRE(eventually([&] { return only_peer(*session).state == ConnectionState::CLOSED; }));
  TxQueue& tx = session->tx_queue(0, 0);
  CHECK(send_packets(tx, {stream_of(10), stream_of(10)}, id));
  CHECK(dropped(tx.counters(), DropReason::SEND_ERROR) == 2);
}

TEST_CASE("a port that only sends notices when its peer is gone", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  NetworkConfig config = tcp_server("127.0.0.1", port);
  config.ifs_[0].rx_.queues_.clear();
  config.mrs_.erase("rx_data");
  const auto session = Session::open(config);
  Stream peer = Stream::connect_to("127.0.0.1", port);
  CHECK(peer.send(stream_of(100)));
  REQUIRE(eventually([&] { return count_in(*session, ConnectionState::CONNECTED) == 1; }));
  std::jthread sender([&] { send_packets(session->tx_queue(0, 0), {stream_of(77)}); });
  CHECK((peer.receive(77) == stream_of(77)));
  sender.join();
  peer.reset();
  CHECK(eventually([&] { return only_peer(*session).state == ConnectionState::CLOSED; }));
}

TEST_CASE("connections are made at run time, or refused with a cause", "[tcp]") {
  const Listener configured("127.0.0.1");
  const Listener other("127.0.0.1");
  const auto session = Session::open(tcp_client("127.0.0.1", configured.port()));
  const Stream first = configured.accept();
  Connections& manager = session->connections();
  const std::uintptr_t own = connections(*session)[0].id;
  CHECK(manager.connect("127.0.0.1", configured.port(), "") == own);
  const std::uintptr_t made = manager.connect("127.0.0.1", other.port(), "127.0.0.2");
  const Stream second = other.accept();
  CHECK(made != own);
  CHECK(connections(*session)[1].local.starts_with("127.0.0.2:"));
  CHECK(send_packets(session->tx_queue(0, 0), {stream_of(20, 1)}, made));
  CHECK(send_packets(session->tx_queue(0, 0), {stream_of(20, 2)}));
  CHECK((second.receive(20) == stream_of(20, 1)));
  CHECK((first.receive(20) == stream_of(20, 2)));
  REQUIRE(second.send(stream_of(30, 3)));
  const auto packets = receive_packets(session->rx_queue(0, 0), 1);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].connection == made);

  const std::uint16_t nobody = free_tcp_port("127.0.0.1");
  const auto [status, text] = error_of([&] { manager.connect("127.0.0.1", nobody, ""); });
  CHECK(status == Status::CONNECT_FAILURE);
  CHECK_THAT(text, Catch::Contains("Connection refused") && Catch::Contains("ss -ltn"));
  CHECK(error_of([&] { manager.connect("::1", nobody, ""); }).first == Status::CONNECT_FAILURE);
}

TEST_CASE("socket options reach the right socket", "[tcp]") {
  const Listener listener("127.0.0.1");
  const auto client = Session::open(tcp_client("127.0.0.1", listener.port()));
  const Stream peer = listener.accept();
  const std::uintptr_t id = connections(*client)[0].id;
  const int tos = 0x10;
  client->connections().set_socket_option(id, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
  const auto [status, text] = error_of(
      [&] { client->connections().set_socket_option(id, IPPROTO_IP, 12345, &tos, sizeof tos); });
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK_THAT(text, Catch::Contains("12345"));
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const auto server = Session::open(tcp_server("127.0.0.1", port));
  const std::uintptr_t listening = server->connections().server_at("127.0.0.1", port);
  CHECK(connections(*server)[0].id == listening);
  CHECK(connections(*server)[0].state == ConnectionState::LISTENING);
  server->connections().set_socket_option(listening, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
  server->close();
  CHECK(error_of([&] {
          server->connections().set_socket_option(listening, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
        }).first == Status::NOT_READY);
}

TEST_CASE("addresses that cannot be used are refused with the fix", "[tcp]") {
  const Listener taken("127.0.0.1");
  const auto [status, text] =
      error_of([&] { Session::open(tcp_server("127.0.0.1", taken.port())); });
  CHECK(status == Status::CONNECT_FAILURE);
  CHECK_THAT(text, Catch::Contains("tcp0") && Catch::Contains("ss -ltnp"));
  CHECK(error_of([&] { Session::open(tcp_server("192.0.2.77", 5000)); }).first ==
        Status::CONNECT_FAILURE);
}

TEST_CASE("sessions open and close under traffic and leave no descriptor", "[tcp]") {
  const auto descriptors = [] {
    int n = 0;
    for (int fd = 0; fd < 512; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
  };
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  const int before = descriptors();
  for (int round = 0; round < 20; ++round) {
    const auto session = Session::open(tcp_server("127.0.0.1", port));
    const Stream peer = Stream::connect_to("127.0.0.1", port);
    std::jthread sender([&] { peer.send(stream_of(500'000)); });
    REQUIRE(eventually([&] { return session->rx_queue(0, 0).counters().received > 0; }));
    session->close();
    CHECK(balanced(session->rx_queue(0, 0).counters()));
    sender.join();
  }
  CHECK(descriptors() == before);
}

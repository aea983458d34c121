// Without a timeout, a burst contains the packets that have arrived, at most batch_size.
#include <catch2/catch.hpp>

#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t BATCH = 8;

/// The packets of the next burst. Waits for at most 10 s.
std::vector<Bytes> next_burst(RxQueue& rx) {
  Burst* burst = nullptr;
  REQUIRE(eventually([&] { return (burst = rx.receive()) != nullptr; }));
  std::vector<Bytes> packets;
  for (std::uint32_t i = 0; i < burst->num_packets(); ++i) packets.push_back(bytes_of(*burst, i));
  burst->release();
  return packets;
}

/// Sends 5 messages, each after the previous one has arrived, and then `count` together.
template <typename Send>
void require_at_once(Session& session, std::uint32_t count, Send&& send) {
  RxQueue& rx = session.rx_queue(0, 0);
  for (std::uint8_t i = 0; i < 5; ++i) {
    send({Bytes(100, i)});
    const auto packets = next_burst(rx);
    REQUIRE(packets.size() == 1);
    REQUIRE((packets[0] == Bytes(100, i)));
  }
  std::vector<Bytes> many;
  for (std::uint32_t i = 0; i < count; ++i) many.push_back(stream_of(100, i));
  send(many);
  Bytes expected;
  for (const Bytes& each : many) expected.insert(expected.end(), each.begin(), each.end());
  Bytes got;
  while (got.size() < expected.size()) {
    const auto packets = next_burst(rx);
    REQUIRE_FALSE(packets.empty());
    REQUIRE(packets.size() <= BATCH);
    for (const Bytes& each : packets) got.insert(got.end(), each.begin(), each.end());
  }
  REQUIRE((got == expected));
  const RxSnapshot counters = rx.counters();
  CHECK(balanced(counters));
  CHECK(counters.held == 0);
  CHECK(counters.dropped_total() == 0);
}

}  // namespace

TEST_CASE("datagrams are handed over as they come", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session =
      Session::open(udp_server("127.0.0.1", port, {.batch = BATCH, .timeout_us = 0}));
  const PlainSocket peer("127.0.0.1");
  require_at_once(*session, 500, [&](const std::vector<Bytes>& packets) {
    for (const Bytes& packet : packets) REQUIRE(peer.send("127.0.0.1", port, packet));
  });
}

TEST_CASE("datagrams of many peers are handed over as they come", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session =
      Session::open(udp_server("127.0.0.1", port, {.batch = BATCH, .timeout_us = 0}));
  RxQueue& rx = session->rx_queue(0, 0);
  std::vector<PlainSocket> peers;
  for (int i = 0; i < 100; ++i) peers.emplace_back("127.0.0.1");
  for (int round = 0; round < 3; ++round) {
    for (const PlainSocket& peer : peers) REQUIRE(peer.send("127.0.0.1", port, Bytes(50)));
    CHECK(receive_packets(rx, peers.size()).size() == peers.size());
  }
  CHECK(rx.counters().held == 0);
}

TEST_CASE("bytes of a stream are handed over as they come", "[tcp]") {
  const std::uint16_t port = free_tcp_port("127.0.0.1");
  TcpOptions options;
  options.batch = BATCH;
  options.timeout_us = 0;
  options.buf_size = 4096;
  const auto session = Session::open(tcp_server("127.0.0.1", port, options));
  const Stream peer = Stream::connect_to("127.0.0.1", port);
  require_at_once(*session, 5000, [&](const std::vector<Bytes>& packets) {
    for (const Bytes& packet : packets) REQUIRE(peer.send(packet));
  });
}

TEST_CASE("with a timeout, what comes meanwhile is gathered", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session =
      Session::open(udp_server("127.0.0.1", port, {.batch = BATCH, .timeout_us = 60'000'000}));
  const PlainSocket peer("127.0.0.1");
  RxQueue& rx = session->rx_queue(0, 0);
  for (std::uint8_t i = 0; i < BATCH; ++i) {
    REQUIRE(rx.receive() == nullptr);
    REQUIRE(peer.send("127.0.0.1", port, Bytes(100, i)));
    REQUIRE(counters_after(rx, i + 1U).received == i + 1U);
  }
  CHECK(next_burst(rx).size() == BATCH);
}

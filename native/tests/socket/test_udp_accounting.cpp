#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Sends `count` datagrams as fast as possible.
void flood(const PlainSocket& peer, const std::string& host, std::uint16_t port,
           std::uint32_t count, std::size_t size) {
  for (std::uint32_t i = 0; i < count; ++i) REQUIRE(peer.send(host, port, numbered(i, size)));
}

}  // namespace

TEST_CASE("With its region exhausted a queue still reads and counts every datagram",
          "[udp][accounting]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server("127.0.0.1", port, {.batch = 16, .num_bufs = 100}));
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peer("127.0.0.1");
  constexpr std::uint32_t COUNT = 1000;
  std::uint64_t sent = 0;
  // In portions, so that the kernel buffer (as large as the region) loses nothing.
  for (std::uint32_t i = 0; i < COUNT; ++i) {
    REQUIRE(peer.send("127.0.0.1", port, numbered(i, 200)));
    if (++sent % 50 == 0) REQUIRE(counters_after(rx, sent).received == sent);
  }
  RxSnapshot counters = counters_after(rx, COUNT);
  REQUIRE(counters.received == COUNT);
  REQUIRE(counters.received_bytes == COUNT * 200);
  REQUIRE(counters.held == 100);
  REQUIRE(dropped(counters, DropReason::NO_PACKET_BUFFER) == COUNT - 100);
  REQUIRE(balanced(counters));

  // The oldest packets are kept. After they are released, receiving continues.
  const auto packets = receive_packets(rx, 100);
  REQUIRE(packets.size() == 100);
  for (std::uint32_t i = 0; i < 100; ++i) REQUIRE(packets[i].bytes == numbered(i, 200));
  for (std::uint32_t i = 0; i < 50; ++i)
    REQUIRE(peer.send("127.0.0.1", port, numbered(5000 + i, 200)));
  const auto later = receive_packets(rx, 50);
  REQUIRE(later.size() == 50);
  REQUIRE(later[0].bytes == numbered(5000, 200));
  session->close();
  REQUIRE(session->memory()->regions.at("rx_data")->available() == 100);
}

TEST_CASE("What the kernel drops is counted", "[udp][accounting]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  const auto session = Session::open(udp_server(host, port, {.buf_size = 9000}));
  RxQueue& rx = session->rx_queue(0, 0);
  const std::uintptr_t connection = session->connections().server_at(host, port);
  const int smallest = 1;
  session->connections().set_socket_option(connection, SOL_SOCKET, SO_RCVBUF, &smallest,
                                           sizeof smallest);
  const PlainSocket peer(host);
  std::uint64_t sent = 0;
  std::uint64_t got = 0;
  // Each round overflows a buffer of one or two datagrams, unless the poller keeps up.
  for (int round = 0; round < 50 && dropped(rx.counters(), DropReason::KERNEL) == 0; ++round) {
    flood(peer, host, port, 500, 8000);
    sent += 500;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    while (Burst* burst = rx.receive()) {
      got += burst->num_packets();
      burst->release();
    }
  }
  const RxSnapshot counters = counters_after(rx, sent);
  REQUIRE(counters.received == sent);
  REQUIRE(dropped(counters, DropReason::KERNEL) > 0);
  REQUIRE(balanced(counters));
  session->close();
  while (Burst* burst = rx.receive()) {
    got += burst->num_packets();
    burst->release();
  }
  REQUIRE(rx.counters().delivered == got);
  REQUIRE(rx.counters().held == 0);
  REQUIRE(sent == got + rx.counters().dropped_total());
}

TEST_CASE("Overload with a slow consumer loses nothing unseen", "[udp][accounting]") {
  const std::uint16_t port = free_port("127.0.0.1");
  auto config = udp_server("127.0.0.1", port, {.batch = 32, .timeout_us = 200, .num_bufs = 256});
  config.rx_meta_buffers_ = 8;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  std::atomic<bool> wrong{false};
  std::uint64_t got = 0;
  std::uint64_t bytes = 0;
  std::jthread consumer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!balanced(rx.counters())) wrong = true;
      Burst* burst = rx.receive();
      if (burst == nullptr) {
        rx.wait(1'000'000);
        continue;
      }
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
        const Bytes data = bytes_of(*burst, i);
        if (data != numbered(test::number_of(data), 1000)) wrong = true;
      }
      got += burst->num_packets();
      bytes += burst->hdr.hdr.nbytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      burst->release();
    }
  });
  constexpr std::uint32_t COUNT = 20'000;
  const PlainSocket peers[2]{PlainSocket("127.0.0.1"), PlainSocket("127.0.0.1")};
  for (std::uint32_t i = 0; i < COUNT; ++i)
    REQUIRE(peers[i / 100 % 2].send("127.0.0.1", port, numbered(i, 1000)));
  counters_after(rx, COUNT);
  consumer.request_stop();
  consumer.join();
  session->close();
  while (Burst* burst = rx.receive()) {
    got += burst->num_packets();
    bytes += burst->hdr.hdr.nbytes;
    burst->release();
  }
  const RxSnapshot counters = rx.counters();
  REQUIRE_FALSE(wrong);
  REQUIRE(counters.received == COUNT);
  REQUIRE(counters.delivered == got);
  REQUIRE(counters.held == 0);
  REQUIRE(bytes == got * 1000);
  REQUIRE(got + counters.dropped_total() == COUNT);
  REQUIRE(counters.dropped_total() > 0);
  REQUIRE(session->memory()->regions.at("rx_data")->available() == 256);
}

TEST_CASE("What was sent before close is received", "[udp][accounting]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server("127.0.0.1", port, {.batch = 64, .timeout_us = 0}));
  const PlainSocket peer("127.0.0.1");
  flood(peer, "127.0.0.1", port, 130, 100);
  session->close();
  const auto packets = receive_packets(session->rx_queue(0, 0), 130);
  REQUIRE(packets.size() == 130);
  REQUIRE(packets[129].bytes == numbered(129, 100));
}

TEST_CASE("A held burst survives the session", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  auto session = Session::open(udp_server("127.0.0.1", port, {.batch = 4}));
  const PlainSocket peer("127.0.0.1");
  flood(peer, "127.0.0.1", port, 4, 100);
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(counters_after(rx, 4).received == 4);
  Burst* burst = nullptr;
  for (int i = 0; i < 2000 && burst == nullptr; ++i) {
    rx.wait(10'000'000);
    burst = rx.receive();
  }
  REQUIRE(burst != nullptr);
  session.reset();
  REQUIRE(bytes_of(*burst, 0) == numbered(0, 100));
  burst->release();
}

TEST_CASE("Sessions open and close on one port again and again", "[udp]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const PlainSocket peer("127.0.0.1");
  for (std::uint32_t i = 0; i < 50; ++i) {
    const auto session = Session::open(udp_server("127.0.0.1", port, {.num_bufs = 128}));
    REQUIRE(peer.send("127.0.0.1", port, numbered(i, 64)));
    const auto packets = receive_packets(session->rx_queue(0, 0), 1);
    REQUIRE(packets.size() == 1);
    REQUIRE(packets[0].bytes == numbered(i, 64));
  }
}

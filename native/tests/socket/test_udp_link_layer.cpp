#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "socket/udp_session.h"
#include "storage/packet_writer.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

std::uint32_t big_endian(const std::uint8_t* at, int bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8U | at[i];
  return value;
}

/// One's-complement sum; 0xFFFF over data that includes its checksum.
std::uint32_t ones_sum(const Bytes& bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += std::uint32_t{bytes[i]} << (i % 2 == 0 ? 8U : 0U);
    sum = (sum & 0xFFFFU) + (sum >> 16U);
  }
  return sum;
}

/// The headers written by the link layer, followed by the packet.
Bytes recorded(const LinkLayer& link, const Burst& burst, std::uint32_t i) {
  std::byte prefix[MAX_LINK_PREFIX];
  const std::uint32_t length = link.prefix(burst, i, prefix);
  Bytes bytes(length);
  std::memcpy(bytes.data(), prefix, length);
  CHECK(length == link.prefix_size(burst.packet_length(i)));
  const Bytes data = bytes_of(burst, i);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

Burst* next_burst(RxQueue& rx) {
  for (int i = 0; i < 200; ++i) {
    Burst* burst = rx.receive();
    if (burst != nullptr) return burst;
    rx.wait(10'000'000);
  }
  return nullptr;
}

constexpr std::uint32_t LOCALHOST = 0x7F000001;

}  // namespace

TEST_CASE("IPv4 headers are those the datagram had", "[udp][link]") {
  const std::string bound = GENERATE("127.0.0.1", "0.0.0.0");
  const std::uint16_t port = free_port(bound);
  auto session = Session::open(udp_server(bound, port, {.batch = 1}));
  const auto link = session->memory()->link_layers[0];
  REQUIRE(link->link_type() == LINKTYPE_RAW);
  REQUIRE(link->reconstructs_headers());
  const PlainSocket peer("127.0.0.1");
  const std::size_t size = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{1399});
  REQUIRE(peer.send("127.0.0.1", port, numbered(5, size)));
  Burst* burst = next_burst(session->rx_queue(0, 0));
  REQUIRE(burst != nullptr);
  // Captures can be written after the session is closed.
  session.reset();
  const Bytes packet = recorded(*link, *burst, 0);
  burst->release();
  REQUIRE(packet.size() == 28 + size);
  REQUIRE(packet[0] == 0x45);
  REQUIRE(big_endian(&packet[2], 2) == 28 + size);
  REQUIRE(packet[8] == 64);
  REQUIRE(packet[9] == IPPROTO_UDP);
  REQUIRE(ones_sum(Bytes(packet.begin(), packet.begin() + 20)) == 0xFFFF);
  REQUIRE(big_endian(&packet[12], 4) == LOCALHOST);
  REQUIRE(big_endian(&packet[16], 4) == LOCALHOST);
  REQUIRE(big_endian(&packet[20], 2) == peer.port());
  REQUIRE(big_endian(&packet[22], 2) == port);
  REQUIRE(big_endian(&packet[24], 2) == 8 + size);
  REQUIRE(big_endian(&packet[26], 2) == 0);
  REQUIRE(Bytes(packet.begin() + 28, packet.end()) == numbered(5, size));
}

TEST_CASE("IPv6 headers carry a valid UDP checksum", "[udp][link]") {
  const std::string bound = GENERATE("::1", "::");
  const std::uint16_t port = free_port(bound);
  const auto session = Session::open(udp_server(bound, port, {.batch = 1}));
  const auto link = session->memory()->link_layers[0];
  const PlainSocket peer("::1");
  const std::size_t size = GENERATE(std::size_t{0}, std::size_t{777}, std::size_t{1400});
  REQUIRE(peer.send("::1", port, numbered(6, size)));
  Burst* burst = next_burst(session->rx_queue(0, 0));
  REQUIRE(burst != nullptr);
  const Bytes packet = recorded(*link, *burst, 0);
  burst->release();
  REQUIRE(packet.size() == 48 + size);
  REQUIRE(packet[0] == 0x60);
  REQUIRE(big_endian(&packet[4], 2) == 8 + size);
  REQUIRE(packet[6] == IPPROTO_UDP);
  Bytes one(16, 0);
  one[15] = 1;
  REQUIRE(Bytes(&packet[8], &packet[24]) == one);
  REQUIRE(Bytes(&packet[24], &packet[40]) == one);
  REQUIRE(big_endian(&packet[40], 2) == peer.port());
  REQUIRE(big_endian(&packet[42], 2) == port);
  REQUIRE(big_endian(&packet[44], 2) == 8 + size);
  REQUIRE(big_endian(&packet[46], 2) != 0);
  Bytes checked(packet.begin() + 8, packet.end());
  for (const std::uint32_t word :
       {static_cast<std::uint32_t>(8 + size), std::uint32_t{IPPROTO_UDP}}) {
    // The pseudo header, after an even number of bytes.
    if (checked.size() % 2 == 1) checked.push_back(0);
    for (int shift = 24; shift >= 0; shift -= 8)
      checked.push_back(static_cast<std::uint8_t>(word >> shift));
  }
  REQUIRE(ones_sum(checked) == 0xFFFF);
}

TEST_CASE("Headers of packets to be sent go the other way", "[udp][link]") {
  const PlainSocket peer("127.0.0.1");
  auto config = udp_client("127.0.0.1", peer.port());
  const std::uint16_t port = free_port("127.0.0.1");
  config.ifs_[0].socket_.local_addr_ = udp_at("127.0.0.1", port);
  const auto session = Session::open(config);
  Burst* burst = nullptr;
  REQUIRE(session->tx_queue(0, 0).allocate(1, &burst) == Status::SUCCESS);
  burst->pkt_lens[0][0] = 10;
  const Bytes packet = recorded(*session->memory()->link_layers[0], *burst, 0);
  burst->release();
  REQUIRE(big_endian(&packet[20], 2) == port);
  REQUIRE(big_endian(&packet[22], 2) == peer.port());
}

TEST_CASE("A packet of a peer without a connection has an unspecified source", "[udp][link]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server("127.0.0.1", port));
  Burst* burst = nullptr;
  REQUIRE(session->tx_queue(0, 0).allocate(1, &burst) == Status::SUCCESS);
  burst->transmit = false;
  burst->pkt_lens[0][0] = 10;
  const Bytes packet = recorded(*session->memory()->link_layers[0], *burst, 0);
  burst->transmit = true;
  burst->release();
  REQUIRE(big_endian(&packet[12], 4) == 0);
  REQUIRE(big_endian(&packet[20], 2) == 0);
  REQUIRE(big_endian(&packet[16], 4) == LOCALHOST);
  REQUIRE(big_endian(&packet[22], 2) == port);
}

TEST_CASE("Headers written once for a burst are those of each packet", "[udp][link]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const PlainSocket peer(host);
  const auto session = Session::open(udp_client(host, peer.port()));
  const auto link = session->memory()->link_layers[0];
  REQUIRE(link->prefix_repeats() == (host == "127.0.0.1"));
  const std::vector<std::uint32_t> lengths{10, 10, 0, 0, 1400, 10, 10, 1399, 1400};
  Burst* burst = nullptr;
  const auto n = static_cast<std::uint32_t>(lengths.size());
  REQUIRE(session->tx_queue(0, 0).allocate(n, &burst) == Status::SUCCESS);
  PacketPrefixes prefixes(*link, *burst);
  for (std::uint32_t i = 0; i < n; ++i) {
    burst->pkt_lens[0][i] = lengths[i];
    std::memset(burst->pkts[0][i], static_cast<int>(i), lengths[i]);
    Bytes expected = recorded(*link, *burst, i);
    std::byte found[MAX_LINK_PREFIX];
    const std::uint32_t size = prefixes.write(i, found);
    REQUIRE(size + lengths[i] == expected.size());
    REQUIRE(std::memcmp(found, expected.data(), size) == 0);
  }
  burst->release();
}

TEST_CASE("Peers are learnt while others are looked up and connected", "[udp][link][peers]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server("127.0.0.1", port, {.batch = 1}));
  const auto link = session->memory()->link_layers[0];
  RxQueue& rx = session->rx_queue(0, 0);
  constexpr std::uint32_t PEERS = 120;
  std::vector<PlainSocket> peers;
  for (std::uint32_t i = 0; i < PEERS; ++i) peers.emplace_back("127.0.0.1");
  std::atomic<bool> wrong{false};
  std::jthread connecting([&] {
    for (std::uint32_t i = PEERS; i-- > 0;) {
      const std::uintptr_t connection =
          session->connections().connect("127.0.0.1", peers[i].port(), "");
      if (session->connections().queue_of(connection).first != 0) wrong = true;
    }
  });
  std::atomic<std::uint32_t> seen{0};
  std::jthread recording([&] {
    const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
    while (seen.load() < PEERS && monotonic_ns() < end) {
      Burst* burst = rx.receive();
      if (burst == nullptr) continue;
      const Bytes packet = recorded(*link, *burst, 0);
      const std::uint32_t sender = number_of(bytes_of(*burst, 0));
      if (big_endian(&packet[20], 2) != peers[sender].port()) wrong = true;
      burst->release();
      ++seen;
    }
  });
  for (std::uint32_t i = 0; i < PEERS; ++i)
    REQUIRE(peers[i].send("127.0.0.1", port, numbered(i, 30)));
  connecting.join();
  recording.join();
  REQUIRE(seen == PEERS);
  REQUIRE_FALSE(wrong);
}

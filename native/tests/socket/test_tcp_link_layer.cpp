// Headers of TCP streams in captures.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <vector>

#include "socket/tcp_session.h"
#include "storage/bursts.h"
#include "storage/file_write.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr int PACKETS = 4;

/// Sequence numbers in a capture, read by tshark.
std::vector<std::string> sequence_numbers(const std::string& path) {
  std::vector<std::string> numbers;
  for (const auto& row : tshark(path, {"tcp.seq_raw"})) numbers.push_back(row.at(0));
  return numbers;
}

}  // namespace

TEST_CASE("Bursts to be sent have their place in the stream, however often they are written",
          "[tcp][link]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint32_t length = GENERATE(100U, 2000U);
  const TempDir dir;
  const std::uint16_t port = free_port(host);
  auto server = Session::open(tcp_server(host, port));
  auto client = Session::open(tcp_client(host, port));
  TxQueue& tx = client->tx_queue(0, 0);
  std::vector<std::string> expected;
  std::uint32_t next = 1;
  for (int b = 0; b < 3; ++b) {
    Burst* burst = nullptr;
    REQUIRE(tx.allocate(PACKETS, &burst) == Status::SUCCESS);
    for (int i = 0; i < PACKETS; ++i) {
      burst->pkt_lens[0][i] = length;
      expected.push_back(std::to_string(next));
      next += length;
    }
    write_pcap(*burst, dir.path(), "once");
    write_pcap(*burst, dir.path(), "twice");
    start_write_pcap(*burst, dir.path(), "later")->wait();
    tx.send(burst);
  }
  REQUIRE(tx.wait_idle(LIMIT_NS));
  for (const char* name : {"once.pcap", "twice.pcap", "later.pcap"})
    CHECK(sequence_numbers(dir / name) == expected);
}

TEST_CASE("The headers of a packet are as long as announced, and always the same", "[tcp][link]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const std::uint16_t port = free_port(host);
  auto server = Session::open(tcp_server(host, port));
  auto client = Session::open(tcp_client(host, port));
  const auto link = client->memory()->link_layers[0];
  Burst* burst = nullptr;
  REQUIRE(client->tx_queue(0, 0).allocate(PACKETS, &burst) == Status::SUCCESS);
  const HeldBurst held(burst);
  for (int i = 0; i < PACKETS; ++i) burst->pkt_lens[0][i] = 100;
  link->place_in_stream(*burst);
  for (std::uint32_t i = 0; i < PACKETS; ++i) {
    std::byte first[MAX_LINK_PREFIX]{};
    std::byte second[MAX_LINK_PREFIX]{};
    const std::uint32_t size = link->prefix(*burst, i, first);
    CHECK(size == link->prefix_size(burst->packet_length(i)));
    CHECK(link->prefix(*burst, i, second) == size);
    CHECK(std::memcmp(first, second, size) == 0);
  }
}

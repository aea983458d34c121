#include <algorithm>
#include <ctime>

#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

BurstParams* receive_one(int port, int queue) {
  BurstParams* burst = nullptr;
  REQUIRE(eventually([&] { return get_rx_burst(&burst, port, queue) == Status::SUCCESS; }));
  return burst;
}

}  // namespace

TEST_CASE("frames written with the header functions arrive in the flow's queue", "[api]") {
  const Engine engine(LOOPBACK);
  const std::uint64_t before = now_ns();
  send_frames(8, 5003, 40);
  BurstParams* burst = receive_one(0, 1);
  REQUIRE(get_num_packets(burst) == 8);
  CHECK(get_q_id(burst) == 1);
  CHECK(burst->hdr.hdr.port_id == 0);
  CHECK(burst->hdr.hdr.num_segs == 1);
  CHECK(burst->event == nullptr);
  CHECK((burst->hdr.hdr.burst_flags & DAQIRI_BURST_FLAG_REORDERED) == 0);
  CHECK(get_burst_tot_byte(burst) == 8 * (HEADERS + PAYLOAD));
  char mac[6];
  REQUIRE(get_mac_addr(0, mac) == Status::SUCCESS);
  std::uint16_t last_id = 0;
  for (int i = 0; i < 8; ++i) {
    CHECK(number_of(burst, i) == 40U + static_cast<std::uint32_t>(i));
    CHECK(get_packet_length(burst, i) == HEADERS + PAYLOAD);
    CHECK(get_segment_packet_length(burst, 0, i) == HEADERS + PAYLOAD);
    CHECK(get_segment_packet_ptr(burst, 0, i) == get_packet_ptr(burst, i));
    CHECK(get_packet_flow_id(burst, i) == 12);
    std::uint64_t ns = 0;
    REQUIRE(get_packet_rx_timestamp(burst, i, &ns) == Status::SUCCESS);
    CHECK(ns >= before);
    CHECK(ns <= now_ns());
    const auto& headers = *static_cast<const UDPIPV4Pkt*>(get_packet_ptr(burst, i));
    CHECK(std::memcmp(headers.eth.h_source, mac, 6) == 0);
    CHECK(headers.ip.ttl == 64);
    CHECK(ntohl(headers.ip.saddr) == SOURCE_IP);
    CHECK(ntohs(headers.ip.tot_len) == 28 + PAYLOAD);
    CHECK(ntohs(headers.udp.dest) == 5003);
    CHECK(headers.udp.check != 0);
    if (i > 0) CHECK(ntohs(headers.ip.id) == static_cast<std::uint16_t>(last_id + 1));
    last_id = ntohs(headers.ip.id);
  }
  free_all_packets_and_burst_rx(burst);
}

TEST_CASE("headers and payload travel in segments of their own", "[api]") {
  const Engine engine(SPLIT);
  BurstParams* burst = filled_burst(1, 0, 0, 2);
  std::uint8_t payload[500];
  std::fill(std::begin(payload), std::end(payload), std::uint8_t{0x5A});
  char mac[6]{};
  REQUIRE(set_eth_header(burst, 0, mac) == Status::SUCCESS);
  REQUIRE(set_ipv4_header(burst, 0, 508, IPPROTO_UDP, 1, 2) == Status::SUCCESS);
  REQUIRE(set_udp_header(burst, 0, 500, 1, 2) == Status::SUCCESS);
  REQUIRE(set_udp_payload(burst, 0, payload, 500) == Status::SUCCESS);
  CHECK(std::memcmp(get_segment_packet_ptr(burst, 1, 0), payload, 500) == 0);
  CHECK(set_packet_lengths(burst, 0, {42}) == Status::INVALID_PARAMETER);
  CHECK(set_packet_lengths(burst, 0, {42, 500, 1}) == Status::INVALID_PARAMETER);
  CHECK(set_packet_lengths(burst, 0, {65, 500}) == Status::INVALID_PARAMETER);
  CHECK(set_packet_lengths(burst, 0, {42, -1}) == Status::INVALID_PARAMETER);
  REQUIRE(set_packet_lengths(burst, 0, {42, 500}) == Status::SUCCESS);
  CHECK(get_burst_tot_byte(burst) == 542);
  REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
  BurstParams* received = receive_one(0, 0);
  CHECK(get_segment_packet_length(received, 0, 0) == 42);
  CHECK(get_segment_packet_length(received, 1, 0) == 500);
  CHECK(get_packet_length(received, 0) == 542);
  CHECK(std::memcmp(get_segment_packet_ptr(received, 1, 0), payload, 500) == 0);
  free_packet_segment(received, 0, 0);
  CHECK(get_segment_packet_ptr(received, 0, 0) == nullptr);
  CHECK(get_segment_packet_ptr(received, 1, 0) != nullptr);
  free_all_segment_packets(received, 1);
  free_rx_burst(received);
}

TEST_CASE("lengths of any integer type are accepted, and counted once", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(2);
  const std::uint16_t u16 = 60;
  const int i = 61;
  const std::size_t size = 62;
  const std::uint32_t u32 = 63;
  CHECK(set_packet_lengths(burst, 0, {u16}) == Status::SUCCESS);
  CHECK(set_packet_lengths(burst, 0, {i}) == Status::SUCCESS);
  CHECK(set_packet_lengths(burst, 0, {size}) == Status::SUCCESS);
  CHECK(set_packet_lengths(burst, 0, {u32}) == Status::SUCCESS);
  CHECK(get_burst_tot_byte(burst) == 63);
  CHECK(set_all_packet_lengths(burst, {size}) == Status::SUCCESS);
  CHECK(get_burst_tot_byte(burst) == 124);
  CHECK(set_all_packet_lengths(burst, {2048}) == Status::SUCCESS);
  CHECK(set_all_packet_lengths(burst, {2049}) == Status::INVALID_PARAMETER);
  CHECK(set_packet_lengths(burst, 1, {u32, i}) == Status::INVALID_PARAMETER);
  CHECK(get_burst_tot_byte(burst) == 4096);
  free_tx_burst(burst);
}

TEST_CASE("header lengths beyond the buffer are refused", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(1);
  std::vector<char> data(3000);
  CHECK(set_ipv4_header(burst, 0, 2048 - 34, IPPROTO_UDP, 1, 2) == Status::SUCCESS);
  CHECK(set_ipv4_header(burst, 0, 2048 - 33, IPPROTO_UDP, 1, 2) == Status::INVALID_PARAMETER);
  CHECK(set_ipv4_header(burst, 0, -1, IPPROTO_UDP, 1, 2) == Status::INVALID_PARAMETER);
  CHECK(set_udp_header(burst, 0, 2048 - 42, 1, 2) == Status::SUCCESS);
  CHECK(set_udp_header(burst, 0, 2048 - 41, 1, 2) == Status::INVALID_PARAMETER);
  CHECK(set_udp_payload(burst, 0, data.data(), 2048 - 41) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("2007") && Catch::Contains("2048"));
  CHECK(set_udp_payload(burst, 0, data.data(), -5) == Status::INVALID_PARAMETER);
  free_tx_burst(burst);
}

TEST_CASE("get_tx_packet_burst refuses what the queue does not have", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = create_tx_burst_params();
  REQUIRE(burst != nullptr);
  const auto refused = [&](std::uint16_t port, std::uint16_t queue, std::int64_t num, int segs,
                           const char* why) {
    set_header(burst, port, queue, num, segs);
    CHECK_FALSE(is_tx_burst_available(burst));
    CHECK(get_tx_packet_burst(burst) == Status::INVALID_PARAMETER);
    CHECK_THAT(last_error(), Catch::Contains(why));
  };
  refused(9, 0, 1, 1, "no port 9");
  refused(0, 9, 1, 1, "no transmit queue 9");
  refused(0, 0, -3, 1, "-3 packets");
  refused(0, 0, 129, 1, "129 packets; a burst has 1 to 128 (num_bufs");
  refused(0, 0, 1, 2, "2 segments");
  refused(0, 0, 1, 77, "segments");
  CHECK(send_tx_burst(burst) == Status::INVALID_PARAMETER);
  set_header(burst, 0, 0, 8, 1);
  CHECK(is_tx_burst_available(burst));
  REQUIRE(get_tx_packet_burst(burst) == Status::SUCCESS);
  CHECK(get_tx_packet_burst(burst) == Status::INVALID_PARAMETER);
  set_header(burst, 1, 0, 1, 1);
  CHECK(burst->hdr.hdr.port_id == 0);
  free_tx_burst(burst);
}

TEST_CASE("a burst has as many packets as are asked for, or batch_size", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = create_tx_burst_params();
  REQUIRE(burst != nullptr);
  set_header(burst, 0, 0, 0, 1);
  CHECK(is_tx_burst_available(burst));
  REQUIRE(get_tx_packet_burst(burst) == Status::SUCCESS);
  CHECK(get_num_packets(burst) == 8);
  free_tx_burst(burst);

  // Fill one burst after the other. Each has room for more than batch_size packets.
  constexpr int COUNT = 104;
  for (int round = 0; round < 20; ++round) {
    burst = filled_burst(COUNT);
    REQUIRE(get_num_packets(burst) == COUNT);
    for (int i = 0; i < COUNT; ++i)
      write_frame(burst, i, 5000, static_cast<std::uint32_t>(COUNT * round + i));
    REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
    const auto numbers =
        receive_numbers(COUNT, [](BurstParams** b) { return get_rx_burst(b, 0, 0); });
    REQUIRE(numbers.size() == COUNT);
    for (std::size_t i = 0; i < COUNT; ++i) REQUIRE(numbers[i] == std::uint32_t{COUNT} * round + i);
  }
  // The requested number may still be changed.
  burst = create_tx_burst_params();
  set_header(burst, 0, 0, 1, 1);
  set_num_packets(burst, 50);
  REQUIRE(get_tx_packet_burst(burst) == Status::SUCCESS);
  CHECK(get_num_packets(burst) == 50);
  free_tx_burst(burst);
}

TEST_CASE("send_tx_burst refuses what cannot be sent and leaves it with the caller", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(4);
  CHECK(send_tx_burst(burst) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("no length"));
  REQUIRE(set_all_packet_lengths(burst, {64}) == Status::SUCCESS);
  set_num_packets(burst, 5);
  CHECK(get_num_packets(burst) == 4);
  burst->hdr.hdr.num_pkts = 5;
  CHECK(send_tx_burst(burst) == Status::INVALID_PARAMETER);
  burst->hdr.hdr.num_pkts = 4;
  burst->hdr.hdr.port_id = 1;
  CHECK(send_tx_burst(burst) == Status::SUCCESS);

  burst = filled_burst(4);
  REQUIRE(set_all_packet_lengths(burst, {64}) == Status::SUCCESS);
  free_packet(burst, 2);
  CHECK(set_packet_lengths(burst, 2, {64}) == Status::INVALID_PARAMETER);
  CHECK(send_tx_burst(burst) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("packet 2 was freed"));
  set_num_packets(burst, 2);
  CHECK(send_tx_burst(burst) == Status::SUCCESS);
  CHECK(send_tx_burst(burst) == Status::INVALID_PARAMETER);

  send_frames(8, 5000);
  BurstParams* received = receive_one(0, 0);
  CHECK(send_tx_burst(received) == Status::INVALID_PARAMETER);
  CHECK(set_packet_lengths(received, 0, {64}) == Status::INVALID_PARAMETER);
  CHECK(set_packet_tx_time(received, 0, 1) == Status::INVALID_PARAMETER);
  free_rx_burst(received);
}

TEST_CASE("buffers that run out are told from bursts that run out", "[api]") {
  const Engine engine(LOOPBACK);
  std::vector<BurstParams*> held;
  for (int i = 0; i < 16; ++i) held.push_back(create_tx_burst_params());
  CHECK(std::none_of(held.begin(), held.end(), [](const auto* b) { return b == nullptr; }));
  CHECK(create_tx_burst_params() == nullptr);
  CHECK_THAT(last_error(), Catch::Contains("tx_meta_buffers: 16"));
  int filled = 0;
  for (BurstParams* burst : held) {
    set_header(burst, 0, 0, 8, 1);
    if (get_tx_packet_burst(burst) == Status::SUCCESS) ++filled;
  }
  CHECK(filled == 16);
  for (BurstParams* burst : held) free_all_packets_and_burst_tx(burst);
  NetworkConfig config;
  REQUIRE(parse_network_config(LOOPBACK, config) == Status::SUCCESS);
  config.tx_meta_buffers_ = 32;
  shutdown();
  REQUIRE(daqiri_init(config) == Status::SUCCESS);
  held.clear();
  Status status = Status::SUCCESS;
  while (status == Status::SUCCESS && held.size() < 32) {
    held.push_back(create_tx_burst_params());
    set_header(held.back(), 0, 0, 8, 1);
    status = get_tx_packet_burst(held.back());
  }
  CHECK(status == Status::NO_FREE_PACKET_BUFFERS);
  CHECK(held.size() == 17);
  CHECK_FALSE(is_tx_burst_available(held.back()));
  free_packet(held.front(), 0);
  CHECK_FALSE(is_tx_burst_available(held.back()));
  free_tx_burst(held.front());
  CHECK(is_tx_burst_available(held.back()));
  CHECK(get_tx_packet_burst(held.back()) == Status::SUCCESS);
  for (std::size_t i = 1; i < held.size(); ++i) free_tx_burst(held[i]);
}

TEST_CASE("a full ring frees the burst that it refuses", "[api]") {
  const Engine engine(LOOPBACK);
  // Launch times far ahead, so that the ring fills. The worker takes one burst from it.
  const std::uint64_t later = now_ns() + 3'600'000'000'000ULL;
  Status status = Status::SUCCESS;
  int accepted = 0;
  BurstParams* last = nullptr;
  while (status == Status::SUCCESS && accepted < 16) {
    last = create_tx_burst_params();
    if (last == nullptr) break;
    set_header(last, 0, 0, 1, 1);
    REQUIRE(get_tx_packet_burst(last) == Status::SUCCESS);
    write_frame(last, 0, 5000, 0);
    REQUIRE(set_packet_tx_time(last, 0, later) == Status::SUCCESS);
    status = send_tx_burst(last);
    if (status == Status::SUCCESS) ++accepted;
  }
  CHECK(accepted >= 15);
  if (status != Status::SUCCESS) {
    CHECK(status == Status::NO_SPACE_AVAILABLE);
    CHECK(get_num_packets(last) == 0);
  }
}

TEST_CASE("packets leave at their launch times", "[api]") {
  const Engine engine(LOOPBACK);
  const std::uint64_t launch = now_ns() + 30'000'000;
  constexpr std::uint64_t GAP = 2'000'000;
  BurstParams* burst = filled_burst(8);
  for (int i = 0; i < 8; ++i) {
    write_frame(burst, i, 5000, static_cast<std::uint32_t>(i));
    REQUIRE(set_packet_tx_time(burst, i, launch + GAP * static_cast<std::uint64_t>(i)) ==
            Status::SUCCESS);
  }
  REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
  std::uint32_t expected = 0;
  std::uint64_t previous = 0;
  REQUIRE(eventually([&] {
    BurstParams* received = nullptr;
    if (get_rx_burst(&received, 0, 0) != Status::SUCCESS) return false;
    for (int i = 0; i < get_num_packets(received); ++i) {
      std::uint64_t ns = 0;
      CHECK(get_packet_rx_timestamp(received, i, &ns) == Status::SUCCESS);
      CHECK(number_of(received, i) == expected);
      CHECK(ns >= launch + GAP * expected);
      CHECK(ns >= previous);
      previous = ns;
      ++expected;
    }
    free_rx_burst(received);
    return expected == 8;
  }));
}

TEST_CASE("waiting for buffers ends when open bursts have them", "[api]") {
  // One region for both directions. Received packets wait for a full burst, which never comes.
  std::string yaml = LOOPBACK;
  for (const char* name : {"t, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]",
                           "u, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]"})
    yaml.replace(yaml.find(name) + std::strlen(name) - 3, 2, "rx");
  yaml.replace(yaml.find("num_bufs: 512"), 13, "num_bufs: 96 ");
  for (int i = 0; i < 2; ++i)
    yaml.replace(yaml.find("batch_size: 8, timeout_us"), 13, "batch_size: 60");
  const Engine engine(yaml);
  int received = 0;
  constexpr int BURSTS = 40;
  for (int i = 0; i < BURSTS; ++i) {
    BurstParams* burst = create_tx_burst_params();
    set_header(burst, 0, 0, 12, 1);
    REQUIRE(eventually([&] {
      BurstParams* taken = nullptr;
      while (get_rx_burst(&taken, 0) == Status::SUCCESS) {
        received += static_cast<int>(get_num_packets(taken));
        free_all_packets_and_burst_rx(taken);
      }
      return is_tx_burst_available(burst);
    }));
    REQUIRE(get_tx_packet_burst(burst) == Status::SUCCESS);
    for (int p = 0; p < 12; ++p) write_frame(burst, p, static_cast<std::uint16_t>(5000 + i % 2), 0);
    REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
  }
  CHECK(received >= BURSTS * 12 - 96);
}

TEST_CASE("a burst that is used again has nothing of its last user", "[api]") {
  const Engine engine(LOOPBACK);
  int freed = 0;
  // More than there are, so that each burst is used again.
  for (int i = 0; i < 40; ++i) {
    BurstParams* burst = filled_burst(1);
    CHECK(std::ranges::count(burst->hdr.custom_burst_data, 0) ==
          static_cast<std::ptrdiff_t>(std::size(burst->hdr.custom_burst_data)));
    CHECK(burst->pkt_extra_info == nullptr);
    CHECK(burst->custom_pkt_data == nullptr);
    CHECK(burst->transport_hdr.wr_id == TransportHeader{}.wr_id);
    CHECK(burst->transport_hdr.status == TransportHeader{}.status);
    void* extra = nullptr;
    std::ranges::fill(burst->hdr.custom_burst_data, std::uint8_t{7});
    burst->pkt_extra_info = &extra;
    burst->transport_hdr.wr_id = 17;
    burst->transport_hdr.status = Status::CONNECT_FAILURE;
    burst->custom_pkt_data =
        std::shared_ptr<void>(&freed, [](void* count) { ++*static_cast<int*>(count); });
    free_all_packets_and_burst_tx(burst);
    CHECK(freed == i + 1);
  }
}

#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("ports are found by name and address", "[api]") {
  const Engine engine(LOOPBACK);
  CHECK(get_port_id("camera") == 0);
  CHECK(get_port_id("clock") == 1);
  CHECK(get_port_id("loopback1") == 1);
  CHECK(get_num_rx_queues(0) == 2);
  CHECK(get_num_rx_queues(1) == 1);
  char first[6]{};
  char second[6]{};
  CHECK(get_mac_addr(0, first) == Status::SUCCESS);
  CHECK(get_mac_addr(1, second) == Status::SUCCESS);
  CHECK(std::memcmp(first, second, 6) != 0);
}

TEST_CASE("dropped traffic never comes, and only the port's own", "[api]") {
  const Engine engine(LOOPBACK);
  const auto from = [](int port, int queue) {
    return [=](BurstParams** b) { return get_rx_burst(b, port, queue); };
  };
  send_frames(8, 5000, 100);
  send_frames(3, 5000, 200);
  await_bursts(0, 0, 1);
  REQUIRE(drop_all_traffic(0) == Status::SUCCESS);
  REQUIRE(drop_all_traffic(0) == Status::SUCCESS);
  send_frames(8, 5000, 300);
  send_frames(8, 9, 400, 1);
  CHECK(receive_numbers(8, from(1, 5)).size() == 8);
  REQUIRE(allow_all_traffic(0) == Status::SUCCESS);
  REQUIRE(allow_all_traffic(0) == Status::SUCCESS);
  send_frames(8, 5000, 500);
  const auto numbers = receive_numbers(8, from(0, 0));
  REQUIRE(numbers.size() == 8);
  CHECK(numbers.front() == 500);
}

TEST_CASE("a flush drops what is queued and nothing later", "[api]") {
  const Engine engine(LOOPBACK);
  send_frames(8, 5000, 100);
  send_frames(8, 5001, 200);
  await_bursts(0, 0, 1);
  await_bursts(0, 1, 1);
  REQUIRE(flush_port_queue(0, 0) == Status::SUCCESS);
  BurstParams* burst = nullptr;
  CHECK(get_rx_burst(&burst, 0, 0) == Status::NULL_PTR);
  send_frames(8, 5000, 300);
  const auto numbers = receive_numbers(8, [](BurstParams** b) { return get_rx_burst(b, 0, 0); });
  REQUIRE(numbers.size() == 8);
  CHECK(numbers.front() == 300);
  CHECK(receive_numbers(8, [](BurstParams** b) { return get_rx_burst(b, 0, 1); }).size() == 8);
}

TEST_CASE("a flush of a transmit queue tells how many packets it drops", "[api]") {
  const Engine engine(LOOPBACK);
  std::uint64_t dropped = 99;
  CHECK(flush_tx_queue(0, 0, &dropped) == Status::SUCCESS);
  CHECK(dropped == 0);
  CHECK(flush_tx_queue(0, 0, nullptr) == Status::SUCCESS);
  CHECK(flush_tx_queue(0, 77, &dropped) == Status::INVALID_PARAMETER);
}

TEST_CASE("addresses are six pairs of digits, anything else is zero", "[api]") {
  const auto parsed = [](const std::string& text) {
    char mac[6];
    std::memset(mac, 0x55, sizeof mac);
    format_eth_addr(mac, text);
    return std::string(mac, sizeof mac);
  };
  const std::string zeros(6, '\0');
  CHECK(parsed("00:11:aA:fF:9e:80") == std::string("\x00\x11\xAA\xFF\x9E\x80", 6));
  for (const char* bad :
       {"", "00:11:22:33:44", "00:11:22:33:44:55:66", "0:11:22:33:44:555", "00-11-22-33-44-55",
        "00:11:22:33:44:5g", "00:11:22:33:44:55 ", " 00:11:22:33:44:5"}) {
    CHECK(parsed(bad) == zeros);
    CHECK_THAT(last_error(), Catch::Contains(bad));
  }
}

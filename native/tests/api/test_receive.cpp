#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

using Place = std::pair<int, int>;

/// Puts two bursts of 8 packets into every queue.
void send_everywhere() {
  for (int round = 0; round < 2; ++round) {
    send_frames(8, 5000, 0, 0);
    send_frames(8, 5001, 0, 0);
    send_frames(8, 9, 0, 1);
  }
  await_bursts(0, 0, 2);
  await_bursts(0, 1, 2);
  await_bursts(1, 5, 2);
}

template <typename Get>
std::vector<Place> order_of(std::size_t bursts, Get&& get) {
  std::vector<Place> order;
  eventually([&] {
    BurstParams* burst = nullptr;
    if (get(&burst) != Status::SUCCESS) return false;
    order.emplace_back(burst->hdr.hdr.port_id, get_q_id(burst));
    free_rx_burst(burst);
    return order.size() == bursts;
  });
  return order;
}

}  // namespace

TEST_CASE("nothing yet is no failure", "[api]") {
  const Engine engine(LOOPBACK);
  get_port_id("before");
  const std::string text = last_error();
  auto* burst = reinterpret_cast<BurstParams*>(1);
  CHECK(get_rx_burst(&burst, 0, 0) == Status::NULL_PTR);
  CHECK(burst == nullptr);
  CHECK(get_rx_burst(&burst, 1) == Status::NULL_PTR);
  CHECK(get_rx_burst(&burst) == Status::NULL_PTR);
  CHECK(text == last_error());
}

TEST_CASE("a program may wait for a burst", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = nullptr;
  SECTION("that is there") {
    send_frames(8, 5000);
    REQUIRE(wait_rx_burst(&burst, 0, 0, 5'000'000) == Status::SUCCESS);
    CHECK(get_num_packets(burst) == 8);
    free_rx_burst(burst);
  }
  SECTION("that is sent meanwhile") {
    std::thread sender([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      send_frames(8, 5000);
    });
    const Status status = wait_rx_burst(&burst, 0, 0, 5'000'000);
    sender.join();
    REQUIRE(status == Status::SUCCESS);
    free_rx_burst(burst);
  }
  SECTION("that does not come") {
    CHECK(wait_rx_burst(&burst, 0, 0, 2000) == Status::NULL_PTR);
    CHECK(wait_rx_burst(&burst, 0, 0, 0) == Status::NULL_PTR);
    CHECK(burst == nullptr);
  }
  SECTION("while another thread shuts the engine down") {
    std::thread closer([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      shutdown();
    });
    CHECK(wait_rx_burst(&burst, 0, 0, 30'000'000) != Status::SUCCESS);
    closer.join();
  }
  SECTION("but not for less than nothing") {
    CHECK(wait_rx_burst(&burst, 0, 0, -1) == Status::INVALID_PARAMETER);
    CHECK(std::string(last_error()).find("wait_rx_burst: timeout_us is -1") != std::string::npos);
    CHECK(wait_rx_burst(nullptr, 0, 0, 1) == Status::INVALID_PARAMETER);
    CHECK(wait_rx_burst(&burst, 0, 77, 1) == Status::INVALID_PARAMETER);
  }
}

TEST_CASE("queues take turns", "[api]") {
  const Engine engine(LOOPBACK);
  send_everywhere();
  SECTION("of a port") {
    const auto order = order_of(4, [](BurstParams** b) { return get_rx_burst(b, 0); });
    REQUIRE(order.size() == 4);
    CHECK(order == std::vector<Place>{{0, 0}, {0, 1}, {0, 0}, {0, 1}});
  }
  SECTION("of all ports") {
    const auto order = order_of(6, [](BurstParams** b) { return get_rx_burst(b); });
    REQUIRE(order.size() == 6);
    CHECK(order == std::vector<Place>{{0, 0}, {0, 1}, {1, 5}, {0, 0}, {0, 1}, {1, 5}});
  }
  SECTION("after the one that last had data") {
    BurstParams* burst = nullptr;
    for (int i = 0; i < 2; ++i) {
      REQUIRE(get_rx_burst(&burst, 0, 1) == Status::SUCCESS);
      free_rx_burst(burst);
    }
    const auto order = order_of(4, [](BurstParams** b) { return get_rx_burst(b); });
    CHECK(order == std::vector<Place>{{0, 0}, {1, 5}, {0, 0}, {1, 5}});
  }
}

TEST_CASE("several threads share the queues without losing or doubling a packet", "[api]") {
  const Engine engine(LOOPBACK);
  constexpr std::uint32_t COUNT = 2000;
  std::mutex mutex;
  std::multiset<std::uint32_t> seen;
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!done.load()) {
        BurstParams* burst = nullptr;
        if (get_rx_burst(&burst) != Status::SUCCESS) {
          std::this_thread::yield();
          continue;
        }
        const std::lock_guard lock(mutex);
        for (int i = 0; i < get_num_packets(burst); ++i) {
          std::uint32_t number = 0;
          std::memcpy(&number, static_cast<const char*>(get_packet_ptr(burst, i)) + HEADERS,
                      sizeof number);
          seen.insert(number);
        }
        free_rx_burst(burst);
      }
    });
  }
  for (std::uint32_t n = 0; n < COUNT; n += 8) {
    send_frames(8, static_cast<std::uint16_t>(5000 + n / 8 % 2), n);
    // The receive pool is finite: packets that are not read are dropped.
    eventually([&] {
      const std::lock_guard lock(mutex);
      return seen.size() + 128 > n;
    });
  }
  CHECK(eventually([&] {
    const std::lock_guard lock(mutex);
    return seen.size() == COUNT;
  }));
  done = true;
  for (auto& reader : readers) reader.join();
  CHECK(std::set<std::uint32_t>(seen.begin(), seen.end()).size() == COUNT);
}

TEST_CASE("packets freed one by one go back and leave the rest", "[api]") {
  const Engine engine(LOOPBACK);
  // More rounds than there are buffers: a buffer that is not returned would be missed.
  for (int round = 0; round < 100; ++round) {
    send_frames(8, 5000);
    BurstParams* burst = nullptr;
    REQUIRE(eventually([&] { return get_rx_burst(&burst, 0, 0) == Status::SUCCESS; }));
    REQUIRE(get_num_packets(burst) == 8);
    free_packet(burst, 3);
    free_packet(burst, 3);
    CHECK(get_packet_ptr(burst, 3) == nullptr);
    CHECK(get_packet_ptr(burst, 4) != nullptr);
    switch (round % 6) {
      case 0:
        free_all_packets_and_burst_rx(burst);
        break;
      case 1:
        free_rx_burst(burst);
        break;
      case 2:
        free_rx_metadata(burst);
        break;
      case 3:
        free_segment_packets_and_burst(burst, 0);
        break;
      case 4:
        free_all_segment_packets(burst, 0);
        free_rx_burst(burst);
        break;
      default:
        for (int i = 0; i < 8; ++i) free_packet(burst, i);
        free_rx_burst(burst);
    }
    CHECK(get_num_packets(burst) == 0);
  }
}

TEST_CASE("a burst freed by two threads at once goes back once", "[api]") {
  const Engine engine(LOOPBACK);
  for (int round = 0; round < 200; ++round) {
    BurstParams* burst = filled_burst(4);
    std::thread other([&] { free_tx_burst(burst); });
    free_tx_burst(burst);
    other.join();
  }
  std::set<BurstParams*> all;
  for (int i = 0; i < 16; ++i) all.insert(create_tx_burst_params());
  CHECK(all.size() == 16);
  CHECK(all.count(nullptr) == 0);
  for (BurstParams* burst : all) free_tx_burst(burst);
}

TEST_CASE("a program chooses the mode of a plan", "[api]") {
  std::string yaml = LOOPBACK;
  const std::string first = "- {name: rx, ";
  yaml.insert(yaml.find(first), "- {name: frames, kind: host, num_bufs: 16, buf_size: 8192}\n");
  const std::string sending = "  tx:";
  yaml.insert(yaml.find(sending), R"(    reorder_configs:
    - name: images
      reorder_type: cpu
      memory_region: frames
      flow_ids: [11]
      payload_base: udp_payload
      payload_byte_offset: 0
      timeout_us: 0
      method:
        seq_packets_per_batch:
          sequence_number: {bit_offset: 0, bit_width: 32, byte_order: little, base: udp_payload}
          packets_per_batch: 2
      modes:
        long:
          method:
            seq_packets_per_batch:
              sequence_number: {bit_offset: 0, bit_width: 32, byte_order: little, base: udp_payload}
              packets_per_batch: 4
)");
  const Engine engine(yaml);
  const auto packets_of_next = [] {
    BurstParams* burst = nullptr;
    REQUIRE(wait_rx_burst(&burst, 0, 0, 10'000'000) == Status::SUCCESS);
    ReorderBurstInfo info;
    REQUIRE(get_reorder_burst_info(burst, &info) == Status::SUCCESS);
    free_all_packets_and_burst_rx(burst);
    return info.packets_per_batch;
  };
  send_frames(2, 5000);
  CHECK(packets_of_next() == 2);
  CHECK(set_reorder_mode("camera", "images", "long") == Status::SUCCESS);
  send_frames(4, 5000);
  CHECK(packets_of_next() == 4);
  CHECK(set_reorder_mode("camera", "images", "short") == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("no mode 'short'; accepted are 'long'"));
  CHECK(set_reorder_mode("camera", "images", std::string("long\0", 5)) ==
        Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("no mode 'long\\x00'; accepted are 'long'"));
  CHECK(set_reorder_mode("camera", "images", std::string(1000, 'x')) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("xxx...'; accepted are 'long'"));
  CHECK(set_reorder_mode("camera", std::string("i\0", 2), "") == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("no reorder config 'i\\x00'; it has images"));
  CHECK(set_reorder_mode(std::string("c\0", 2), "images", "") == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("no interface is named 'c\\x00'; there are camera"));
  CHECK(set_reorder_mode("camera", "others", "long") == Status::INVALID_PARAMETER);
  CHECK(set_reorder_mode("camera", "images", "") == Status::SUCCESS);
  send_frames(2, 5000);
  CHECK(packets_of_next() == 2);
}

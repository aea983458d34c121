// Memory of packets: those that a device splits into memory regions, and those to send.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/memory_device.h"
#include "engines/dpdk/other_process.h"
#include "frames.h"
#include "log_taker.h"
#include "session/loopback_config.h"
#include "session/single_packets.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* SPLIT = "a device of DPDK splits packets";
constexpr const char* CHANGED = "a device of DPDK splits packets that the engine changes";
constexpr const char* FULL = "a device of DPDK that splits packets has too few buffers";
constexpr const char* SENT = "a device of DPDK is given packets to send";
constexpr const char* UNABLE = "a device of DPDK does not split packets";

constexpr std::uint32_t BOUNDARY = 64;
constexpr const char* BY_DEVICE = "split by the device";
constexpr const char* BY_ENGINE = "split by the engine";

NetworkConfig split_config() {
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  add_region(config, "rx_headers", "rx_frames", 256);
  for (RxQueueConfig& queue : config.ifs_[0].rx_.queues_) {
    queue.common_.mrs_ = {"rx_headers", "rx_frames"};
    queue.common_.split_boundary_ = BOUNDARY;
  }
  return config;
}

std::string path_of(Session& session) {
  return session.port(0).io->receive_path(session.rx_queue(0, 0));
}

}  // namespace

TEST_CASE(SPLIT, "[.]") {
  const MemoryDevice card;
  NetworkConfig config = split_config();
  SECTION("for the poller that reads the device") {}
  SECTION("for another poller, too") { config.ifs_[0].rx_.queues_[1].common_.cpu_core_ = "0"; }
  const auto session = Session::open(config);
  CHECK(path_of(*session) == BY_DEVICE);
  for (const std::uint32_t size : {60U, BOUNDARY, BOUNDARY + 1, 128U, 1500U}) {
    for (int queue = 0; queue < 2; ++queue) {
      CAPTURE(size, queue);
      const auto frame = udp_frame(static_cast<std::uint16_t>(5000 + queue), size, size);
      send(*session, frame);
      RxQueue& rx = session->rx_queue(0, queue);
      Burst* const burst = next_burst(rx);
      REQUIRE(burst->num_packets() == 1);
      CHECK(burst->flow_ids[0] == static_cast<FlowId>(10 + queue));
      std::vector<std::uint8_t> bytes;
      for (int s = 0; s < 2; ++s) {
        const auto* const data = static_cast<const std::uint8_t*>(burst->pkts[s][0]);
        bytes.insert(bytes.end(), data, data + burst->pkt_lens[s][0]);
        CHECK(data == rx.region(s).address(burst->buffers[s][0]));
        // Where the device has put it; a packet of one piece is copied, and gets two buffers.
        CHECK((data == card.latest(static_cast<unsigned>(s))) == (size > BOUNDARY));
      }
      CHECK(burst->pkt_lens[0][0] == std::min(size, BOUNDARY));
      CHECK(bytes == frame);
      burst->release();
    }
  }
  // More than there are buffers: they come back.
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 5000));
  CHECK(receive_numbers(session->rx_queue(0, 0), 5000).size() == 5000);
  CHECK(card.missed() == 0);
  finish(*session);
}

TEST_CASE(CHANGED, "[.]") {
  const MemoryDevice card;
  NetworkConfig config = split_config();
  FlowConfig& pops = config.ifs_[0].rx_.flows_[0];
  pops.actions_.insert(pops.actions_.begin(), action_of(FlowType::VLAN_POP));
  const auto session = Session::open(config);
  CHECK(path_of(*session) == BY_DEVICE);
  for (const std::uint32_t size : {BOUNDARY - 4, BOUNDARY, BOUNDARY + 1, 1000U}) {
    CAPTURE(size);
    const auto frame = udp_frame(5000, 7, size);
    auto tagged = frame;
    const std::vector<std::uint8_t> tag{0x81, 0x00, 0x00, 0x05};
    tagged.insert(tagged.begin() + 12, tag.begin(), tag.end());
    send(*session, tagged);
    Burst* const burst = next_burst(session->rx_queue(0, 0));
    // As without the tag.
    CHECK(burst->pkt_lens[0][0] == std::min(size, BOUNDARY));
    CHECK(burst->pkt_lens[1][0] == size - burst->pkt_lens[0][0]);
    std::vector<std::uint8_t> bytes;
    for (int s = 0; s < 2; ++s) {
      const auto* const data = static_cast<const std::uint8_t*>(burst->pkts[s][0]);
      bytes.insert(bytes.end(), data, data + burst->pkt_lens[s][0]);
    }
    CHECK(bytes == frame);
    burst->release();
  }
  finish(*session);
}

TEST_CASE(FULL, "[.]") {
  const MemoryDevice card;
  NetworkConfig config = split_config();
  config.rx_meta_buffers_ = 1024;
  // Both have enough for a card's ring, one has more.
  config.mrs_.at("rx_frames").num_bufs_ = 30'000;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const auto fewest = static_cast<std::uint32_t>(rx.region(0).config().num_bufs_);
  REQUIRE(fewest < rx.region(1).config().num_bufs_);
  const std::uint32_t count = fewest + 1000;
  const auto receive_some = [&](std::vector<Burst*>& held) {
    std::uint32_t received = 0;
    const std::uint64_t end = monotonic_ns() + PATIENCE_NS;
    while (received + card.missed() < count && monotonic_ns() < end) {
      Burst* const burst = rx.receive();
      if (burst == nullptr) continue;
      received += burst->num_packets();
      held.push_back(burst);
    }
    return received;
  };
  std::vector<Burst*> held;
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, count));
  const std::uint32_t received = receive_some(held);
  CHECK(received + card.missed() == count);
  CHECK(received == fewest);
  for (Burst* burst : held) burst->release();
  // It goes on.
  const unsigned before = card.missed();
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 100));
  CHECK(receive_numbers(rx, 100).size() == 100);
  CHECK(card.missed() == before);
  finish(*session);
}

TEST_CASE(SENT, "[.]") {
  const MemoryDevice card;
  NetworkConfig config = split_config();
  // Pieces of two regions.
  add_region(config, "tx_headers", "tx_frames", 2048);
  config.ifs_[0].tx_.queues_[0].common_.mrs_ = {"tx_headers", "tx_frames"};
  const auto session = Session::open(config);
  constexpr std::uint32_t COUNT = 3000;  // More than there are descriptors.
  for (std::uint32_t number = 0; number < COUNT; ++number) {
    const auto frame = udp_frame(5000, number, 200);
    send(*session, frame, 50);
    CHECK(receive(*session, 0).first == frame);
  }
  unsigned sent = 0;
  unsigned pinned = 0;
  card.mbufs_sent(&sent, &pinned);
  CHECK(sent == 2 * COUNT);
  // mlx5 looks for the memory of others by their addresses.
  CHECK(pinned == 0);
  finish(*session);
}

TEST_CASE(UNABLE, "[.]") {
  Offer can;
  NetworkConfig config = split_config();
  config.log_level_ = LogLevel::INFO;
  std::string why;
  SECTION("it has no such offload") {
    can.pieces = 0;
    why = "the device cannot";
  }
  SECTION("its pieces are of one pool") {
    can.several_pools = false;
    why = "the device cannot";
  }
  SECTION("it has too few pieces") {
    can.pieces = 1;
    why = "the device splits into at most 1 pieces";
  }
  SECTION("its pieces begin with their buffers") {
    can.offsets = false;
    why = "the device leaves no headroom before pieces";
  }
  SECTION("its pieces begin at pages") {
    can.align_log2 = 12;
    why = "the device leaves no headroom before pieces";
  }
  SECTION("queues split packets at different bytes") {
    config.ifs_[0].rx_.queues_[1].common_.split_boundary_ = 42;
    why = "receive queues of the interface differ in memory_regions or split_boundary";
  }
  SECTION("a queue has whole packets") {
    const auto id = GENERATE(0UL, 1UL);
    CommonQueueConfig& whole = config.ifs_[0].rx_.queues_[id].common_;
    whole.mrs_ = {"rx_frames"};
    whole.split_boundary_ = 0;
    why = "receive queues of the interface differ in memory_regions or split_boundary";
  }
  const MemoryDevice card(can);
  // A line that repeats another is not logged.
  static int number = 0;
  const std::string name = "port" + std::to_string(number++);
  config.ifs_[0].name_ = name;
  LogTaker log;
  const auto session = Session::open(config);
  CHECK(log.lines_with("interface '" + name +
                       "': the engine splits packets into their memory regions: " + why) == 1);
  for (const auto& queue : session->port(0).rx)
    CHECK(session->port(0).io->receive_path(*queue) ==
          (queue->num_segments() > 1 ? BY_ENGINE : ""));
  for (int queue = 0; queue < 2; ++queue) {
    const auto port = static_cast<std::uint16_t>(5000 + queue);
    REQUIRE(send_frames(session->tx_queue(0, 0), port, 9, 1, 0, 0, 200));
    CHECK(receive(*session, queue).first == udp_frame(port, 9, 200));
  }
  finish(*session);
}

TEST_CASE("packets stay in the buffers into which a device splits them", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(SPLIT) == 0);
}

TEST_CASE("packets that a device splits are changed as others", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(CHANGED) == 0);
}

TEST_CASE("a device that splits packets waits for buffers", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(FULL) == 0);
}

TEST_CASE("packets to send are in memory that a card finds by their addresses", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(SENT) == 0);
}

TEST_CASE("the engine splits packets for devices that do not", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(UNABLE) == 0);
}

// RSS of a network card with two receive queues. A virtual machine has such cards: the tests need
// two that are connected (DAQIRI_TEST_DPDK).
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engines/dpdk/dpdk_module.h"
#include "frames.h"
#include "session/loopback_config.h"
#include "session/send.h"
#include "session/single_packets.h"
#include "steering/toeplitz.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t FLOWS = 64;
constexpr std::uint32_t OF_EACH = 100;
constexpr std::uint32_t FRAMES = FLOWS * OF_EACH;
constexpr std::uint16_t PORT = 5000;

using Numbers = std::multiset<std::uint32_t>;

/// Conversations of UDP in turn.
FrameFields fields_of(std::uint32_t number) {
  const std::uint32_t flow = number % FLOWS;
  FrameFields fields;
  fields.src += flow / 8;
  fields.udp_src = static_cast<std::uint16_t>(1000 + flow);
  fields.udp_dst = PORT;
  fields.payload = 100;
  return fields;
}

/// The queue that the engine's key and table give, of two.
std::size_t predicted(std::uint32_t number) {
  const FrameFields fields = fields_of(number);
  return steering::rss_queue(
      steering::toeplitz(fields.src, fields.dst, fields.udp_src, fields.udp_dst), 2);
}

std::array<Numbers, 2> all_predicted() {
  std::array<Numbers, 2> found;
  for (std::uint32_t i = 0; i < FRAMES; ++i) found.at(predicted(i)).insert(i);
  return found;
}

/// The first port sends; the second has two receive queues with a core each, and no flows.
NetworkConfig cards() {
  NetworkConfig config = loopback_config(64, 500, 16384);
  InterfaceConfig receiver = config.ifs_[0];
  receiver.name_ = "port1";
  receiver.tx_ = {};
  receiver.rx_.flows_.clear();
  receiver.rx_.queues_[1].common_.cpu_core_ = "0";
  config.ifs_[0].rx_ = {};
  config.ifs_.push_back(receiver);
  use_dpdk(config, given_devices());
  return config;
}

bool lacks_cards() {
  if (lacks_dpdk()) return true;
  if (given_devices().size() == 2) return false;
  WARN("skipped: needs two cards that are connected (DAQIRI_TEST_DPDK)");
  return true;
}

void wait_for_link(Session& session) {
  const std::uint64_t end = monotonic_ns() + 60'000'000'000ULL;
  for (const int port : {0, 1}) {
    const auto up = [&] {
      return std::string_view(session.port(port).io->link_state().state) == "up";
    };
    while (!up() && monotonic_ns() < end) std::this_thread::yield();
    REQUIRE(up());
  }
}

void send(Session& session, std::uint32_t first, std::uint32_t count) {
  REQUIRE(send_packets(session.tx_queue(0, 0), count, 0, 0, 10'000'000'000, [&](std::uint32_t i) {
    const std::uint32_t number = first + i;
    std::vector<std::uint8_t> frame = make_frame(fields_of(number));
    std::memcpy(frame.data() + 42, &number, sizeof number);
    return frame;
  }));
}

void add(Numbers& to, RxQueue& queue, std::size_t count) {
  for (const std::uint32_t number : receive_numbers(queue, count)) to.insert(number);
}

std::size_t count_predicted(std::uint32_t first, std::uint32_t count, std::size_t queue) {
  std::size_t found = 0;
  for (std::uint32_t i = first; i < first + count; ++i) found += predicted(i) == queue ? 1 : 0;
  return found;
}

void check_nothing_lost(Session& session) {
  for (const int id : {0, 1}) {
    const auto queue = static_cast<std::uint16_t>(id);
    CHECK(session.rx_queue(1, queue).counters().dropped_total() == 0);
  }
  const PortSnapshot lost = session.port(1).io->losses(0);
  CHECK(lost.lost_before_engine == 0);
  finish(session);
}

}  // namespace

TEST_CASE("a card puts packets into the queue that the engine's hash predicts", "[engines][dpdk]") {
  if (lacks_cards()) return;
  // Without flows, all packets are for the first queue, whichever queue of the card they were in.
  // Each of these was given its buffers at the start, one queue after the other, and each buffer is
  // used once: the buffer of a packet tells its queue.
  const auto session = Session::open(cards());
  wait_for_link(*session);
  constexpr std::uint32_t COUNT = 1000;
  send(*session, 0, COUNT);
  std::array<std::set<std::uint32_t>, 2> buffers;
  std::vector<Burst*> bursts;
  for (std::uint32_t missing = COUNT; missing > 0;) {
    Burst* const burst = bursts.emplace_back(next_burst(session->rx_queue(1, 0)));
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i)
      buffers.at(predicted(number_of(*burst, i))).insert(burst->buffers[0][i]);
    missing -= std::min(missing, burst->num_packets());
  }
  CHECK(buffers[0].size() + buffers[1].size() == COUNT);
  CHECK(buffers[0].size() > COUNT / 4);
  CHECK(buffers[1].size() > COUNT / 4);
  CAPTURE(*buffers[0].begin(), *buffers[0].rbegin(), *buffers[1].begin(), *buffers[1].rbegin());
  CHECK((*buffers[0].rbegin() < *buffers[1].begin() || *buffers[1].rbegin() < *buffers[0].begin()));
  for (Burst* const burst : bursts) burst->release();
  check_nothing_lost(*session);
}

TEST_CASE("each core reads the flows of its queue from a card", "[engines][dpdk]") {
  if (lacks_cards()) return;
  NetworkConfig config = cards();
  InterfaceConfig& receiver = config.ifs_[1];
  FlowConfig flow;
  flow.name_ = "spread";
  flow.id_ = 7;
  flow.match_.udp_dst_ = {PORT, PORT};
  flow.action_.ids_ = {0, 1};
  flow.actions_ = {flow.action_};
  receiver.rx_.flows_ = {flow};
  const auto session = Session::open(config);
  wait_for_link(*session);
  std::array<Numbers, 2> found;
  // In parts that the receiver has descriptors for.
  constexpr std::uint32_t PART = 320;
  for (std::uint32_t first = 0; first < FRAMES; first += PART) {
    send(*session, first, PART);
    for (const std::size_t queue : {0U, 1U}) {
      add(found.at(queue), session->rx_queue(1, static_cast<std::uint16_t>(queue)),
          count_predicted(first, PART, queue));
    }
  }
  const std::array<Numbers, 2> expected = all_predicted();
  CHECK((found[0] == expected[0]));
  CHECK((found[1] == expected[1]));
  CHECK(session->port(1).steering.counts(0).packets == FRAMES);
  check_nothing_lost(*session);
}

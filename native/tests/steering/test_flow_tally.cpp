#include <catch2/catch.hpp>

#include <atomic>
#include <thread>
#include <vector>

#include "frames.h"
#include "steering/steering.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::FlowRun;
using steering::FlowTally;
using steering::PacketView;
using steering::Program;
using steering::Steering;

namespace {

/// One flow for each of the UDP ports 5000, 5001, ...; the first flow has no id.
std::shared_ptr<const Program> flows(std::uint16_t count) {
  auto interface = interface_with_queues(4);
  for (std::uint16_t i = 0; i < count; ++i) {
    const auto port = static_cast<std::uint16_t>(5000 + i);
    add_flow(interface, i, 0).match_.udp_dst_ = {port, port};
  }
  return std::make_shared<const Program>(interface);
}

std::uint16_t position_of(const Program& program, std::uint16_t udp_dst) {
  return program.classify(PacketView{{true, false, 4000, udp_dst, 100, 1, 2}}).position;
}

void check(const FlowSnapshot& found, std::uint64_t packets, std::uint64_t bytes) {
  CHECK(found.packets == packets);
  CHECK(found.bytes == bytes);
}

}  // namespace

TEST_CASE("a verdict has the position of its flow, also of one with id 0", "[steering]") {
  const auto program = flows(3);
  for (std::uint16_t i = 0; i < 3; ++i)
    CHECK(position_of(*program, static_cast<std::uint16_t>(5000 + i)) == i);
  CHECK(position_of(*program, 6000) == steering::NO_FLOW);
}

TEST_CASE("flows are counted over all threads that steer", "[steering]") {
  Steering steering;
  steering.publish(flows(2));
  FlowTally& first = steering.add_tally();
  FlowTally& second = steering.add_tally();
  first.count(0, 3, 300);
  second.count(0, 1, 50);
  second.count(1, 2, 20);
  second.count(steering::NO_FLOW, 5, 500);
  check(steering.counts(0), 4, 350);
  check(steering.counts(1), 2, 20);
}

TEST_CASE("a tally has room for the flows of every program, and keeps what it has", "[steering]") {
  Steering steering;
  FlowTally& tally = steering.add_tally();
  tally.count(0, 7, 70);
  check(steering.counts(0), 0, 0);
  steering.publish(flows(1));
  tally.count(0, 7, 70);
  steering.publish(flows(1000));
  tally.count(0, 1, 10);
  tally.count(999, 2, 20);
  check(steering.counts(0), 8, 80);
  check(steering.counts(999), 2, 20);
  check(steering.counts(60'000), 0, 0);
}

TEST_CASE("a run counts each of its flows once for packets in a row", "[steering]") {
  FlowTally tally(2);
  FlowRun run(tally);
  for (const auto& [position, bytes] : std::vector<std::pair<std::uint16_t, std::uint32_t>>{
           {1, 10}, {1, 20}, {steering::NO_FLOW, 1000}, {0, 5}, {1, 0}}) {
    run.add(position);
    run.add_bytes(bytes);
  }
  run.end();
  run.end();
  CHECK(tally.read(0) == std::array<std::uint64_t, 2>{1, 5});
  CHECK(tally.read(1) == std::array<std::uint64_t, 2>{3, 30});
}

TEST_CASE("a run counts packets one by one and many at once", "[steering]") {
  FlowTally tally(2);
  FlowRun run(tally);
  run.add(1, 3, 30);
  run.add(1, 0, 0);
  run.add(0, 0, 0);
  run.add(steering::NO_FLOW, 5, 9);
  run.add(1, 2, 20);
  run.add(1);
  run.add_bytes(7);
  run.add(0, 4, 40);
  run.end();
  CHECK(tally.read(0) == std::array<std::uint64_t, 2>{4, 40});
  CHECK(tally.read(1) == std::array<std::uint64_t, 2>{6, 57});
}

TEST_CASE("packets and bytes of a flow are of the same moment", "[steering]") {
  constexpr int ROUNDS = 100'000;
  FlowTally tally(1);
  std::atomic<bool> wrong{false};
  std::thread counter([&] {
    for (int i = 0; i < ROUNDS; ++i) tally.count(0, 1, 100);
  });
  std::uint64_t packets = 0;
  while (packets < ROUNDS) {
    const auto [now, bytes] = tally.read(0);
    if (bytes != now * 100 || now < packets) wrong = true;
    packets = now;
  }
  counter.join();
  CHECK_FALSE(wrong);
}

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "frames.h"
#include "steering/steering.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketView;
using steering::Program;
using steering::Steering;

namespace {

/// All packets to UDP port 5000 go to `queue`, with flow queue + 1.
std::shared_ptr<const Program> program(std::uint16_t queue) {
  auto interface = interface_with_queues(4);
  add_flow(interface, queue + 1U, queue).match_.udp_dst_ = {5000, 5000};
  return std::make_shared<const Program>(interface);
}

}  // namespace

TEST_CASE("a program is replaced between two looks of its reader", "[steering]") {
  Steering steering;
  Steering::Reader reader(steering);
  CHECK(reader.refresh().empty());
  reader.rest();
  auto first = program(1);
  steering.publish(first);
  const PacketView packet{{true, false, 4000, 5000, 100, 1, 2}};
  CHECK(reader.refresh().classify(packet).queue == 1);
  reader.rest();
  const std::weak_ptr<const Program> replaced = first;
  first.reset();
  CHECK_FALSE(replaced.expired());
  // An idle reader neither delays a change nor keeps the old program alive.
  steering.publish(program(3));
  CHECK(replaced.expired());
  CHECK(reader.refresh().classify(packet).queue == 3);
}

TEST_CASE("who replaces a program waits for the passes on it, and for no others", "[steering]") {
  Steering steering;
  Steering::Reader idle(steering);
  Steering::Reader reader(steering);
  steering.publish(program(1));
  const PacketView packet{{true, false, 4000, 5000, 100, 1, 2}};
  auto pass = std::make_unique<Steering::Pass>(reader);
  std::atomic<bool> published{false};
  std::thread publisher([&] {
    steering.publish(program(2));
    published = true;
  });
  while (steering.program()->classify(packet).queue != 2) std::this_thread::yield();
  // The program of the pass still exists.
  CHECK(pass->program().classify(packet).queue == 1);
  CHECK_FALSE(published);
  SECTION("the pass ends") { pass.reset(); }
  SECTION("another begins") { CHECK(reader.refresh().classify(packet).queue == 2); }
  publisher.join();
  CHECK(published);
}

TEST_CASE("pollers steer by whole programs while these are replaced", "[steering]") {
  Steering steering;
  steering.publish(program(0));
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<int> verdicts{0};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      Steering::Reader reader(steering);
      const PacketView packet{{true, false, 4000, 5000, 100, 1, 2}};
      while (!stop) {
        const Steering::Pass pass(reader);
        const auto verdict = pass.program().classify(packet);
        if (!verdict.matched || verdict.flow != verdict.queue + 1U) ++wrong;
        ++verdicts;
      }
    });
  }
  for (int round = 0; round < 2000 || verdicts < 1000; ++round)
    steering.publish(program(static_cast<std::uint16_t>(round % 4)));
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  CHECK(wrong == 0);
}

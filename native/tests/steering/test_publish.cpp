#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "frames.h"
#include "steering/classifier.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketView;
using steering::Program;
using steering::Steering;

namespace {

/// All packets to UDP port 5000 go to `queue`, as flow queue + 1.
std::shared_ptr<const Program> program(std::uint16_t queue) {
  auto interface = interface_with_queues(4);
  add_flow(interface, queue + 1U, queue).match_.udp_dst_ = {5000, 5000};
  return std::make_shared<const Program>(interface);
}

}  // namespace

TEST_CASE("a program is replaced between two looks of its reader", "[steering]") {
  Steering steering;
  Steering::Reader reader(steering);
  CHECK(reader.program().empty());
  auto first = program(1);
  steering.publish(first);
  CHECK(reader.program().empty());
  const PacketView packet{{true, false, 4000, 5000, 100, 1, 2}};
  CHECK(reader.refresh().classify(packet).queue == 1);
  steering.publish(program(3));
  const std::weak_ptr<const Program> replaced = first;
  first.reset();
  CHECK_FALSE(replaced.expired());
  CHECK(reader.refresh().classify(packet).queue == 3);
  CHECK(replaced.expired());
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
        const auto verdict = reader.refresh().classify(packet);
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

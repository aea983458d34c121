// Recorders of several queues with common files and limits.
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

/// Both receive queues, recorded as a group.
struct Pair {
  explicit Pair(const RecorderGroup::Limits& limits, NetworkConfig config = roomy_config())
      : session(Session::open(std::move(config))), tx(session->tx_queue(0, 0)) {
    const auto group = std::make_shared<RecorderGroup>(limits);
    for (std::size_t i = 0; i < 2; ++i) {
      RecorderOptions options;
      options.directory = dir.path();
      options.prefix = "queue" + std::to_string(i);
      options.group = group;
      recorders.at(i) = std::make_unique<Recorder>(session, session->rx_queue(0, i), options);
    }
  }
  void send(std::size_t queue, std::uint32_t first, std::uint32_t n) {
    REQUIRE(send_frames(tx, static_cast<std::uint16_t>(5000 + queue), first, n));
    REQUIRE(tx.wait_idle(LIMIT_NS));
  }
  std::uint64_t packets() const {
    return recorders[0]->snapshot().packets + recorders[1]->snapshot().packets;
  }
  void stop() {
    for (const auto& recorder : recorders) recorder->stop();
  }

  TempDir dir;
  std::shared_ptr<Session> session;
  TxQueue& tx;
  std::array<std::unique_ptr<Recorder>, 2> recorders;
};

}  // namespace

TEST_CASE("The limit of a group holds for all of its recorders together, exactly",
          "[storage][recorder][group]") {
  Pair p({.max_packets = 300}, roomy_config(64, 0));
  for (std::uint32_t i = 0; i < 8; ++i) p.send(i % 2, i / 2 * 64, 64);
  REQUIRE(within_limit(
      [&] { return !p.recorders[0]->snapshot().running && !p.recorders[1]->snapshot().running; }));
  CHECK(p.packets() == 300);
  for (const auto& recorder : p.recorders) {
    const auto files = recorder->files();
    CHECK(files.size() == 1);
    CHECK(numbers_in(files) == counted(0, recorder->snapshot().packets));
  }
}

TEST_CASE("When a file of a group is full, all recorders begin a new one",
          "[storage][recorder][group]") {
  const bool by_bytes = GENERATE(false, true);
  Pair p(by_bytes ? RecorderGroup::Limits{.roll_bytes = 128 * 128}
                  : RecorderGroup::Limits{.roll_packets = 128});
  for (std::uint32_t i = 0; i < 5; ++i) {
    p.send(0, i * 128, 128);
    REQUIRE(within_limit([&] {
      return p.recorders[0]->snapshot().files == i + 1 && p.recorders[1]->snapshot().files == i + 1;
    }));
  }
  p.send(1, 0, 10);
  REQUIRE(within_limit([&] { return p.packets() == 650; }));
  p.stop();
  const auto first = p.recorders[0]->files();
  const auto second = p.recorders[1]->files();
  REQUIRE(first.size() == 6);
  REQUIRE(second.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(first[i].packets == (i < 5 ? 128 : 0));
    CHECK(second[i].packets == (i < 5 ? 0 : 10));
  }
  CHECK(numbers_in(first) == counted(0, 640));
}

TEST_CASE("The files of a group roll by time together", "[storage][recorder][group]") {
  Pair p({.roll_seconds = 0.05});
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CHECK(p.recorders[0]->snapshot().files == 0);
  p.send(1, 0, 64);
  REQUIRE(within_limit([&] {
    return p.recorders[0]->snapshot().files == 1 && p.recorders[1]->snapshot().files == 1;
  }));
  p.stop();
  CHECK(p.recorders[0]->files().size() == 2);
  CHECK(p.recorders[1]->files().size() == 2);
}

TEST_CASE("The time of a group ends all of its recorders, and stops while one is paused",
          "[storage][recorder][group]") {
  Pair p({.max_seconds = 1.5});
  p.recorders[0]->set_paused(true);
  p.recorders[1]->set_paused(true);
  p.recorders[0]->set_paused(false);
  std::this_thread::sleep_for(std::chrono::milliseconds(2000));
  CHECK(p.recorders[0]->snapshot().running);
  CHECK(p.recorders[1]->snapshot().running);
  p.recorders[1]->set_paused(false);
  p.send(0, 0, 64);
  p.send(1, 0, 64);
  REQUIRE(within_limit(
      [&] { return !p.recorders[0]->snapshot().running && !p.recorders[1]->snapshot().running; }));
  for (const auto& recorder : p.recorders) {
    CHECK(recorder->snapshot().limit_reached);
    CHECK(numbers_in(recorder->files()) == counted(0, 64));
  }
}

TEST_CASE("The time of a group goes on when a paused recorder ends", "[storage][recorder][group]") {
  Pair p({.max_seconds = 0.05});
  p.recorders[0]->set_paused(true);
  p.recorders[0]->stop();
  p.recorders[0]->set_paused(false);
  REQUIRE(within_limit([&] { return !p.recorders[1]->snapshot().running; }));
  CHECK(p.recorders[1]->snapshot().limit_reached);
}

TEST_CASE("A recorder that has ended does not hold up its group", "[storage][recorder][group]") {
  Pair p({.max_seconds = 0.2});
  p.recorders[0]->stop();
  p.recorders[0]->set_paused(true);
  REQUIRE(within_limit([&] { return !p.recorders[1]->snapshot().running; }));
  CHECK(p.recorders[1]->snapshot().limit_reached);
}

TEST_CASE("Recorders of a group that end at any moment have equally many files",
          "[storage][recorder][group]") {
  for (int round = 0; round < 20; ++round) {
    Pair p({.roll_packets = 64});
    std::jthread sender([&] {
      for (std::uint32_t i = 0; i < 40; ++i)
        static_cast<void>(send_frames(p.tx, static_cast<std::uint16_t>(5000 + i % 2), i, 32));
    });
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    p.recorders[static_cast<std::size_t>(round % 2)]->stop();
    p.stop();
    CHECK(p.recorders[0]->files().size() == p.recorders[1]->files().size());
  }
}

TEST_CASE("A limit besides those of a group is refused", "[storage][recorder][group]") {
  const auto session = Session::open(roomy_config());
  const TempDir dir;
  RecorderOptions options;
  options.directory = dir.path();
  options.roll_packets = 5;
  options.group = std::make_shared<RecorderGroup>(RecorderGroup::Limits{});
  const auto [status, text] = refusal([&] { Recorder(session, session->rx_queue(0, 0), options); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("set limits on the group"));
  options.roll_packets = 0;
  options.max_seconds = 1.0;
  CHECK(refusal([&] { Recorder(session, session->rx_queue(0, 0), options); }).first ==
        Status::INVALID_PARAMETER);
  options.max_seconds = 0.0;
  options.start_flow = 7;
  const auto start = refusal([&] { Recorder(session, session->rx_queue(0, 0), options); });
  CHECK(start.first == Status::INVALID_PARAMETER);
  CHECK_THAT(start.second, Contains("start_flow is 7 for a recorder of a group"));
  CHECK(refusal([] { RecorderGroup({.roll_seconds = -1.0}); }).first == Status::INVALID_PARAMETER);
  CHECK(refusal([] { RecorderGroup({.max_seconds = -1.0}); }).first == Status::INVALID_PARAMETER);
}

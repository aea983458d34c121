// A plan whose payloads are copied later than they are placed.
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "reorder/running_plan.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

/// Closed frames are pending until the test completes them.
class SlowMover final : public Mover {
 public:
  explicit SlowMover(FrameWaiter& waiter) : waiter_(waiter) { latest = this; }
  ~SlowMover() override {
    tell(true);
    latest = nullptr;
  }

  void wait_for_room() noexcept override {
    if (!full) return;
    waits = true;
    waits.notify_all();
    full.wait(true);
  }
  void move(std::span<const Transfer> /*copies*/) noexcept override {}
  void fill(std::uint32_t /*frame*/, std::byte* /*to*/, std::uint64_t /*at*/,
            std::size_t /*bytes*/) noexcept override {}
  void fill_gaps(std::uint32_t /*frame*/, std::byte* /*to*/) noexcept override {}
  Copies close(std::uint32_t frame) noexcept override {
    closed_.push_back(frame);
    return Copies::PENDING;
  }
  /// The copies of one of the closed frames have ended.
  void tell(std::size_t index, bool good) noexcept {
    const std::uint32_t frame = closed_.at(index);
    closed_.erase(closed_.begin() + static_cast<std::ptrdiff_t>(index));
    waiter_.frame_done(frame, good);
  }
  void tell(bool good) noexcept {
    for (const std::uint32_t frame : std::exchange(closed_, {})) waiter_.frame_done(frame, good);
  }

  static inline SlowMover* latest{nullptr};
  std::atomic<bool> full{false};
  std::atomic<bool> waits{false};

 private:
  FrameWaiter& waiter_;
  std::vector<std::uint32_t> closed_;
};

std::unique_ptr<Mover> make_slow(const Plan& /*plan*/, const ReorderConfig& /*config*/,
                                 const memory::MemoryRegion& /*output*/, FrameWaiter& waiter) {
  return std::make_unique<SlowMover>(waiter);
}

/// Frames of two packets. The first byte is the number of the frame, the second the slot.
struct SlowPlan {
  /// With a slow mover, or with pollers on these cores that copy. Frames of mode "long" have four
  /// packets.
  explicit SlowPlan(const std::vector<std::string>& cores = {}) {
    const RegisteredGpuMover slow(make_slow);
    for (const char* name : {"rx", "output"}) {
      MemoryRegionConfig region;
      region.name_ = name;
      region.num_bufs_ = BUFFERS;
      region.buf_size_ = 128;
      memory->regions.emplace(name, memory::MemoryRegion::allocate(region));
    }
    std::vector<RxQueue*> feeding;
    for (const std::string& core : cores.empty() ? std::vector<std::string>{"any"} : cores) {
      RxQueueConfig config;
      config.common_.name_ = "rx" + core;
      config.common_.cpu_core_ = core;
      config.common_.batch_size_ = 4;
      config.common_.mrs_ = {"rx"};
      feeding.push_back(
          queues.emplace_back(std::make_unique<RxQueue>(InterfaceConfig{}, config, 8, memory))
              .get());
    }
    ReorderConfig reorder;
    reorder.name_ = "frames";
    reorder.reorder_type_ = cores.empty() ? "gpu" : "cpu";
    reorder.memory_region_ = "output";
    reorder.payload_byte_offset_ = 2;
    reorder.flow_ids_ = {1};
    reorder.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
    reorder.batch_packet_number_ = {{0, 8}, {8, 8}, 2};
    if (!cores.empty()) {
      reorder.modes_.push_back({"long", reorder});
      reorder.modes_[0].plan_.batch_packet_number_.packets_per_batch_ = 4;
    }
    plan = std::make_unique<RunningPlan>(reorder, PacketKind::FRAMES, feeding, output(), memory,
                                         false);
  }
  [[nodiscard]] memory::MemoryRegion& output() const { return *memory->regions.at("output"); }

  /// Sends all packets of a frame.
  void send(std::uint8_t number) const { send_at_once({number}); }
  /// Sends all packets of frames in one call.
  void send_at_once(const std::vector<std::uint8_t>& numbers) const {
    std::vector<std::array<std::uint8_t, 6>> bytes;
    for (const std::uint8_t number : numbers)
      for (const std::uint8_t slot : {0, 1}) bytes.push_back({number, slot, 1, 2, 3, 4});
    std::vector<Packet> packets;
    for (const auto& each : bytes) packets.push_back({each.data(), 6, 0, 1, nullptr, 0});
    plan->take(packets, 1, false);
  }
  /// Number and `lost` of each frame that can be received.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> receive() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
    while (Burst* const frame = plan->pop()) {
      found.emplace_back(frame->reorder.batch_id, frame->lost);
      frame->release();
    }
    return found;
  }

  static constexpr std::uint32_t BUFFERS = 4;
  std::shared_ptr<SessionMemory> memory{std::make_shared<SessionMemory>()};
  std::vector<std::unique_ptr<RxQueue>> queues;
  std::unique_ptr<RunningPlan> plan;
};

}  // namespace

TEST_CASE("frames are handed on when their payloads are there", "[reorder]") {
  const SlowPlan slow;
  slow.send(1);
  CHECK(slow.plan->pop() == nullptr);
  SlowMover::latest->tell(true);
  Burst* const frame = slow.plan->pop();
  REQUIRE(frame != nullptr);
  CHECK(frame->reorder.batch_id == 1);
  CHECK(slow.plan->counters().lost == 0);
  frame->release();
  slow.send(2);
  SlowMover::latest->tell(false);
  CHECK(slow.plan->pop() == nullptr);
  CHECK(slow.plan->counters().lost == 1);
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
}

TEST_CASE("applications do not wait while a poller waits for a mover", "[reorder]") {
  const SlowPlan slow;
  slow.send(1);
  SlowMover::latest->full = true;
  std::jthread poller([&] { slow.send(2); });
  SlowMover::latest->waits.wait(false);
  CHECK(slow.plan->counters().packets == 2);
  slow.plan->begin_epoch(0, std::nullopt);
  slow.plan->discard();
  SlowMover::latest->full = false;
  SlowMover::latest->full.notify_all();
  poller.join();
  CHECK(slow.plan->counters().packets == 4);
}

TEST_CASE("frames whose payloads are on their way are thrown away with others", "[reorder]") {
  const SlowPlan slow;
  slow.send(1);
  SlowMover::latest->tell(true);
  slow.send(2);
  const bool flush = GENERATE(true, false);
  if (flush) {
    slow.plan->discard();
  } else {
    slow.plan->begin_anew();
  }
  // A flush may be of frames that an application wanted.
  CHECK(slow.plan->counters().lost == (flush ? 2 : 0));
  CHECK(slow.plan->counters().untaken == (flush ? 0 : 2));
  slow.send(3);
  SlowMover::latest->tell(true);
  Burst* const frame = slow.plan->pop();
  REQUIRE(frame != nullptr);
  CHECK(frame->reorder.batch_id == 3);
  frame->release();
  CHECK(slow.plan->pop() == nullptr);
  CHECK(slow.plan->counters().lost + slow.plan->counters().untaken == 2);
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
}

TEST_CASE("frames are handed on in order, whichever is copied first", "[reorder]") {
  const SlowPlan slow;
  for (const std::uint8_t number : {1, 2, 3, 4}) slow.send(number);
  SlowMover::latest->tell(3, true);
  SlowMover::latest->tell(1, true);
  CHECK(slow.plan->pop() == nullptr);
  const bool flush = GENERATE(true, false);
  if (flush) {
    slow.plan->begin_anew();
    CHECK(slow.plan->counters().untaken == 4);
  }
  SlowMover::latest->tell(0, true);
  SlowMover::latest->tell(0, false);
  std::vector<std::uint64_t> numbers;
  while (Burst* const frame = slow.plan->pop()) {
    numbers.push_back(frame->reorder.batch_id);
    frame->release();
  }
  CHECK(numbers == (flush ? std::vector<std::uint64_t>{} : std::vector<std::uint64_t>{1, 2, 4}));
  CHECK(slow.plan->counters().lost == (flush ? 0 : 1));
  CHECK(slow.plan->counters().untaken == (flush ? 4 : 0));
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
}

TEST_CASE("the frame after lost ones tells them, also if it is copied with those before",
          "[reorder]") {
  using Told = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const SlowPlan pollers({"any", "0"});
  pollers.send_at_once({1, 2, 10, 11});
  CHECK(pollers.receive() == Told{{1, 0}, {2, 0}, {10, 7}, {11, 7}});
  CHECK(pollers.plan->counters().skipped == 7);
  CHECK(pollers.output().available() == SlowPlan::BUFFERS);

  const SlowPlan slow;
  slow.send_at_once({1, 2, 10, 11});
  SlowMover::latest->tell(true);
  CHECK(slow.receive() == Told{{1, 0}, {2, 0}, {10, 7}, {11, 7}});
  // The second one fails first.
  slow.send_at_once({12, 13, 14});
  SlowMover::latest->tell(1, false);
  SlowMover::latest->tell(true);
  CHECK(slow.receive() == Told{{12, 7}, {14, 8}});
  CHECK(slow.plan->counters().lost == 1);
}

TEST_CASE("a frame for which no burst is free is lost, and no other", "[reorder]") {
  const SlowPlan slow;
  BurstPool& pool = *slow.memory->rx_pools.back();
  std::vector<Burst*> taken;
  while (Burst* const burst = pool.take()) taken.push_back(burst);
  slow.send(1);
  CHECK(slow.plan->counters().lost == 1);
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
  for (Burst* const burst : taken) pool.give(burst);
  slow.send(2);
  SlowMover::latest->tell(true);
  Burst* const frame = slow.plan->pop();
  REQUIRE(frame != nullptr);
  CHECK(frame->reorder.batch_id == 2);
  frame->release();
  CHECK(pool.available() == SlowPlan::BUFFERS);
  CHECK(slow.plan->counters().lost == 1);
}

TEST_CASE("without a receiver, the oldest frame is freed for the newest, and displays get it",
          "[reorder]") {
  using Told = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const bool on_gpu = GENERATE(true, false);
  const SlowPlan slow(on_gpu ? std::vector<std::string>{} : std::vector<std::string>{"0"});
  RunningPlan& plan = *slow.plan;
  const auto send = [&](std::uint8_t number) {
    slow.send(number);
    if (on_gpu) SlowMover::latest->tell(true);
  };
  // All frames wait for a receiver that may come, while there are buffers.
  for (const std::uint8_t number : {1, 2, 3, 4}) send(number);
  CHECK(plan.counters().untaken == 0);
  std::uint64_t seen = 0;
  for (std::uint8_t number = 5; number < 200; ++number) {
    const FrameCopy before = plan.preview().newer(seen);
    CHECK(before.number == 0);
    send(number);
    const FrameCopy copy = plan.preview().newer(seen);
    REQUIRE(copy.number == ++seen);
    CHECK(copy.info.batch_id == number);
  }
  const ReorderSnapshot counters = plan.counters();
  CHECK(counters.complete == 199);
  CHECK(counters.untaken == 195);
  CHECK(counters.lost + counters.no_buffer == 0);
  // Of a display that does not read on.
  send(200);
  for (const std::uint8_t number : {201, 202, 203, 204, 205}) send(number);
  CHECK(plan.preview().newer(seen).info.batch_id == 200);
  CHECK(plan.counters().lost == 0);
  // A receiver that comes gets those that wait, in order.
  CHECK(slow.receive() == Told{{203, 0}, {204, 0}, {205, 0}});
  CHECK(plan.counters().complete == 205);
  CHECK(plan.counters().untaken == 202);
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
}

TEST_CASE("frames of a receiver that is slow are lost, not untaken", "[reorder]") {
  using Told = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const SlowPlan slow({"0"});
  RunningPlan& plan = *slow.plan;
  const auto send = [&](std::uint8_t first, int count) {
    for (int i = 0; i < count; ++i) slow.send(static_cast<std::uint8_t>(first + i));
  };
  SECTION("an application that receives from a queue of the plan") {
    plan.note_reader();
    send(1, 6);
    CHECK(slow.receive() == Told{{1, 0}, {2, 0}, {3, 0}, {4, 0}});
    CHECK(plan.counters().lost == 2);
    CHECK(plan.counters().untaken == 0);
  }
  SECTION("a receiver that is attached, until it detaches") {
    send(1, 6);
    CHECK(plan.counters().untaken == 2);
    plan.attach("a test");
    // Those that waited are for it.
    send(7, 2);
    CHECK(slow.receive() == Told{{3, 0}, {4, 0}, {5, 0}, {6, 0}});
    CHECK(plan.counters().lost == 2);
    CHECK(plan.counters().untaken == 2);
    plan.note_reader();
    plan.detach();
    plan.attach("a test that begins anew", true);
    send(20, 5);
    CHECK(plan.counters().lost == 2);
    CHECK(plan.counters().untaken == 3);
    plan.begin_anew();
    CHECK(plan.counters().untaken == 7);
    send(30, 5);
    CHECK(plan.counters().lost == 3);
    plan.detach();
    plan.begin_anew();
    CHECK(plan.counters().untaken == 11);
    send(40, 6);
    CHECK(plan.counters().lost == 3);
    CHECK(plan.counters().untaken == 13);
  }
}

TEST_CASE("a frame for displays is thrown away with others, and copied when a plan stops",
          "[reorder]") {
  const SlowPlan slow;
  Preview& preview = slow.plan->preview();
  CHECK(preview.newer(0).number == 0);
  slow.send(1);
  SlowMover::latest->tell(true);
  const bool flush = GENERATE(true, false);
  if (flush) {
    slow.plan->discard();
  } else {
    slow.plan->begin_anew();
  }
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
  CHECK(slow.plan->counters().lost == (flush ? 1 : 0));
  CHECK(slow.plan->counters().untaken == (flush ? 0 : 1));
  CHECK(preview.newer(0).number == 0);
  slow.send(2);
  SlowMover::latest->tell(true);
  Burst* const frame = slow.plan->pop();
  REQUIRE(frame != nullptr);
  frame->release();
  CHECK(slow.output().available() == SlowPlan::BUFFERS - 1);
  slow.plan->stop();
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
  CHECK(slow.memory->rx_pools.back()->available() == SlowPlan::BUFFERS);
  const FrameCopy copy = preview.newer(0);
  CHECK(copy.number == 1);
  CHECK(copy.info.batch_id == 2);
}

TEST_CASE("a frame for displays costs no frame of a receiver a buffer", "[reorder]") {
  const SlowPlan slow;
  slow.plan->note_reader();
  Preview& preview = slow.plan->preview();
  CHECK(preview.newer(0).number == 0);
  for (const std::uint8_t number : {1, 2, 3, 4}) slow.send(number);
  SlowMover::latest->tell(true);
  std::vector<Burst*> frames;
  while (Burst* const frame = slow.plan->pop()) frames.push_back(frame);
  CHECK(frames.size() == 4);
  CHECK(preview.newer(0).number == 0);
  for (Burst* const frame : frames) frame->release();
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
  CHECK(slow.plan->counters().lost == 0);
}

TEST_CASE("a mode takes the place of a plan between receivers", "[reorder]") {
  const SlowPlan slow({"0", "1"});
  RunningPlan& plan = *slow.plan;
  CHECK(plan.mode_name().empty());
  plan.attach("a test");
  CHECK_THROWS_WITH(plan.set_mode("long"), Catch::Contains("its frames go to a test"));
  plan.set_mode("");
  plan.detach();
  CHECK_THROWS_WITH(plan.set_mode("short"),
                    Catch::Contains("no mode 'short'; accepted are 'long'"));
  slow.send(1);
  plan.set_mode("long");
  CHECK(plan.mode_name() == "long");
  CHECK(plan.config().batch_packet_number_.packets_per_batch_ == 4);
  CHECK(plan.pop() == nullptr);
  CHECK(plan.counters().untaken == 1);
  slow.send(2);  // half of a long frame
  CHECK(plan.pop() == nullptr);
  plan.set_mode("");
  CHECK(plan.counters().untaken == 2);
  slow.send(3);
  plan.attach("a test");
  const RunningPlan::Epoch epoch = plan.begin_epoch(0, std::nullopt);
  CHECK(epoch.absent == plan.counters().absent());
  slow.send(4);
  const auto found = slow.receive();
  REQUIRE(found.size() == 2);
  CHECK(found.back() == std::pair<std::uint64_t, std::uint64_t>(4, epoch.absent));
  CHECK(plan.counters().packets == 8);
  plan.detach();
  while (!plan.finished()) plan.finish();  // for each queue
  CHECK_THROWS_WITH(plan.set_mode("long"), Catch::Contains("cannot be set: the engine is closed"));
  CHECK(plan.mode_name().empty());
  CHECK(plan.counters().placed == 8);
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
}

TEST_CASE("modes change while pollers copy", "[reorder]") {
  constexpr int FRAMES = 3000;
  const SlowPlan slow({"0", "1"});
  RunningPlan& plan = *slow.plan;
  {
    std::vector<std::jthread> pollers;
    for (const int first : {0, 1}) {
      pollers.emplace_back([&, first] {
        for (int i = first; i < 2 * FRAMES; i += 2) slow.send(static_cast<std::uint8_t>(i));
      });
    }
    for (int i = 0; i < FRAMES; ++i) {
      const bool is_long = i % 2 == 1;
      plan.set_mode(is_long ? "long" : "");
      plan.attach("a test");
      for (int taken = 0; taken < 2; ++taken) {
        Burst* const frame = plan.pop();
        if (frame == nullptr) continue;
        if (frame->units != (is_long ? 4U : 2U)) FAIL("a frame of another mode");
        frame->release();
      }
      plan.detach();
    }
  }
  plan.discard();
  CHECK(slow.output().available() == SlowPlan::BUFFERS);
  const ReorderSnapshot all = plan.counters();
  CHECK(all.packets == 4 * FRAMES);
  CHECK(all.packets == all.placed + all.duplicate + all.late + all.early + all.malformed +
                           all.left_out + all.no_buffer);
}

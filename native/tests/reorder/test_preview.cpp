// Copies of frames for displays.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "reorder/preview.h"
#include "system/ring.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

constexpr std::size_t MOST = 64;

MemoryRegionConfig config_of(std::uint32_t buffers) {
  MemoryRegionConfig config;
  config.name_ = "frames";
  config.num_bufs_ = buffers;
  config.buf_size_ = MOST;
  return config;
}

/// A plan's buffers and bursts.
class Delivery {
 public:
  explicit Delivery(std::uint32_t buffers = 8)
      : region(memory::MemoryRegion::allocate(config_of(buffers))), pool(buffers, 1, 1, false) {}

  /// A frame of `bytes` bytes, all of them `value`, as it is delivered; null: no buffer is free, or
  /// a reader frees the buffer of a frame and not yet its burst.
  Burst* make(std::uint8_t value, std::size_t bytes = MOST) {
    std::uint32_t buffer = 0;
    if (region->take(&buffer, 1) == 0) return nullptr;
    Burst* const burst = pool.take();
    if (burst == nullptr) {
      region->give(&buffer, 1);
      return nullptr;
    }
    std::memset(region->address(buffer), value, bytes);
    burst->hdr.hdr.num_pkts = 1;
    burst->owners[0] = region.get();
    burst->buffers[0][0] = buffer;
    burst->pkts[0][0] = region->address(buffer);
    burst->pkt_lens[0][0] = static_cast<std::uint32_t>(bytes);
    burst->timestamps[0] = value * 10U;
    burst->owned = 1;
    burst->missing = value;
    burst->last_time = value * 10U + 1;
    burst->reorder.batch_id = value;
    return burst;
  }
  /// A frame that its receiver frees at once.
  void deliver(std::uint8_t value, std::size_t bytes = MOST) {
    Burst* burst = make(value, bytes);
    for (int i = 0; burst == nullptr && i < 1'000'000; ++i) {
      std::this_thread::yield();
      burst = make(value, bytes);
    }
    REQUIRE(burst != nullptr);
    preview.offer(*burst, false);
    burst->release();
  }
  [[nodiscard]] std::uint32_t in_use() const {
    return static_cast<std::uint32_t>(region->config().num_bufs_) - region->available();
  }

  std::unique_ptr<memory::MemoryRegion> region;
  BurstPool pool;
  Preview preview{*region};
};

std::vector<int> values_of(const FrameCopy& copy) {
  std::vector<int> values(copy.bytes);
  std::transform(copy.data.get(), copy.data.get() + copy.bytes, values.begin(),
                 [](std::byte value) { return std::to_integer<int>(value); });
  return values;
}

}  // namespace

TEST_CASE("no frame is held before somebody asks", "[preview]") {
  Delivery delivery;
  delivery.deliver(1);
  CHECK(delivery.in_use() == 0);
  CHECK(delivery.preview.newer(0).number == 0);
  CHECK(delivery.preview.newer(0).data == nullptr);
}

TEST_CASE("the frame after each question is copied, and no other", "[preview]") {
  Delivery delivery;
  Preview& preview = delivery.preview;
  CHECK(preview.newer(0).number == 0);
  delivery.deliver(1);
  delivery.deliver(2);
  // Its receiver has freed it.
  CHECK(delivery.in_use() == 1);
  const FrameCopy copy = preview.newer(0);
  CHECK(delivery.in_use() == 0);
  CHECK(delivery.pool.available() == 8);
  CHECK(copy.number == 1);
  CHECK(values_of(copy) == std::vector<int>(MOST, 1));
  CHECK(copy.info.batch_id == 1);
  CHECK(copy.first_time == 10);
  CHECK(copy.last_time == 11);
  CHECK(copy.missing == 1);
  // A reader that does not have the copy gets it again.
  CHECK(preview.newer(1).number == 0);
  CHECK(preview.newer(0).number == 1);
  delivery.deliver(3);
  CHECK(preview.newer(1).number == 2);
  CHECK(values_of(preview.newer(1)) == std::vector<int>(MOST, 3));
  // That of a reader stays.
  CHECK(values_of(copy) == std::vector<int>(MOST, 1));
}

TEST_CASE("copies are as long as their frames", "[preview]") {
  Delivery delivery;
  Preview& preview = delivery.preview;
  static_cast<void>(preview.newer(0));
  delivery.deliver(7, 40);
  CHECK(values_of(preview.newer(0)) == std::vector<int>(40, 7));
  delivery.deliver(8);
  CHECK(values_of(preview.newer(1)) == std::vector<int>(MOST, 8));
  delivery.deliver(9, 0);
  const FrameCopy empty = preview.newer(2);
  CHECK(empty.number == 3);
  CHECK(empty.bytes == 0);
}

TEST_CASE("a receiver may have its own copy of a frame", "[preview]") {
  Delivery delivery;
  static_cast<void>(delivery.preview.newer(0));
  Burst* const frame = delivery.make(6);
  delivery.preview.offer(*frame, false);
  {
    std::vector<std::byte> own(MOST);
    frame->pkts[0][0] = own.data();
    frame->release();
  }
  CHECK(values_of(delivery.preview.newer(0)) == std::vector<int>(MOST, 6));
  CHECK(delivery.in_use() == 0);
}

TEST_CASE("the last holder of a frame frees it", "[preview]") {
  Delivery delivery;
  static_cast<void>(delivery.preview.newer(0));
  Burst* const frame = delivery.make(4);
  delivery.preview.offer(*frame, false);
  auto recorder = std::make_unique<BurstHold>(*frame);
  const bool display_first = GENERATE(true, false);
  frame->release();
  if (!display_first) recorder.reset();
  CHECK(values_of(delivery.preview.newer(0)) == std::vector<int>(MOST, 4));
  CHECK(delivery.in_use() == (display_first ? 1 : 0));
  recorder.reset();
  CHECK(delivery.in_use() == 0);
  CHECK(delivery.pool.available() == 8);
}

TEST_CASE("a frame that no reader fetches can be dropped", "[preview]") {
  Delivery delivery;
  Preview& preview = delivery.preview;
  static_cast<void>(preview.newer(0));
  delivery.deliver(1);
  preview.drop();
  CHECK(delivery.in_use() == 0);
  // Nobody has asked for another.
  delivery.deliver(2);
  CHECK(delivery.in_use() == 0);
  CHECK(preview.newer(0).number == 0);
  delivery.deliver(3);
  CHECK(values_of(preview.newer(0)) == std::vector<int>(MOST, 3));
  {
    Preview gone(*delivery.region);
    static_cast<void>(gone.newer(0));
    Burst* const frame = delivery.make(4);
    gone.offer(*frame, false);
    frame->release();
    CHECK(delivery.in_use() == 1);
  }
  CHECK(delivery.in_use() == 0);
}

TEST_CASE("the held frame is copied when a plan has stopped", "[preview]") {
  Delivery delivery;
  static_cast<void>(delivery.preview.newer(0));
  delivery.deliver(5);
  delivery.preview.stop();
  CHECK(delivery.in_use() == 0);
  CHECK(values_of(delivery.preview.newer(0)) == std::vector<int>(MOST, 5));
  CHECK(delivery.preview.newer(1).number == 0);
}

TEST_CASE("no frame is held when buffers are short", "[preview]") {
  const auto held_with = [](std::uint32_t buffers, std::uint32_t free) {
    Delivery delivery(buffers);
    static_cast<void>(delivery.preview.newer(0));
    std::vector<std::uint32_t> taken(buffers - 1 - free);
    delivery.region->take(taken.data(), buffers - 1 - free);
    delivery.deliver(1);
    const bool held = delivery.region->available() == free;
    delivery.region->give(taken.data(), buffers - 1 - free);
    // The request stands.
    if (!held) delivery.deliver(2);
    CHECK(values_of(delivery.preview.newer(0)) == std::vector<int>(MOST, held ? 1 : 2));
    return held;
  };
  CHECK(held_with(8, 2));
  CHECK_FALSE(held_with(8, 1));
  CHECK_FALSE(held_with(8, 0));
  CHECK_FALSE(held_with(3, 1));
  CHECK_FALSE(held_with(2, 0));
  CHECK(held_with(3, 2));
  CHECK(held_with(2, 1));
  CHECK(held_with(1, 0));
}

TEST_CASE("a device that fails makes no copies", "[preview]") {
  class Failing final : public memory::MemoryRegion {
   public:
    Failing() : MemoryRegion(config_of(8), {}, memory::Place::DEVICE) {}
    [[nodiscard]] bool copy_to_host(const void* /*data*/, void* /*to*/,
                                    std::size_t /*bytes*/) const noexcept override {
      return false;
    }
  };
  const Failing failing;
  Delivery delivery;
  Preview preview(failing);
  static_cast<void>(preview.newer(0));
  Burst* const frame = delivery.make(1);
  preview.offer(*frame, false);
  frame->release();
  CHECK(preview.newer(0).number == 0);
  CHECK(delivery.in_use() == 0);
}

TEST_CASE("copies are of whole frames while others are delivered and dropped", "[preview]") {
  Delivery delivery;
  Preview& preview = delivery.preview;
  MpmcRing<Burst*> ring(8);
  std::atomic<bool> stop{false};
  std::thread receiver([&] {
    Burst* frame = nullptr;
    while (!stop.load() || ring.size() > 0) {
      if (ring.pop(frame)) {
        frame->release();
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::thread deliverer([&] {
    for (std::uint8_t value = 1; !stop.load(); ++value) {
      if (Burst* const frame = delivery.make(value)) {
        preview.offer(*frame, false);
        ring.push(frame);
      } else {
        std::this_thread::yield();
      }
      if (value == 0) preview.drop();
    }
  });
  std::atomic<int> wrong{0};
  const auto read = [&] {
    std::uint64_t number = 0;
    // Limited to some thousand copies, or to a number of requests on a slow machine.
    for (int questions = 0; questions < 10'000'000 && number < 4000; ++questions) {
      const FrameCopy copy = preview.newer(number);
      if (copy.number == 0) {
        std::this_thread::yield();
        continue;
      }
      const auto value = static_cast<std::uint8_t>(copy.info.batch_id);
      wrong += copy.number <= number || values_of(copy) != std::vector<int>(MOST, value) ||
                       copy.last_time != copy.first_time + 1 || copy.missing != value
                   ? 1
                   : 0;
      number = copy.number;
    }
    wrong += number < 4000 ? 1 : 0;
  };
  std::thread other(read);
  read();
  other.join();
  stop = true;
  deliverer.join();
  receiver.join();
  preview.stop();
  CHECK(wrong == 0);
  CHECK(delivery.in_use() == 0);
  CHECK(delivery.pool.available() == 8);
}

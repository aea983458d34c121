// Copies of frames, for displays.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "reorder/preview.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

constexpr std::size_t MOST = 64;

/// A frame of `bytes` bytes, all of them `value`.
struct Offered {
  explicit Offered(std::uint8_t value, std::size_t bytes = MOST) : data(bytes, std::byte{value}) {
    // Frames of no bytes lie somewhere, too.
    data.reserve(MOST);
    frame.data = data.data();
    frame.info.batch_id = value;
    frame.info.aggregate_len = static_cast<std::uint32_t>(bytes);
    frame.first_time = value * 10U;
    frame.last_time = value * 10U + 1;
    frame.missing = value;
  }
  std::vector<std::byte> data;
  Frame frame{};
};

}  // namespace

TEST_CASE("nothing is copied before somebody asks", "[preview]") {
  Preview preview(MOST);
  preview.offer(Offered(1).frame);
  CHECK(preview.newer(0).number == 0);
  CHECK(preview.newer(0).data.empty());
}

TEST_CASE("the frame after each question is copied, and no other", "[preview]") {
  Preview preview(MOST);
  CHECK(preview.newer(0).number == 0);
  Offered first(1);
  preview.offer(first.frame);
  preview.offer(Offered(2).frame);
  // What happens to the frame later is nothing to the copy.
  std::ranges::fill(first.data, std::byte{99});
  const FrameCopy copy = preview.newer(0);
  CHECK(copy.number == 1);
  CHECK(copy.data == std::vector<std::uint8_t>(MOST, 1));
  CHECK(copy.info.batch_id == 1);
  CHECK(copy.first_time == 10);
  CHECK(copy.last_time == 11);
  CHECK(copy.missing == 1);
  // The same is told again to who does not have it.
  CHECK(preview.newer(1).number == 0);
  CHECK(preview.newer(0).number == 1);
  preview.offer(Offered(3).frame);
  CHECK(preview.newer(1).number == 2);
  CHECK(preview.newer(1).data == std::vector<std::uint8_t>(MOST, 3));
}

TEST_CASE("copies are as long as their frames", "[preview]") {
  Preview preview(MOST);
  static_cast<void>(preview.newer(0));
  preview.offer(Offered(7, 40).frame);
  CHECK(preview.newer(0).data == std::vector<std::uint8_t>(40, 7));
  preview.offer(Offered(8).frame);
  CHECK(preview.newer(1).data == std::vector<std::uint8_t>(MOST, 8));
  preview.offer(Offered(9, 0).frame);
  CHECK(preview.newer(2).number == 3);
  CHECK(preview.newer(2).data.empty());
}

TEST_CASE("a copy is of one frame while others are offered", "[preview]") {
  Preview preview(MOST);
  std::atomic<bool> stop{false};
  std::thread offers([&] {
    for (std::uint8_t value = 1; !stop.load(); ++value) preview.offer(Offered(value).frame);
  });
  std::size_t mixed = 0;
  std::size_t backward = 0;
  std::uint64_t number = 0;
  // Bounded: some thousand copies, or as many questions as a slow machine needs.
  for (int questions = 0; questions < 10'000'000 && number < 2000; ++questions) {
    const FrameCopy copy = preview.newer(number);
    if (copy.number == 0) {
      std::this_thread::yield();
      continue;
    }
    backward += copy.number <= number ? 1 : 0;
    number = copy.number;
    const auto value = static_cast<std::uint8_t>(copy.info.batch_id);
    mixed += copy.data != std::vector<std::uint8_t>(MOST, value) ||
                     copy.last_time != copy.first_time + 1 || copy.missing != value
                 ? 1
                 : 0;
  }
  stop = true;
  offers.join();
  CHECK(number == 2000);
  CHECK(mixed == 0);
  CHECK(backward == 0);
}

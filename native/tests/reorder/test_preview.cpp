// Copies of frames for displays.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "daqiri/error.h"
#include "reorder/preview.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

constexpr std::size_t MOST = 64;

/// A frame of `bytes` bytes, all of them `value`.
struct Offered {
  explicit Offered(std::uint8_t value, std::size_t bytes = MOST) : data(bytes, std::byte{value}) {
    // The data pointer is valid for empty frames, too.
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
  // Later changes to the frame do not affect the copy.
  std::ranges::fill(first.data, std::byte{99});
  const FrameCopy copy = preview.newer(0);
  CHECK(copy.number == 1);
  CHECK(copy.data == std::vector<std::uint8_t>(MOST, 1));
  CHECK(copy.info.batch_id == 1);
  CHECK(copy.first_time == 10);
  CHECK(copy.last_time == 11);
  CHECK(copy.missing == 1);
  // A reader that does not have the copy gets it again.
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

namespace {

/// Frames of 8 rows and 8 columns of bytes.
constexpr memory::Pixels SQUARE{.images = 1, .rows = 8, .columns = 8};

std::vector<float> floats_of(const FrameCopy& copy) {
  std::vector<float> floats(copy.data.size() / sizeof(float));
  std::memcpy(floats.data(), copy.data.data(), copy.data.size());
  return floats;
}

ReorderConfig with_frame(std::vector<std::uint32_t> shape, std::string dtype = "") {
  ReorderConfig config;
  config.name_ = "images";
  config.frame_ = {.shape_ = std::move(shape), .dtype_ = std::move(dtype)};
  return config;
}

std::string refused(const ReorderConfig& config, std::int64_t binning) {
  try {
    require_binning(config, binning);
  } catch (const Error& e) {
    CHECK(e.status() == Status::INVALID_PARAMETER);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("each binning has copies of its own, which are numbered together", "[preview]") {
  Preview preview(MOST, SQUARE);
  CHECK(preview.newer(0, 4).number == 0);
  preview.offer(Offered(6).frame);
  CHECK(preview.newer(0).number == 0);
  const FrameCopy means = preview.newer(0, 4);
  CHECK(means.number == 1);
  CHECK(means.info.batch_id == 6);
  CHECK(floats_of(means) == std::vector<float>(4, 6));
  preview.offer(Offered(7).frame);
  CHECK(floats_of(preview.newer(1, 4)) == std::vector<float>(4, 7));
  CHECK(preview.newer(1).data == std::vector<std::uint8_t>(MOST, 7));
  CHECK(preview.newer(0).number + preview.newer(0, 4).number == 2 + 3);
  CHECK(preview.newer(3).number == 0);
}

TEST_CASE("copies that were made stay when a plan has stopped", "[preview]") {
  Preview preview(MOST, SQUARE);
  static_cast<void>(preview.newer(0, 2));
  preview.offer(Offered(5).frame);
  preview.stop();
  CHECK(floats_of(preview.newer(0, 2)) == std::vector<float>(16, 5));
  CHECK(preview.newer(0, 3).number == 0);
}

TEST_CASE("pixels are what numpy takes frames to be", "[preview]") {
  using Kind = memory::Pixels::Kind;
  const auto is = [](const ReorderConfig& config, Kind kind, std::uint32_t bytes) {
    const memory::Pixels pixels = pixels_of(config);
    return pixels.kind == kind && pixels.bytes == bytes && pixels.images == 15 &&
           pixels.rows == 4 && pixels.columns == 6;
  };
  const std::vector<std::uint32_t> shape{3, 5, 4, 6};
  CHECK(is(with_frame(shape), Kind::UNSIGNED, 1));
  CHECK(is(with_frame(shape, "int8"), Kind::SIGNED, 1));
  CHECK(is(with_frame(shape, "uint16"), Kind::UNSIGNED, 2));
  CHECK(is(with_frame(shape, "int64"), Kind::SIGNED, 8));
  CHECK(is(with_frame(shape, "uint64"), Kind::UNSIGNED, 8));
  CHECK(is(with_frame(shape, "float16"), Kind::FLOAT, 2));
  CHECK(is(with_frame(shape, "float64"), Kind::FLOAT, 8));
  ReorderConfig config = with_frame(shape);
  const auto as = [&](ReorderDataType type) -> ReorderConfig& {
    config.data_types_.output_type_ = type;
    return config;
  };
  CHECK(is(as(ReorderDataType::INT32), Kind::SIGNED, 4));
  CHECK(is(as(ReorderDataType::UINT16), Kind::UNSIGNED, 2));
  CHECK(is(as(ReorderDataType::FP32), Kind::FLOAT, 4));
  CHECK(is(as(ReorderDataType::FP16), Kind::FLOAT, 2));
  CHECK(is(as(ReorderDataType::BF16), Kind::BFLOAT, 2));
  config.frame_.dtype_ = "uint16";
  CHECK(is(as(ReorderDataType::BF16), Kind::BFLOAT, 2));
  CHECK(is(as(ReorderDataType::INT16), Kind::UNSIGNED, 2));
}

TEST_CASE("binnings that frames do not have are refused", "[preview]") {
  CHECK(refused(with_frame({2, 8, 32}), 8).empty());
  CHECK(refused(with_frame({9}), 1).empty());
  CHECK(refused(with_frame({2, 8, 32}), 9) ==
        "reorder plan 'images': binning is 9; accepted is 1 to 8, the shorter of the last two axes "
        "of (2, 8, 32)");
  CHECK(refused(with_frame({8, 32}), -1) ==
        "reorder plan 'images': binning is -1; accepted is 1 to 8, the shorter of the last two "
        "axes of (8, 32)");
  const std::string axes =
      "reorder plan 'images': binning is 2; accepted is 1: its frames do not have two axes; give "
      "it a "
      "frame whose shape has rows and columns";
  CHECK(refused(with_frame({9}), 2) == axes);
  CHECK(refused(with_frame({}), 2) == axes);
}

TEST_CASE("a copy is of one frame while others are offered", "[preview]") {
  Preview preview(MOST, SQUARE);
  std::atomic<bool> stop{false};
  std::thread offers([&] {
    for (std::uint8_t value = 1; !stop.load(); ++value) preview.offer(Offered(value).frame);
  });
  std::size_t mixed = 0;
  std::size_t backward = 0;
  std::uint64_t number = 0;
  // Limited to some thousand copies, or to a number of requests on a slow machine.
  for (int questions = 0; questions < 10'000'000 && number < 2000; ++questions) {
    if (const FrameCopy means = preview.newer(number, 8); means.number != 0)
      mixed += floats_of(means) != std::vector<float>(1, static_cast<float>(means.missing)) ? 1 : 0;
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
  CHECK(number >= 2000);
  CHECK(mixed == 0);
  CHECK(backward == 0);
}

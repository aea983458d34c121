// The structure of a contiguous file of frames.
#include <catch2/catch.hpp>

#include <algorithm>

#include "storage/frame_layout.h"

using namespace daqiri;

namespace {

constexpr std::size_t ROOM = std::size_t{64} << 10U;

FrameForm form() {
  ReorderConfig config;
  config.name_ = std::string(60, 'p');
  config.frame_.shape_ = {3, 512, 1024};
  config.frame_.dtype_ = "float16";
  return {config, 1536};
}

std::vector<std::byte> image_of(std::uint64_t frames) {
  const FrameForm described = form();
  hdf5::Image image(ROOM);
  hdf5::Handle file = hdf5::create(image, "frames", hdf5::Format::EARLIEST);
  make_frame_layout(file, described, frames, false, [&](const FrameColumn* column, hid_t list) {
    REQUIRE(H5Pset_layout(list, H5D_CONTIGUOUS) >= 0);
    REQUIRE(H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0);
    image.place_values(column == nullptr ? 9 * ROOM
                                         : ROOM * (1 + static_cast<std::uint64_t>(*column)));
  });
  REQUIRE(file.close());
  return image.bytes();
}

}  // namespace

TEST_CASE("One page of a contiguous file tells how many frames it has", "[storage][frames]") {
  const std::vector<std::byte> none = image_of(0);
  const std::vector<std::byte> one = image_of(1);
  const std::vector<std::byte> many = image_of(1'000'000);
  constexpr std::size_t PAGE = hdf5::Image::HEADERS;
  CHECK(!std::equal(one.begin(), one.begin() + PAGE, many.begin()));
  CHECK(std::equal(none.begin() + PAGE, none.end(), one.begin() + PAGE));
  CHECK(std::equal(one.begin() + PAGE, one.end(), many.begin() + PAGE));
}

TEST_CASE("A structure that has no room is refused", "[storage][frames]") {
  const FrameForm described = form();
  hdf5::Image image(2 * hdf5::Image::HEADERS);
  CHECK_THROWS_AS(
      [&] {
        hdf5::Handle file = hdf5::create(image, "frames", hdf5::Format::EARLIEST);
        make_frame_layout(file, described, 0, false, [](const FrameColumn*, hid_t) {});
        hdf5::require(file.close(), LAY_OUT);
      }(),
      Error);
}

TEST_CASE("Frames without a shape have no files", "[storage][frames]") {
  ReorderConfig config;
  config.name_ = "images";
  CHECK_THROWS_WITH(FrameForm(config, 8), Catch::Contains("'images' have no shape"));
}

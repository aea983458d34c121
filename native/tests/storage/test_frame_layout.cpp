// The layout of files of frames.
#include <catch2/catch.hpp>

#include "storage/frame_layout.h"

using namespace daqiri;

TEST_CASE("Frames without a shape have no files", "[storage][frames]") {
  ReorderConfig config;
  config.name_ = "images";
  CHECK_THROWS_WITH(FrameForm(config, 8), Catch::Contains("'images' have no shape"));
}

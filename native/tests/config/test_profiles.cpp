// The configurations in the package.
#include <filesystem>

#include "documents.h"

using namespace daqiri;

TEST_CASE("profiles load without a word", "[config][profiles]") {
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DAQIRI_SOURCE_DIR "/profiles")) {
    if (entry.path().extension() != ".yaml") continue;
    ++seen;
    NetworkConfig config;
    const ConfigReport report = load_config_file(entry.path(), config);
    INFO(report.text());
    CHECK(report.problems_.empty());
    CHECK(config.common_.engine_type != EngineType::DEFAULT);
  }
  CHECK(seen >= 4);
}

TEST_CASE("the loopback profile fits a small machine", "[config][profiles]") {
  NetworkConfig config;
  REQUIRE(load_config_file(DAQIRI_SOURCE_DIR "/profiles/loopback.yaml", config).ok());
  CHECK(config.common_.loopback_ == LoopbackType::LOOPBACK_TYPE_SW);
  std::uint64_t bytes = 0;
  for (const auto& [name, region] : config.mrs_) {
    CHECK(region.kind_ == MemoryKind::HOST);
    bytes += region.num_bufs_ * region.buf_size_;
  }
  CHECK(bytes < 64U << 20U);
  for (const auto& queue : config.ifs_.at(0).rx_.queues_)
    CHECK((queue.common_.cpu_core_ == "0" || queue.common_.cpu_core_ == ANY_CORE));
  for (const auto& queue : config.ifs_.at(0).tx_.queues_)
    CHECK((queue.common_.cpu_core_ == "0" || queue.common_.cpu_core_ == ANY_CORE));
}

// Engines that a program registers under new names.
#include <string>

#include <catch2/catch.hpp>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "io/io_engine.h"

using namespace daqiri;

namespace {

EngineTraits traits() {
  EngineTraits traits;
  traits.name = "bench";
  traits.rx_descriptors = 512;
  return traits;
}

const RegisteredEngine registered{
    {traits(), [](const NetworkConfig& config) { return config.common_.engine_name_ == "bench"; },
     [](const NetworkConfig&) -> std::unique_ptr<IoEngine> { return nullptr; }}};

std::string document(const std::string& engine, const std::string& address = "anything:/at all") {
  return "version: 1\nmaster_core: 0\nstream_type: raw\nengine: " + engine +
         "\nmemory_regions:\n- {name: buffers, kind: host, num_bufs: 16384, buf_size: 2048}\n"
         "interfaces:\n- name: port\n  address: \"" +
         address +
         "\"\n  rx:\n    queues:\n    - {name: in, id: 0, cpu_core: any, batch_size: 64, "
         "memory_regions: [buffers]}\n";
}

}  // namespace

TEST_CASE("an engine of the program's own is chosen by its name", "[engine]") {
  NetworkConfig config;
  const ConfigReport report = load_config_text(document("bench"), "test.yaml", config);
  INFO(report.text());
  REQUIRE(report.problems_.empty());
  CHECK(config.common_.engine == EngineType::OTHER);
  CHECK(config.common_.engine_name_ == "bench");
  CHECK(config.common_.engine_type == EngineType::OTHER);
  CHECK_FALSE(config.common_.engine_inferred_);
  CHECK(engine_for(config).traits.name == "bench");
  CHECK(rx_ring_size(config, config.ifs_[0].rx_.queues_[0].common_) == 512);

  NetworkConfig again;
  CHECK(load_config_text(config_to_yaml(config), "again.yaml", again).problems_.empty());
  CHECK(again == config);
  CHECK(validate_config(again).problems_.empty());
  CHECK(again == config);
}

TEST_CASE("a name that is no engine's is refused with those that are", "[engine]") {
  NetworkConfig config;
  const ConfigReport report = load_config_text(document("bensh"), "test.yaml", config);
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == "engine");
  for (const char* name : {"'dpdk'", "'ibverbs'", "'socket'", "'packet'", "'bench'"})
    CHECK_THAT(report.problems_[0].message_, Catch::Contains(name));
}

TEST_CASE("an engine that does not take the configuration is refused", "[engine]") {
  NetworkConfig config;
  // The engine supports `loopback: sw` only.
  const ConfigReport report = load_config_text(document("loopback"), "test.yaml", config);
  INFO(report.text());
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == "engine");
  CHECK_THAT(report.problems_[0].message_, Catch::Contains("does not accept this configuration"));
}

TEST_CASE("documented engines keep their rules and numbers", "[engine]") {
  NetworkConfig config;
  const ConfigReport report = load_config_text(document("packet"), "test.yaml", config);
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == "interfaces[0].address");
  REQUIRE(load_config_text(document("packet", "eth0"), "test.yaml", config).ok());
  CHECK(config.common_.engine_type == EngineType::PACKET);
  CHECK(static_cast<int>(EngineType::PACKET) == 5);
  CHECK(static_cast<int>(EngineType::OTHER) == 6);
}

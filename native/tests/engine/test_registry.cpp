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

TEST_CASE("the rules ask what a registered engine declares", "[engine]") {
  NetworkConfig config;
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const ConfigReport direct = load_config_text(
      changed(document("bench"), "cpu_core: any, batch_size: 64", "poll_mode: direct"), "test.yaml",
      config);
  REQUIRE(direct.problems_.size() == 1);
  CHECK(direct.problems_[0].path_ == "interfaces[0].rx.queues[0].poll_mode");
  CHECK_THAT(
      direct.problems_[0].message_,
      Catch::Contains("found 'direct' with engine 'bench'; accepts it with loopback: sw, and "
                      "with stream_type: raw and engine 'dpdk', 'ibverbs' or 'packet'"));

  const ConfigReport unused = load_config_text(
      changed(document("bench"),
              "interfaces:", "- {name: idle, kind: host, num_bufs: 1, buf_size: 64}\ninterfaces:"),
      "test.yaml", config);
  REQUIRE(unused.problems_.size() == 1);
  CHECK(unused.ok());
  CHECK(unused.problems_[0].path_ == "memory_regions[1]");
  CHECK_THAT(unused.problems_[0].message_, Catch::Contains("is used by no queue"));
}

TEST_CASE("an engine that is only declared replaces none", "[engine]") {
  const auto count = engines().size();
  const EngineEntry entry{{.name = "packet"}, [](const NetworkConfig&) { return true; }, nullptr};
  const RegisteredEngine declared{entry};
  CHECK(engines().size() == count);
  REQUIRE(traits_named("packet"));
  CHECK(traits_named("packet")->addresses == AddressForm::INTERFACE_NAME);
  CHECK_FALSE(traits_named("pocket"));
}

TEST_CASE("engines that this build lacks are declared", "[engine]") {
  for (const char* name : {"dpdk", "ibverbs"}) {
    const auto traits = traits_named(name);
    REQUIRE(traits);
    CHECK(traits->kernel_bypass);
    CHECK(traits->device_memory == (name == std::string("ibverbs")));
  }
  CHECK(traits_named("dpdk")->transports.empty());
  CHECK(traits_named("ibverbs")->transports.front() == SocketProtocol::ROCE);
  CHECK(traits_named("loopback")->in_memory);
  CHECK_FALSE(traits_named("socket")->raw);
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

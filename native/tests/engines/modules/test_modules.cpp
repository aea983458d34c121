// Engines in modules: loaded when a configuration names them, and refused where they do not fit.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>

#include "daqiri/version.h"
#include "engine/modules.h"
#include "engine/registry.h"
#include "engines/modules/odd_module.h"

using namespace daqiri;
namespace fs = std::filesystem;

namespace {

std::string odd() {
  std::ifstream file(test::odd_module(), std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// A folder of modules, the only one in DAQIRI_ENGINE_PATH.
class Modules {
 public:
  Modules() {
    char name[] = "/tmp/daqiri_modules_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    folder_ = name;
    test::use_modules(folder_);
  }
  ~Modules() { fs::remove_all(folder_); }
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;

  /// Its path.
  std::string add(const std::string& engine, const std::string& content) {
    const fs::path path = folder_ / ("daqiri_engine_" + engine + ".so");
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  fs::path folder_;
};

ConfigReport load(const std::string& engine, NetworkConfig& config,
                  const std::string& address = "anything") {
  return load_config_text(
      "version: 1\nmaster_core: 0\nstream_type: raw\nengine: " + engine +
          "\nmemory_regions:\n- {name: buffers, kind: host, num_bufs: 16384, buf_size: 2048}\n"
          "interfaces:\n- name: port\n  address: \"" +
          address +
          "\"\n  rx:\n    queues:\n    - {name: in, id: 0, cpu_core: any, batch_size: 64, "
          "memory_regions: [buffers]}\n",
      "test.yaml", config);
}

/// The only problem of a configuration that names the engine.
std::string refusal(const std::string& engine) {
  NetworkConfig config;
  const ConfigReport report = load(engine, config);
  INFO(report.text());
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == "engine");
  return report.problems_[0].message_;
}

/// Engines that have a module, without those of this build.
std::vector<std::string> added() {
  std::vector<std::string> names = engines_with_module();
  std::erase(names, "dpdk");
  return names;
}

bool registered(const std::string& name) { return traits_named(name).has_value(); }

}  // namespace

TEST_CASE("a module is loaded when a configuration names its engine", "[engines][modules]") {
  Modules modules;
  modules.add("odd", odd());
  CHECK(added() == std::vector<std::string>{"odd"});
  NetworkConfig config;
  const ConfigReport report = load("odd", config);
  INFO(report.text());
  REQUIRE(report.problems_.empty());
  CHECK(config.common_.engine_type == EngineType::OTHER);
  CHECK(engine_for(config).traits.name == "odd");
  CHECK(engine_for(config).make != nullptr);
  CHECK(load_engine("odd").empty());
  CHECK(load_engines().empty());
}

TEST_CASE("a module of another version is refused, and none of its code runs",
          "[engines][modules]") {
  Modules modules;
  const std::string other = "1999" + std::string(DAQIRI_VERSION).substr(4);
  const std::string mark = "daqiri_engine_version=";
  const std::string path =
      modules.add("older", replaced(odd(), mark + DAQIRI_VERSION, mark + other));
  CHECK_THAT(refusal("older"),
             Catch::Contains("found 'older', its module " + path + " is built for daqiri " + other +
                             ", and this is daqiri " DAQIRI_VERSION
                             "; install the module of " DAQIRI_VERSION));
  CHECK_FALSE(registered("older"));
}

TEST_CASE("a module whose library is missing is refused with the loader's reason",
          "[engines][modules]") {
  Modules modules;
  const std::string path =
      modules.add("broken", replaced(odd(), "libdaqiri.so.1", "libabsent.so.1"));
  CHECK_THAT(refusal("broken"),
             Catch::Contains("found 'broken', its module " + path +
                             " cannot be loaded: libabsent.so.1: cannot open shared object file") &&
                 Catch::Contains("; install the library that is named there"));
  CHECK(load_engines().at("broken") == load_engine("broken"));
}

TEST_CASE("a file that is no module is refused", "[engines][modules]") {
  Modules modules;
  const std::string path = modules.add("text", "not a library");
  CHECK_THAT(refusal("text"), Catch::Contains("its module " + path + " has no version of daqiri"));
}

TEST_CASE("what is not a file, and a file that was not copied whole, are refused",
          "[engines][modules]") {
  Modules modules;
  const fs::path gone = modules.add("gone", "");
  fs::remove(gone);
  fs::create_symlink("nowhere", gone);
  CHECK_THAT(refusal("gone"), Catch::Contains("its module " + gone.string() +
                                              " cannot be read: No such file or directory"));
  const fs::path folder = modules.add("folder", "");
  fs::remove(folder);
  fs::create_directory(folder);
  CHECK_THAT(refusal("folder"), Catch::Contains("is not a regular file"));
  const fs::path pipe = modules.add("pipe", "");
  fs::remove(pipe);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(refusal("pipe"), Catch::Contains("is not a regular file"));
  std::string half = odd();
  half.resize(half.find("daqiri_engine_version=") + 64);
  modules.add("half", half);
  CHECK_THAT(refusal("half"), Catch::Contains("is incomplete; copy it again"));
  const auto problems = load_engines();
  CHECK(problems.size() == 4);
}

TEST_CASE("a module that registers another engine is refused", "[engines][modules]") {
  Modules modules;
  const std::string path = modules.add("even", odd());
  CHECK_THAT(refusal("even"),
             Catch::Contains("its module " + path + " registers no engine 'even'"));
}

TEST_CASE("an unknown engine is refused with those in modules", "[engines][modules]") {
  Modules modules;
  modules.add("one", "");
  modules.add("../two", "");
  CHECK(added() == std::vector<std::string>{"one"});
  CHECK_THAT(refusal("three"), Catch::Contains("unknown word") && Catch::Contains("'one'"));
  // Names are not paths.
  CHECK(load_engine("../two").empty());
  CHECK(load_engine("").empty());
}

TEST_CASE("what is wrong with the module of a documented engine is told when it is opened",
          "[engines][modules]") {
  Modules modules;
  const std::string path = modules.add("ibverbs", "not a library");
  NetworkConfig config;
  REQUIRE(load("ibverbs", config, "0000:05:00.0").ok());
  CHECK_THAT(engine_for(config).missing(),
             Catch::Contains("engine 'ibverbs': its module " + path + " has no version"));
  fs::remove(path);
  CHECK_THAT(engine_for(config).missing(), Catch::Contains("is not part of this build"));
}

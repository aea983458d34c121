#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "daqiri/version.h"
#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Deleted by the destructor.
struct TemporaryFile {
  TemporaryFile(const std::string& name, const std::string& text)
      : path(std::filesystem::temp_directory_path() / (std::to_string(getpid()) + name)) {
    std::ofstream(path) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

}  // namespace

TEST_CASE("the version is CalVer, as text and as numbers", "[api]") {
  CHECK(std::string(version_string()) == std::to_string(version_year()) + "." +
                                             std::to_string(version_month()) + "." +
                                             std::to_string(version_patch()));
  CHECK(version_year() >= 2024);
  CHECK(version_month() >= 1);
  CHECK(version_month() <= 12);
  CHECK(abi_version() == DAQIRI_ABI_VERSION);
}

TEST_CASE("a second init is refused and leaves the engine running", "[api]") {
  const Engine engine(LOOPBACK);
  NetworkConfig config;
  REQUIRE(parse_network_config(SPLIT, config) == Status::SUCCESS);
  CHECK(daqiri_init(SPLIT) == Status::INTERNAL_ERROR);
  CHECK_THAT(last_error(), Catch::Contains("daqiri_init") && Catch::Contains("shutdown"));
  CHECK(daqiri_init(config) == Status::INTERNAL_ERROR);
  CHECK(daqiri_init_from_yaml_string(SPLIT) == Status::INTERNAL_ERROR);
  CHECK(get_num_rx_queues(0) == 2);
  send_frames(8, 5000);
  CHECK(receive_numbers(8, [](BurstParams** b) { return get_rx_burst(b, 0, 0); }).size() == 8);
}

TEST_CASE("after shutdown another engine starts", "[api]") {
  for (int round = 0; round < 3; ++round) {
    const Engine engine(round % 2 == 0 ? LOOPBACK : SPLIT);
    CHECK(get_num_rx_queues(0) == (round % 2 == 0 ? 2 : 1));
  }
  CHECK(get_engine_type() == EngineType::UNKNOWN);
  shutdown();
}

TEST_CASE("init tells every mistake and leaves nothing running", "[api]") {
  CHECK(daqiri_init("daqiri: {cfg: {version: 2, master_core: 0, stream_type: raw, loopback: sw, "
                    "debgu: 1}}") == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("version") && Catch::Contains("debgu"));
  CHECK(get_engine_type() == EngineType::UNKNOWN);
  NetworkConfig empty;
  CHECK(daqiri_init(empty) == Status::INVALID_PARAMETER);
  const Engine engine(LOOPBACK);
}

TEST_CASE("a file is read where the text names one", "[api]") {
  const TemporaryFile plain("loopback.conf", LOOPBACK);
  NetworkConfig config;
  CHECK(parse_network_config(plain.path.string(), config) == Status::SUCCESS);
  CHECK(config.ifs_.size() == 2);
  CHECK(parse_network_config_from_yaml_file(plain.path.string(), config) == Status::SUCCESS);
  CHECK(parse_network_config_from_yaml_string(LOOPBACK, config) == Status::SUCCESS);
  CHECK(parse_network_config_from_yaml_string(plain.path.string(), config) ==
        Status::INVALID_PARAMETER);
  for (const char* missing : {"/nowhere/engine.yaml", "/nowhere/engine.yml"}) {
    CHECK(parse_network_config(missing, config) == Status::INVALID_PARAMETER);
    CHECK_THAT(last_error(), Catch::Contains(missing));
    CHECK(daqiri_init(missing) == Status::INVALID_PARAMETER);
  }
  CHECK(daqiri_init_from_yaml_file("/nowhere/engine") == Status::INVALID_PARAMETER);
  REQUIRE(daqiri_init_from_yaml_file(plain.path.string()) == Status::SUCCESS);
  shutdown();
  REQUIRE(daqiri_init_from_yaml_string(LOOPBACK) == Status::SUCCESS);
  shutdown();
}

TEST_CASE("a configuration built in code comes back as it is used", "[api]") {
  NetworkConfig config;
  REQUIRE(parse_network_config(LOOPBACK, config) == Status::SUCCESS);
  config.mrs_.begin()->second.num_bufs_ = 8;
  REQUIRE(daqiri_init(config) == Status::SUCCESS);
  CHECK(config.mrs_.begin()->second.num_bufs_ > 8);
  CHECK(get_engine_type() == config.common_.engine_type);
  CHECK(get_engine_type() != EngineType::UNKNOWN);
  print_stats();
  shutdown();
}

TEST_CASE("a failure's text is the calling thread's own", "[api]") {
  CHECK(daqiri_init("version: 7\n") == Status::INVALID_PARAMETER);
  const std::string mine = last_error();
  std::thread([] {
    CHECK(std::string(last_error()).empty());
    CHECK(get_port_id("nothing") == -1);
    CHECK_THAT(last_error(), Catch::Contains("get_port_id"));
  }).join();
  CHECK(mine == last_error());
}

TEST_CASE("a text of any length is kept to the end of its room", "[api]") {
  NetworkConfig config;
  std::string yaml = "daqiri:\n  cfg:\n    version: 1\n";
  for (int i = 0; i < 500; ++i) yaml += "    unknown_key_" + std::to_string(i) + ": 1\n";
  CHECK(parse_network_config_from_yaml_string(yaml, config) == Status::INVALID_PARAMETER);
  CHECK(std::strlen(last_error()) == 8191);
}

TEST_CASE("bursts that outlive the engine stay readable", "[api]") {
  BurstParams* received = nullptr;
  BurstParams* filled = nullptr;
  {
    const Engine engine(LOOPBACK);
    send_frames(8, 5000, 70);
    REQUIRE(eventually([&] { return get_rx_burst(&received, 0, 0) == Status::SUCCESS; }));
    filled = filled_burst(3);
    write_frame(filled, 0, 5000, 1);
  }
  CHECK(number_of(received, 0) == 70);
  CHECK(get_packet_length(received, 7) == HEADERS + PAYLOAD);
  CHECK(send_tx_burst(filled) == Status::NOT_READY);
  {
    const Engine next(LOOPBACK);
    CHECK(send_tx_burst(filled) == Status::NOT_READY);
    CHECK_THAT(last_error(), Catch::Contains("shut down"));
    send_frames(8, 5000, 1000);
    CHECK(number_of(received, 7) == 77);
  }
  free_all_packets_and_burst_rx(received);
  free_all_packets_and_burst_tx(filled);
}

TEST_CASE("a child made by fork has no engine and ends", "[api]") {
  const Engine engine(LOOPBACK);
  const pid_t child = fork();
  if (child == 0) {
    shutdown();
    _exit(get_engine_type() == EngineType::UNKNOWN ? 0 : 1);
  }
  int status = -1;
  REQUIRE(eventually([&] { return waitpid(child, &status, WNOHANG) == child; }));
  CHECK(status == 0);
  CHECK(get_engine_type() != EngineType::UNKNOWN);
}

TEST_CASE("threads call while the engine comes and goes", "[api]") {
  std::atomic<bool> done{false};
  std::atomic<int> received{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!done.load()) {
        BurstParams* burst = nullptr;
        if (get_rx_burst(&burst) == Status::SUCCESS) {
          received += static_cast<int>(get_num_packets(burst));
          free_all_packets_and_burst_rx(burst);
        }
        BurstParams* sent = create_tx_burst_params();
        if (sent != nullptr) {
          set_header(sent, 0, 0, 2, 1);
          const bool ready = get_tx_packet_burst(sent) == Status::SUCCESS &&
                             set_all_packet_lengths(sent, {64}) == Status::SUCCESS;
          const Status status = ready ? send_tx_burst(sent) : Status::NOT_READY;
          if (status != Status::SUCCESS && status != Status::NO_SPACE_AVAILABLE)
            free_tx_burst(sent);
        }
        get_num_rx_queues(0);
      }
    });
  }
  for (int round = 0; round < 8; ++round) {
    const Engine engine(LOOPBACK);
    const int before = received.load();
    CHECK(eventually([&] { return received.load() > before; }));
  }
  done = true;
  for (auto& thread : threads) thread.join();
}

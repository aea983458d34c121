// Loading of texts and files, and the messages about their problems.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

struct Expected {
  int line;
  std::string path;
};

std::string indented(std::string_view text, const std::string& by) {
  std::string result = by;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += by;
  }
  return result;
}

/// A file that the destructor deletes.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content)
      : path_(std::filesystem::temp_directory_path() /
              ("daqiri_config_" + std::to_string(::getpid()) + ".yaml")) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("ten mistakes are ten errors, each at its line", "[config][load]") {
  const std::string text = R"(daqiri:
  cfg:
    version: 2
    master_core: 3
    stream_type: raw
    memory_regions:
    - {name: rx, kind: gpu, num_bufs: 20000, buf_size: 2048}
    - {name: tx, kind: huge, num_bufs: 20000, buf_size: 2048}
    interfaces:
    - name: port
      address: <0000:00:00.0>
      rx:
        flow_isolation: maybe
        queues:
        - name: q0
          id: 0
          cpu_core: 4
          batch_size: -5
          timout_us: 100
          memory_regions: [rxx]
        flows:
        - name: f
          id: 1
          match: {udp_dst: 70000}
          action: {type: queue, id: 3}
      tx:
        queues:
        - {name: q0, id: 0, cpu_core: 5, memory_regions: [tx]}
)";
  const std::vector<Expected> expected = {
      {3, "version"},
      {7, "memory_regions[0].kind"},
      {11, "interfaces[0].address"},
      {13, "interfaces[0].rx.flow_isolation"},
      {18, "interfaces[0].rx.queues[0].batch_size"},
      {19, "interfaces[0].rx.queues[0].timout_us"},
      {20, "interfaces[0].rx.queues[0].memory_regions[0]"},
      {24, "interfaces[0].rx.flows[0].match.udp_dst"},
      {25, "interfaces[0].rx.flows[0].action.id"},
      {28, "interfaces[0].tx.queues[0].batch_size"},
  };
  const Loaded loaded = load(text);
  INFO(loaded.report.text());
  REQUIRE(loaded.report.problems_.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ConfigProblem& problem = loaded.report.problems_[i];
    CHECK(problem.severity_ == ConfigProblem::Severity::ERROR);
    CHECK(problem.file_ == "test.yaml");
    CHECK(problem.line_ == expected[i].line);
    CHECK(problem.path_ == expected[i].path);
  }
  // The valid parts were loaded.
  CHECK(loaded.config.common_.master_core_ == 3);
  CHECK(memory_regions(loaded.config).at(1)->name_ == "tx");
  CHECK(loaded.config.ifs_.at(0).rx_.queues_.at(0).common_.cpu_core_ == "4");
}

TEST_CASE("a report is a line per problem", "[config][load]") {
  const Loaded loaded = load(replaced(SOCKET, "batch_size: 16", "batch_size: many"));
  CHECK(loaded.report.text() ==
        "test.yaml:12:50: error: interfaces[0].rx.queues[0].batch_size: found 'many', not an "
        "integer; accepts an integer "
        "from 1 to 1048576 (packets)\n");
  CHECK(load(SOCKET).report.text().empty());
}

TEST_CASE("the configuration is under daqiri: cfg: or is the document", "[config][load]") {
  const NetworkConfig bare = require_clean(SOCKET);
  CHECK(require_clean("daqiri:\n  cfg:\n" + indented(SOCKET, "    ") + "\nbench: [1]\n") == bare);
  CHECK(require_clean(std::string("%YAML 1.2\n---\n") + SOCKET) == bare);
  CHECK(require_clean(std::string(SOCKET) + "bench_rx: {timout_us: 3}\nophyd: <name>\n7: 8\n") ==
        bare);
  require_warning(std::string(SOCKET) + "log_levle: info\n[a]: 1\n", "log_levle", "'log_level'");
  require_clean(std::string(SOCKET) + "log_level: info\nlog_levels: [info]\n");
  require_error("daqiri:\n  cfg:\n" + indented(SOCKET, "    ") + "\n    bench: [1]\n", "bench",
                "unknown key 'bench'");
  require_error("daqiri:\n  cgf:\n" + indented(SOCKET, "    "), "daqiri", "nearest is 'cfg'");
  require_error("daqiri: 5\n", "daqiri.cfg", "found no configuration");
  require_error("daqiri:\n", "daqiri.cfg", "found no configuration");
  require_error("daqiri: {cfg: [1]}\n", "daqiri.cfg", "found no configuration");
  require_error("daqiri: {}\n", "daqiri.cfg", "found no configuration");
  require_error("daqiri:\n  cfg:\n" + indented(SOCKET, "    ") + "\ndaqiri: {}\n", "daqiri",
                "given twice");
  require_error("bench: {}\n", "", "found no configuration");
  require_error("profiles/loopback.yaml", "", "found no configuration");
  require_error("[1, 2]", "", "found no configuration");
  for (const char* empty : {"", "\n\n", "# nothing\n", "---\n"}) {
    const Loaded loaded = load(empty);
    CHECK(errors(loaded.report) == 1);
    CHECK_THAT(loaded.report.text(), Catch::Contains("found no configuration"));
  }
  require_warning(std::string(SOCKET) + "---\nversion: 2\n", "", "second document");
  require_clean(std::string(SOCKET) + "---\n");
}

TEST_CASE("text that is not YAML is one problem at its place", "[config][load]") {
  const Loaded loaded = load("version: 1\nmaster_core: [1, 2\nstream_type: raw\n");
  INFO(loaded.report.text());
  REQUIRE(loaded.report.problems_.size() == 1);
  CHECK(loaded.report.problems_[0].line_ == 3);
  CHECK(loaded.report.problems_[0].column_ > 0);
  CHECK(loaded.report.problems_[0].path_.empty());
  CHECK_THAT(loaded.report.problems_[0].message_, Catch::Contains("not valid YAML"));
  for (const char* text : {"a: b: c", "a: 'x", "\ta: 1", "a: *missing", "{a: 1",
                           "%YAML 3.0\n---\na: 1", "a: \"\\q\"", "- a\n- {b"}) {
    INFO(text);
    const Loaded bad = load(text);
    CHECK(bad.report.problems_.size() == 1);
    CHECK(bad.report.problems_.at(0).line_ > 0);
  }
  const Loaded control = load(std::string_view("version: 1\nx: a\004b\n"));
  CHECK_THAT(control.report.text(), Catch::Contains("test.yaml:2:5: error: found byte 4"));
  CHECK_THAT(load("version: 1\n# caf\xE9\n").report.text(),
             Catch::Contains("test.yaml:2:6: error: found byte 233"));
  CHECK_THAT(load(std::string_view("v\0e", 3)).report.text(),
             Catch::Contains("test.yaml:1:2: error: found byte 0"));
}

TEST_CASE("an unknown key names the nearest one", "[config][load]") {
  const std::string queue = "interfaces[0].rx.queues[0]";
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_size: 16, timout_us: 5,"),
                queue + ".timout_us", "nearest is 'timeout_us'");
  require_error(replaced(SOCKET, "max_payload_size", "max_payload"),
                "interfaces[0].socket_config.max_payload", "'max_payload_size'");
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_size: 16, offloads: [tx_eth_src],"),
                queue + ".offloads", "accepts name, id");
  // A misspelled required key is reported once, not twice.
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_sise: 16,"), queue + ".batch_sise",
                "nearest is 'batch_size'");
  require_error(replaced(SOCKET, "master_core: 0", "mastercore: 0"), "master_core", "required");
  const std::string inner = "daqiri:\n  cfg:\n" + indented(SOCKET, "    ");
  require_error(replaced(inner, "master_core: 0", "mastercore: 0"), "mastercore",
                "nearest is 'master_core'");
  // An unrelated key does not hide a missing one.
  CHECK(errors(load(replaced(SOCKET, "batch_size: 16,", "xyz: 16,")).report) == 2);
  require_error(replaced(SOCKET, "  rx:", "  Rx:"), "interfaces[0].Rx", "nearest is 'rx'");
  require_error(replaced(RAW, "accurate_send", "accurate-send"), "interfaces[1].tx.accurate-send",
                "nearest is 'accurate_send'");
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_size: 16, \"a\\x01b\": 5,"),
                queue + ".a\\x01b", "unknown key");
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_size: 16, [1]: 5,"), queue,
                "found a list as a key");
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_size: 16, <<: 5,"), queue + ".<<",
                "unknown key");
}

TEST_CASE("keys of older files are refused by name", "[config][load]") {
  require_error(replaced(SOCKET, "stream_type", "manager: dpdk\nstream_type"), "manager", "engine");
  require_error(replaced(SOCKET, "stream_type", "protocol: udp\nstream_type"), "protocol",
                "udp://ip:port");
  require_error(replaced(ROCE, "roce_config", "rdma_config"), "interfaces[0].rdma_config",
                "roce_config the transport_mode");
  CHECK(load("manager: dpdk\n").report.problems_.size() > 1);
}

TEST_CASE("a key given twice is an error", "[config][load]") {
  require_error(replaced(SOCKET, "batch_size: 16,", "batch_size: 16, batch_size: 16,"),
                "interfaces[0].rx.queues[0].batch_size", "line 12");
  require_error(replaced(SOCKET, "stream_type: socket", "stream_type: socket\nversion: 1"),
                "version", "first in line 1");
  CHECK(
      errors(load(replaced(SOCKET, "batch_size: 16,", "batch_size: x, batch_size: 16,")).report) ==
      2);
}

TEST_CASE("required keys are missed by path", "[config][load]") {
  require_error(replaced(SOCKET, "version: 1\n", ""), "version", "required");
  require_error(replaced(SOCKET, "stream_type: socket\n", ""), "stream_type",
                "accepts 'raw' or 'socket'");
  require_error(replaced(SOCKET, "  address: 127.0.0.1\n", ""), "interfaces[0].address",
                "required");
  require_error(replaced(SOCKET, "num_bufs: 4096, ", ""), "memory_regions[0].num_bufs", "required");
  const Loaded loaded = load("version: 1\n");
  CHECK_THAT(loaded.report.text(), Catch::Contains("test.yaml:1:1: error: interfaces: required"));
  CHECK(errors(loaded.report) == 3);
}

TEST_CASE("placeholders of a template are named as such", "[config][load]") {
  require_error(replaced(RAW, "address: 0000:05:00.0", "address: <0000:00:00.0>"),
                "interfaces[0].address", "placeholder");
  require_error(replaced(RAW, "master_core: 3", "master_core: <3>"), "master_core", "placeholder");
  require_error(replaced(RAW, "debug: true", "debug: <true>"), "debug", "placeholder");
  require_error(replaced(RAW, "engine: dpdk", "engine: <engine>"), "engine", "placeholder");
  require_error(replaced(RAW, "[headers, payloads]", "[headers, <region>]"),
                "interfaces[0].rx.queues[0].memory_regions[1]", "placeholder");
  require_error(
      replaced(SOCKET, "remote_addr: \"udp://127.0.0.1:5001\"", "remote_addr: \"udp://<ip>:5001\""),
      "interfaces[1].socket_config.remote_addr", "placeholder");
}

TEST_CASE("wrong types are told with what was found", "[config][load]") {
  const auto queue = [](const char* value) {
    return replaced(SOCKET, "batch_size: 16", std::string("batch_size: ") + value);
  };
  const std::string path = "interfaces[0].rx.queues[0].batch_size";
  for (const char* value : {"[16]", "{n: 16}", "~", "1.5", "1e3", "16k", "''", "+", "0x", "-",
                            "99999999999999999999", "-1", "true", "1 6"}) {
    INFO(value);
    require_error(queue(value), path, "accepts an integer from 1 to 1048576 (packets)");
  }
  require_error(queue("016"), path, "octal");
  for (const char* value : {"16", "'16'", "0x10", "0o20", "+16", "\"0x10\"", "!!int 16"}) {
    INFO(value);
    CHECK(require_clean(queue(value)) == require_clean(SOCKET));
  }
  // If the engine is not part of this build, no key is reported as unused.
  const std::string absent = replaced(FLEX, "address: eth0", "address: 0000:05:00.0");
  for (const char* value : {"true", "True", "TRUE", "yes", "on", "y", "'true'"}) {
    CHECK(require_clean(absent + "debug: " + value + "\n").debug_);
  }
  for (const char* value : {"1", "maybe", "truee", "[]", "null"}) {
    require_error(std::string(SOCKET) + "debug: " + value + "\n", "debug", "accepts true or false");
  }
  require_error(replaced(SOCKET, "name: in,", "name: \"a\\tb\","),
                "interfaces[0].rx.queues[0].name", "control characters");
  CHECK(require_clean(replaced(SOCKET, "name: in,", "name: 5,"))
            .ifs_[0]
            .rx_.queues_[0]
            .common_.name_ == "5");
  require_error(std::string(SOCKET) + "log_level: LOUD\n", "log_level", "accepts 'trace', 'debug'");
  require_error(
      replaced(SOCKET, "- {name: buffers, kind: host", "- 5\n- {name: buffers, kind: host"),
      "memory_regions[0]", "accepts a map");
}

TEST_CASE("an empty section is an empty list", "[config][load]") {
  CHECK(require_clean(replaced(SOCKET, "  rx:\n",
                               "  rx:\n    flows:\n    flex_items:\n    reorder_configs: []\n")) ==
        require_clean(SOCKET));
  require_error(replaced(SOCKET,
                         "  rx:\n    queues:\n    - {name: in, id: 0, cpu_core: 1, batch_size: 16, "
                         "memory_regions: [buffers]}\n",
                         "  rx:\n"),
                "interfaces[0].rx.queues", "required");
}

TEST_CASE("anchors and aliases are followed", "[config][load]") {
  const std::string text = replaced(replaced(SOCKET, "[buffers]", "&regions [buffers]"),
                                    "memory_regions: [buffers]}\n", "memory_regions: *regions}\n");
  CHECK(require_clean(text) == require_clean(SOCKET));
}

TEST_CASE("files", "[config][load]") {
  NetworkConfig config;
  const TemporaryFile good(SOCKET);
  CHECK(load_config_file(good.path(), config).problems_.empty());
  CHECK(config == require_clean(SOCKET));

  const ConfigReport missing = load_config_file("/nonexistent/daqiri.yaml", config);
  CHECK(missing.text() ==
        "/nonexistent/daqiri.yaml: error: cannot be opened: No such file or directory\n");
  CHECK(config == NetworkConfig{});
  CHECK_THAT(load_config_file(std::filesystem::temp_directory_path(), config).text(),
             Catch::Contains("cannot be read: Is a directory"));
  const std::string pipe = good.path() + ".pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(load_config_file(pipe, config).text(), Catch::Contains("is a named pipe"));
  std::filesystem::remove(pipe);
  CHECK_THAT(load_config_file("/dev/zero", config).text(),
             Catch::Contains("accepts at most 4194304"));

  const ConfigReport bad = load_config_file(TemporaryFile("version: 1\n").path(), config);
  CHECK_FALSE(bad.ok());
}

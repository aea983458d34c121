#include <catch2/catch.hpp>

#include <poll.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "system/log.h"

using namespace daqiri;

namespace {

/// The test takes log lines while this exists.
class Attached {
 public:
  Attached() : fd_(attach_log()) { static_cast<void>(take_log_records()); }
  ~Attached() {
    static_cast<void>(take_log_records());
    detach_log();
    set_log_level(LogLevel::WARN);
  }
  /// Whether the eventfd was signalled since the last call.
  [[nodiscard]] bool rung() const {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, 0) != 1) return false;
    std::uint64_t count = 0;
    return read(fd_, &count, sizeof count) == sizeof count;
  }

 private:
  int fd_;
};

}  // namespace

TEST_CASE("Lines wait for their reader with level and time", "[log]") {
  const Attached log_lines;
  static_cast<void>(log_lines.rung());
  set_log_level(LogLevel::INFO);
  log(LogLevel::DEBUG, "too low");
  REQUIRE_FALSE(log_lines.rung());
  log(LogLevel::INFO, "one");
  log(LogLevel::ERROR, std::string(5000, 'x'));
  REQUIRE(log_lines.rung());
  const LogLines lines = take_log_records();
  REQUIRE(lines.lost == 0);
  REQUIRE(lines.records.size() == 2);
  REQUIRE(lines.records[0].level == LogLevel::INFO);
  REQUIRE(lines.records[0].text == "one");
  REQUIRE(lines.records[0].time > 0);
  REQUIRE(lines.records[1].text == std::string(5000, 'x'));
  REQUIRE(take_log_records().records.empty());
}

TEST_CASE("Lines say which interface and queue they are about", "[log]") {
  const Attached log_lines;
  log(LogLevel::ERROR, "of a queue", {.interface = "port0", .queue = "rx0"});
  log(LogLevel::ERROR, "of a port", {.interface = std::string(200, 'p'), .queue = {}});
  log(LogLevel::ERROR, "of neither");
  const LogLines lines = take_log_records();
  REQUIRE(lines.records.size() == 3);
  REQUIRE(lines.records[0].interface == "port0");
  REQUIRE(lines.records[0].queue == "rx0");
  REQUIRE(lines.records[1].interface == std::string(200, 'p'));
  REQUIRE(lines.records[1].queue.empty());
  REQUIRE(lines.records[2].interface.empty());
}

TEST_CASE("Lines without room are counted as lost", "[log]") {
  const Attached log_lines;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i)
        log(LogLevel::ERROR, "line " + std::to_string(t) + "." + std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const LogLines lines = take_log_records();
  REQUIRE(lines.lost > 0);
  REQUIRE(lines.records.size() + lines.lost == 2000);
  REQUIRE(take_log_records().lost == 0);
}

TEST_CASE("The same text again within a second is counted", "[log]") {
  const Attached log_lines;
  for (int i = 0; i < 10; ++i) log(LogLevel::ERROR, "again and again");
  REQUIRE(take_log_records().records.size() == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  log(LogLevel::ERROR, "again and again");
  const LogLines lines = take_log_records();
  REQUIRE(lines.records.size() == 1);
  REQUIRE(lines.records[0].text == "again and again (9 more times)");
}

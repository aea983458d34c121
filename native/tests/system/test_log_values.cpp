// Log lines with values, as programs write them.
#include <catch2/catch.hpp>

#include "daqiri/logging.hpp"
#include "daqiri/status.h"
#include "system/log.h"

using namespace daqiri;

namespace {

class Taker {
 public:
  Taker() : before_(get_log_level()) {
    attach_log();
    take_log_records();
  }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;
  ~Taker() {
    take_log_records();
    detach_log();
    set_log_level(before_);
  }
  std::string next() {
    const LogLines lines = take_log_records();
    return lines.records.empty() ? std::string() : lines.records.front().text;
  }

 private:
  LogLevel before_;
};

}  // namespace

TEST_CASE("a program's lines are all there, however alike", "[log]") {
  Taker taker;
  set_log_level(LogLevel::INFO);
  for (int i = 0; i < 10; ++i) DAQIRI_LOG_INFO("received a burst");
  const LogLines lines = take_log_records();
  REQUIRE(lines.records.size() == 10);
  for (const LogRecord& each : lines.records) CHECK(each.text == "received a burst");
}

TEST_CASE("values stand in the line where the pattern has braces", "[log]") {
  Taker taker;
  set_log_level(LogLevel::INFO);
  CHECK(get_log_level() == LogLevel::INFO);
  const std::uint8_t byte = 65;
  DAQIRI_LOG_INFO("port {} of '{}': {} {}", 3, std::string("rx"), true, byte);
  CHECK(taker.next() == "port 3 of 'rx': true 65");
  DAQIRI_LOG_WARN("{{}} {} {} {}", Status::NOT_READY, 'c', "text");
  CHECK(taker.next() == "{} 4 c text");
  DAQIRI_LOG_ERROR("{:x} {:04x} {:X} {:5} {:.2f} {:-}", 255, 10U, 171, -7, 1.0 / 3, 0.5);
  CHECK(taker.next() == "ff 000a AB    -7 0.33 0.5");
  DAQIRI_LOG_CRITICAL("more braces {} {}", 1);
  CHECK(taker.next() == "more braces 1 {}");
  DAQIRI_LOG_CRITICAL("no braces", 1, 2);
  CHECK(taker.next() == "no braces");
  DAQIRI_LOG_CRITICAL("open { and }");
  CHECK(taker.next() == "open { and }");
  DAQIRI_LOG_DEBUG("below the level {}", 1);
  DAQIRI_LOG_TRACE("below the level {}", 2);
  CHECK(taker.next().empty());
  set_log_level(LogLevel::TRACE);
  DAQIRI_LOG_TRACE("{}", INT64_MIN);
  CHECK(taker.next() == "-9223372036854775808");
}

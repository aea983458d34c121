// Malicious texts: no exception, no overflow of stack or memory, and a result in bounded time.
#include <random>

#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

std::string repeated(std::string_view text, std::size_t times) {
  std::string result;
  result.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

void survives(const std::string& text) {
  INFO(text.substr(0, 200));
  Loaded loaded;
  REQUIRE_NOTHROW(loaded = load(text));
  CHECK_FALSE(loaded.report.ok());
  CHECK_NOTHROW(config_to_yaml(loaded.config));
}

}  // namespace

TEST_CASE("deep nesting", "[config][hostile]") {
  for (const char* open : {"[", "{", "- ", "? ", "{a: ", "[[", "!t ", "&a [", "a:\n "})
    survives(repeated(open, 100000));
  survives("version: " + repeated("[", 5000) + repeated("]", 5000));
  survives("interfaces: " + repeated("[", 400) + repeated("]", 400) + "\n");
}

TEST_CASE("aliases that expand without end", "[config][hostile]") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int j = 1; j < 10; ++j) bomb += ", " + below;
    bomb += "]\n";
  }
  const Loaded loaded = load(bomb + "interfaces: *a11\n");
  REQUIRE(loaded.report.problems_.size() == 1);
  CHECK_THAT(loaded.report.text(), Catch::Contains("aliases expanded"));
  survives("a: &a " + std::string(1U << 20U, 'x') + "\nb: [" + repeated("*a, ", 100000) + "]\n");
  CHECK_THAT(load("version: &a [*a]\n").report.text(), Catch::Contains("alias"));
  CHECK_THAT(load("version: &a {b: *a}\n").report.text(), Catch::Contains("alias"));

  // A list of queues shared by many interfaces, up to the size limit.
  std::string wide = "version: 1\nmaster_core: 0\nstream_type: raw\nqueues: &q [" +
                     repeated("{id: 1, nam: x}, ", 100) + "]\ninterfaces:\n";
  wide += repeated("- {name: a, rx: {queues: *q}}\n", 100);
  const Loaded many = load(wide);
  CHECK(many.report.problems_.size() == 10001);
  CHECK_THAT(many.report.problems_.front().message_ + many.report.text(),
             Catch::Contains("more problems are not listed"));
}

TEST_CASE("size", "[config][hostile]") {
  CHECK_THAT(load(std::string((4U << 20U) + 1, ' ')).report.text(),
             Catch::Contains("accepts at most 4194304"));
  survives(repeated("\n", 4U << 20U));
  survives("[" + repeated("1,", 2000000) + "]");
  survives("version: " + std::string(1000000, '9'));
  survives(std::string(1000000, 'k') + ": 1\nversion: 1\n");
  std::string keys;
  for (int i = 0; i < 100000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  survives("daqiri:\n  cfg: {version: 1, " + repeated("x: 1, ", 100000) + "}\n");
  survives(keys);
}

TEST_CASE("what is quoted from a text is short and printable", "[config][hostile]") {
  const Loaded loaded =
      load("version: \"" + std::string(10000, 'x') +
           "\\e[2J\"\nstream_type: \"\\x1b[2J\\r\\n\"\nmaster_core: " + repeated("\xC3\xA9", 5000) +
           "\n");
  for (const ConfigProblem& problem : loaded.report.problems_) {
    CHECK(problem.message_.size() < 300);
    for (const char c : problem.message_) CHECK(static_cast<unsigned char>(c) >= 0x20);
  }
}

TEST_CASE("random edits of good texts never throw", "[config][hostile]") {
  std::mt19937 random(20260727);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<std::string> tokens = {"-1",
                                           "0",
                                           "70000",
                                           "null",
                                           "[]",
                                           "{}",
                                           "*a",
                                           "&a ",
                                           "<x>",
                                           "\"",
                                           "'",
                                           ":",
                                           ": ",
                                           ",",
                                           "\n",
                                           "\n  ",
                                           "- ",
                                           "? ",
                                           "!!int ",
                                           "|\n",
                                           ">",
                                           "#",
                                           "%",
                                           "@",
                                           "`",
                                           "\t",
                                           "---\n",
                                           "...\n",
                                           "\xFF",
                                           "\xC3",
                                           "\xEF\xBB\xBF",
                                           "daqiri:",
                                           "cfg:",
                                           "queue",
                                           "9999999999999999999999",
                                           "0x",
                                           "é",
                                           "true"};
  const std::vector<std::string> texts = {RAW, REORDER, FLEX, ECPRI, SOCKET, ROCE, LEGACY};
  for (int round = 0; round < 3000; ++round) {
    std::string text = texts[below(texts.size())];
    for (std::size_t edit = 1 + below(4); edit > 0 && !text.empty(); --edit) {
      const std::size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text.erase(at, 1 + below(20));
          break;
        case 1:
          text.insert(at, tokens[below(tokens.size())]);
          break;
        case 2:
          text[at] = static_cast<char>(below(256));
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), below(60)));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    INFO("round " << round << "\n" << text);
    Loaded loaded;
    REQUIRE_NOTHROW(loaded = load(text));
    REQUIRE_NOTHROW(config_to_yaml(loaded.config));
    if (!loaded.report.ok()) continue;
    const Loaded again = load(config_to_yaml(loaded.config));
    INFO(loaded.report.text() << again.report.text());
    REQUIRE(again.report.ok());
    REQUIRE(again.config == loaded.config);
  }
}

TEST_CASE("random bytes never throw", "[config][hostile]") {
  std::mt19937 random(7);
  const std::string alphabet = "ab:- \n{}[]&*!|>'\"%@`#,?~0\\\t<.";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t size = random() % 120; size > 0; --size)
      text += alphabet[random() % alphabet.size()];
    INFO(text);
    REQUIRE_NOTHROW(load(text));
    REQUIRE_NOTHROW(load("daqiri: {cfg: " + text + "}"));
    REQUIRE_NOTHROW(load("version: 1\ninterfaces:\n- " + text));
  }
}

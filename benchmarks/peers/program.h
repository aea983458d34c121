/// What the benchmark programs share: checks, clocks, and answers to the runner.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

namespace bench {

/// End the program with the name of what failed and errno.
[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

/// `result` of a system call, unless it failed.
template <typename Result>
Result check(Result result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

inline std::uint64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

/// Processor time of this process, all threads, in s.
inline double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

inline void print_line(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

/// Answers each line of standard input with one of JSON, from a thread of its own; the end of the
/// input ends the program.
inline void answer_lines(std::function<std::string()> answer) {
  std::thread([answer = std::move(answer)] {
    std::string line;
    while (std::getline(std::cin, line)) print_line(answer());
    std::_Exit(0);
  }).detach();
}

}  // namespace bench

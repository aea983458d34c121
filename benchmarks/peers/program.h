/// Shared by the benchmark programs: checks, clocks, and replies to the runner.
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

/// Ends the program with the name of the failed call and errno.
[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

/// Returns the result of a system call, unless it failed.
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

/// Processor time of all threads of this process, in s.
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

/// A thread that answers each line of standard input with a line of JSON. The end of the input ends
/// the program.
inline void answer_lines(std::function<std::string()> answer) {
  std::thread([answer = std::move(answer)] {
    std::string line;
    while (std::getline(std::cin, line)) print_line(answer());
    std::_Exit(0);
  }).detach();
}

}  // namespace bench

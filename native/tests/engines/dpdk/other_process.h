/// Tests of this program in processes of their own, because DPDK is started once in a process.
#pragma once

#include <catch2/catch.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace daqiri::test {

/// Runs one test of this program in another process. Returns its status; after 60 s, it is killed.
inline int run_in_other_process(const char* test) {
  std::string program = "/proc/self/exe";
  std::string wanted = test;
  std::array<char*, 3> arguments{program.data(), wanted.data(), nullptr};
  pid_t child = -1;
  REQUIRE(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ) == 0);
  int status = 1;
  pid_t ended = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    FAIL("not done within 60 s: test '" << wanted << "' in another process");
  }
  REQUIRE(ended == child);
  return status;
}

}  // namespace daqiri::test

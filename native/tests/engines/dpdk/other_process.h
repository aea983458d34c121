/// Tests of this program in processes of their own, because DPDK is started once in a process.
#pragma once

#include <catch2/catch.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace daqiri::test {

/// Runs one test of this program in another process. Returns its status.
inline int run_in_other_process(const char* test) {
  std::string program = "/proc/self/exe";
  std::string wanted = test;
  std::array<char*, 3> arguments{program.data(), wanted.data(), nullptr};
  pid_t child = -1;
  REQUIRE(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ) == 0);
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace daqiri::test

/// Tests of this program in processes of their own, because DPDK is started once in a process.
#pragma once

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

namespace daqiri::test {

/// A library of this build that is loaded before engine dpdk, which calls its functions then
/// instead of DPDK's of the same names; never unloaded.
class InsteadOfDpdk {
 public:
  /// `name`: of a folder in tests/engines.
  explicit InsteadOfDpdk(const std::string& name) {
    // In the build folder, beside the test program.
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    const auto path = program.parent_path() / "tests/engines" / name / (name + ".so");
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    REQUIRE(library_ != nullptr);
  }

  template <typename Function>
  [[nodiscard]] Function* find(const char* name) const {
    void* const found = dlsym(library_, name);
    REQUIRE(found != nullptr);
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* library_;
};

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

/// Network namespaces for tests.
#pragma once

#include <sched.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

namespace daqiri::test {

/// Runs `action` in a thread with a network of its own, set up by shell commands; sockets made and
/// threads started there belong to it, and it goes with them. False: this process may not make
/// one, or a command has failed (no such device or discipline in this kernel). What `action` throws
/// is thrown on.
inline bool in_own_network(std::initializer_list<std::string> commands,
                           const std::function<void()>& action) {
  bool ready = false;
  std::exception_ptr failure;
  std::thread thread([&] {
    ready = unshare(CLONE_NEWNET) == 0;
    for (const std::string& command : commands)
      ready = ready && std::system((command + " >/dev/null 2>&1").c_str()) == 0;
    if (!ready) return;
    try {
      action();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
  if (!ready) WARN("no network namespace with `tc` here (needs root): left out");
  return ready;
}

}  // namespace daqiri::test

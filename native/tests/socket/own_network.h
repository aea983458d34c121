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

/// Commands for in_own_network that lay a cable with the ends `near` and `far`, both up.
inline const std::initializer_list<std::string> CABLE{
    "ip link add near type veth peer name far",
    "sysctl -w net.ipv6.conf.near.disable_ipv6=1 net.ipv6.conf.far.disable_ipv6=1",
    "ip link set far up", "ip link set near up",
    // Carrier comes some time after.
    "for i in 1 2 3 4 5 6 7 8 9; do ip -o link show near | grep -q LOWER_UP && break; sleep 1; "
    "done",
    "ip -o link show near | grep LOWER_UP"};

/// Runs `action` in a thread with a new network namespace, set up by shell commands. Sockets and
/// threads created there belong to the namespace, which ends with them. Returns false if this
/// process may not create a namespace or if a command failed, for example because the kernel lacks
/// a device or a queueing discipline. Passes on exceptions of `action`.
inline bool in_own_network(std::initializer_list<std::string> commands,
                           const std::function<void()>& action) {
  // What this host cannot do.
  std::string lacking;
  std::exception_ptr failure;
  std::thread thread([&] {
    if (unshare(CLONE_NEWNET) != 0) lacking = "a network namespace (needs root)";
    for (const std::string& command : commands) {
      if (!lacking.empty()) return;
      if (std::system((command + " >/dev/null 2>&1").c_str()) != 0) lacking = '`' + command + '`';
    }
    if (!lacking.empty()) return;
    try {
      action();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
  if (!lacking.empty()) WARN("left out, because this fails here: " << lacking);
  return lacking.empty();
}

}  // namespace daqiri::test

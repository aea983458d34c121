#include "engines/dpdk/tap_signals.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <rte_alarm.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "engines/dpdk/virtual_device.h"
#include "system/file.h"
#include "system/log.h"

namespace daqiri::dpdk {

namespace {

constexpr std::chrono::seconds LONGEST{5};

struct Queue {
  int fd;
  int signal;
};

/// Queues of a tap that send signals to the process.
std::vector<Queue> queues_of(const char* interface) {
  std::vector<Queue> found;
  for (const int fd : open_descriptors()) {
    std::error_code gone;
    if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), gone) != TUN) continue;
    ifreq request{};
    const int signal = fcntl(fd, F_GETSIG);
    if (signal > 0 && fcntl(fd, F_GETOWN) == getpid() && ioctl(fd, TUNGETIFF, &request) == 0 &&
        std::string_view(&request.ifr_name[0]) == interface)
      found.push_back({.fd = fd, .signal = signal});
  }
  return found;
}

/// In DPDK's thread, which blocks all signals otherwise.
struct Redirection {
  std::vector<Queue> queues;
  std::promise<void> done;

  void run() {
    f_owner_ex owner{.type = F_OWNER_TID, .pid = gettid()};
    for (const Queue& each : queues) {
      sigset_t allowed;
      sigemptyset(&allowed);
      sigaddset(&allowed, each.signal);
      pthread_sigmask(SIG_UNBLOCK, &allowed, nullptr);
      fcntl(each.fd, F_SETOWN_EX, &owner);
    }
    done.set_value();
  }
};

void redirect(void* redirection) { static_cast<Redirection*>(redirection)->run(); }

/// Returns false if it could not be done.
bool redirect_signals(unsigned interface) noexcept try {
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(interface, name.data()) == nullptr) return false;
  Redirection redirection{.queues = queues_of(name.data()), .done = {}};
  // A tap that only sends has none.
  if (redirection.queues.empty()) return true;
  const std::future<void> done = redirection.done.get_future();
  if (rte_eal_alarm_set(1, redirect, &redirection) != 0) return false;
  if (done.wait_for(LONGEST) == std::future_status::ready) return true;
  // Waits for one that has begun.
  rte_eal_alarm_cancel(redirect, &redirection);
  return done.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
} catch (const std::exception&) {
  return false;
}

}  // namespace

void take_tap_signals(unsigned interface) noexcept {
  if (redirect_signals(interface)) return;
  try {
    log(LogLevel::WARN,
        "signals of a net_tap's packets go to all threads of the program, whose waits they end");
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace daqiri::dpdk

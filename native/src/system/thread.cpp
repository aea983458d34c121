#include "system/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include "daqiri/error.h"
#include "system/log.h"

namespace daqiri {

namespace {

/// -1: not a number.
int core_number(const std::string& cpu_core) noexcept {
  int core = -1;
  const auto [end, error] =
      std::from_chars(cpu_core.data(), cpu_core.data() + cpu_core.size(), core);
  return error == std::errc{} && end == cpu_core.data() + cpu_core.size() ? core : -1;
}

/// The kernel leaves these (isolcpus) out of every affinity, until a thread asks for one of them.
cpu_set_t isolated_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::ifstream file("/sys/devices/system/cpu/isolated");
  std::string list;
  file >> list;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const int first = core_number(range.substr(0, dash));
    const int last = dash == std::string::npos ? first : core_number(range.substr(dash + 1));
    if (first < 0) continue;
    for (int core = first; core <= last && core < CPU_SETSIZE; ++core)
      CPU_SET(static_cast<std::size_t>(core), &set);
  }
  return set;
}

cpu_set_t only(int core) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return set;
}

bool may_run_on(int core) noexcept {
  if (core < 0 || core >= CPU_SETSIZE) return false;
  const auto number = static_cast<std::size_t>(core);
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof own, &own);
  if (CPU_ISSET(number, &own)) return true;
  static const cpu_set_t isolated = isolated_cores();
  if (!CPU_ISSET(number, &isolated)) return false;
  // A cpuset may forbid it.
  const cpu_set_t one = only(core);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
  sched_setaffinity(0, sizeof own, &own);
  return true;
}

void make_realtime(const std::string& name, int priority) noexcept {
  sched_param parameters{};
  parameters.sched_priority = priority;
  const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters);
  if (error == 0) return;
  rlimit limit{};
  getrlimit(RLIMIT_RTPRIO, &limit);
  log(LogLevel::WARN, "thread " + name + " runs without realtime_priority " +
                          std::to_string(priority) + ": " + std::strerror(error) +
                          "; the limit RLIMIT_RTPRIO is " + std::to_string(limit.rlim_cur) +
                          ": raise it (ulimit -r, LimitRTPRIO= of systemd), or grant CAP_SYS_NICE");
}

/// Signals must go to the program's own threads, which may be waiting for them. Faults stay with
/// the thread that causes them, and profilers sample all threads.
void leave_signals_to_the_program() noexcept {
  sigset_t set;
  sigfillset(&set);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
    sigdelset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace

void refuse_thread(const std::system_error& error) {
  throw Error(Status::GENERIC_FAILURE,
              "cannot start a thread: " + error.code().message() +
                  "; raise the limit on threads (ulimit -u, TasksMax= of systemd)");
}

bool core_available(const std::string& cpu_core) noexcept {
  return may_run_on(core_number(cpu_core));
}

std::vector<int> available_cores() {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (may_run_on(core)) cores.push_back(core);
  }
  return cores;
}

void configure_thread(const std::string& cpu_core, const std::string& name,
                      int realtime_priority) noexcept {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  leave_signals_to_the_program();
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  if (realtime_priority > 0) make_realtime(name, realtime_priority);
  if (!core_available(cpu_core)) return;
  const cpu_set_t set = only(core_number(cpu_core));
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    log(LogLevel::WARN, "thread " + name + " could not be pinned to core " + cpu_core);
  }
}

}  // namespace daqiri

#include "system/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <charconv>
#include <csignal>
#include <cstring>

#include "daqiri/error.h"
#include "system/log.h"

namespace daqiri {

namespace {

cpu_set_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}

/// -1: not a number.
int core_number(const std::string& cpu_core) noexcept {
  int core = -1;
  const auto [end, error] =
      std::from_chars(cpu_core.data(), cpu_core.data() + cpu_core.size(), core);
  return error == std::errc{} && end == cpu_core.data() + cpu_core.size() ? core : -1;
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
  const cpu_set_t set = allowed_cores();
  const int core = core_number(cpu_core);
  return core >= 0 && core < CPU_SETSIZE && CPU_ISSET(static_cast<std::size_t>(core), &set);
}

std::string available_cores() {
  const cpu_set_t set = allowed_cores();
  std::string cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<std::size_t>(i), &set))
      cores += (cores.empty() ? "" : ", ") + std::to_string(i);
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
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core_number(cpu_core)), &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    log(LogLevel::WARN, "thread " + name + " could not be pinned to core " + cpu_core);
  }
}

}  // namespace daqiri

#include "engines/dpdk/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "daqiri/error.h"
#include "engines/dpdk/traits.h"
#include "memory/hugepages.h"
#include "system/log.h"
#include "system/thread.h"

namespace daqiri::dpdk {

namespace {

/// Held while the EAL is started.
std::mutex mutex;

// --- Messages

/// The errors that DPDK has reported in this thread; null: they go to the log.
thread_local std::unique_ptr<std::string> reports;

LogLevel level_of(int level) noexcept {
  if (level <= 0) return LogLevel::INFO;
  if (level <= static_cast<int>(RTE_LOG_CRIT)) return LogLevel::CRITICAL;
  if (level == static_cast<int>(RTE_LOG_ERR)) return LogLevel::ERROR;
  if (level == static_cast<int>(RTE_LOG_WARNING)) return LogLevel::WARN;
  // What DPDK finds noteworthy is of interest only to who looks for it.
  return level == static_cast<int>(RTE_LOG_DEBUG) ? LogLevel::TRACE : LogLevel::DEBUG;
}

ssize_t write_log(void*, const char* text, std::size_t size) noexcept {
  std::string_view line(text, size);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  if (line.empty()) return static_cast<ssize_t>(size);
  try {
    LogLevel level = level_of(rte_log_cur_msg_loglevel());
    if (reports != nullptr && level >= LogLevel::ERROR) {
      *reports += (reports->empty() ? "" : "; ") + std::string(line);
      level = LogLevel::DEBUG;
    }
    log(level, "DPDK: " + std::string(line));
  } catch (const std::bad_alloc&) {
    return static_cast<ssize_t>(size);
  }
  return static_cast<ssize_t>(size);
}

// --- Start

/// Result of the start, which is never repeated.
struct Started {
  pid_t process;
  std::optional<Error> error;
};
std::optional<Started> started;

/// Arguments as in DPDK's "EAL parameters".
std::vector<std::string> arguments(const std::vector<int>& cores) {
  std::vector<std::string> all{"daqiri",
                               // The one thread that DPDK wants for itself ends after the start.
                               "--lcores=0@" + std::to_string(cores.front()),
                               // Packets are at the same address for the card, which needs no
                               // privilege to look up others.
                               "--iova-mode=va", "--no-telemetry",
                               // Of the folder that init() removes.
                               "--file-prefix=daqiri",
                               // No device is taken at the start: this list has only one, which
                               // does not exist. Those that are named later are not affected.
                               "--allow=pci:ffff:ff:1f.7"};
  if (uses_hugepages(memory::Hugepages::now())) {
    // Needs no mounted hugetlbfs.
    all.emplace_back("--in-memory");
  } else {
    all.insert(all.end(),
               {"--no-huge", "--no-shconf", "-m", std::to_string(WITHOUT_HUGEPAGES_MIB)});
  }
  return all;
}

/// Returns errno; 0: started.
int init(const std::vector<int>& cores) {
  // Threads of DPDK get this mask: signals are for those of the program.
  sigset_t every;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, nullptr);
  if (FILE* lines = fopencookie(nullptr, "w", {nullptr, write_log, nullptr, nullptr});
      lines != nullptr)
    rte_openlog_stream(lines);
  std::vector<std::string> texts = arguments(cores);
  // With a null pointer at the end.
  std::vector<char*> pointers(texts.size() + 1);
  std::ranges::transform(texts, pointers.begin(), [](std::string& each) { return each.data(); });
  const bool done = rte_eal_init(static_cast<int>(texts.size()), pointers.data()) >= 0;
  const int error = rte_errno;
  // DPDK makes a folder for files, of which it has none here: memory is anonymous, and nothing is
  // shared with other processes. One name for all: that of a process which was killed meanwhile is
  // removed by the next.
  rmdir(rte_eal_get_runtime_dir());
  return done ? 0 : error;
}

Started start() {
  Started result{getpid(), {}};
  std::string why;
  int error = 0;
  const std::vector<int> cores = available_cores();
  // A thread of its own, because DPDK pins the thread that starts it.
  start_thread([&] {
    const Reports told;
    error = init(cores);
    if (error != 0) why = Reports::reason(error);
  }).join();
  if (error == 0) return result;
  result.error.emplace(
      error == EPERM || error == EACCES ? Status::NOT_SUPPORTED : Status::GENERIC_FAILURE,
      "engine 'dpdk': DPDK cannot be started: " + why +
          "; remove the cause and start the program again, because a process can start DPDK only "
          "once. DPDK needs 512 MiB of address space (ulimit -v), or free hugepages");
  return result;
}

}  // namespace

Reports::Reports() { reports = std::make_unique<std::string>(); }

Reports::~Reports() { reports.reset(); }

std::string Reports::reason(int error) {
  std::string text = std::strerror(std::abs(error));
  if (reports == nullptr || reports->empty()) return text;
  return text + " (" + std::exchange(*reports, {}) + ")";
}

bool owns_eal() noexcept { return started && started->process == getpid(); }

void start_eal() {
  const std::lock_guard lock(mutex);
  if (!started) started = start();
  if (started->process != getpid()) {
    throw Error(Status::NOT_SUPPORTED,
                "engine 'dpdk': DPDK was started by process " + std::to_string(started->process) +
                    ", from which this one was forked; open the engine in a process of its own "
                    "(subprocess, or multiprocessing with start method 'spawn')");
  }
  if (started->error) throw Error(*started->error);
}

}  // namespace daqiri::dpdk

/// CPU cores and priorities of the engine's threads.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "daqiri/config.h"

namespace daqiri {

/// Whether the calling thread may run on `cpu_core`, a number: its affinity has it, or it is an
/// isolated core that the thread may ask for.
[[nodiscard]] bool core_available(const std::string& cpu_core) noexcept;
[[nodiscard]] std::vector<int> available_cores();
[[noreturn]] void refuse_thread(const std::system_error& error);
/// Start a thread that runs `work`. Throws Error GENERIC_FAILURE if no more threads can be started.
template <typename Work>
std::jthread start_thread(Work&& work) {
  try {
    return std::jthread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    refuse_thread(error);
  }
}
/// Pin the calling thread (if `cpu_core` is available), name it (15 characters), use precise
/// sleeps, and block signals for the program's threads. `realtime_priority` above 0: schedule it as
/// SCHED_FIFO; if that is not permitted, log a warning and continue without it.
void configure_thread(const std::string& cpu_core, const std::string& name,
                      int realtime_priority = 0) noexcept;

}  // namespace daqiri

// Instead of DPDK's own function: rules take as long as a test wants, and are refused.
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace {

std::mutex mutex;
std::condition_variable changed;
bool held{false};
unsigned calls{0};

}  // namespace

extern "C" {

int rte_flow_validate(std::uint16_t, const void*, const void*, const void*, void*) {
  std::unique_lock lock(mutex);
  ++calls;
  changed.notify_all();
  changed.wait(lock, [] { return !held; });
  return -ENOSYS;
}

void hold_rules(bool wanted) {
  const std::lock_guard lock(mutex);
  held = wanted;
  calls = 0;
  changed.notify_all();
}

/// Waits until that many calls began since `hold_rules`. Returns whether they did within 20 s.
bool wait_for_rules(unsigned wanted) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::seconds(20), [=] { return calls >= wanted; });
}
}

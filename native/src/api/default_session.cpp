#include "api/default_session.h"

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::api {

namespace {

/// Held from the beginning of start to the end of stop, so that there is one session at a time.
std::atomic<bool> claimed{false};

std::mutex slot_mutex;
std::shared_ptr<Running> slot;
/// Advanced with every change of the slot.
std::atomic<std::uint64_t> generation{0};

std::shared_ptr<Running> exchange_slot(std::shared_ptr<Running> next) noexcept {
  const std::lock_guard lock(slot_mutex);
  generation.fetch_add(1, std::memory_order_release);
  return std::exchange(slot, std::move(next));
}

/// Ends the engine's threads before the process's static objects go.
struct StopAtExit {
  StopAtExit() = default;
  StopAtExit(const StopAtExit&) = delete;
  StopAtExit& operator=(const StopAtExit&) = delete;
  ~StopAtExit() { stop(); }
};

std::vector<RxQueue*> queues_of(const Port& port) {
  std::vector<RxQueue*> queues;
  queues.reserve(port.rx.size());
  for (const auto& queue : port.rx) queues.push_back(queue.get());
  return queues;
}

}  // namespace

Burst* Rotation::receive() noexcept {
  const std::size_t n = queues_.size();
  const std::size_t first = next_.load(std::memory_order_relaxed);
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = (first + k) % n;
    Burst* burst = queues_[i]->receive();
    if (burst == nullptr) continue;
    next_.store(i + 1, std::memory_order_relaxed);
    return burst;
  }
  return nullptr;
}

Running::Running(std::shared_ptr<Session> started) : session(std::move(started)) {
  std::vector<RxQueue*> every;
  for (std::size_t id = 0; id < session->num_ports(); ++id) {
    std::vector<RxQueue*> queues = queues_of(session->port(static_cast<int>(id)));
    every.insert(every.end(), queues.begin(), queues.end());
    ports.push_back(std::make_unique<Rotation>(std::move(queues)));
  }
  all = std::make_unique<Rotation>(std::move(every));
}

void start(NetworkConfig& config) {
  if (claimed.exchange(true, std::memory_order_acq_rel)) {
    throw Error(Status::INTERNAL_ERROR,
                "an engine is running already, and runs on; call shutdown first");
  }
  try {
    auto session = Session::open(config);
    config = session->config();
    exchange_slot(std::make_shared<Running>(std::move(session)));
    static const StopAtExit stop_at_exit;
  } catch (...) {
    claimed.store(false, std::memory_order_release);
    throw;
  }
}

void stop() noexcept {
  const std::shared_ptr<Running> last = exchange_slot(nullptr);
  if (last == nullptr) return;
  last->session->close();
  claimed.store(false, std::memory_order_release);
}

std::shared_ptr<Running> running() noexcept {
  thread_local std::weak_ptr<Running> known;
  thread_local std::uint64_t known_generation = 0;
  if (generation.load(std::memory_order_acquire) != known_generation) {
    const std::lock_guard lock(slot_mutex);
    known = slot;
    known_generation = generation.load(std::memory_order_relaxed);
  }
  return known.lock();
}

}  // namespace daqiri::api

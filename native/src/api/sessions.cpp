#include "api/sessions.h"

#include <pthread.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::api {

namespace {

/// Held from the beginning of start_default to the end of stop, so that there is one default
/// session at a time.
std::atomic<bool> default_claimed{false};

std::mutex registry_mutex;
std::map<SessionId, std::shared_ptr<Running>> registry;
SessionId last_id{DEFAULT_SESSION};
/// Advanced with every change of the registry.
std::atomic<std::uint64_t> generation{1};

thread_local SessionId selected_id{DEFAULT_SESSION};

void insert(SessionId id, std::shared_ptr<Running> started) {
  const std::lock_guard lock(registry_mutex);
  registry.emplace(id, std::move(started));
  generation.fetch_add(1, std::memory_order_release);
}

/// Null when it is not there.
std::shared_ptr<Running> remove(SessionId id) noexcept {
  const std::lock_guard lock(registry_mutex);
  const auto node = registry.extract(id);
  if (node.empty()) return nullptr;
  generation.fetch_add(1, std::memory_order_release);
  return node.mapped();
}

/// A child made by fork(2) has no engines: their threads are the parent's.
void forget_in_children() {
  [[maybe_unused]] static const int registered = pthread_atfork(
      [] { registry_mutex.lock(); }, [] { registry_mutex.unlock(); },
      [] {
        // Never destroyed: to close them would wait for those threads.
        // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
        static auto* const kept = new std::vector<std::map<SessionId, std::shared_ptr<Running>>>;
        kept->push_back(std::exchange(registry, {}));
        generation.fetch_add(1, std::memory_order_release);
        default_claimed.store(false, std::memory_order_release);
        registry_mutex.unlock();
      });
}

/// Ends the engines' threads before the process's static objects go.
struct StopAtExit {
  StopAtExit() = default;
  StopAtExit(const StopAtExit&) = delete;
  StopAtExit& operator=(const StopAtExit&) = delete;
  ~StopAtExit() {
    for (;;) {
      SessionId id{};
      {
        const std::lock_guard lock(registry_mutex);
        if (registry.empty()) return;
        id = registry.begin()->first;
      }
      stop(id);
    }
  }
};

std::shared_ptr<Running> open(NetworkConfig& config) {
  auto session = Session::open(config);
  static const StopAtExit stop_at_exit;
  forget_in_children();
  config = session->config();
  return std::make_shared<Running>(std::move(session));
}

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

void start_default(NetworkConfig& config) {
  if (default_claimed.exchange(true, std::memory_order_acq_rel)) {
    throw Error(Status::INTERNAL_ERROR,
                "the default session is running already, and runs on; call shutdown first, or "
                "session_open for another beside it");
  }
  try {
    insert(DEFAULT_SESSION, open(config));
  } catch (...) {
    default_claimed.store(false, std::memory_order_release);
    throw;
  }
}

SessionId start(NetworkConfig& config) {
  std::shared_ptr<Running> started = open(config);
  SessionId id{};
  {
    const std::lock_guard lock(registry_mutex);
    id = ++last_id;
  }
  insert(id, std::move(started));
  return id;
}

bool stop(SessionId id) noexcept {
  const std::shared_ptr<Running> last = remove(id);
  if (last == nullptr) return false;
  last->session->close();
  if (id == DEFAULT_SESSION) default_claimed.store(false, std::memory_order_release);
  return true;
}

bool is_open(SessionId id) noexcept {
  const std::lock_guard lock(registry_mutex);
  return registry.contains(id);
}

SessionId selected() noexcept { return selected_id; }

SessionId select(SessionId id) noexcept { return std::exchange(selected_id, id); }

std::shared_ptr<Running> running() noexcept {
  thread_local std::weak_ptr<Running> known;
  thread_local SessionId known_id{DEFAULT_SESSION};
  thread_local std::uint64_t known_generation = 0;
  if (generation.load(std::memory_order_acquire) != known_generation || known_id != selected_id) {
    const std::lock_guard lock(registry_mutex);
    const auto it = registry.find(selected_id);
    known = it == registry.end() ? nullptr : it->second;
    known_id = selected_id;
    known_generation = generation.load(std::memory_order_relaxed);
  }
  return known.lock();
}

std::string_view not_running() noexcept {
  return selected_id == DEFAULT_SESSION
             ? "the engine is not running; call daqiri_init first"
             : "the session that this thread selected is not open; session_select another, 0 for "
               "the default one";
}

}  // namespace daqiri::api

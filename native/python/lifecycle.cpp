#include "lifecycle.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "daqiri/error.h"
#include "gil.h"
#include "system/log.h"

namespace daqiri::python {

namespace {

std::atomic<std::uint64_t> generation{0};

/// Never destroyed: threads that outlive the interpreter may still access it.
struct Registry {
  std::mutex mutex;
  bool exiting{false};
  std::vector<std::weak_ptr<OpenSession>> sessions;
};

Registry*& registry_pointer() noexcept {
  static Registry* registry = nullptr;
  return registry;
}

/// In the child: a new registry with an unlocked mutex.
void renew_registry() { registry_pointer() = std::make_unique<Registry>().release(); }

}  // namespace

std::uint64_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

void watch_forks() {
  if (registry_pointer() != nullptr) return;
  renew_registry();
  pthread_atfork(nullptr, nullptr, [] {
    generation.fetch_add(1, std::memory_order_relaxed);
    renew_registry();
    disown_log();
  });
}

OpenSession::OpenSession(std::shared_ptr<Session> session)
    : session_(forgotten_after_fork(std::move(session))) {}

OpenSession::~OpenSession() {
  // Freeing memory takes a while. Python drops its last reference with the lock held.
  std::optional<GilRelease> unlocked;
  PyThreadState* const own = PyGILState_GetThisThreadState();
  if (own != nullptr && own == pybind11::detail::get_thread_state_unchecked()) unlocked.emplace();
  session_.reset();
}

std::shared_ptr<OpenSession> OpenSession::open(NetworkConfig config) {
  const auto refuse_at_exit = [] {
    if (registry_pointer()->exiting) {
      throw Error(Status::NOT_READY, "cannot open an engine: the interpreter is exiting");
    }
  };
  {
    const std::lock_guard lock(registry_pointer()->mutex);
    refuse_at_exit();
  }
  std::shared_ptr<OpenSession> opened(new OpenSession(Session::open(std::move(config))));
  Registry& registry = *registry_pointer();
  const std::lock_guard lock(registry.mutex);
  refuse_at_exit();
  std::erase_if(registry.sessions, [](const auto& entry) { return entry.expired(); });
  registry.sessions.push_back(opened);
  return opened;
}

Session& OpenSession::session() const {
  if (!of_this_process()) {
    throw Error(
        Status::NOT_READY,
        "the engine was opened before this process was forked, and its threads are in the parent; "
        "open it in the process that uses it (multiprocessing: start method 'spawn')");
  }
  return *session_;
}

bool OpenSession::closed() const noexcept { return !of_this_process() || session_->closed(); }

void OpenSession::require_recordable() const {
  if (session().closed())
    throw Error(Status::NOT_READY, "cannot record: the engine is closed; open it again");
}

std::shared_ptr<Recorder> OpenSession::remember(std::shared_ptr<Recorder> recorder) {
  recorder = forgotten_after_fork(std::move(recorder));
  const std::lock_guard lock(mutex_);
  std::erase_if(recorders_, [](const auto& entry) { return entry.expired(); });
  recorders_.push_back(recorder);
  return recorder;
}

void OpenSession::close() noexcept {
  if (!of_this_process()) return;
  session_->close();
  std::vector<std::weak_ptr<Recorder>> recorders;
  {
    const std::lock_guard lock(mutex_);
    recorders.swap(recorders_);
  }
  for (const auto& entry : recorders) {
    if (const std::shared_ptr<Recorder> recorder = entry.lock()) recorder->stop();
  }
}

void close_all_sessions() noexcept {
  std::vector<std::weak_ptr<OpenSession>> sessions;
  {
    Registry& registry = *registry_pointer();
    const std::lock_guard lock(registry.mutex);
    registry.exiting = true;
    sessions.swap(registry.sessions);
  }
  for (const auto& entry : sessions) {
    if (const std::shared_ptr<OpenSession> session = entry.lock()) session->close();
  }
}

}  // namespace daqiri::python

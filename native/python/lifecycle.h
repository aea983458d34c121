/// Sessions opened from Python. They are closed at interpreter exit and abandoned in a forked
/// child.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "session/session.h"
#include "storage/recorder.h"

namespace daqiri::python {

/// Number of forks between the process that imported the module and this one.
std::uint64_t fork_generation() noexcept;

/// Leaks `owned` in a forked child instead of destroying it: its threads exist only in the parent,
/// and joining them would never return.
template <typename T>
std::shared_ptr<T> forgotten_after_fork(std::shared_ptr<T> owned) {
  T* raw = owned.get();
  return std::shared_ptr<T>(raw, [held = std::move(owned), born = fork_generation()](T*) mutable {
    if (fork_generation() == born) {
      held.reset();
    } else {
      static_cast<void>(std::make_unique<std::shared_ptr<T>>(std::move(held)).release());
    }
  });
}

/// A session and the recorders attached to it, shared by the objects of its ports and queues.
class OpenSession {
 public:
  OpenSession(const OpenSession&) = delete;
  OpenSession& operator=(const OpenSession&) = delete;
  ~OpenSession();

  /// Opens and registers a session. Throws Error. Call without the interpreter lock.
  static std::shared_ptr<OpenSession> open(NetworkConfig config);

  /// Throws Error NOT_READY in a process forked from the one that opened the session.
  [[nodiscard]] Session& session() const;
  /// Also true in a process other than the one that opened the session.
  [[nodiscard]] bool closed() const noexcept;

  /// `source` is a receive queue or a reorder plan.
  template <typename Source>
  std::shared_ptr<Recorder> record(Source& source, const RecorderOptions& options) {
    require_recordable();
    return remember(std::make_shared<Recorder>(session_, source, options));
  }

  /// Closes the session and lets its recorders write the remaining data. Idempotent. Call without
  /// the interpreter lock.
  void close() noexcept;

 private:
  explicit OpenSession(std::shared_ptr<Session> session);
  void require_recordable() const;
  std::shared_ptr<Recorder> remember(std::shared_ptr<Recorder> recorder);
  [[nodiscard]] bool of_this_process() const noexcept { return born_ == fork_generation(); }

  std::uint64_t born_{fork_generation()};
  std::shared_ptr<Session> session_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Recorder>> recorders_;
};

/// Closes all open sessions and prevents new ones. Call without the interpreter lock.
void close_all_sessions() noexcept;
/// Call once, when the module is loaded.
void watch_forks();

}  // namespace daqiri::python

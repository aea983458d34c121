/// Sessions that Python opened: closed at interpreter exit, forgotten in a forked child.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "session/session.h"
#include "storage/recorder.h"

namespace daqiri::python {

/// Number of forks between this process and the one that imported the module.
std::uint64_t fork_generation() noexcept;

/// `owned`, which in a forked child is leaked instead of destroyed: its threads exist in the parent
/// only, and joining them would never return.
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

/// A session with what Python attached to it. Shared by the objects of its ports and queues.
class OpenSession {
 public:
  OpenSession(const OpenSession&) = delete;
  OpenSession& operator=(const OpenSession&) = delete;
  ~OpenSession();

  /// Opens and registers it. Throws Error. Without the interpreter lock.
  static std::shared_ptr<OpenSession> open(NetworkConfig config);

  /// Throws Error NOT_READY in a process that was forked from the one that opened it.
  [[nodiscard]] Session& session() const;
  /// Closed, or not of this process.
  [[nodiscard]] bool closed() const noexcept;

  /// A receive queue, or a reorder plan.
  template <typename Source>
  std::shared_ptr<Recorder> record(Source& source, const RecorderOptions& options) {
    require_recordable();
    return remember(std::make_shared<Recorder>(session_, source, options));
  }

  /// Close the session, let its recorders write what is left. Idempotent; without the interpreter
  /// lock.
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

/// Close all that is open; nothing can be opened after. Without the interpreter lock.
void close_all_sessions() noexcept;
/// Must be called once, when the module is loaded.
void watch_forks();

}  // namespace daqiri::python

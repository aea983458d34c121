/// The thread on the master core that tells other processes how a session is doing.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "burst/doorbell.h"
#include "storage/file.h"

namespace daqiri {

class Session;

/// Answers on a Unix socket: whoever connects is sent one snapshot (SessionSnapshot::json) and the
/// end of the stream.
///
/// The socket is <directory>/<pid>.<number> in the directory `directory()` of this user, and goes
/// with the session. That of a process that was killed refuses connections. A session without one
/// (no such directory can be had) works all the same; the log says so.
class Housekeeper {
 public:
  /// `master_core`: the thread runs there if this process may use it, else anywhere.
  Housekeeper(const Session& session, int master_core);
  Housekeeper(const Housekeeper&) = delete;
  Housekeeper& operator=(const Housekeeper&) = delete;
  ~Housekeeper() { stop(); }

  /// Idempotent.
  void stop() noexcept;
  /// Empty: there is none.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// $XDG_RUNTIME_DIR/daqiri, or /tmp/daqiri-<uid>.
  static std::string directory();

 private:
  void listen();
  void run() noexcept;
  void answer() noexcept;

  const Session& session_;
  int master_core_;
  std::string path_;
  File socket_;
  Doorbell doorbell_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace daqiri

/// The thread on the master core that tells how a session is doing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "system/doorbell.h"
#include "system/file.h"

namespace daqiri {

class Session;
struct SessionSnapshot;

/// Takes a snapshot once a period, for those who look often and need not be exact. Answers on a
/// Unix socket: whoever connects is sent a snapshot of that moment (SessionSnapshot::json) and the
/// end of the stream.
///
/// The socket is <directory>/<pid>.<number> in the directory `directory()` of this user, and goes
/// with the session. That of a process that was killed refuses connections. A session without one
/// (no such directory can be had) works all the same; the log says so.
class Housekeeper {
 public:
  static constexpr std::uint64_t PERIOD_NS = 100'000'000;

  /// `master_core`: the thread runs there if this process may use it, else anywhere.
  Housekeeper(const Session& session, int master_core);
  Housekeeper(const Housekeeper&) = delete;
  Housekeeper& operator=(const Housekeeper&) = delete;
  ~Housekeeper() { stop(); }

  /// Idempotent.
  void stop() noexcept;
  /// A period old at most, plus what the thread had to wait for its turn. Any thread.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> latest() const;

  /// $XDG_RUNTIME_DIR/daqiri, or /tmp/daqiri-<uid>.
  static std::string directory();

 private:
  void listen();
  void run(const std::stop_token& stop) noexcept;
  void renew();
  /// False when the next one is to wait for the next period.
  bool answer() noexcept;

  const Session& session_;
  int master_core_;
  /// Of the socket; empty: there is none.
  std::string path_;
  File socket_;
  Doorbell doorbell_;
  mutable std::mutex mutex_;  // over the next
  std::shared_ptr<const SessionSnapshot> latest_;
  std::jthread thread_;
};

}  // namespace daqiri

/// Several engines in one process.
///
/// `daqiri_init` starts the default session of the process, number 0. `session_open` starts
/// additional sessions. Each thread selects the session that its calls act on, initially the
/// default session. Calls with a burst act on the session of the burst, independent of the
/// selection: any thread can fill, send, write and free a burst, and no burst enters another
/// session.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup sessions
/// \{

/// Number of a session; unique in a process, never reused.
using SessionId = std::uint64_t;

/// The session that `daqiri_init` starts and `shutdown` stops.
inline constexpr SessionId DEFAULT_SESSION = 0;

/// Start another session. `id` receives its number; 0: failed. Completes `config` and returns
/// failures like `daqiri_init`. Does not change the selection.
Status session_open(NetworkConfig& config, SessionId* id);
/// Like `session_open`, from a file or from YAML text; `daqiri_init` describes which.
Status session_open(const std::string& yaml_or_path, SessionId* id);

/// Stop a session as `shutdown` stops the default session: threads end, bursts that the program
/// holds stay readable. Any thread may call this, with any selection. INVALID_PARAMETER: the
/// session is closed already, never existed, or is the default session (call `shutdown`).
Status session_close(SessionId id);

/// Select the session for the calling thread. INVALID_PARAMETER: the session is not open; the
/// selection does not change. 0 can always be selected. If a selected session is closed, calls
/// return NOT_READY until the thread selects another.
Status session_select(SessionId id);
/// Return the session that the calling thread has selected.
SessionId session_selected() noexcept;

/// Selects a session until the end of a scope.
class SessionScope {
 public:
  /// Select `id` even if that session is not open. Calls then return NOT_READY and do not act on
  /// another session.
  explicit SessionScope(SessionId id) noexcept;
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;
  /// Restore the previous selection, even if that session is closed.
  ~SessionScope();

  /// Return the status that `session_select` would have returned.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  SessionId previous_;
  Status status_;
};

/// \}

}  // namespace daqiri

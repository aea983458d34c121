/// Several engines in one process.
///
/// `daqiri_init` starts the process's default session, number 0; `session_open` starts others
/// beside it. A thread selects which of them its calls act on, at first the default. Calls that
/// take a burst act on the burst's own session, whatever is selected: a burst can be filled, sent,
/// written and freed by any thread, and never ends up in the wrong session.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup sessions
/// \{

/// Never used twice in a process.
using SessionId = std::uint64_t;

/// The session between `daqiri_init` and `shutdown`.
inline constexpr SessionId DEFAULT_SESSION = 0;

/// Start another session; `id` gets its number, 0 on failure. `config` is completed, and failures
/// are told, as by `daqiri_init`. Selects nothing.
Status session_open(NetworkConfig& config, SessionId* id);
/// As above from a file or from YAML text, told apart as by `daqiri_init`.
Status session_open(const std::string& yaml_or_path, SessionId* id);

/// Stop a session as `shutdown` stops the default one: threads end, bursts that the program holds
/// stay readable. Any thread, whatever is selected. INVALID_PARAMETER for a number that is closed
/// already, was never given, or is 0 (call `shutdown`).
Status session_close(SessionId id);

/// Let the calling thread's calls act on a session. INVALID_PARAMETER, and the selection stays, for
/// one that is not open; 0 can always be selected. When a selected session is closed, calls return
/// NOT_READY until the thread selects another.
Status session_select(SessionId id);
/// Session that the calling thread selected.
SessionId session_selected() noexcept;

/// A selection that ends with a scope.
class SessionScope {
 public:
  /// Selects `id` in any case, so that calls return NOT_READY instead of acting on another session
  /// when it is not open.
  explicit SessionScope(SessionId id) noexcept;
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;
  /// Selects what was selected before, open or not.
  ~SessionScope();

  /// What `session_select` would have returned.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  SessionId previous_;
  Status status_;
};

/// \}

}  // namespace daqiri

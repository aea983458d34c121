/// The sessions that a program opened, and which of them a thread's calls act on.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "daqiri/session.h"
#include "session/session.h"

namespace daqiri::api {

/// Queues that take turns: the next look starts after the queue that last had data.
class Rotation {
 public:
  explicit Rotation(std::vector<RxQueue*> queues) : queues_(std::move(queues)) {}
  /// A burst of any of the queues, or null.
  Burst* receive() noexcept;

 private:
  std::vector<RxQueue*> queues_;
  std::atomic<std::size_t> next_{0};
};

/// An open session.
struct Running {
  explicit Running(std::shared_ptr<Session> started);
  const std::shared_ptr<Session> session;
  /// By port.
  std::vector<std::unique_ptr<Rotation>> ports;
  std::unique_ptr<Rotation> all;
};

/// Open the default session. Throws Error, INTERNAL_ERROR when there is one.
void start_default(NetworkConfig& config);
/// Open another. Throws Error.
SessionId start(NetworkConfig& config);
/// Close a session. Returns false when it is not open.
bool stop(SessionId id) noexcept;

[[nodiscard]] bool is_open(SessionId id) noexcept;
[[nodiscard]] SessionId selected() noexcept;
/// Returns what was selected before. Does not look whether `id` is open.
SessionId select(SessionId id) noexcept;

/// The session that the calling thread selected; null when it is not open. Costs one reference
/// count, no lock.
std::shared_ptr<Running> running() noexcept;
/// What to do when `running` is null.
[[nodiscard]] std::string_view not_running() noexcept;

}  // namespace daqiri::api

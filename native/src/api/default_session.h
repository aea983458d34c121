/// The process's default session, which the programming interface acts on.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

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

/// The session between daqiri_init and shutdown.
struct Running {
  explicit Running(std::shared_ptr<Session> started);
  const std::shared_ptr<Session> session;
  /// By port.
  std::vector<std::unique_ptr<Rotation>> ports;
  std::unique_ptr<Rotation> all;
};

/// Open the default session. Throws Error, INTERNAL_ERROR when there is one.
void start(NetworkConfig& config);
/// Close it. No-op when there is none.
void stop() noexcept;

/// Null when there is none. Costs one reference count, no lock.
std::shared_ptr<Running> running() noexcept;

inline constexpr std::string_view NOT_STARTED = "the engine is not running; call daqiri_init first";

}  // namespace daqiri::api

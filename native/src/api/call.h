/// Common parts of the calls of the programming interface: failures (a status, and the reason in
/// last_error() and the log), the session that a call acts on, and checks of bursts.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <type_traits>

#include "burst/burst.h"
#include "daqiri/error.h"
#include "session/session.h"
#include "system/log.h"

namespace daqiri::api {

/// The calling thread's reason, built from parts without allocation; excess text is truncated.
class Reason {
 public:
  explicit Reason(std::string_view call) noexcept;
  Reason& add(std::string_view text) noexcept;
  template <std::integral Integer>
  Reason& add(Integer number) noexcept {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return add(std::string_view(digits, static_cast<std::size_t>(end - digits)));
  }
  [[nodiscard]] static std::string_view text() noexcept;
};

/// A call, with the properties that its failure reports need.
struct Call {
  constexpr Call(const char* call) noexcept : name(call) {}
  const char* name;
  /// Whether it is made per burst or packet, and may fail thousands of times per second: only the
  /// first failure on each queue is logged, then at most one per second.
  bool often{false};
  /// Port and queue of the call.
  std::uint32_t queue{NO_QUEUE};

  static constexpr std::uint32_t NO_QUEUE = 0xFFFFFFFFU;
};

constexpr Call often(const char* call) noexcept {
  Call made(call);
  made.often = true;
  return made;
}
constexpr Call often(const char* call, int port, int queue) noexcept {
  Call made = often(call);
  made.queue =
      static_cast<std::uint32_t>(port) << 16U | (static_cast<std::uint32_t>(queue) & 0xFFFFU);
  return made;
}

/// Log the calling thread's reason.
[[gnu::cold]] void log_reason(const Call& call) noexcept;

/// Set the reason to "<call>: <parts>" and return `status`, a result that programs expect: it is
/// not logged.
template <typename... Parts>
Status decline(Status status, const Call& call, const Parts&... parts) noexcept {
  Reason reason(call.name);
  (reason.add(parts), ...);
  return status;
}

/// Set the reason to "<call>: <parts>", log it, and return `status`.
template <typename... Parts>
[[gnu::cold]] Status fail(Status status, const Call& call, const Parts&... parts) noexcept {
  decline(status, call, parts...);
  log_reason(call);
  return status;
}

/// Run `action`, which returns a Status or nothing (SUCCESS); converts exceptions to a Status.
template <typename Action>
Status guarded(Call call, Action&& action) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(action())>) {
      action();
      return Status::SUCCESS;
    } else {
      return action();
    }
  } catch (const Error& error) {
    return fail(error.status(), call, error.what());
  } catch (const std::exception& error) {
    return fail(Status::GENERIC_FAILURE, call, error.what());
  }
}

/// The session that the calling thread selected; null if it is not open. Changes one reference
/// count and takes no lock.
std::shared_ptr<Session> running() noexcept;
/// Advice for the user if `running` returns null.
[[nodiscard]] const char* not_running() noexcept;

/// Like `guarded`, for an action on the selected session; NOT_READY without one.
template <typename Action>
Status with_session(Call call, Action&& action) noexcept {
  const std::shared_ptr<Session> session = running();
  if (session == nullptr) return fail(Status::NOT_READY, call, not_running());
  return guarded(call, [&] { return action(*session); });
}

/// The burst of a handle, for one call. Checks can be chained: the first that fails rejects the
/// burst and sets the reason, and the following ones do nothing.
class Held {
 public:
  /// Rejects null, and bursts that were freed.
  [[gnu::always_inline]] Held(const char* call, const BurstParams* handle) noexcept
      : call_(call), burst_(static_cast<Burst*>(const_cast<BurstParams*>(handle))) {
    if (burst_ == nullptr) {
      refuse(Status::NULL_PTR, "the burst is null");
    } else if (burst_->state.load(std::memory_order_acquire) != BurstState::APPLICATION) {
      // The caller must not read the burst.
      burst_ = nullptr;
      refuse(Status::INVALID_PARAMETER, "the burst was freed, or sent");
    }
  }

  /// False if the burst was rejected; the caller then returns `status`.
  explicit operator bool() const noexcept { return burst_ != nullptr; }
  [[nodiscard]] Status status() const noexcept { return status_; }
  /// The call, with the burst's port and queue.
  [[nodiscard]] Call about() const noexcept {
    if (burst_ == nullptr) return often(call_);
    return often(call_, burst_->hdr.hdr.port_id, burst_->hdr.hdr.q_id);
  }
  Burst* operator->() const noexcept { return burst_; }
  Burst& operator*() const noexcept { return *burst_; }

  template <typename... Parts>
  [[gnu::noinline, gnu::cold]] Status refuse(Status status, const Parts&... parts) noexcept {
    const Call call = about();
    burst_ = nullptr;
    return status_ = fail(status, call, parts...);
  }
  Held& require(bool ok, Status status, std::string_view otherwise) noexcept {
    if (burst_ != nullptr && !ok) [[unlikely]]
      refuse(status, otherwise);
    return *this;
  }
  /// Require that the burst may be changed: no write in the background is reading it.
  Held& alone() noexcept {
    return require(burst_ == nullptr || burst_->exclusive(), Status::NOT_READY,
                   "the burst is being written to files; call daqiri_file_write_wait first, or "
                   "only free it");
  }
  /// Require that packet `idx` exists.
  Held& packet(int idx) noexcept {
    // Negative indices become large ones.
    if (burst_ != nullptr && static_cast<std::uint32_t>(idx) >= burst_->owned) [[unlikely]]
      refuse(Status::INVALID_PARAMETER, "packet ", idx, " of a burst of ", burst_->owned);
    return *this;
  }
  /// Require that segment `seg` exists.
  Held& segment(int seg) noexcept {
    if (burst_ != nullptr && (seg < 0 || seg >= MAX_NUM_SEGS || burst_->owners[seg] == nullptr))
        [[unlikely]]
      refuse(Status::INVALID_PARAMETER, "the packets have no segment ", seg);
    return *this;
  }

  /// Number of segments of the burst's packets, regardless of its header; 0 before it has buffers.
  [[nodiscard]] int num_segments() const noexcept {
    int n = 0;
    while (burst_ != nullptr && n < MAX_NUM_SEGS && burst_->owners[n] != nullptr) ++n;
    return n;
  }

 private:
  const char* call_;
  Burst* burst_;
  Status status_{Status::SUCCESS};
};

}  // namespace daqiri::api

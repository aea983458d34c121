/// Bursts as the documented Python functions have them: opaque, freed by a call.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <mutex>
#include <type_traits>
#include <utility>

#include "daqiri/daqiri.h"
#include "gil.h"

namespace daqiri::python {

namespace py = pybind11;

/// A handle, which is the only one of its burst. Freeing or sending the burst empties it, so that
/// it never stands for a later burst of the same address. Dropping the handle frees the burst.
class BurstHandle {
 public:
  /// Of no burst.
  BurstHandle() = default;
  /// Takes `burst` over.
  explicit BurstHandle(BurstParams* burst) : burst_(burst) {}
  BurstHandle(const BurstHandle&) = delete;
  BurstHandle& operator=(const BurstHandle&) = delete;
  ~BurstHandle();

  /// The burst for one call; other threads that use it wait meanwhile. Nothing that could run
  /// Python is done while this exists: it could come back here.
  class Use {
   public:
    /// `handle` may be null. Needs the interpreter lock. Throws Error NOT_READY in a forked child.
    explicit Use(BurstHandle* handle);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (handle_ != nullptr) handle_->mutex_.unlock();
    }
    /// Null for no burst; one that is marked free after it was freed or sent.
    [[nodiscard]] BurstParams* get() const noexcept {
      return handle_ == nullptr ? nullptr : handle_->burst_;
    }
    /// As `get`, and the handle is empty from now on.
    BurstParams* take() const noexcept;

   private:
    BurstHandle* handle_;
  };

 private:
  std::mutex mutex_;
  BurstParams* burst_{nullptr};
  /// Forks before it was made.
  std::uint64_t born_{fork_count()};

  static std::uint64_t fork_count() noexcept;
};

/// A member of the Python class Status.
py::object status_object(Status status);

/// What a call returns, as Python has it.
template <typename Result>
auto as_result(Result result) {
  if constexpr (std::is_same_v<Result, Status>) {
    return status_object(result);
  } else if constexpr (std::is_pointer_v<Result>) {
    return reinterpret_cast<std::uintptr_t>(result);
  } else {
    return result;
  }
}

/// A function of a burst, for Python.
template <typename Result, typename Burst, typename... Args>
auto on_burst(Result (*function)(Burst*, Args...)) {
  return [function](BurstHandle* handle, Args... args) {
    const auto call = [&] {
      const BurstHandle::Use use(handle);
      return function(use.get(), args...);
    };
    if constexpr (std::is_void_v<Result>) {
      call();
    } else {
      return as_result(call());
    }
  };
}

/// As above, of one that may wait for other threads.
template <typename Result, typename Burst, typename... Args>
auto on_burst_unlocked(Result (*function)(Burst*, Args...)) {
  return [function](BurstHandle* handle, Args... args) {
    const auto call = [&] {
      const BurstHandle::Use use(handle);
      const GilRelease unlocked;
      return function(use.get(), args...);
    };
    return as_result(call());
  };
}

}  // namespace daqiri::python

/// Bursts in the documented Python functions: opaque handles that a call frees.
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

/// The only handle of its burst. Freeing or sending the burst empties the handle, so it never
/// refers to a later burst at the same address. Destroying the handle frees the burst.
class BurstHandle {
 public:
  /// Without a burst.
  BurstHandle() = default;
  /// Takes ownership of `burst`.
  explicit BurstHandle(BurstParams* burst) : burst_(burst) {}
  BurstHandle(const BurstHandle&) = delete;
  BurstHandle& operator=(const BurstHandle&) = delete;
  ~BurstHandle();

  /// Access to the burst for one call. Other threads that use the same handle wait. Do not run
  /// Python code while this exists: it could call back into the handle.
  class Use {
   public:
    /// `handle` may be null. Needs the interpreter lock. Throws Error NOT_READY in a forked child.
    explicit Use(BurstHandle* handle);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (handle_ != nullptr) handle_->mutex_.unlock();
    }
    /// Null if there is no burst; a burst marked as freed if it was freed or sent.
    [[nodiscard]] BurstParams* get() const noexcept {
      return handle_ == nullptr ? nullptr : handle_->burst_;
    }
    /// Like `get`, but also empties the handle.
    BurstParams* take() const noexcept;

   private:
    BurstHandle* handle_;
  };

 private:
  std::mutex mutex_;
  BurstParams* burst_{nullptr};
  /// Value of fork_count() at construction.
  std::uint64_t born_{fork_count()};

  static std::uint64_t fork_count() noexcept;
};

/// A member of the Python class Status.
py::object status_object(Status status);

/// Converts the result of a call for Python.
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

/// Wraps a function of a burst for Python.
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

/// As above, for a function that may wait for other threads.
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

/// Handles of the program.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "api/call.h"

namespace daqiri::api {

/// Objects of one type by their handles. A handle is a unique number in the form of a pointer,
/// never reused, so that destroyed handles are detected.
template <typename Object>
class HandleTable {
 public:
  /// A child made by fork(2) starts without handles, because the parent's threads do not exist
  /// there.
  static HandleTable& get() {
    static auto* instance = new HandleTable;  // NOLINT(cppcoreguidelines-owning-memory)
    [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
      auto* const parents = instance;
      instance = new HandleTable;
      instance->last_ = parents->last_;
      instance->parents_ = parents;
    });
    return *instance;
  }

  Object* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
    auto* handle = reinterpret_cast<Object*>(++last_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  /// Null: the handle is not valid.
  std::shared_ptr<Object> find(Object* handle) {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : it->second;
  }
  /// Like `find`; the handle is not valid any more.
  std::shared_ptr<Object> take(Object* handle) {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(it->second);
    objects_.erase(it);
    return object;
  }
  std::vector<std::shared_ptr<Object>> take_all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Object>> all;
    all.reserve(objects_.size());
    for (auto& [handle, object] : objects_) all.push_back(std::move(object));
    objects_.clear();
    return all;
  }

 private:
  HandleTable() = default;

  std::mutex mutex_{};
  std::uintptr_t last_{0};
  std::map<Object*, std::shared_ptr<Object>> objects_{};
  /// Objects of the parent process; kept, but not used.
  HandleTable* parents_{nullptr};
};

inline constexpr const char* BAD_HANDLE = "the handle was destroyed or is not valid";

/// Run `start` with the burst; it returns a write in the background, and `*handle` is set to its
/// handle.
template <typename Write, typename Start>
Status with_handle(const char* call, BurstParams* params, Write** handle, Start&& start) noexcept {
  if (handle == nullptr) return fail(Status::NULL_PTR, call, "the handle is null");
  *handle = nullptr;
  const Held burst(call, params);
  if (!burst) return burst.status();
  return guarded(call, [&] { *handle = HandleTable<Write>::get().add(start(*burst)); });
}

/// Operations on a write by its handle.
enum class Ask : std::uint8_t { POLL, WAIT, DESTROY };

/// Returns the current or final result; for DESTROY, whether the handle was valid.
template <typename Write, typename Counts = decltype(std::declval<Write>().counts())>
Status ask_write(const char* call, Write* handle, Ask ask, Counts* counts = nullptr) noexcept {
  if (handle == nullptr) return fail(Status::NULL_PTR, call, "the handle is null");
  auto& all = HandleTable<Write>::get();
  const std::shared_ptr<Write> write = ask == Ask::DESTROY ? all.take(handle) : all.find(handle);
  if (write == nullptr) return fail(Status::INVALID_PARAMETER, call, BAD_HANDLE);
  if (ask != Ask::POLL) write->wait();
  if (ask == Ask::DESTROY) return Status::SUCCESS;
  if (counts != nullptr) *counts = write->counts();
  const Status outcome = write->status();
  if (outcome == Status::SUCCESS || !write->done()) return outcome;
  return guarded(call, [&] { return fail(outcome, call, write->error()); });
}

}  // namespace daqiri::api

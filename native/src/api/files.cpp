#include <pthread.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "storage/file_write.h"

namespace daqiri {

using api::fail;

namespace {

/// Handles of the program. A handle is a unique number in the form of a pointer, never reused, so
/// that destroyed handles are detected.
struct Handles {
  std::mutex mutex{};
  std::uintptr_t last{0};
  std::map<FileWriteHandle*, std::shared_ptr<FileWriteHandle>> handles{};
  /// Handles of the parent process; kept, but not used.
  Handles* parents{nullptr};
};

/// A child made by fork(2) starts without handles, because the parent's writes are not performed
/// there.
Handles& known() {
  static auto* instance = new Handles;  // NOLINT(cppcoreguidelines-owning-memory)
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
    instance = new Handles{.last = instance->last, .parents = instance};
  });
  return *instance;
}

/// Run `write` with the burst; exceptions become a status.
template <typename Write>
Status with_burst(const char* call, BurstParams* params, Write&& write) noexcept {
  const api::Held burst(call, params);
  if (!burst) return burst.status();
  return api::guarded(call, [&] { write(*burst); });
}

/// Like `with_burst`, for a write in the background.
template <typename Start>
Status with_handle(const char* call, BurstParams* params, FileWriteHandle** handle,
                   Start&& start) noexcept {
  if (handle == nullptr) return fail(Status::NULL_PTR, call, "the handle is null");
  *handle = nullptr;
  return with_burst(call, params, [&](Burst& burst) {
    std::shared_ptr<FileWriteHandle> started = start(burst);
    Handles& all = known();
    const std::lock_guard lock(all.mutex);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
    auto* key = reinterpret_cast<FileWriteHandle*>(++all.last);
    all.handles.emplace(key, std::move(started));
    *handle = key;
  });
}

/// Operations on a write by its handle.
enum class Ask : std::uint8_t { POLL, WAIT, DESTROY };

/// Returns the current or final result; for DESTROY, whether the handle was valid.
Status ask_write(const char* call, FileWriteHandle* handle, Ask ask,
                 FileWriteStatus* status = nullptr) noexcept {
  if (handle == nullptr) return fail(Status::NULL_PTR, call, "the handle is null");
  Handles& all = known();
  std::unique_lock lock(all.mutex);
  const auto it = all.handles.find(handle);
  if (it == all.handles.end())
    return fail(Status::INVALID_PARAMETER, call, "the handle was destroyed or is not valid");
  const std::shared_ptr<FileWriteHandle> write = it->second;
  if (ask == Ask::DESTROY) all.handles.erase(it);
  lock.unlock();
  if (ask != Ask::POLL) write->wait();
  if (ask == Ask::DESTROY) return Status::SUCCESS;
  if (status != nullptr) *status = write->counts();
  const Status outcome = write->status();
  if (outcome == Status::SUCCESS || !write->done()) return outcome;
  return api::guarded(call, [&] { return fail(outcome, call, write->error()); });
}

}  // namespace

Status daqiri_write_raw_to_file(BurstParams* params, const std::string& absolute_path,
                                const std::string& file_prefix, std::uint64_t packet_data_offset) {
  return with_burst(__func__, params, [&](const Burst& burst) {
    write_raw(burst, absolute_path, file_prefix, packet_data_offset);
  });
}

Status daqiri_write_pcap_to_file(BurstParams* params, const std::string& absolute_path,
                                 const std::string& file_prefix) {
  return with_burst(__func__, params,
                    [&](Burst& burst) { write_pcap(burst, absolute_path, file_prefix); });
}

Status daqiri_write_raw_to_file_async(BurstParams* params, const std::string& absolute_path,
                                      const std::string& file_prefix,
                                      std::uint64_t packet_data_offset, FileWriteHandle** handle) {
  return with_handle(__func__, params, handle, [&](Burst& burst) {
    return start_write_raw(burst, absolute_path, file_prefix, packet_data_offset);
  });
}

Status daqiri_write_pcap_to_file_async(BurstParams* params, const std::string& absolute_path,
                                       const std::string& file_prefix, FileWriteHandle** handle) {
  return with_handle(__func__, params, handle, [&](Burst& burst) {
    return start_write_pcap(burst, absolute_path, file_prefix);
  });
}

Status daqiri_file_write_poll(FileWriteHandle* handle, FileWriteStatus* status) {
  return ask_write(__func__, handle, Ask::POLL, status);
}
Status daqiri_file_write_wait(FileWriteHandle* handle, FileWriteStatus* status) {
  return ask_write(__func__, handle, Ask::WAIT, status);
}
Status daqiri_file_write_destroy(FileWriteHandle* handle) {
  return ask_write(__func__, handle, Ask::DESTROY);
}

}  // namespace daqiri

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "api/held_burst.h"
#include "daqiri/daqiri.h"
#include "storage/file_write.h"

namespace daqiri {

using api::fail;
using std::string_view;

namespace {

/// Handles that programs hold. A handle is a number in the shape of a pointer, which is never used
/// twice, so that a destroyed one is told from every later one.
class Handles {
 public:
  FileWriteHandle* add(std::shared_ptr<FileWriteHandle> handle) {
    const std::lock_guard lock(mutex_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
    auto* key = reinterpret_cast<FileWriteHandle*>(++last_);
    handles_.emplace(key, std::move(handle));
    return key;
  }
  /// Null when unknown.
  std::shared_ptr<FileWriteHandle> find(FileWriteHandle* key) {
    const std::lock_guard lock(mutex_);
    const auto it = handles_.find(key);
    return it == handles_.end() ? nullptr : it->second;
  }
  std::shared_ptr<FileWriteHandle> remove(FileWriteHandle* key) {
    const std::lock_guard lock(mutex_);
    const auto node = handles_.extract(key);
    return node.empty() ? nullptr : node.mapped();
  }

 private:
  std::mutex mutex_;
  std::uintptr_t last_{0};
  std::map<FileWriteHandle*, std::shared_ptr<FileWriteHandle>> handles_;
};

Handles& handles() {
  static Handles instance;
  return instance;
}

/// Run `write` with the burst; what it throws becomes a status.
template <typename Write>
Status with_burst(string_view call, BurstParams* params, Write&& write) noexcept {
  Burst* burst = api::held(call, params);
  if (burst == nullptr) return api::not_held(params);
  return api::guarded(call, [&] {
    write(*burst);
    return Status::SUCCESS;
  });
}

/// The same for a write in the background.
template <typename Start>
Status with_handle(string_view call, BurstParams* params, FileWriteHandle** handle,
                   Start&& start) noexcept {
  if (handle == nullptr) return fail(Status::NULL_PTR, call, string_view("the handle is null"));
  *handle = nullptr;
  return with_burst(call, params, [&](Burst& burst) { *handle = handles().add(start(burst)); });
}

Status unknown(string_view call, const FileWriteHandle* handle) noexcept {
  if (handle == nullptr) return fail(Status::NULL_PTR, call, string_view("the handle is null"));
  return fail(Status::INVALID_PARAMETER, call, string_view("the handle was destroyed, or is none"));
}

/// The outcome so far.
Status report(string_view call, const FileWriteHandle& handle, FileWriteStatus* status) noexcept {
  if (status != nullptr) *status = handle.counts();
  const Status outcome = handle.status();
  if (outcome == Status::SUCCESS || !handle.done()) return outcome;
  return api::guarded(call, [&]() -> Status { throw Error(outcome, handle.error()); });
}

}  // namespace

Status daqiri_write_raw_to_file(BurstParams* params, const std::string& absolute_path,
                                const std::string& file_prefix, std::uint64_t packet_data_offset) {
  return with_burst("daqiri_write_raw_to_file", params, [&](const Burst& burst) {
    write_raw(burst, absolute_path, file_prefix, packet_data_offset);
  });
}

Status daqiri_write_pcap_to_file(BurstParams* params, const std::string& absolute_path,
                                 const std::string& file_prefix) {
  return with_burst("daqiri_write_pcap_to_file", params,
                    [&](Burst& burst) { write_pcap(burst, absolute_path, file_prefix); });
}

Status daqiri_write_raw_to_file_async(BurstParams* params, const std::string& absolute_path,
                                      const std::string& file_prefix,
                                      std::uint64_t packet_data_offset, FileWriteHandle** handle) {
  return with_handle("daqiri_write_raw_to_file_async", params, handle, [&](Burst& burst) {
    return start_write_raw(burst, absolute_path, file_prefix, packet_data_offset);
  });
}

Status daqiri_write_pcap_to_file_async(BurstParams* params, const std::string& absolute_path,
                                       const std::string& file_prefix, FileWriteHandle** handle) {
  return with_handle("daqiri_write_pcap_to_file_async", params, handle, [&](Burst& burst) {
    return start_write_pcap(burst, absolute_path, file_prefix);
  });
}

Status daqiri_file_write_poll(FileWriteHandle* handle, FileWriteStatus* status) {
  constexpr string_view CALL = "daqiri_file_write_poll";
  const auto found = handles().find(handle);
  return found == nullptr ? unknown(CALL, handle) : report(CALL, *found, status);
}

Status daqiri_file_write_wait(FileWriteHandle* handle, FileWriteStatus* status) {
  constexpr string_view CALL = "daqiri_file_write_wait";
  const auto found = handles().find(handle);
  if (found == nullptr) return unknown(CALL, handle);
  found->wait();
  return report(CALL, *found, status);
}

Status daqiri_file_write_destroy(FileWriteHandle* handle) {
  const auto found = handles().remove(handle);
  if (found == nullptr) return unknown("daqiri_file_write_destroy", handle);
  found->wait();
  return Status::SUCCESS;
}

}  // namespace daqiri

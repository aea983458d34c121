#include <cstdint>

#include "api/call.h"
#include "api/handles.h"
#include "daqiri/daqiri.h"
#include "storage/file_write.h"

namespace daqiri {

using api::Ask;
using api::ask_write;
using api::with_handle;

namespace {

/// Run `write` with the burst; exceptions become a status.
template <typename Write>
Status with_burst(const char* call, BurstParams* params, Write&& write) noexcept {
  const api::Held burst(call, params);
  if (!burst) return burst.status();
  return api::guarded(call, [&] { write(*burst); });
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

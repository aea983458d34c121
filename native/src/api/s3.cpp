#include <cstdint>
#include <memory>

#include "api/call.h"
#include "api/handles.h"
#include "daqiri/daqiri.h"
#include "storage/s3_writer.h"

namespace daqiri {

using api::Ask;
using api::ask_write;
using api::fail;

namespace {

using Writers = api::HandleTable<S3Writer>;

/// Writers that a program leaves finish their uploads at its end. Made after the libraries that the
/// uploads use are loaded, so that it is destroyed before them.
struct AtExit {
  AtExit() = default;
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() {
    for (const auto& writer : Writers::get().take_all()) writer->close();
  }
};

Status start(const char* call, S3Writer* writer, BurstParams* params, S3Objects objects,
             const std::string& name, std::uint64_t offset, S3WriteHandle** handle) noexcept {
  if (writer == nullptr) return fail(Status::NULL_PTR, call, "the writer is null");
  const std::shared_ptr<S3Writer> known = Writers::get().find(writer);
  if (known == nullptr)
    return fail(Status::INVALID_PARAMETER, call, "the writer was destroyed or is not valid");
  return api::with_handle(call, params, handle, [&](const Burst& burst) {
    return known->write(burst, objects, name, offset);
  });
}

}  // namespace

Status daqiri_s3_writer_create(const S3WriterConfig& config, S3Writer** writer) {
  if (writer == nullptr) return fail(Status::NULL_PTR, __func__, "the writer is null");
  *writer = nullptr;
  return api::guarded(__func__, [&] {
    auto made = std::make_shared<S3Writer>(config);
    static const AtExit at_exit;
    *writer = Writers::get().add(std::move(made));
  });
}

Status daqiri_s3_writer_destroy(S3Writer* writer) {
  if (writer == nullptr) return fail(Status::NULL_PTR, __func__, "the writer is null");
  const std::shared_ptr<S3Writer> known = Writers::get().take(writer);
  if (known == nullptr)
    return fail(Status::INVALID_PARAMETER, __func__, "the writer was destroyed or is not valid");
  known->close();
  return Status::SUCCESS;
}

Status daqiri_write_raw_to_s3_objects_async(S3Writer* writer, BurstParams* burst,
                                            const std::string& object_prefix,
                                            std::uint64_t packet_data_offset,
                                            S3WriteHandle** handle) {
  return start(__func__, writer, burst, S3Objects::PACKETS, object_prefix, packet_data_offset,
               handle);
}

Status daqiri_write_burst_to_s3_object_async(S3Writer* writer, BurstParams* burst,
                                             const std::string& object_name,
                                             std::uint64_t packet_data_offset,
                                             S3WriteHandle** handle) {
  return start(__func__, writer, burst, S3Objects::BURST_AND_INDEX, object_name, packet_data_offset,
               handle);
}

Status daqiri_s3_write_poll(S3WriteHandle* handle, S3WriteStatus* status) {
  return ask_write(__func__, handle, Ask::POLL, status);
}
Status daqiri_s3_write_wait(S3WriteHandle* handle, S3WriteStatus* status) {
  return ask_write(__func__, handle, Ask::WAIT, status);
}
Status daqiri_s3_write_destroy(S3WriteHandle* handle) {
  return ask_write(__func__, handle, Ask::DESTROY);
}

}  // namespace daqiri

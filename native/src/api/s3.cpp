#include "api/failure.h"
#include "daqiri/daqiri.h"

namespace daqiri {

namespace {

/// There is no writer and no handle that a program could have got.
Status missing(std::string_view call) noexcept {
  return api::fail(Status::NOT_SUPPORTED, call,
                   std::string_view("this build has no S3 client; write files and upload them"));
}

}  // namespace

Status daqiri_s3_writer_create(const S3WriterConfig&, S3Writer** writer) {
  if (writer != nullptr) *writer = nullptr;
  return missing("daqiri_s3_writer_create");
}

Status daqiri_s3_writer_destroy(S3Writer*) { return missing("daqiri_s3_writer_destroy"); }

Status daqiri_write_raw_to_s3_objects_async(S3Writer*, BurstParams*, const std::string&,
                                            std::uint64_t, S3WriteHandle** handle) {
  if (handle != nullptr) *handle = nullptr;
  return missing("daqiri_write_raw_to_s3_objects_async");
}

Status daqiri_s3_write_poll(S3WriteHandle*, S3WriteStatus*) {
  return missing("daqiri_s3_write_poll");
}
Status daqiri_s3_write_wait(S3WriteHandle*, S3WriteStatus*) {
  return missing("daqiri_s3_write_wait");
}
Status daqiri_s3_write_destroy(S3WriteHandle*) { return missing("daqiri_s3_write_destroy"); }

}  // namespace daqiri

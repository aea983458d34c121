/// Writing packets to S3 objects.
#pragma once

#include <cstdint>
#include <string>

namespace daqiri {

/// \addtogroup s3
/// \{

/// Where objects go, and how much is under way at a time.
struct S3WriterConfig {
  /// Its name.
  std::string bucket;
  /// Its region.
  std::string region;
  /// URL of an S3-compatible service; empty: Amazon's.
  std::string endpoint_override;
  /// Bucket in the path of the URL instead of in the host name.
  bool path_style{false};
  /// Uploads at a time.
  std::uint32_t max_inflight_uploads{8};
  /// Bytes that wait for their upload.
  std::uint64_t max_staged_bytes{std::uint64_t{1} << 30U};
  /// The program calls Aws::InitAPI and Aws::ShutdownAPI itself.
  bool aws_sdk_already_initialized{false};
};

/// Progress of a write; final when it is done.
struct S3WriteStatus {
  /// Objects that are whole.
  std::uint32_t completed_objects{0};
  /// Objects that will not be written, after an error.
  std::uint32_t failed_objects{0};
  /// Bytes of the packets that went out.
  std::uint64_t bytes_uploaded{0};
};

/// Opaque; the functions are in daqiri.h.
struct S3Writer;
struct S3WriteHandle;

/// \}

}  // namespace daqiri

/// Writing packets to S3 objects.
#pragma once

#include <cstdint>
#include <string>

namespace daqiri {

/// \addtogroup s3
/// \{

/// Destination of the objects, and limits on uploads in flight.
struct S3WriterConfig {
  /// Name of the bucket.
  std::string bucket;
  /// Region of the bucket; required.
  std::string region;
  /// URL of an S3-compatible service, without a path; without a scheme, it is https. Empty: Amazon
  /// S3.
  std::string endpoint_override;
  /// True: the bucket is in the path of the URL; false: in the host name.
  bool path_style{false};
  /// Largest number of concurrent uploads.
  std::uint32_t max_inflight_uploads{8};
  /// Largest number of bytes that wait for upload; memory is allocated for those that do.
  std::uint64_t max_staged_bytes{std::uint64_t{1} << 30U};
  /// Without effect, because no AWS SDK is used.
  bool aws_sdk_already_initialized{false};
};

/// Progress of an upload; final when the upload has finished.
struct S3WriteStatus {
  /// Objects that are completely uploaded.
  std::uint32_t completed_objects{0};
  /// Objects that will not be uploaded because of an error.
  std::uint32_t failed_objects{0};
  /// Packet bytes of the objects that are completely uploaded.
  std::uint64_t bytes_uploaded{0};
};

/// Opaque types; the functions are in daqiri.h.
struct S3Writer;
struct S3WriteHandle;

/// \}

}  // namespace daqiri

/// Writing packets to S3 objects.
#pragma once

#include <cstdint>
#include <string>

namespace daqiri {

struct S3WriterConfig {
  std::string bucket;
  std::string region;
  /// URL of an S3-compatible service; empty: Amazon's.
  std::string endpoint_override;
  bool path_style{false};
  std::uint32_t max_inflight_uploads{8};
  std::uint64_t max_staged_bytes{std::uint64_t{1} << 30U};
};

struct S3WriteStatus {
  std::uint64_t completed_objects{0};
  std::uint64_t failed_objects{0};
  std::uint64_t bytes_uploaded{0};
};

/// Opaque; the functions are in daqiri.h.
struct S3Writer;
struct S3WriteHandle;

}  // namespace daqiri

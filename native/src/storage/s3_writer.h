/// Uploads of packets to the objects of a bucket.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "burst/burst.h"
#include "daqiri/s3.h"
#include "storage/write_outcome.h"

namespace daqiri {

/// Where the objects of a bucket are.
struct BucketAddress {
  /// `https://host:port`
  std::string origin;
  /// As in the header Host.
  std::string host;
  /// Before keys: `/`, or `/bucket/`.
  std::string path;
};

/// Throws Error INVALID_PARAMETER for the bucket, the region, or the endpoint.
BucketAddress bucket_address(const S3WriterConfig& config);

/// Memory in which packets wait for upload; the memory of a writer is limited.
class Staging {
 public:
  /// Bytes of a writer's staging.
  using Total = std::atomic<std::uint64_t>;

  /// Throws Error NO_SPACE_AVAILABLE if `total` would be more than `limit`.
  Staging(std::shared_ptr<Total> total, std::uint64_t limit, std::uint64_t size);
  Staging(Staging&& other) noexcept = default;
  Staging& operator=(Staging&& other) = delete;
  ~Staging() { free(); }

  void free() noexcept {
    if (total_ != nullptr) *total_ -= size_;
    total_.reset();
    data_.reset();
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }

 private:
  std::shared_ptr<Total> total_;
  std::uint64_t size_;
  std::unique_ptr<std::byte[]> data_;
};

/// What the objects of a write are.
enum class S3Objects : std::uint8_t {
  /// `<name>_<index>`: one packet each.
  PACKETS,
  /// `<name>`: all packets; then `<name>.npy`: their index, like that of raw files.
  BURST_AND_INDEX,
};

/// An upload in the background; its status is SUCCESS, or GENERIC_FAILURE. After the first object
/// that failed, no more are begun.
struct S3WriteHandle : WriteOutcome {
 public:
  /// `ends`: ends of the objects' bytes in `staging`.
  S3WriteHandle(S3Objects objects, std::string name, Staging staging,
                std::vector<std::uint64_t> ends)
      : objects_(objects),
        name_(std::move(name)),
        staging_(std::move(staging)),
        ends_(std::move(ends)) {}

  /// The current counts; final after the write is done.
  [[nodiscard]] S3WriteStatus counts() const noexcept {
    return {completed_.load(), failed_.load(), bytes_.load()};
  }

 private:
  friend class S3Uploader;
  [[nodiscard]] std::uint32_t num_objects() const noexcept {
    return static_cast<std::uint32_t>(ends_.size());
  }
  [[nodiscard]] bool all_begun() const noexcept { return next_ == num_objects(); }
  [[nodiscard]] std::string key(std::uint32_t object) const;
  [[nodiscard]] std::span<const std::byte> bytes(std::uint32_t object) const noexcept;
  void completed(std::uint32_t object) noexcept;
  /// Also abandons objects that are not begun.
  void failed(std::string error) noexcept;
  void finish_if_done() noexcept;

  S3Objects objects_;
  std::string name_;
  Staging staging_;
  std::vector<std::uint64_t> ends_;
  std::atomic<std::uint32_t> completed_{0};
  std::atomic<std::uint32_t> failed_{0};
  std::atomic<std::uint64_t> bytes_{0};
  // Of the uploading thread.
  std::uint32_t next_{0};
  std::uint32_t in_flight_{0};
  std::string problem_;
};

class S3Uploader;

/// A client of one bucket, with a thread and its connections.
struct S3Writer {
 public:
  /// Throws Error: NOT_SUPPORTED if a library is not installed, INVALID_PARAMETER for the
  /// configuration, GENERIC_FAILURE without credentials.
  explicit S3Writer(const S3WriterConfig& config);
  S3Writer(const S3Writer&) = delete;
  S3Writer& operator=(const S3Writer&) = delete;
  ~S3Writer();

  /// Copy the packets, without their first `packet_data_offset` bytes, and begin to upload them.
  /// Throws Error: NO_SPACE_AVAILABLE if that is more than `max_staged_bytes`, NOT_SUPPORTED for
  /// objects that S3 does not accept in one piece, INVALID_PARAMETER.
  std::shared_ptr<S3WriteHandle> write(const Burst& burst, S3Objects objects,
                                       const std::string& name, std::uint64_t packet_data_offset);
  /// Wait for the uploads, and accept no more.
  void close() noexcept;

 private:
  std::uint64_t max_staged_bytes_;
  std::shared_ptr<Staging::Total> staged_{std::make_shared<Staging::Total>(0)};
  std::unique_ptr<S3Uploader> uploader_;
};

}  // namespace daqiri

/// Signatures of S3 requests: AWS Signature Version 4, in the header Authorization.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace daqiri {

/// What identifies the sender of requests.
struct S3Credentials {
  std::string access_key_id;
  std::string secret_access_key;
  /// Of temporary credentials.
  std::string session_token;

  bool operator==(const S3Credentials&) const = default;
};

/// The parts of a request that its signature covers.
struct S3Request {
  using Header = std::pair<std::string_view, std::string_view>;

  std::string_view method;
  /// Encoded, as in the URL.
  std::string_view path;
  /// `name=value`, encoded, ordered by name and joined by `&`; empty: none.
  std::string_view query;
  /// Names in lower case and in order; with host, x-amz-content-sha256 and x-amz-date.
  std::span<const Header> headers;
  /// SHA-256 of the body, in hexadecimal.
  std::string_view payload_hash;
};

using Sha256 = std::array<std::uint8_t, 32>;

/// Whether libcrypto, which computes hashes, is installed; the other functions need it.
[[nodiscard]] bool have_libcrypto() noexcept;
[[nodiscard]] Sha256 sha256(std::span<const std::byte> data) noexcept;
[[nodiscard]] std::string hexadecimal(const Sha256& hash);

/// A key as the path of a URL, as S3 wants it: encoded once, slashes kept, not normalised.
[[nodiscard]] std::string encoded_path(std::string_view key);

/// Signs requests for one region. One thread.
class S3Signer {
 public:
  explicit S3Signer(std::string region) : region_(std::move(region)) {}

  /// Returns the value of the header Authorization. `time`: that of the header x-amz-date,
  /// `20130524T000000Z`.
  [[nodiscard]] std::string authorization(const S3Request& request,
                                          const S3Credentials& credentials, std::string_view time);

 private:
  std::string region_;
  /// The key of one day, and what it was derived from.
  std::string day_;
  std::string secret_;
  Sha256 key_{};
};

}  // namespace daqiri

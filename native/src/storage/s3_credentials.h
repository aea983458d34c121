/// Credentials of S3, from the places where programs of AWS look for them.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <utility>

#include "storage/s3_signature.h"

namespace daqiri {

/// Looks in this order: environment, shared credentials file, container endpoint, metadata of the
/// EC2 instance. One thread.
class S3CredentialChain {
 public:
  using Environment = std::map<std::string, std::string>;

  /// The environment is that of now; later changes of it are not seen, since reading it in another
  /// thread would be a race.
  S3CredentialChain() : S3CredentialChain(of_process()) {}
  explicit S3CredentialChain(Environment environment) : environment_(std::move(environment)) {}

  /// The credentials, looked up at first, and again shortly before they expire. Throws Error
  /// GENERIC_FAILURE that names the places and why they gave nothing. `now`: CLOCK_REALTIME s.
  const S3Credentials& current(std::int64_t now = std::time(nullptr));
  /// Changes with the credentials.
  [[nodiscard]] unsigned version() const noexcept { return version_; }
  /// Look them up again, because the service has refused those of this version. Returns whether
  /// there are others now. Throws like `current`.
  bool renew(unsigned refused);

 private:
  struct Found {
    S3Credentials credentials;
    /// CLOCK_REALTIME s; 0: never.
    std::int64_t expires{0};
  };

  static Environment of_process();
  [[nodiscard]] std::string get(const char* name) const;
  /// `default_value` if it is not set, or empty.
  [[nodiscard]] std::string get(const char* name, const std::string& default_value) const;
  void look_up(std::int64_t now);
  // These throw std::runtime_error with the reason why there are none.
  [[nodiscard]] Found from_environment() const;
  [[nodiscard]] Found from_file() const;
  [[nodiscard]] Found from_container() const;
  [[nodiscard]] Found from_instance() const;
  /// `answer`: of the container endpoint or the metadata service at `url`.
  [[nodiscard]] static Found from_answer(const std::string& answer, const std::string& url);

  Environment environment_;
  Found found_;
  unsigned version_{0};
  /// CLOCK_REALTIME s.
  std::int64_t look_again_{0};
};

}  // namespace daqiri

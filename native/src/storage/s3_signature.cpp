#include "storage/s3_signature.h"

#include "system/loaded_library.h"

namespace daqiri {

namespace {

/// Functions that versions 1.1 and 3 of libcrypto have.
class Libcrypto : public LoadedLibrary {
 public:
  Libcrypto() noexcept : LoadedLibrary({"libcrypto.so.3", "libcrypto.so.1.1"}) {}

  unsigned char* (*sha256)(const unsigned char* data, std::size_t size,
                           unsigned char* to){find("SHA256")};
  const void* (*evp_sha256)(){find("EVP_sha256")};
  unsigned char* (*hmac)(const void* hash, const void* key, int key_size, const unsigned char* data,
                         std::size_t size, unsigned char* to, unsigned* written){find("HMAC")};
};

const Libcrypto& libcrypto() noexcept {
  static const Libcrypto loaded;
  return loaded;
}

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text));
}

Sha256 hmac_sha256(std::span<const std::byte> key, std::string_view text) noexcept {
  const Libcrypto& crypto = libcrypto();
  Sha256 code{};
  crypto.hmac(crypto.evp_sha256(), key.data(), static_cast<int>(key.size()),
              reinterpret_cast<const unsigned char*>(text.data()), text.size(), code.data(),
              nullptr);
  return code;
}

Sha256 hmac_sha256(const Sha256& key, std::string_view text) noexcept {
  return hmac_sha256(std::as_bytes(std::span(key)), text);
}

}  // namespace

bool have_libcrypto() noexcept { return !libcrypto().missing(); }

Sha256 sha256(std::span<const std::byte> data) noexcept {
  Sha256 hash{};
  libcrypto().sha256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), hash.data());
  return hash;
}

std::string hexadecimal(const Sha256& hash) {
  std::string text;
  text.reserve(2 * hash.size());
  for (const std::uint8_t byte : hash) {
    text += "0123456789abcdef"[byte >> 4U];
    text += "0123456789abcdef"[byte & 0xFU];
  }
  return text;
}

std::string encoded_path(std::string_view key) {
  std::string path;
  path.reserve(key.size());
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      path += c;
    } else {
      const auto byte = static_cast<std::uint8_t>(c);
      path += '%';
      path += "0123456789ABCDEF"[byte >> 4U];
      path += "0123456789ABCDEF"[byte & 0xFU];
    }
  }
  return path;
}

std::string S3Signer::authorization(const S3Request& request, const S3Credentials& credentials,
                                    std::string_view time) {
  const std::string_view day = time.substr(0, 8);
  if (day != day_ || credentials.secret_access_key != secret_) {
    day_ = day;
    secret_ = credentials.secret_access_key;
    const Sha256 of_day = hmac_sha256(bytes_of("AWS4" + secret_), day_);
    key_ = hmac_sha256(hmac_sha256(hmac_sha256(of_day, region_), "s3"), "aws4_request");
  }

  std::string names;
  std::string canonical;
  canonical.append(request.method).append("\n");
  canonical.append(request.path).append("\n");
  canonical.append(request.query).append("\n");
  for (const auto& [name, value] : request.headers) {
    canonical.append(name).append(":").append(value).append("\n");
    names.append(names.empty() ? "" : ";").append(name);
  }
  canonical.append("\n").append(names).append("\n").append(request.payload_hash);

  const std::string scope = day_ + "/" + region_ + "/s3/aws4_request";
  std::string to_sign = "AWS4-HMAC-SHA256\n";
  to_sign.append(time).append("\n").append(scope).append("\n");
  to_sign += hexadecimal(sha256(bytes_of(canonical)));
  return "AWS4-HMAC-SHA256 Credential=" + credentials.access_key_id + "/" + scope +
         ",SignedHeaders=" + names + ",Signature=" + hexadecimal(hmac_sha256(key_, to_sign));
}

}  // namespace daqiri

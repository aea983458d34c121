#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <string_view>

#include "storage/s3_signature.h"

namespace daqiri {

namespace {

/// Examples of "Authenticating Requests: Using the Authorization Header" in the documentation of
/// Amazon S3.
const S3Credentials EXAMPLE{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr std::string_view TIME = "20130524T000000Z";
constexpr std::string_view HOST = "examplebucket.s3.amazonaws.com";
const std::string NOTHING = hexadecimal(sha256({}));

std::string signature_of(const S3Request& request) {
  const std::string value = S3Signer("us-east-1").authorization(request, EXAMPLE, TIME);
  CHECK(
      value.starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
                        "aws4_request,SignedHeaders="));
  return value.substr(value.rfind('=') + 1);
}

}  // namespace

TEST_CASE("the hash of nothing is the known one") {
  CHECK(NOTHING == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("signatures are those that AWS has published") {
  SECTION("GET of an object, with a range") {
    const std::array<S3Request::Header, 4> headers{{{"host", HOST},
                                                    {"range", "bytes=0-9"},
                                                    {"x-amz-content-sha256", NOTHING},
                                                    {"x-amz-date", TIME}}};
    CHECK(signature_of({"GET", "/test.txt", "", headers, NOTHING}) ==
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  }
  SECTION("PUT of an object, whose key must be encoded") {
    const std::string text = "Welcome to Amazon S3.";
    const std::string hash = hexadecimal(sha256(std::as_bytes(std::span(text))));
    const std::array<S3Request::Header, 5> headers{{{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                                    {"host", HOST},
                                                    {"x-amz-content-sha256", hash},
                                                    {"x-amz-date", TIME},
                                                    {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}};
    CHECK(signature_of({"PUT", "/" + encoded_path("test$file.text"), "", headers, hash}) ==
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  }
  const std::array<S3Request::Header, 3> headers{
      {{"host", HOST}, {"x-amz-content-sha256", NOTHING}, {"x-amz-date", TIME}}};
  SECTION("GET with a query without a value") {
    CHECK(signature_of({"GET", "/", "lifecycle=", headers, NOTHING}) ==
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  }
  SECTION("GET with a query") {
    CHECK(signature_of({"GET", "/", "max-keys=2&prefix=J", headers, NOTHING}) ==
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  }
}

TEST_CASE("a signer uses the key of the day, and of the secret") {
  const std::array<S3Request::Header, 3> headers{
      {{"host", HOST}, {"x-amz-content-sha256", NOTHING}, {"x-amz-date", TIME}}};
  const S3Request request{"GET", "/", "", headers, NOTHING};
  S3Signer signer("us-east-1");
  const std::string first = signer.authorization(request, EXAMPLE, TIME);
  const std::string next_day = signer.authorization(request, EXAMPLE, "20130525T000000Z");
  S3Credentials other = EXAMPLE;
  other.secret_access_key = "other";
  const std::string by_other = signer.authorization(request, other, TIME);
  CHECK(first != by_other);
  CHECK(next_day == S3Signer("us-east-1").authorization(request, EXAMPLE, "20130525T000000Z"));
  CHECK(by_other == S3Signer("us-east-1").authorization(request, other, TIME));
  CHECK(first == signer.authorization(request, EXAMPLE, TIME));
}

TEST_CASE("keys are encoded once, and not normalised") {
  CHECK(encoded_path("run/packet_0") == "run/packet_0");
  CHECK(encoded_path("a b+c") == "a%20b%2Bc");
  CHECK(encoded_path("%41") == "%2541");
  CHECK(encoded_path("a//b/../c/./") == "a//b/../c/./");
  CHECK(encoded_path("-._~") == "-._~");
  CHECK(encoded_path("\xC3\xA9?#&=") == "%C3%A9%3F%23%26%3D");
  CHECK(encoded_path(std::string_view("\0\n", 2)) == "%00%0A");
}

}  // namespace daqiri

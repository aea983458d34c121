#include <catch2/catch.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bursts.h"
#include "http_server.h"
#include "storage/s3_writer.h"

namespace daqiri {

namespace {

using test::Bench;
using test::Bytes;
using test::HttpServer;
using test::refusal;

S3WriterConfig config_of(const std::string& bucket, const std::string& endpoint,
                         bool path_style = true) {
  setenv("AWS_ACCESS_KEY_ID", "key", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  setenv("AWS_SESSION_TOKEN", "token", 1);
  S3WriterConfig config;
  config.bucket = bucket;
  config.region = "eu-north-1";
  config.endpoint_override = endpoint;
  config.path_style = path_style;
  return config;
}

std::string url_of(const S3WriterConfig& config) {
  const BucketAddress address = bucket_address(config);
  CHECK(address.origin.ends_with("://" + address.host));
  return address.origin + address.path;
}

Bytes text(std::string_view words) { return {words.begin(), words.end()}; }

/// Head and body of a request.
std::pair<std::string, std::string> parts(const std::string& request) {
  const std::size_t end = request.find("\r\n\r\n");
  REQUIRE(end != std::string::npos);
  return {request.substr(0, end + 2), request.substr(end + 4)};
}

}  // namespace

TEST_CASE("a bucket has the address of its region, or that of the configuration") {
  CHECK(url_of(config_of("runs", "", false)) == "https://runs.s3.eu-north-1.amazonaws.com/");
  CHECK(url_of(config_of("runs", "", true)) == "https://s3.eu-north-1.amazonaws.com/runs/");
  // Certificates of *.HOST are not for names with further dots.
  CHECK(url_of(config_of("my.runs", "", false)) == "https://s3.eu-north-1.amazonaws.com/my.runs/");
  S3WriterConfig china = config_of("runs", "", false);
  china.region = "cn-north-1";
  CHECK(url_of(china) == "https://runs.s3.cn-north-1.amazonaws.com.cn/");
  CHECK(url_of(config_of("runs", "store.example")) == "https://store.example/runs/");
  CHECK(url_of(config_of("runs", "store.example:9000/")) == "https://store.example:9000/runs/");
  CHECK(url_of(config_of("runs", "http://[::1]:9000")) == "http://[::1]:9000/runs/");
  CHECK(url_of(config_of("runs", "http://store.example", false)) == "http://runs.store.example/");
  // As clients write it in the header Host, which is signed.
  CHECK(url_of(config_of("runs", "http://store.example:80")) == "http://store.example/runs/");
  CHECK(url_of(config_of("runs", "https://store.example:443")) == "https://store.example/runs/");
  CHECK(url_of(config_of("runs", "http://store.example:443")) == "http://store.example:443/runs/");
  for (const char* bad : {"http://", "ftp://store", "http://user@store", "http://store/path",
                          "http://store?x", "two words"}) {
    CHECK(refusal([&] { bucket_address(config_of("runs", bad)); }).first ==
          Status::INVALID_PARAMETER);
  }
  for (const char* bad : {"", "a/b", "a b", "a\r\nb"})
    CHECK(refusal([&] { bucket_address(config_of(bad, "")); }).first == Status::INVALID_PARAMETER);
}

TEST_CASE("an upload is one signed request with the packet's segments") {
  HttpServer server;
  server.answer("PUT /runs/p_0", "");
  server.answer("PUT /runs/p_1", "");
  S3Writer writer(config_of("runs", server.url()));
  Bench bench(2);
  const auto burst = bench.burst(
      std::vector<std::vector<Bytes>>{{text("head"), text("data")}, {text("h"), text("")}});
  const auto write = writer.write(*burst, S3Objects::PACKETS, "p", 2);
  REQUIRE(write->wait(test::LIMIT_NS));
  CHECK(write->status() == Status::SUCCESS);
  CHECK(write->counts().bytes_uploaded == 6);
  const std::vector<std::string> requests = server.requests();
  REQUIRE(requests.size() == 2);
  const bool in_order = requests[0].starts_with("PUT /runs/p_0 ");
  const auto [head, body] = parts(requests[in_order ? 0 : 1]);
  CHECK(body == "addata");
  CHECK(parts(requests[in_order ? 1 : 0]).second.empty());
  CHECK(head.find("\r\nContent-Length: 6\r\n") != std::string::npos);
  CHECK(head.find("\r\nx-amz-security-token: token\r\n") != std::string::npos);
  CHECK(head.find("/eu-north-1/s3/aws4_request,SignedHeaders="
                  "host;x-amz-content-sha256;x-amz-date;x-amz-security-token,Signature=") !=
        std::string::npos);
  CHECK(head.find("\r\nx-amz-content-sha256: ") != std::string::npos);
  // It would stall long uploads.
  CHECK(head.find("100-continue") == std::string::npos);
}

TEST_CASE("once an object has failed, others of its burst are not tried again") {
  HttpServer server;
  server.answer("PUT /runs/p_0", "", "503 Service Unavailable");
  S3Writer writer(config_of("runs", server.url()));
  Bench bench(1);
  const auto burst = bench.burst(std::vector<std::vector<Bytes>>{{text("a")}, {text("b")}});
  const auto write = writer.write(*burst, S3Objects::PACKETS, "p", 0);
  REQUIRE(write->wait(test::LIMIT_NS));
  CHECK(write->status() == Status::GENERIC_FAILURE);
  CHECK(write->counts().failed_objects == 2);
  CHECK_THAT(write->error(), Catch::Contains("runs/p_1: HTTP 404"));
  // The store was asked for p_0 once, or twice if it answered late for p_1.
  CHECK(server.requests().size() < 4);
}

TEST_CASE("what cannot be uploaded is refused before it is copied") {
  HttpServer server;
  S3WriterConfig config = config_of("runs", server.url());
  config.max_staged_bytes = 100;
  S3Writer writer(config);
  Bench bench(2);
  const auto burst = bench.burst(std::vector<std::vector<Bytes>>{{Bytes(60, 'a'), Bytes(41, 'b')}});
  const auto refused = refusal([&] { writer.write(*burst, S3Objects::PACKETS, "p", 0); });
  CHECK(refused.first == Status::NO_SPACE_AVAILABLE);
  CHECK_THAT(refused.second, Catch::Contains("101 bytes, and 0 of max_staged_bytes, 100"));
  // The index counts, too.
  CHECK(refusal([&] { writer.write(*burst, S3Objects::BURST_AND_INDEX, "p", 100); }).first ==
        Status::NO_SPACE_AVAILABLE);
  CHECK(refusal([&] { writer.write(*burst, S3Objects::PACKETS, "", 0); }).first ==
        Status::INVALID_PARAMETER);
  // Lengths alone are looked at.
  burst->pkt_lens[0][0] = burst->pkt_lens[1][0] = 3U << 30U;
  const auto large = refusal([&] { writer.write(*burst, S3Objects::PACKETS, "p", 0); });
  CHECK(large.first == Status::NOT_SUPPORTED);
  CHECK_THAT(large.second, Catch::Contains("6442450944 bytes; S3 accepts 5368709120"));
  burst->hdr.hdr.num_pkts = 2;
  CHECK(refusal([&] { writer.write(*burst, S3Objects::PACKETS, "p", 0); }).first ==
        Status::INVALID_PARAMETER);
  CHECK(server.requests().empty());
}

}  // namespace daqiri

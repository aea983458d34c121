#include <catch2/catch.hpp>

#include <array>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "bursts.h"
#include "daqiri/error.h"
#include "http_server.h"
#include "storage/s3_credentials.h"

namespace daqiri {

namespace {

using test::HttpServer;
using test::TempDir;
using Environment = S3CredentialChain::Environment;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string error_of(Environment environment) {
  S3CredentialChain chain(std::move(environment));
  try {
    chain.current();
  } catch (const Error& error) {
    CHECK(error.status() == Status::GENERIC_FAILURE);
    return error.what();
  }
  return "none";
}

std::string temporary(const std::string& key, std::time_t expires) {
  std::array<char, 32> text{};
  std::tm parts{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&expires, &parts));
  return R"({"Code" : "Success", "AccessKeyId" : ")" + key +
         R"(", "SecretAccessKey": "se\/cret","Token":"t\"oken", "Expiration" : ")" + text.data() +
         R"("})";
}

const Environment NO_INSTANCE{{"AWS_EC2_METADATA_DISABLED", "true"},
                              {"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials"}};

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

}  // namespace

TEST_CASE("credentials of the environment come first") {
  const TempDir folder;
  write_text(folder / "file", "[default]\naws_access_key_id = F\naws_secret_access_key = f\n");
  Environment environment{{"AWS_ACCESS_KEY_ID", "E"},
                          {"AWS_SECRET_ACCESS_KEY", "e"},
                          {"AWS_SHARED_CREDENTIALS_FILE", folder / "file"}};
  CHECK(S3CredentialChain(environment).current() == S3Credentials{"E", "e", ""});
  environment["AWS_SESSION_TOKEN"] = "t";
  CHECK(S3CredentialChain(environment).current() == S3Credentials{"E", "e", "t"});
  environment["AWS_SECRET_ACCESS_KEY"] = "";
  CHECK(S3CredentialChain(environment).current() == S3Credentials{"F", "f", ""});
}

TEST_CASE("a shared file has profiles") {
  const TempDir folder;
  write_text(folder / "file",
             "# a comment\n[other]\naws_access_key_id=O\naws_secret_access_key=o=\r\n"
             "aws_session_token = token\n; another\n[ default ]\n  aws_access_key_id = D\n"
             "region = us-east-1\naws_secret_access_key =  d/+ \n[empty]\n");
  Environment environment = with(NO_INSTANCE, {{"AWS_SHARED_CREDENTIALS_FILE", folder / "file"}});
  CHECK(S3CredentialChain(environment).current() == S3Credentials{"D", "d/+", ""});
  environment["AWS_PROFILE"] = "other";
  CHECK(S3CredentialChain(environment).current() == S3Credentials{"O", "o=", "token"});
  environment["AWS_PROFILE"] = "empty";
  CHECK(error_of(environment).find("profile 'empty', has no aws_access_key_id") !=
        std::string::npos);
  environment["AWS_PROFILE"] = "absent";
  CHECK(error_of(environment).find("/file has no profile 'absent'") != std::string::npos);
}

TEST_CASE("the shared file is in the home folder") {
  const TempDir folder;
  std::filesystem::create_directory(folder / ".aws");
  write_text(folder / ".aws/credentials",
             "[default]\naws_access_key_id=H\naws_secret_access_key=h\n");
  CHECK(S3CredentialChain({{"HOME", folder.path()}}).current() == S3Credentials{"H", "h", ""});
}

TEST_CASE("a container endpoint gives credentials for its token") {
  const TempDir folder;
  HttpServer server;
  server.answer("GET /role", temporary("C", std::time(nullptr) + 3600));
  Environment environment =
      with(NO_INSTANCE, {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url() + "/role"}});
  SECTION("without a token") {
    S3CredentialChain chain(environment);
    CHECK(chain.current() == S3Credentials{"C", "se/cret", "t\"oken"});
    // Not asked again before it is time.
    chain.current();
    CHECK(server.requests().size() == 1);
    CHECK(server.requests()[0].find("Authorization") == std::string::npos);
  }
  SECTION("with a token from the environment") {
    environment["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Basic abc";
    S3CredentialChain(environment).current();
    CHECK(server.requests().at(0).find("\r\nAuthorization: Basic abc\r\n") != std::string::npos);
  }
  SECTION("with a token from a file") {
    write_text(folder / "token", "of file\n");
    environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = folder / "token";
    S3CredentialChain(environment).current();
    CHECK(server.requests().at(0).find("\r\nAuthorization: of file\r\n") != std::string::npos);
  }
  SECTION("not to another host without encryption") {
    for (const char* url :
         {"http://192.0.2.1/role", "http://127.example.com/", "http://localhost.example.com/",
          "http://127.0.0.1:80@example.com/", "http://169.254.170.24", "ftp://127.0.0.1/"}) {
      environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url;
      CHECK(error_of(environment).find("accepted is https, or http to this host") !=
            std::string::npos);
    }
  }
  SECTION("not something else") {
    server.answer("GET /role", "[]");
    CHECK(error_of(environment).find("answered without AccessKeyId") != std::string::npos);
  }
}

TEST_CASE("an instance gives the credentials of its role") {
  HttpServer server;
  const std::string roles = "GET /latest/meta-data/iam/security-credentials/";
  server.answer("PUT /latest/api/token", "session");
  server.answer(roles, "camera");
  server.answer(roles + "camera", temporary("I", std::time(nullptr) + 3600));
  const Environment environment{{"AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url() + "/"}};
  CHECK(S3CredentialChain(environment).current() == S3Credentials{"I", "se/cret", "t\"oken"});
  const std::vector<std::string> requests = server.requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].find("X-aws-ec2-metadata-token-ttl-seconds: 21600") != std::string::npos);
  CHECK(requests[1].find("X-aws-ec2-metadata-token: session") != std::string::npos);
  CHECK(requests[2].find("X-aws-ec2-metadata-token: session") != std::string::npos);
}

TEST_CASE("temporary credentials are renewed") {
  HttpServer server;
  Environment environment =
      with(NO_INSTANCE, {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url() + "/role"}});
  SECTION("before they expire") {
    const std::time_t now = std::time(nullptr);
    server.answer("GET /role", temporary("1", now + 3600));
    S3CredentialChain chain(environment);
    CHECK(chain.current(now).access_key_id == "1");
    server.answer("GET /role", temporary("2", now + 7200));
    CHECK(chain.current(now + 3299).access_key_id == "1");
    CHECK(chain.current(now + 3300).access_key_id == "2");
    CHECK(server.requests().size() == 2);
    // Not in every request, while the service still has the old ones.
    CHECK(chain.current(now + 7000).access_key_id == "2");
    CHECK(chain.current(now + 7029).access_key_id == "2");
    CHECK(server.requests().size() == 3);
    CHECK(chain.current(now + 7030).access_key_id == "2");
    CHECK(server.requests().size() == 4);
  }
  SECTION("and used to their end if the service fails") {
    const std::time_t now = std::time(nullptr);
    server.answer("GET /role", temporary("1", now + 3600));
    S3CredentialChain chain(environment);
    chain.current(now);
    server.answer("GET /role", "{}");
    CHECK(chain.current(now + 3599).access_key_id == "1");
    CHECK(server.requests().size() == 2);
    CHECK_THROWS_AS(chain.current(now + 3600), Error);
  }
  SECTION("because the service refused them") {
    server.answer("GET /role", temporary("1", std::time(nullptr) + 3600));
    S3CredentialChain chain(environment);
    CHECK(chain.current().access_key_id == "1");
    const unsigned first = chain.version();
    CHECK_FALSE(chain.renew(first));
    server.answer("GET /role", temporary("2", std::time(nullptr) + 3600));
    CHECK(chain.renew(first));
    CHECK(chain.current().access_key_id == "2");
    // Requests in flight at the same time are refused, too.
    CHECK(chain.renew(first));
    CHECK(server.requests().size() == 3);
  }
}

TEST_CASE("without credentials, the error names where they were looked for") {
  CHECK(error_of(with(NO_INSTANCE, {{"AWS_ACCESS_KEY_ID", "only"}})) ==
        "no credentials for S3; environment: AWS_SECRET_ACCESS_KEY is not set; shared file: cannot "
        "read /nonexistent/credentials; container endpoint: "
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and AWS_CONTAINER_CREDENTIALS_FULL_URI are not "
        "set; instance metadata: AWS_EC2_METADATA_DISABLED is true; set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials");
  HttpServer server;
  const std::string none = error_of({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url()}});
  CHECK(none.find("instance metadata: PUT " + server.url() + "/latest/api/token: HTTP 404") !=
        std::string::npos);
  const std::string broken = error_of(with(
      NO_INSTANCE, {{"AWS_ACCESS_KEY_ID", "two\nlines"}, {"AWS_SECRET_ACCESS_KEY", "secret"}}));
  CHECK(broken.find("environment: a credential has control characters") != std::string::npos);
}

}  // namespace daqiri

#include "storage/s3_credentials.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "daqiri/error.h"
#include "storage/libcurl.h"
#include "system/log.h"

namespace daqiri {

namespace {

constexpr std::array VARIABLES{"AWS_ACCESS_KEY_ID",
                               "AWS_SECRET_ACCESS_KEY",
                               "AWS_SESSION_TOKEN",
                               "AWS_SHARED_CREDENTIALS_FILE",
                               "AWS_PROFILE",
                               "HOME",
                               "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                               "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                               "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                               "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                               "AWS_EC2_METADATA_DISABLED",
                               "AWS_EC2_METADATA_SERVICE_ENDPOINT"};

/// These services are on the host, or next to it.
constexpr std::chrono::milliseconds PATIENCE{1000};
/// New credentials are there at least this long before the old ones expire.
constexpr std::int64_t RENEW_BEFORE_S = 300;
/// Between two attempts to renew them.
constexpr std::int64_t RETRY_S = 30;

[[noreturn]] void nothing(const std::string& why) { throw std::runtime_error(why); }

std::string trimmed(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

/// They become a line of a request.
void require_one_line(const S3Credentials& found) {
  for (const std::string* text :
       {&found.access_key_id, &found.secret_access_key, &found.session_token}) {
    const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
    if (std::ranges::any_of(*text, is_control)) nothing("a credential has control characters");
  }
}

std::string ask(const std::string& method, const std::string& url,
                const std::vector<std::string>& headers) {
  curl::Answer answer = curl::fetch(method, url, headers, PATIENCE);
  if (answer.status == 200) return std::move(answer.body);
  nothing(method + " " + url + ": " +
          (answer.status == 0 ? answer.error : "HTTP " + std::to_string(answer.status)));
}

/// The text of a member of a JSON object without nested objects; empty: it has none.
std::string member(const std::string& json, const std::string& name) {
  std::size_t at = json.find('"' + name + '"');
  if (at == std::string::npos) return {};
  at = json.find_first_not_of(" \t\r\n:", at + name.size() + 2);
  if (at == std::string::npos || json[at] != '"') return {};
  std::string text;
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
    if (at < json.size()) text += json[at];
  }
  return text;
}

/// `2026-01-31T12:00:00Z` as CLOCK_REALTIME s; 0: not given.
std::int64_t seconds_of(const std::string& time) {
  std::tm parts{};
  return strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr ? 0 : timegm(&parts);
}

/// Whether a token may be sent to this address without encryption: it does not leave the host.
bool is_local(const std::string& url) {
  constexpr std::string_view HTTP = "http://";
  if (!url.starts_with(HTTP)) return false;
  const std::string authority = url.substr(HTTP.size(), url.find('/', HTTP.size()) - HTTP.size());
  const std::string host = authority.substr(
      0, authority.find(':', authority.starts_with('[') ? authority.find(']') : 0));
  constexpr std::array LOCAL{"localhost", "[::1]", "169.254.170.2", "169.254.170.23",
                             "[fd00:ec2::23]"};
  in_addr address{};
  const bool is_loopback = inet_pton(AF_INET, host.c_str(), &address) == 1 &&
                           ntohl(address.s_addr) >> 24U == IN_LOOPBACKNET;
  return authority.find('@') == std::string::npos &&
         (is_loopback || std::ranges::find(LOCAL, host) != LOCAL.end());
}

}  // namespace

S3CredentialChain::Environment S3CredentialChain::of_process() {
  Environment environment;
  for (const char* name : VARIABLES) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  return environment;
}

std::string S3CredentialChain::get(const char* name) const { return get(name, {}); }

std::string S3CredentialChain::get(const char* name, const std::string& default_value) const {
  const auto it = environment_.find(name);
  return it == environment_.end() || it->second.empty() ? default_value : it->second;
}

const S3Credentials& S3CredentialChain::current(std::int64_t now) {
  if (found_.credentials.access_key_id.empty()) {
    look_up(now);
  } else if (now >= look_again_) {
    try {
      look_up(now);
    } catch (const Error& error) {
      if (now >= found_.expires) throw;
      log(LogLevel::WARN, std::string("S3 credentials cannot be renewed yet: ") + error.what());
      look_again_ = std::min(now + RETRY_S, found_.expires);
    }
  }
  return found_.credentials;
}

bool S3CredentialChain::renew(unsigned refused) {
  if (refused == version_) look_up(std::time(nullptr));
  return refused != version_;
}

void S3CredentialChain::look_up(std::int64_t now) {
  using Source = Found (S3CredentialChain::*)() const;
  constexpr std::array<std::pair<const char*, Source>, 4> SOURCES{
      {{"environment", &S3CredentialChain::from_environment},
       {"shared file", &S3CredentialChain::from_file},
       {"container endpoint", &S3CredentialChain::from_container},
       {"instance metadata", &S3CredentialChain::from_instance}}};
  std::string tried;
  for (const auto& [name, source] : SOURCES) {
    try {
      Found found = (this->*source)();
      require_one_line(found.credentials);
      if (found.credentials != found_.credentials) ++version_;
      found_ = std::move(found);
      look_again_ = found_.expires == 0 ? std::numeric_limits<std::int64_t>::max()
                                        : std::max(found_.expires - RENEW_BEFORE_S, now + RETRY_S);
      return;
    } catch (const std::runtime_error& reason) {
      tried.append("; ").append(name).append(": ").append(reason.what());
    }
  }
  throw Error(Status::GENERIC_FAILURE,
              "no credentials for S3" + tried +
                  "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials");
}

S3CredentialChain::Found S3CredentialChain::from_environment() const {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) {
    if (get(name).empty()) nothing(std::string(name) + " is not set");
  }
  return {{get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"), get("AWS_SESSION_TOKEN")}, 0};
}

S3CredentialChain::Found S3CredentialChain::from_file() const {
  const std::string path = get("AWS_SHARED_CREDENTIALS_FILE", get("HOME") + "/.aws/credentials");
  const std::string profile = get("AWS_PROFILE", "default");
  std::ifstream file(path);
  if (!file.is_open()) nothing("cannot read " + path);
  bool inside = false;
  bool any = false;
  std::map<std::string, std::string> values;
  for (std::string text; std::getline(file, text);) {
    const std::string line = trimmed(text);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      inside = trimmed(line.substr(1, line.find(']') - 1)) == profile;
      any = any || inside;
    } else if (const std::size_t equals = line.find('='); inside && equals != std::string::npos) {
      values[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
    }
  }
  if (!any) nothing(path + " has no profile '" + profile + "'");
  for (const char* name : {"aws_access_key_id", "aws_secret_access_key"}) {
    if (!values[name].empty()) continue;
    std::string why = path;
    nothing(why.append(", profile '").append(profile).append("', has no ").append(name));
  }
  return {
      {values["aws_access_key_id"], values["aws_secret_access_key"], values["aws_session_token"]},
      0};
}

S3CredentialChain::Found S3CredentialChain::from_answer(const std::string& answer,
                                                        const std::string& url) {
  const Found found{
      {member(answer, "AccessKeyId"), member(answer, "SecretAccessKey"), member(answer, "Token")},
      seconds_of(member(answer, "Expiration"))};
  if (found.credentials.access_key_id.empty() || found.credentials.secret_access_key.empty())
    nothing(url + " answered without AccessKeyId and SecretAccessKey");
  return found;
}

S3CredentialChain::Found S3CredentialChain::from_container() const {
  const std::string relative = get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url = relative.empty() ? get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                                           : "http://169.254.170.2" + relative;
  if (url.empty()) {
    nothing(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and AWS_CONTAINER_CREDENTIALS_FULL_URI are not "
        "set");
  }
  if (!url.starts_with("https://") && !is_local(url))
    nothing("AWS_CONTAINER_CREDENTIALS_FULL_URI is " + url +
            "; accepted is https, or http to this host");
  std::string token = get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string path = get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !path.empty()) {
    std::ifstream file(path);
    if (!file.is_open()) nothing("cannot read " + path);
    token.assign(std::istreambuf_iterator(file), {});
  }
  token = trimmed(token);
  const std::string answer =
      ask("GET", url,
          token.empty() ? std::vector<std::string>{} : std::vector{"Authorization: " + token});
  return from_answer(answer, url);
}

S3CredentialChain::Found S3CredentialChain::from_instance() const {
  if (get("AWS_EC2_METADATA_DISABLED") == "true") nothing("AWS_EC2_METADATA_DISABLED is true");
  std::string endpoint = get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::string token = trimmed(
      ask("PUT", endpoint + "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}));
  const std::vector<std::string> headers{"X-aws-ec2-metadata-token: " + token};
  const std::string roles = endpoint + "/latest/meta-data/iam/security-credentials/";
  const std::string role = trimmed(ask("GET", roles, headers));
  if (role.empty()) nothing("the instance has no role");
  return from_answer(ask("GET", roles + role, headers), roles + role);
}

}  // namespace daqiri

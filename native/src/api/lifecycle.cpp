#include <cstdio>
#include <filesystem>
#include <string>

#include "api/failure.h"
#include "api/sessions.h"
#include "daqiri/daqiri.h"
#include "daqiri/version.h"
#include "session/snapshot.h"

namespace daqiri {

namespace {

Status check(const ConfigReport& report, const NetworkConfig& config) {
  if (!report.ok()) throw Error(Status::INVALID_PARAMETER, report.text());
  // What is left are warnings.
  if (!report.problems_.empty() && config.log_level_ <= LogLevel::WARN)
    log(LogLevel::WARN, report.text());
  return Status::SUCCESS;
}

Status read_text(std::string_view call, const std::string& yaml, NetworkConfig& config) {
  return api::guarded(call,
                      [&] { return check(load_config_text(yaml, "<text>", config), config); });
}

Status read_file(std::string_view call, const std::string& path, NetworkConfig& config) {
  return api::guarded(call, [&] { return check(load_config_file(path, config), config); });
}

/// Text that names a file, or is meant to.
bool is_path(const std::string& yaml_or_path) {
  std::error_code error;
  return yaml_or_path.ends_with(".yaml") || yaml_or_path.ends_with(".yml") ||
         std::filesystem::is_regular_file(yaml_or_path, error);
}

Status read(std::string_view call, const std::string& yaml_or_path, NetworkConfig& config) {
  return is_path(yaml_or_path) ? read_file(call, yaml_or_path, config)
                               : read_text(call, yaml_or_path, config);
}

Status start(std::string_view call, Status read_status, NetworkConfig& config) {
  if (read_status != Status::SUCCESS) return read_status;
  return api::guarded(call, [&] {
    api::start_default(config);
    return Status::SUCCESS;
  });
}

Status open(std::string_view call, Status read_status, NetworkConfig& config, SessionId* id) {
  if (id == nullptr)
    return api::fail(Status::NULL_PTR, call, std::string_view("the pointer for the id is null"));
  *id = DEFAULT_SESSION;
  if (read_status != Status::SUCCESS) return read_status;
  return api::guarded(call, [&] {
    *id = api::start(config);
    return Status::SUCCESS;
  });
}

Status not_open(std::string_view call, SessionId id) noexcept {
  return api::fail(Status::INVALID_PARAMETER, call, std::string_view("session "), id,
                   std::string_view(" is not open: it was closed, or never opened"));
}

}  // namespace

Status daqiri_init(NetworkConfig& config) { return start("daqiri_init", Status::SUCCESS, config); }

Status daqiri_init(const std::string& yaml_or_path) {
  NetworkConfig config;
  return start("daqiri_init", read("daqiri_init", yaml_or_path, config), config);
}

Status daqiri_init_from_yaml_string(const std::string& yaml) {
  NetworkConfig config;
  return start("daqiri_init_from_yaml_string",
               read_text("daqiri_init_from_yaml_string", yaml, config), config);
}

Status daqiri_init_from_yaml_file(const std::string& path) {
  NetworkConfig config;
  return start("daqiri_init_from_yaml_file", read_file("daqiri_init_from_yaml_file", path, config),
               config);
}

Status parse_network_config(const std::string& yaml_or_path, NetworkConfig& config) {
  return read("parse_network_config", yaml_or_path, config);
}

Status parse_network_config_from_yaml_string(const std::string& yaml, NetworkConfig& config) {
  return read_text("parse_network_config_from_yaml_string", yaml, config);
}

Status parse_network_config_from_yaml_file(const std::string& path, NetworkConfig& config) {
  return read_file("parse_network_config_from_yaml_file", path, config);
}

EngineType get_engine_type() {
  const auto running = api::running();
  return running == nullptr ? EngineType::UNKNOWN : running->session->config().common_.engine_type;
}

void shutdown() { api::stop(DEFAULT_SESSION); }

Status session_open(NetworkConfig& config, SessionId* id) {
  return open("session_open", Status::SUCCESS, config, id);
}

Status session_open(const std::string& yaml_or_path, SessionId* id) {
  NetworkConfig config;
  return open("session_open", read("session_open", yaml_or_path, config), config, id);
}

Status session_close(SessionId id) {
  constexpr std::string_view CALL = "session_close";
  if (id == DEFAULT_SESSION) {
    return api::fail(Status::INVALID_PARAMETER, CALL,
                     std::string_view("session 0 is the default one; call shutdown"));
  }
  return api::stop(id) ? Status::SUCCESS : not_open(CALL, id);
}

Status session_select(SessionId id) {
  if (id != DEFAULT_SESSION && !api::is_open(id)) return not_open("session_select", id);
  api::select(id);
  return Status::SUCCESS;
}

SessionId session_selected() noexcept { return api::selected(); }

SessionScope::SessionScope(SessionId id) noexcept
    : previous_(api::select(id)),
      status_(id == DEFAULT_SESSION || api::is_open(id) ? Status::SUCCESS
                                                        : not_open("SessionScope", id)) {}

SessionScope::~SessionScope() { api::select(previous_); }

void print_stats() {
  const auto running = api::running();
  if (running == nullptr) {
    api::fail(Status::NOT_READY, "print_stats", api::not_running());
    return;
  }
  api::guarded("print_stats", [&] {
    std::fputs(SessionSnapshot::of(*running->session).table().c_str(), stdout);
    std::fflush(stdout);
    return Status::SUCCESS;
  });
}

const char* version_string() noexcept { return VERSION_TEXT; }
int version_year() noexcept { return VERSION_YEAR; }
int version_month() noexcept { return VERSION_MONTH; }
int version_patch() noexcept { return VERSION_PATCH; }
// The shared library's soname has the same number.
int abi_version() noexcept { return VERSION_YEAR; }

}  // namespace daqiri

#include <cstdio>
#include <filesystem>
#include <string>

#include "api/default_session.h"
#include "api/failure.h"
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
    api::start(config);
    return Status::SUCCESS;
  });
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

void shutdown() { api::stop(); }

void print_stats() {
  const auto running = api::running();
  if (running == nullptr) {
    api::fail(Status::NOT_READY, "print_stats", api::NOT_STARTED);
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

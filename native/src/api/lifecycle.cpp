#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "api/default_session.h"
#include "api/failure.h"
#include "daqiri/daqiri.h"
#include "daqiri/version.h"

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

using Counters = std::vector<std::pair<std::string_view, std::uint64_t>>;

/// One line: "<port> <kind> <queue>: <name> <value>, ...".
void print(const Port& port, const char* kind, const QueueConfig& queue, Counters counters,
           const DropCounts& dropped) {
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
    if (dropped[r] > 0)
      counters.emplace_back(drop_reason_name(static_cast<DropReason>(r)), dropped[r]);
  }
  std::string line = port.config.name_ + " " + kind + " " + queue.name_ + ":";
  for (std::size_t i = 0; i < counters.size(); ++i) {
    line += i == 0 ? " " : ", ";
    line.append(counters[i].first).append(" ").append(std::to_string(counters[i].second));
  }
  std::puts(line.c_str());
}

void print(const Port& port) {
  for (const auto& queue : port.rx) {
    const RxSnapshot s = queue->counters();
    print(port, "rx", queue->config(),
          {{"received", s.received},
           {"bytes", s.received_bytes},
           {"delivered", s.delivered},
           {"held", s.held},
           {"bursts", s.bursts},
           {"truncated", s.truncated},
           {"dropped", s.dropped_total()}},
          s.dropped);
  }
  for (const auto& queue : port.tx) {
    const TxSnapshot s = queue->counters();
    print(port, "tx", queue->config(),
          {{"submitted", s.submitted},
           {"sent", s.sent},
           {"bytes", s.sent_bytes},
           {"held", s.held},
           {"bursts", s.bursts},
           {"late", s.late},
           {"lateness_p50_ns", queue->lateness().quantile(0.5)},
           {"lateness_p99_ns", queue->lateness().quantile(0.99)},
           {"dropped", s.dropped_total()}},
          s.dropped);
  }
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
    for (std::size_t id = 0; id < running->session->num_ports(); ++id) {
      print(running->session->port(static_cast<int>(id)));
    }
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

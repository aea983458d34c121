// The public functions: text, file and structs take the same way through schema and rules.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>

#include "config/rules.h"
#include "config/schema.h"
#include "daqiri/config.h"

namespace daqiri {
namespace {

using config::Findings;
using config::Node;

ConfigReport single_problem(const std::string& file, const std::string& message,
                            config::Mark mark = {}) {
  Findings findings(file);
  findings.error_at("", mark, message);
  return std::move(findings).report();
}

ConfigReport read_and_check(const Node& root, config::UnknownKeys unknown, Findings findings,
                            NetworkConfig& config) {
  config = NetworkConfig{};
  config::read_config(root, unknown, findings, config);
  config::apply_rules(config, findings);
  return std::move(findings).report();
}

/// The value of a key that may stand once; null when there is none.
const Node* member(const Node& map, std::string_view name, Findings& findings) {
  const Node::Entry* first = map.entry(name);
  for (const Node::Entry& entry : map.entries) {
    if (first != nullptr && &entry != first && entry.key.kind == Node::Kind::SCALAR &&
        entry.key.text == name)
      findings.key_error(std::string(name), entry.key.mark, "the key is given twice; keep one");
  }
  return first == nullptr ? nullptr : &first->value;
}

bool has_our_key(const Node& root) {
  std::vector<std::string> ours = config::known_keys();
  ours.insert(ours.end(), {"manager", "protocol"});
  return std::any_of(ours.begin(), ours.end(),
                     [&](const std::string& key) { return root.entry(key) != nullptr; });
}

/// The configuration is under `daqiri: cfg:`, or is the document itself.
ConfigReport read_document(const config::Document& document, const std::string& file,
                           NetworkConfig& config) {
  Findings findings(file);
  if (document.next)
    findings.warning_at("", *document.next, "a second document begins here and is not read");
  const std::string nothing =
      "found no configuration; accepts a map daqiri: cfg: with version, master_core, "
      "stream_type and interfaces";
  const Node* daqiri = member(document.root, "daqiri", findings);
  if (daqiri == nullptr) {
    if (has_our_key(document.root)) {
      return read_and_check(document.root, config::UnknownKeys::FOREIGN, std::move(findings),
                            config);
    }
    findings.error_at("", document.root.mark, nothing);
    return std::move(findings).report();
  }
  const Node* cfg = member(*daqiri, "cfg", findings);
  bool misspelled = false;
  for (const auto& [key, value] : daqiri->entries) {
    if (key.kind == Node::Kind::SCALAR && key.text == "cfg") continue;
    findings.key_error(
        "daqiri", key.mark,
        "unknown key " + config::quoted(key.text) + ", nearest is 'cfg'; accepts cfg");
    misspelled = true;
  }
  if (cfg != nullptr && cfg->kind == Node::Kind::MAP) {
    return read_and_check(*cfg, config::UnknownKeys::REFUSED, std::move(findings), config);
  }
  if (cfg != nullptr || !misspelled)
    findings.error_at("daqiri.cfg", cfg != nullptr ? cfg->mark : daqiri->mark, nothing);
  return std::move(findings).report();
}

/// Content of a file, up to a byte more than is parsed, or the reason why there is none.
std::string read_file(const std::string& path, std::string& content) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return "cannot be opened: " + std::string(std::strerror(errno));
  content.resize(config::MAX_TEXT_SIZE + 1);
  stream.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (stream.bad()) return "cannot be read: " + std::string(std::strerror(errno));
  content.resize(static_cast<std::size_t>(stream.gcount()));
  return {};
}

/// What `load` returns, or throws, as the only problem.
template <class Load>
ConfigReport report_of(const std::string& file, NetworkConfig& config, Load load) {
  config = NetworkConfig{};
  try {
    return load();
  } catch (const std::exception& exception) {
    return single_problem(file, std::string("could not be read: ") + exception.what());
  }
}

}  // namespace

ConfigReport load_config_text(std::string_view yaml, std::string_view file, NetworkConfig& config) {
  const std::string name(file);
  return report_of(name, config, [&] {
    config::Document document;
    if (const auto problem = config::parse_yaml(yaml, document))
      return single_problem(name, problem->message, problem->mark);
    return read_document(document, name, config);
  });
}

ConfigReport load_config_file(const std::string& path, NetworkConfig& config) {
  return report_of(path, config, [&] {
    std::string content;
    const std::string reason = read_file(path, content);
    return reason.empty() ? load_config_text(content, path, config) : single_problem(path, reason);
  });
}

ConfigReport validate_config(NetworkConfig& config) {
  NetworkConfig given = config;
  CommonConfig& common = given.common_;
  const bool named =
      common.engine_type != EngineType::DEFAULT && common.engine_type != EngineType::UNKNOWN;
  if (common.engine.empty() && named && !common.engine_inferred_) {
    common.engine = config::text_of(config::ENGINES, common.engine_type);
  }
  NetworkConfig checked;
  ConfigReport report = read_and_check(config::write_config(given), config::UnknownKeys::REFUSED,
                                       Findings("<config>"), checked);
  if (report.ok()) config = std::move(checked);
  return report;
}

std::string config_to_yaml(const NetworkConfig& config) {
  const auto map_of = [](std::string key, Node value) {
    Node map{.kind = Node::Kind::MAP};
    map.entries.push_back({Node::scalar(std::move(key), false), std::move(value)});
    return map;
  };
  return config::write_yaml(map_of("daqiri", map_of("cfg", config::write_config(config))));
}

}  // namespace daqiri

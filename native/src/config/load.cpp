// The public functions: text, file and structs pass through the same schema and rules.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <tuple>

#include "config/rules.h"
#include "config/schema.h"
#include "daqiri/config.h"

namespace daqiri {
namespace {

using config::Findings;
using config::Node;
using Severity = ConfigProblem::Severity;

ConfigReport single_problem(Findings findings, const std::string& path, const std::string& message,
                            config::Mark mark = {}) {
  findings.add(Severity::ERROR, path, message, mark);
  return std::move(findings).report();
}

ConfigReport read_and_check(const Node& root, config::UnknownKeys unknown, Findings findings,
                            NetworkConfig& config) {
  config = NetworkConfig{};
  config::read_config(root, unknown, findings, config);
  config::apply_rules(config, findings);
  return std::move(findings).report();
}

/// The value of a key that must be unique; null if it does not exist.
const Node* member(const Node& map, std::string_view name, Findings& findings) {
  const Node::Entry* first = map.entry(name);
  for (const Node::Entry& entry : map.entries) {
    if (&entry != first && entry.key.kind == Node::Kind::SCALAR && entry.key.text == name)
      findings.add(Severity::ERROR, std::string(name), "the key is given twice; keep one",
                   entry.key.mark);
  }
  return first == nullptr ? nullptr : &first->value;
}

bool has_our_key(const Node& root) {
  const Node ours = config::default_config();
  return root.entry("manager") != nullptr || root.entry("protocol") != nullptr ||
         std::ranges::any_of(ours.entries, [&](const Node::Entry& entry) {
           return root.entry(entry.key.text) != nullptr;
         });
}

/// The configuration is below `daqiri: cfg:`, or at the top of the document.
ConfigReport read_document(const config::Document& document, Findings findings,
                           NetworkConfig& config) {
  if (document.next)
    findings.add(Severity::WARNING, "", "a second document begins here and is not read",
                 document.next);
  const std::string nothing =
      "found no configuration; accepts a map daqiri: cfg: with version, master_core, "
      "stream_type and interfaces";
  const Node& root = document.root;
  const Node* daqiri = member(root, "daqiri", findings);
  if (daqiri == nullptr && has_our_key(root))
    return read_and_check(root, config::UnknownKeys::FOREIGN, std::move(findings), config);
  if (daqiri == nullptr) return single_problem(std::move(findings), "", nothing, root.mark);
  const Node* cfg = member(*daqiri, "cfg", findings);
  bool misspelled = false;
  for (const auto& [key, value] : daqiri->entries) {
    if (key.kind == Node::Kind::SCALAR && key.text == "cfg") continue;
    findings.add(Severity::ERROR, "daqiri",
                 "unknown key " + quoted(key.text) + ", nearest is 'cfg'; accepts cfg", key.mark);
    misspelled = true;
  }
  if (cfg != nullptr && cfg->kind == Node::Kind::MAP)
    return read_and_check(*cfg, config::UnknownKeys::REFUSED, std::move(findings), config);
  if (cfg == nullptr && misspelled) return std::move(findings).report();
  return single_problem(std::move(findings), "daqiri.cfg", nothing,
                        (cfg != nullptr ? cfg : daqiri)->mark);
}

/// Reads a file, up to one byte more than the limit of the parser; returns why it failed, or empty.
std::string read_file(const std::string& path, std::string& content) {
  struct stat found{};
  // Opening a pipe would wait for a writer.
  if (stat(path.c_str(), &found) == 0 && S_ISFIFO(found.st_mode))
    return "is a named pipe, which is not read; give a file";
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return "cannot be opened: " + std::string(std::strerror(errno));
  content.resize(config::MAX_TEXT_SIZE + 1);
  stream.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (stream.bad()) return "cannot be read: " + std::string(std::strerror(errno));
  content.resize(static_cast<std::size_t>(stream.gcount()));
  return {};
}

}  // namespace

ConfigReport load_config_text(std::string_view yaml, std::string_view file, NetworkConfig& config) {
  config = NetworkConfig{};
  Findings findings{std::string(file)};
  try {
    config::Document document;
    if (const auto problem = config::parse_yaml(yaml, document))
      return single_problem(findings, "", problem->message, problem->mark);
    return read_document(document, findings, config);
  } catch (const std::exception& exception) {
    return single_problem(findings, "", std::string("could not be read: ") + exception.what());
  }
}

ConfigReport load_config_file(const std::string& path, NetworkConfig& config) {
  config = NetworkConfig{};
  std::string content;
  const std::string reason = read_file(path, content);
  return reason.empty() ? load_config_text(content, path, config)
                        : single_problem(Findings(path), "", reason);
}

EngineType get_engine_type(const NetworkConfig& config) {
  NetworkConfig checked = config;
  return validate_config(checked).ok() ? checked.common_.engine_type : EngineType::UNKNOWN;
}

EnabledDirections get_enabled_directions(const NetworkConfig& config) {
  EnabledDirections enabled;
  for (const InterfaceConfig& interface : config.ifs_) {
    enabled.rx = enabled.rx || !interface.rx_.queues_.empty();
    enabled.tx = enabled.tx || !interface.tx_.queues_.empty();
  }
  return enabled;
}

std::vector<const MemoryRegionConfig*> memory_regions(const NetworkConfig& config) {
  std::vector<const MemoryRegionConfig*> regions;
  regions.reserve(config.mrs_.size());
  for (const auto& [name, region] : config.mrs_) regions.push_back(&region);
  std::ranges::sort(regions, {}, [](const MemoryRegionConfig* region) {
    return std::tie(region->position_, region->name_);
  });
  return regions;
}

std::string config_to_yaml(const NetworkConfig& config) {
  NetworkConfig resolved = config;
  CommonConfig& common = resolved.common_;
  if (common.engine == EngineType::DEFAULT) common.engine = common.engine_type;
  Node cfg(Node::Kind::MAP);
  cfg.entries.push_back({Node(Node::Kind::SCALAR, "cfg"), config::write_config(resolved)});
  Node root(Node::Kind::MAP);
  root.entries.push_back({Node(Node::Kind::SCALAR, "daqiri"), std::move(cfg)});
  return config::write_yaml(root);
}

}  // namespace daqiri

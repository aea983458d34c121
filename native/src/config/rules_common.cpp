// Memory regions, interfaces, engine.
#include "config/formats.h"
#include "config/names.h"
#include "config/rules.h"
#include "daqiri/error.h"
#include "engine/registry.h"

namespace daqiri::config {

EngineTraits traits_of(const NetworkConfig& config) noexcept {
  try {
    return engine_for(config).traits;
  } catch (const Error&) {
    return {};
  }
}

Subject::Subject(NetworkConfig& subject, Findings& reported) : config(subject), findings(reported) {
  regions_known = !findings.bad("memory_regions");
  for (std::size_t i = 0; i < config.mrs_.size(); ++i) {
    const bool is_new = regions_.emplace(config.mrs_[i].name_, i).second;
    if (!is_new || findings.bad(join(element("", "memory_regions", i), "name")))
      regions_known = false;
  }
}

const MemoryRegionConfig* Subject::region(const std::string& name) const {
  const auto found = regions_.find(name);
  return found == regions_.end() ? nullptr : &config.mrs_[found->second];
}

void apply_rules(NetworkConfig& config, Findings& findings) {
  Subject subject(config, findings);
  check_regions(subject);
  check_interfaces(subject);
  resolve_transport(subject);
  resolve_engine(subject);
  check_sockets(subject);
  check_queues(subject);
  raise_num_bufs(subject);
  check_flows(subject);
  check_reorder(subject);
}

void check_regions(Subject& subject) {
  check_unique_names(subject.findings, "", "memory_regions", subject.config.mrs_);
}

void check_interfaces(Subject& subject) {
  Findings& findings = subject.findings;
  auto& interfaces = subject.config.ifs_;
  if (interfaces.empty())
    findings.error("interfaces", "found an empty list; accepts at least one interface");
  constexpr std::size_t MOST_PORTS = 65536;
  if (interfaces.size() > MOST_PORTS) {
    findings.error("interfaces", "found " + std::to_string(interfaces.size()) +
                                     " interfaces; accepts at most 65536");
  }
  check_unique_names(findings, "", "interfaces", interfaces);
  for (std::size_t i = 0; i < interfaces.size(); ++i) {
    interfaces[i].port_id_ = static_cast<std::uint16_t>(i);
    const std::string path = element("", "interfaces", i);
    if (!findings.bad(path) && !findings.given(join(path, "rx")) &&
        !findings.given(join(path, "tx"))) {
      findings.warning(path, "has neither rx nor tx: nothing is received or sent here");
    }
  }
  if (subject.in_memory() && !subject.raw() && !findings.bad("stream_type")) {
    findings.error(
        "loopback",
        "found 'sw' beside stream_type: socket; accepts it beside stream_type: raw (a socket "
        "loops back on 127.0.0.1)");
  }
}

namespace {

/// What is wrong with an address of a raw stream; empty: nothing. `engine` is empty when it is
/// inferred.
std::string address_problem(AddressKind kind, const std::string& engine) {
  std::string accepts = "; accepts a PCI address such as 0000:05:00.0 or a Linux interface name";
  switch (kind) {
    case AddressKind::LOOPBACK:
      return ", the in-memory wire, without loopback: sw" + accepts;
    case AddressKind::PCI:
      if (engine != "packet") return {};
      return " beside engine: packet; accepts a Linux interface name (engine: dpdk takes a PCI "
             "address)";
    case AddressKind::INTERFACE:
      if (engine != "dpdk") return {};
      return " beside engine: dpdk; accepts a PCI address such as 0000:05:00.0 (engine: packet "
             "takes a Linux interface name)";
    default:
      return accepts;
  }
}

/// Engine that the addresses of a raw stream ask for. DEFAULT when one of them is wrong.
EngineType engine_of_addresses(Subject& subject) {
  Findings& findings = subject.findings;
  const std::string& engine = subject.config.common_.engine;
  if (subject.in_memory()) return EngineType::DPDK;
  EngineType inferred = EngineType::DEFAULT;
  std::string inferred_from;
  bool all_good = true;
  const auto wrong = [&](const std::string& path, const std::string& message) {
    findings.error(path, message);
    all_good = false;
  };
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const std::string path = join(element("", "interfaces", i), "address");
    const std::string& address = subject.config.ifs_[i].address_;
    const AddressKind kind = address_kind(address);
    const EngineType wanted = kind == AddressKind::PCI ? EngineType::DPDK : EngineType::PACKET;
    if (findings.bad(path) || (kind == AddressKind::LOOPBACK && findings.bad("loopback"))) {
      all_good = false;
    } else if (std::string problem = address_problem(kind, engine); !problem.empty()) {
      wrong(path, "found " + quoted(address) + problem);
    } else if (inferred == EngineType::DEFAULT) {
      inferred = wanted;
      inferred_from = path;
    } else if (wanted != inferred && engine.empty()) {
      wrong(path, "found " + quoted(address) + ", for engine " + text_of(ENGINES, wanted) +
                      ", while " + inferred_from + " is for engine " + text_of(ENGINES, inferred) +
                      "; accepts addresses of one kind, or engine: ibverbs");
    }
  }
  return all_good ? inferred : EngineType::DEFAULT;
}

}  // namespace

void resolve_engine(Subject& subject) {
  Findings& findings = subject.findings;
  CommonConfig& common = subject.config.common_;
  common.engine_type = EngineType::DEFAULT;
  common.engine_inferred_ = common.engine.empty();
  if (findings.bad("stream_type") || findings.bad("engine")) return;

  EngineType inferred = EngineType::DEFAULT;
  if (subject.raw()) {
    if (common.engine == "socket") {
      findings.error(
          "engine",
          "found 'socket' beside stream_type: raw; accepts 'dpdk', 'ibverbs' or 'packet'");
      return;
    }
    inferred = engine_of_addresses(subject);
  } else {
    const bool roce = common.protocol == SocketProtocol::ROCE;
    inferred = roce ? EngineType::IBVERBS : EngineType::SOCKET;
    if (subject.transport_known && !common.engine.empty() &&
        common.engine != text_of(ENGINES, inferred)) {
      findings.error("engine", "found " + quoted(common.engine) +
                                   " beside stream_type: socket with " +
                                   text_of(SCHEMES, common.protocol) + ":// endpoints; accepts '" +
                                   text_of(ENGINES, inferred) + "'");
      return;
    }
  }
  const Name* named = find_name(ENGINES, common.engine);
  common.engine_type = named != nullptr ? static_cast<EngineType>(named->value) : inferred;
}

}  // namespace daqiri::config

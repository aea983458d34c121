// What a configuration requires of the host, computed by the engine for daqiri_ophyd.host.
#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "cuda/compiler.h"
#include "daqiri/config.h"
#include "daqiri/error.h"
#include "engine/modules.h"
#include "engine/registry.h"
#include "gil.h"
#include "io/io_engine.h"
#include "memory/hugepages.h"
#include "memory/region.h"
#include "steering/frame_sizes.h"
#include "system/thread.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

NetworkConfig parsed(const std::string& text) {
  NetworkConfig config;
  const ConfigReport report = load_config_text(text, "configuration", config);
  for (const ConfigProblem& problem : report.problems_) {
    if (problem.severity_ == ConfigProblem::Severity::ERROR)
      throw py::value_error(problem.path_ + ": " + problem.message_);
  }
  return config;
}

py::dict interface_needs(const NetworkConfig& config, const InterfaceConfig& interface,
                         const EngineTraits& traits) {
  py::list privileges;
  for (const Privilege& each : traits.privileges) {
    if (each.when == nullptr || each.when(interface))
      privileges.append(py::make_tuple(each.capability, each.use, each.required));
  }
  const KernelMemory kernel =
      traits.kernel_memory == nullptr ? KernelMemory{} : traits.kernel_memory(config, interface);
  py::dict needs;
  needs["receive_buffer"] = kernel.receive_buffer;
  needs["send_buffer"] = kernel.send_buffer;
  needs["locked"] = kernel.locked;
  needs["requires_up"] = traits.requires_up != nullptr && traits.requires_up(interface);
  needs["mtu"] = steering::mtu_needed(config, interface);
  needs["link_types"] = std::vector(traits.link_types.begin(), traits.link_types.end());
  needs["privileges"] = privileges;
  needs["virtual_device"] = traits.virtual_device != nullptr && traits.virtual_device(interface);
  return needs;
}

py::dict engine_traits(std::string_view name) {
  const EngineTraits traits = traits_named(name).value_or(EngineTraits{});
  py::dict made;
  made["in_memory"] = traits.in_memory;
  made["has_sockets"] = !traits.transports.empty();
  made["kernel_bypass"] = traits.kernel_bypass;
  made["rdma_cards"] = traits.rdma_cards;
  made["device_memory"] = traits.device_memory;
  return made;
}

/// By engine: (name, value).
std::map<std::string, std::vector<std::pair<std::string, std::string>>> engine_facts() {
  load_engines();
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> found;
  for (const EngineEntry& engine : engines()) {
    if (engine.make != nullptr && engine.traits.facts != nullptr)
      found.emplace(engine.traits.name, engine.traits.facts());
  }
  return found;
}

py::dict host_needs(const std::string& text) {
  const NetworkConfig config = parsed(text);
  const EngineEntry entry = engine_for(config);
  py::list refusals;
  for (const Error& each : find_absent(config, entry)) refusals.append(each.what());
  py::dict interfaces;
  for (const InterfaceConfig& each : config.ifs_)
    interfaces[py::str(each.name_)] = interface_needs(config, each, entry.traits);
  py::list staged;
  py::list written;
  if (entry.make != nullptr) {
    const std::unique_ptr<IoEngine> engine = entry.make(config);
    for (const MemoryRegionConfig* region : memory_regions(config)) {
      if (region->kind_ != MemoryKind::DEVICE || !holds_packets(config, region->name_)) continue;
      const memory::RegionNeeds needs = engine->needs(*region);
      if (needs.staged) staged.append(region->name_);
      if (needs.let_cards_write) written.append(region->name_);
    }
  }
  py::dict needs;
  needs["engine"] = entry.traits.name;
  needs["refusals"] = refusals;
  needs["memory"] = memory_needed(config);
  needs["address_space"] = address_space_needed(config, entry.traits);
  needs["staged"] = staged;
  needs["written"] = written;
  needs["interfaces"] = interfaces;
  return needs;
}

std::vector<std::string> rejected_here(const std::string& text) {
  const GilRelease unlocked;
  const NetworkConfig config = parsed(text);
  std::vector<std::string> reasons;
  for (const Error& each : find_rejected_here(config, engine_for(config)))
    reasons.emplace_back(each.what());
  return reasons;
}

/// (region, NUMA node, pages)
py::list hugepages_needed(const std::string& text, std::size_t page) {
  if (page == 0) throw py::value_error("page is 0; accepts bytes of a hugepage");
  const NetworkConfig config = parsed(text);
  py::list needed;
  for (const MemoryRegionConfig* region : memory_regions(config)) {
    if (region->kind_ == MemoryKind::HUGE)
      needed.append(
          py::make_tuple(region->name_, region->affinity_, memory::hugepages_for(*region, page)));
  }
  return needed;
}

/// (bytes of a page, pages, available pages)
py::tuple hugepages_of(const std::string& meminfo, const std::string& overcommitted) {
  std::istringstream info(meminfo);
  std::istringstream more(overcommitted);
  const memory::Hugepages pages = memory::Hugepages::of(info, more);
  return py::make_tuple(pages.size, pages.total, pages.available);
}

}  // namespace

void bind_host_needs(py::module_& m) {
  m.def("engine_traits", &engine_traits, py::arg("name"),
        "Return traits of an engine; false where no engine has this name.");
  m.def("engine_facts", &engine_facts,
        "Return what libraries of engines are and find on this host, by engine.");
  m.def("host_needs", &host_needs, py::arg("text"),
        "Return what a configuration requires of the host. Raises ValueError if it has errors.");
  m.def("rejected_here", &rejected_here, py::arg("text"),
        "Return what the engine rejects of a configuration on this host, as it is now. Raises "
        "ValueError if it has errors.");
  m.def("hugepages_needed", &hugepages_needed, py::arg("text"), py::arg("page"),
        "Return name, NUMA node and number of pages of each memory region on hugepages.");
  m.def("hugepages_of", &hugepages_of, py::arg("meminfo"), py::arg("overcommitted"),
        "Return the default size of hugepages in bytes, their number, and how many are available, "
        "from the texts of /proc/meminfo and /proc/sys/vm/nr_overcommit_hugepages.");
  m.def("available_cores", &available_cores, "Return the cores that threads may be pinned to.");
  m.def(
      "gpu_refusals",
      [] {
        const GilRelease unlocked;
        const std::string memory = memory::why_absent(MemoryKind::HOST_PINNED);
        return std::pair(memory, memory.empty() ? cuda::why_no_compiler() : memory);
      },
      "Return why this host has no GPU memory, and why it has no kernels; empty if it has.");
}

}  // namespace daqiri::python

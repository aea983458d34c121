/// Packets through network cards and virtual devices of DPDK.
#include <rte_config.h>
#include <rte_version.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "engines/dpdk/device.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/packet_pool.h"
#include "engines/dpdk/port.h"
#include "engines/dpdk/traits.h"
#include "engines/dpdk/virtual_device.h"
#include "io/io_engine.h"
#include "system/pci_card.h"

namespace daqiri {

namespace {

class DpdkEngine final : public IoEngine {
 public:
  explicit DpdkEngine(const NetworkConfig& config) : config_(config) {}
  ~DpdkEngine() override { close(); }

  [[nodiscard]] memory::RegionNeeds needs(const MemoryRegionConfig& region) const override {
    memory::RegionNeeds needs = IoEngine::needs(region);
    needs.headroom = dpdk::PacketPool::HEADROOM;
    return needs;
  }
  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    dpdk::start_eal();
    const dpdk::Reports reports;
    for (const auto& port : ports) {
      ports_.push_back(std::make_unique<dpdk::DpdkPort>(*port, config_));
      port->io = ports_.back().get();
    }
  }
  void close() noexcept override {
    for (const auto& port : ports_) port->close();
  }

 private:
  const NetworkConfig& config_;
  std::vector<std::unique_ptr<dpdk::DpdkPort>> ports_;
};

std::unique_ptr<IoEngine> make_dpdk(const NetworkConfig& config) {
  return std::make_unique<DpdkEngine>(config);
}

void find_rejected(const NetworkConfig& config, std::vector<Error>& found) {
  for (const auto& [name, region] : config.mrs_) {
    if (region.buf_size_ <= dpdk::PacketPool::MOST_BYTES) continue;
    found.emplace_back(Status::NOT_SUPPORTED, "memory region '" + name + "' has buf_size " +
                                                  std::to_string(region.buf_size_) +
                                                  "; engine 'dpdk' accepts at most " +
                                                  std::to_string(dpdk::PacketPool::MOST_BYTES));
  }
}

/// Cards and network interfaces that are not there, and cards that programs may not have.
void find_rejected_here(const NetworkConfig& config, std::vector<Error>& found) {
  for (const InterfaceConfig& interface : config.ifs_) {
    if (dpdk::is_virtual(interface)) {
      try {
        dpdk::VirtualDevice(interface).require_interface();
      } catch (const Error& error) {
        found.push_back(error);
      }
      continue;
    }
    const std::string why = PciCard::at(interface.address_).why_unusable();
    if (why.empty()) continue;
    found.emplace_back(Status::NOT_SUPPORTED, dpdk::device_of(interface) + why);
  }
}

/// Names of the drivers of network devices that are installed.
std::string drivers() {
  constexpr std::string_view BEGIN = "librte_net_";
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(RTE_EAL_PMD_PATH, error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (file.starts_with(BEGIN))
      names.insert(file.substr(BEGIN.size(), file.find('.') - BEGIN.size()));
  }
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

std::vector<std::pair<std::string, std::string>> facts() {
  std::vector<std::pair<std::string, std::string>> found{{"library", rte_version()},
                                                         {"drivers", drivers()}};
  for (const PciCard& card : PciCard::all()) {
    const std::string why = card.why_unusable();
    found.emplace_back("card " + card.address, why.empty() ? "can be used" : why);
  }
  return found;
}

EngineTraits traits() noexcept {
  EngineTraits traits = dpdk::TRAITS;
  traits.unused_keys = UNUSED_BY_RAW_ENGINES;
  traits.facts = facts;
  traits.find_rejected = find_rejected;
  traits.find_rejected_here = find_rejected_here;
  return traits;
}

const RegisteredEngine registered{{traits(), dpdk::is_chosen, make_dpdk}};

}  // namespace

}  // namespace daqiri

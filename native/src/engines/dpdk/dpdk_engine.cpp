/// Packets through network cards and virtual devices of DPDK.
#include <rte_config.h>

#include <memory>
#include <string>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "engines/dpdk/device.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/packet_pool.h"
#include "engines/dpdk/port.h"
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

/// Cards that are not there, or that programs may not have.
void find_rejected_here(const NetworkConfig& config, std::vector<Error>& found) {
  for (const InterfaceConfig& interface : config.ifs_) {
    if (dpdk::is_virtual(interface.address_)) continue;
    const std::string why = PciCard::at(interface.address_).why_unusable();
    if (why.empty()) continue;
    found.emplace_back(Status::NOT_SUPPORTED, "interface '" + interface.name_ + "': device '" +
                                                  interface.address_ + "' " + why);
  }
}

const RegisteredEngine registered{{{.name = "dpdk",
                                    .addresses = AddressForm::PCI_OR_VIRTUAL_DEVICE,
                                    .kernel_bypass = true,
                                    .polls_without_pause = true,
                                    .rx_descriptors = 8192,
                                    .rss = true,
                                    .transforms = true,
                                    .dynamic_flows = true,
                                    .flex_items = true,
                                    .ecpri = true,
                                    .unused_keys = UNUSED_BY_RAW_ENGINES,
                                    .find_rejected = find_rejected,
                                    .find_rejected_here = find_rejected_here},
                                   [](const NetworkConfig& config) {
                                     return config.common_.loopback_ == LoopbackType::DISABLED &&
                                            config.common_.engine_type == EngineType::DPDK;
                                   },
                                   make_dpdk}};

}  // namespace

}  // namespace daqiri

/// Packets through network cards and virtual devices of DPDK.
#include <rte_config.h>
#include <rte_version.h>

#include <algorithm>
#include <filesystem>
#include <map>
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
#include "engines/dpdk/pieces.h"
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

  [[nodiscard]] memory::RegionNeeds needs(const MemoryRegionConfig& region) override {
    memory::RegionNeeds needs = IoEngine::needs(region);
    needs.headroom = dpdk::PacketPool::HEADROOM;
    if (region.kind_ != MemoryKind::DEVICE || !holds_packets(config_, region.name_)) return needs;
    needs.why_no_card = dpdk::why_not_on_gpu(config_, region.name_);
    if (needs.why_no_card.empty()) {
      const auto writers = std::make_shared<Writers>();
      needs.let_cards_write = [this, &region, writers](const memory::RegionExtent& on_gpu) {
        return let_cards_write(region, on_gpu, *writers);
      };
      needs.keep_cards_away = [writers] { leave(*writers); };
    }
    return needs;
  }
  void open(std::vector<std::unique_ptr<Port>>& ports) override {
    for (const auto& port : ports) {
      open_device(port->config);
      const dpdk::Reports reports;
      auto device = devices_.extract(port->config.name_);
      ports_.push_back(
          std::make_unique<dpdk::DpdkPort>(*port, config_, std::move(device.mapped())));
      port->io = ports_.back().get();
    }
  }
  void close() noexcept override {
    for (const auto& port : ports_) port->close();
    devices_.clear();
  }

 private:
  /// The device of an interface that has no port yet.
  dpdk::Device& open_device(const InterfaceConfig& interface) {
    dpdk::start_eal();
    const dpdk::Reports reports;
    std::unique_ptr<dpdk::Device>& device = devices_[interface.name_];
    if (device == nullptr) device = std::make_unique<dpdk::Device>(interface);
    return *device;
  }
  /// Devices that write to the latest region that they were given.
  using Writers = std::vector<dpdk::Device*>;
  static void leave(Writers& writers) noexcept {
    for (dpdk::Device* const writer : writers) writer->leave_gpu();
    writers.clear();
  }
  /// Why not all cards that receive into the region write to it; empty: they do, and are in
  /// `writers`. Throws Error.
  std::string let_cards_write(const MemoryRegionConfig& region, const memory::RegionExtent& on_gpu,
                              Writers& writers) {
    writers.reserve(config_.ifs_.size());
    try {
      for (const InterfaceConfig& interface : config_.ifs_) {
        const auto has = [&](const RxQueueConfig& queue) {
          return queue.common_.mrs_.back() == region.name_;
        };
        if (!std::ranges::any_of(interface.rx_.queues_, has)) continue;
        dpdk::Device& device = open_device(interface);
        const dpdk::Reports reports;
        const std::string why = device.write_to_gpu(config_, interface, on_gpu, region.name_);
        if (!why.empty()) {
          leave(writers);
          return "interface '" + interface.name_ + "': " + why;
        }
        writers.push_back(&device);
      }
    } catch (...) {
      leave(writers);
      throw;
    }
    return {};
  }

  const NetworkConfig& config_;
  /// Those without a port yet, by interface.
  std::map<std::string, std::unique_ptr<dpdk::Device>> devices_;
  std::vector<std::unique_ptr<dpdk::DpdkPort>> ports_;
};

std::unique_ptr<IoEngine> make_dpdk(const NetworkConfig& config) {
  return std::make_unique<DpdkEngine>(config);
}

/// Devices that this engine, or their driver, never opens.
void find_rejected_device(const InterfaceConfig& interface, std::vector<Error>& found) {
  const auto reject = [&](Status status, const std::string& why) {
    found.emplace_back(status, dpdk::device_of(interface) + why);
  };
  const dpdk::VirtualDevice device(interface);
  const std::string role = device.argument("role").value_or("");
  if (device.is(dpdk::MEMIF_DRIVER) && (role == "server" || role == "master")) {
    reject(Status::NOT_SUPPORTED,
           "is the server of a memif, and DPDK's driver never gives its socket back; let the other "
           "program be the server (role=client)");
  }
  if (device.is("net_af_xdp")) {
    reject(Status::NOT_SUPPORTED,
           "receives only into memory of DPDK's own, not into memory regions; use engine 'packet' "
           "with receive_path: af_xdp, or a net_af_packet");
  }
  if (device.is(dpdk::AF_PACKET_DRIVER) && device.argument("iface").value_or("").empty()) {
    reject(Status::INVALID_PARAMETER,
           "does not name a network interface, and net_af_packet has none by default; write '" +
               device.name() + ",iface=eth0', with the name of an interface that `ip link` lists");
  }
}

/// Two interfaces with one device, which is open once in a process.
void find_twice(const NetworkConfig& config, std::vector<Error>& found) {
  std::map<std::string, const InterfaceConfig*> users;
  for (const InterfaceConfig& interface : config.ifs_) {
    const std::string device = dpdk::is_virtual(interface)
                                   ? dpdk::VirtualDevice(interface).name()
                                   : PciCard::at(interface.address_).address;
    const auto [user, is_new] = users.emplace(device, &interface);
    if (is_new) continue;
    const InterfaceConfig& first = *user->second;
    std::string text = dpdk::device_of(interface);
    text.append("is that of interface '").append(first.name_);
    text.append("' ('" + first.address_ + "'); ");
    text.append(dpdk::is_virtual(interface)
                    ? "give each interface a device of its own, with another number at the end of "
                      "its name"
                    : "give each interface a card of its own, or put all queues on one interface");
    found.emplace_back(Status::INVALID_PARAMETER, text);
  }
}

void find_rejected(const NetworkConfig& config, std::vector<Error>& found) {
  for (const InterfaceConfig& interface : config.ifs_) {
    if (dpdk::is_virtual(interface)) find_rejected_device(interface, found);
  }
  find_twice(config, found);
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

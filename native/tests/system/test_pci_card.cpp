#include "system/pci_card.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace daqiri;

namespace {

namespace fs = std::filesystem;

/// A folder with what the kernel tells of PCI devices.
class Root {
 public:
  Root() { REQUIRE(mkdtemp(pattern_.data()) != nullptr); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root() { fs::remove_all(pattern_.data()); }

  [[nodiscard]] std::string path() const { return pattern_.data(); }
  void add(const std::string& address, const std::string& driver = {},
           const std::string& group = {}, const std::string& device_class = "0x020000") const {
    const fs::path folder = devices() / address;
    fs::create_directories(folder);
    std::ofstream(folder / "class") << device_class << '\n';
    if (!driver.empty()) fs::create_symlink("../../drivers/" + driver, folder / "driver");
    if (group.empty()) return;
    const fs::path of_group = fs::path(path()) / "sys/kernel/iommu_groups" / group;
    fs::create_directories(of_group / "devices" / address);
    fs::create_directory_symlink(of_group, folder / "iommu_group");
  }
  void name_group(const std::string& group, const std::string& name) const {
    std::ofstream(fs::path(path()) / "sys/kernel/iommu_groups" / group / "name") << name << '\n';
  }
  /// The capability register of the IOMMU.
  void set_iommu(const std::string& address, const std::string& cap) const {
    const fs::path folder = devices() / address / "iommu/intel-iommu";
    fs::create_directories(folder);
    std::ofstream(folder / "cap") << cap << '\n';
  }
  void add_interface(const std::string& address, const std::string& name) const {
    fs::create_directories(devices() / address / "net" / name);
  }
  void allow(const std::string& group) const {
    const fs::path folder = fs::path(path()) / "dev/vfio";
    fs::create_directories(folder);
    std::ofstream file(folder / group);
  }
  [[nodiscard]] std::string why(const std::string& address) const {
    return PciCard::at(address, path()).why_unusable(path());
  }

 private:
  [[nodiscard]] fs::path devices() const { return fs::path(path()) / "sys/bus/pci/devices"; }

  std::array<char, 32> pattern_{"/tmp/daqiri-pci-XXXXXX"};
};

constexpr const char* CARD = "0000:05:00.0";

}  // namespace

TEST_CASE("A card of VFIO with an IOMMU group of its own can be driven", "[pci]") {
  const Root root;
  root.add(CARD, "vfio-pci", "7");
  root.allow("7");
  CHECK(root.why(CARD).empty());
  CHECK(root.why("05:00.0").empty());
  CHECK(root.why("00000000:05:00.0").empty());
  const PciCard card = PciCard::at("05:00.0", root.path());
  CHECK(card.address == CARD);
  CHECK(card.iommu_group == "7");
  CHECK_FALSE(card.is_shared_with_kernel());
}

TEST_CASE("Bridges and devices without a driver are no obstacle in a group", "[pci]") {
  const Root root;
  root.add(CARD, "vfio-pci", "7");
  root.add("0000:04:00.0", "pcieport", "7", "0x060400");
  root.add("0000:05:00.1", "", "7");
  root.allow("7");
  CHECK(root.why(CARD).empty());
}

TEST_CASE("A card with an RDMA driver stays with the kernel", "[pci]") {
  const Root root;
  root.add(CARD, "mlx5_core");
  CHECK(root.why(CARD).empty());
  CHECK(PciCard::at(CARD, root.path()).is_shared_with_kernel());
}

TEST_CASE("Why a card cannot be driven, and what to do", "[pci]") {
  using Catch::Contains;
  const Root root;
  const std::string bind = "driverctl set-override 0000:05:00.0 vfio-pci";
  SECTION("No device") { CHECK_THAT(root.why(CARD), Contains("lspci -D")); }
  SECTION("Not a network card") {
    root.add(CARD, "nvme", "7", "0x010802");
    CHECK_THAT(root.why(CARD), Contains("is not a network card"));
  }
  SECTION("No driver") {
    root.add(CARD, "", "7");
    CHECK_THAT(root.why(CARD), Contains("has no driver") && Contains(bind));
  }
  SECTION("A kernel driver") {
    root.add(CARD, "igb", "7");
    root.add_interface(CARD, "eth1");
    CHECK_THAT(root.why(CARD), Contains("'igb', as network interface 'eth1'") && Contains(bind) &&
                                   Contains("engine 'packet' with address: eth1"));
  }
  SECTION("UIO") {
    root.add(CARD, "uio_pci_generic", "7");
    CHECK_THAT(root.why(CARD), Contains("can write anywhere in memory") && Contains(bind));
  }
  SECTION("No IOMMU") {
    root.add(CARD, "vfio-pci");
    CHECK_THAT(root.why(CARD), Contains("has no IOMMU") && Contains("intel_iommu=on"));
  }
  SECTION("VFIO without an IOMMU") {
    root.add(CARD, "vfio-pci", "0");
    root.name_group("0", "vfio-noiommu");
    CHECK_THAT(root.why(CARD), Contains("has no IOMMU"));
  }
  SECTION("An IOMMU for shorter addresses") {
    root.add(CARD, "vfio-pci", "7");
    root.allow("7");
    root.set_iommu(CARD, "d2008c222f0606");
    CHECK(root.why(CARD).empty());
    root.set_iommu(CARD, "d2008c22260206");
    CHECK_THAT(root.why(CARD), Contains("addresses of 39 bits"));
  }
  SECTION("A group with a device of the kernel") {
    root.add(CARD, "vfio-pci", "7");
    root.add("0000:05:00.1", "igb", "7");
    root.allow("7");
    CHECK_THAT(root.why(CARD), Contains("shares IOMMU group 7 with 0000:05:00.1 (igb)"));
  }
  SECTION("Another user's") {
    root.add(CARD, "vfio-pci", "7");
    CHECK_THAT(root.why(CARD), Contains("may not open /dev/vfio/7"));
  }
}

TEST_CASE("Network cards of a host", "[system]") {
  const Root root;
  const auto addresses = [&] {
    std::vector<std::string> found;
    for (const PciCard& card : PciCard::all(root.path())) found.push_back(card.address);
    return found;
  };
  CHECK(addresses().empty());
  root.add("0000:05:00.1", "igb");
  root.add("0000:05:00.0");
  root.add("0000:06:00.0", {}, {}, "0x030000");
  CHECK(addresses() == std::vector<std::string>{"0000:05:00.0", "0000:05:00.1"});
}

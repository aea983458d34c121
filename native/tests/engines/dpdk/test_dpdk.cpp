// DPDK in a process: devices that come and go, and what is refused.
#include <catch2/catch.hpp>

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "engine/registry.h"
#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/traits.h"
#include "memory/hugepages.h"
#include "session/loopback_config.h"
#include "system/pci_card.h"
#include "system/privileges.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

NetworkConfig config_of(const std::string& device) {
  NetworkConfig config = loopback_config();
  use_dpdk(config, {device});
  return config;
}

std::string refusal(const NetworkConfig& config) {
  try {
    Session::open(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "opened";
}

}  // namespace

TEST_CASE("sessions on virtual devices come and go", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  cpu_set_t before, after;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  for (int i = 0; i < 50; ++i) {
    // The other one produces packets without end.
    const auto session = Session::open(config_of(i % 10 == 0 ? "net_null0" : "net_ring0"));
    CHECK(session->port(0).io->link_state().state == std::string("up"));
  }
  // DPDK pins a thread at its start.
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("two sessions use DPDK at the same time, with devices of their own", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  const auto first = Session::open(config_of("net_ring0"));
  const auto second = Session::open(config_of("net_ring1"));
  CHECK_THAT(refusal(config_of("net_ring1")),
             Catch::Contains("interface 'port0': device 'net_ring1' is in use"));
  for (const auto& session : {second, first}) {
    // The device has no address; the port has one nevertheless, as on loopback.
    CHECK(session->port(0).io->mac_address() == std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 0});
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 20));
    CHECK(receive_numbers(session->rx_queue(0, 0), 20).size() == 20);
  }
}

TEST_CASE("what DPDK cannot open is refused with its reason", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK_THAT(refusal(config_of("net_nothing0")),
             Catch::Contains("device 'net_nothing0' cannot be opened: DPDK has no driver") &&
                 Catch::Contains("accepted are net_af_packet, net_memif"));
  CHECK_THAT(refusal(config_of("net_af_packet0,iface=no_such_one")),
             Catch::Contains("has iface=no_such_one, and this host has no such network interface; "
                             "give one of lo"));
  if (!may_open_packet_sockets()) {
    CHECK_THAT(refusal(config_of("net_af_packet0,iface=lo")),
               Catch::Contains("needs CAP_NET_RAW, for packet sockets (net_af_packet); grant it"));
  }
  CHECK_THAT(refusal(config_of("net_null0,nonsense=1")), Catch::Contains("cannot be opened"));
  NetworkConfig queues = config_of("net_ring0");
  std::vector<TxQueueConfig>& tx = queues.ifs_[0].tx_.queues_;
  for (int id = 1; id <= 16; ++id) {
    tx.push_back(tx[0]);
    tx.back().common_.name_ = "tx" + std::to_string(id);
    tx.back().common_.id_ = id;
  }
  CHECK_THAT(refusal(queues), Catch::Contains("has 16 transmit queues, and the interface has 17"));
  // Nothing is left of them.
  for (const char* device : {"net_null0", "net_ring0"})
    CHECK(refusal(config_of(device)) == "opened");
}

TEST_CASE("what the engine does not do is refused before anything is opened", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  // A bus number that no host has.
  CHECK_THAT(refusal(config_of("0000:fe:1e.7")),
             Catch::Contains("device '0000:fe:1e.7' is not on this host's PCI bus"));
  CHECK_THAT(refusal(config_of("net_memif0,role=server")), Catch::Contains("(role=client)"));
  CHECK_THAT(refusal(config_of("net_af_xdp0,iface=lo")), Catch::Contains("use engine 'packet'"));
  NetworkConfig large = config_of("net_ring0");
  large.mrs_.at("rx_frames").buf_size_ = 65536;
  large.mrs_.at("rx_frames").num_bufs_ = 64;
  CHECK_THAT(refusal(large), Catch::Contains("memory region 'rx_frames' has buf_size 65536"));
}

TEST_CASE("cards of this host that the engine cannot have are refused", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  std::size_t seen = 0;
  for (const PciCard& card : PciCard::all()) {
    const std::string why = card.why_unusable();
    if (why.empty()) continue;
    ++seen;
    CHECK_THAT(refusal(config_of(card.address)),
               Catch::Contains("interface 'port0': device '" + card.address + "' " + why));
  }
  if (seen == 0) WARN("skipped: this host has no network card of the kernel's");
}

TEST_CASE("more buffers than DPDK has memory for are refused", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  if (dpdk::uses_hugepages(memory::Hugepages::now())) {
    WARN("skipped: DPDK takes hugepages, of which it needs none here");
    return;
  }
  NetworkConfig config = config_of("net_ring0");
  config.mrs_.at("rx_frames").num_bufs_ = 2'500'000;
  config.mrs_.at("rx_frames").buf_size_ = 64;
  CHECK_THAT(refusal(config),
             Catch::Contains("memory region 'rx_frames': DPDK cannot make 2500000 headers of "
                             "packets") &&
                 Catch::Contains("lower num_bufs, or reserve free hugepages (sysctl "
                                 "vm.nr_hugepages)"));
  CHECK(refusal(config_of("net_ring0")) == "opened");
}

TEST_CASE("a device is that of one interface, however it is written", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = config_of("net_ring0");
  config.ifs_.push_back(config.ifs_.front());
  config.ifs_.back().name_ = "port1";
  config.ifs_.back().rx_.flows_.clear();
  const auto refused_for = [&](const std::string& one, const std::string& other) {
    use_dpdk(config, {one, other});
    return refusal(config);
  };
  const std::string first = "is that of interface 'port0' ('";
  CHECK_THAT(refused_for("net_ring0", "net_ring0"),
             Catch::Contains("interface 'port1': device 'net_ring0' " + first + "net_ring0'"));
  CHECK_THAT(refused_for("net_tap0,iface=a", "net_tap0"), Catch::Contains(first));
  CHECK_THAT(refused_for("fe:1e.7", "0000:FE:1e.7"), Catch::Contains(first + "fe:1e.7'"));
  CHECK_THAT(refused_for("00000000:fe:1e.7", "0000:fe:1e.7"), Catch::Contains(first));
  CHECK(refused_for("net_ring0", "net_ring1") == "opened");
}

TEST_CASE("a packet socket needs the name of its interface", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  for (const std::string device :
       {"net_af_packet0", "net_af_packet0,iface=", "net_af_packet0,qpairs=1"}) {
    CHECK_THAT(refusal(config_of(device)),
               Catch::Contains("device '" + device + "' does not name a network interface") &&
                   Catch::Contains("'net_af_packet0,iface=eth0'"));
  }
}

TEST_CASE("a forked child is refused, and leaves its parent's devices alone", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
#ifdef __SANITIZE_ADDRESS__
  WARN("skipped: a forked child may find the address sanitizer's allocator locked for ever");
  return;
#endif
  auto session = Session::open(config_of("net_ring0"));
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = refusal(config_of("net_ring1"));
    _exit(text.find("was started by process " + std::to_string(getppid())) == std::string::npos);
  }
  int status = -1;
  const std::uint64_t end = monotonic_ns() + 20'000'000'000U;
  while (waitpid(child, &status, WNOHANG) == 0 && monotonic_ns() < end) usleep(1000);
  if (status == -1) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  CHECK(status == 0);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 20));
  CHECK(receive_numbers(session->rx_queue(0, 0), 20).size() == 20);
}

// Sessions come and go under traffic, and leave nothing behind.
#include <catch2/catch.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/dpdk_state.h"
#include "session/loopback_config.h"
#include "socket/own_network.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

namespace fs = std::filesystem;

constexpr int WARM_UP = 10;
constexpr int CYCLES = 50;

/// What this process has.
struct Usage {
  /// Number of open files by what they are.
  std::map<std::string, int> files;
  std::ptrdiff_t threads{0};
  std::ptrdiff_t mappings{0};
  std::uint64_t resident_bytes{0};
  DpdkState dpdk;

  static Usage now() {
    Usage usage;
    std::error_code error;
    for (const auto& each : fs::directory_iterator("/proc/self/fd")) {
      // Sockets have numbers; that of the listing is gone.
      std::string target = fs::read_symlink(each, error).string();
      if (!error) ++usage.files[target.substr(0, target.find(":["))];
    }
    const fs::directory_iterator tasks("/proc/self/task");
    usage.threads = std::distance(begin(tasks), end(tasks));
    std::ifstream maps("/proc/self/maps");
    usage.mappings = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    std::uint64_t size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    usage.resident_bytes = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    usage.dpdk = DpdkState::now();
    return usage;
  }
};

/// Joined threads are in the list for a moment.
Usage usage_with(std::ptrdiff_t threads) {
  const std::uint64_t end = monotonic_ns() + 10'000'000'000U;
  Usage usage = Usage::now();
  while (usage.threads > threads && monotonic_ns() < end) usage = Usage::now();
  return usage;
}

/// `use`: an open session.
void check_cycles(const NetworkConfig& config, const std::function<void(Session&)>& use) {
  const auto cycle = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const auto session = Session::open(config);
      use(*session);
      finish(*session);
    }
  };
  cycle(1);
  const std::ptrdiff_t threads = Usage::now().threads;
  cycle(WARM_UP);
  const Usage before = usage_with(threads);
  cycle(CYCLES);
  const Usage after = usage_with(before.threads);
  CHECK(after.files == before.files);
  CHECK(after.threads == before.threads);
  CHECK(after.dpdk.ports == before.dpdk.ports);
  CHECK(after.dpdk.memzones == before.dpdk.memzones);
  CHECK(after.dpdk.allocations == before.dpdk.allocations);
  CHECK(after.dpdk.allocated_bytes == before.dpdk.allocated_bytes);
#ifdef __SANITIZE_ADDRESS__
  // The sanitizer keeps freed memory for a while.
  return;
#endif
  CHECK(after.mappings == before.mappings);
  // A session has regions of 8 MiB. One page in each cycle would be 200 KiB; the C library's
  // allocator keeps some of what it got.
  INFO("resident before: " << before.resident_bytes << ", after: " << after.resident_bytes);
  CHECK(after.resident_bytes < before.resident_bytes + (std::uint64_t{1} << 20U));
}

}  // namespace

TEST_CASE("50 sessions on a ring leave nothing behind", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  check_cycles(config, [](Session& session) {
    REQUIRE(send_frames(session.tx_queue(0, 0), 5000, 0, 500));
    CHECK(receive_numbers(session.rx_queue(0, 0), 500).size() == 500);
  });
}

TEST_CASE("50 sessions on a cable leave nothing behind", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network(CABLE, [] {
    NetworkConfig config = two_ports("net_af_packet0,iface=near", "net_af_packet1,iface=far");
    check_cycles(config, [](Session& session) {
      REQUIRE(send_frames(session.tx_queue(0, 0), 5000, 0, 500));
      CHECK(receive_numbers(session.rx_queue(1, 0), 500).size() == 500);
    });
  });
}

TEST_CASE("50 sessions on a tap leave nothing behind", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network({"test -c /dev/net/tun"}, [] {
    NetworkConfig config = loopback_config();
    use_dpdk(config, {"net_tap0,iface=dtap0"});
    check_cycles(config, [](Session& session) {
      REQUIRE(std::system("ip link set dtap0 up >/dev/null 2>&1") == 0);
      REQUIRE(send_frames(session.tx_queue(0, 0), 5000, 0, 500));
      CHECK(session.tx_queue(0, 0).wait_idle(10'000'000'000));
    });
  });
}

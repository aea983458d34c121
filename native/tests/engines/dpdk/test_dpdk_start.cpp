// What happens when DPDK cannot be started, in processes of their own: it is started once.
#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/other_process.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* WITHOUT_MEMORY = "DPDK without address space";

/// Bytes of address space of this process.
std::uint64_t mapped() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string refusal_of_ring() {
  NetworkConfig config = loopback_config(16, 500, 64);
  use_dpdk(config, {"net_ring0"});
  try {
    Session::open(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "opened";
}

}  // namespace

TEST_CASE(WITHOUT_MEMORY, "[.]") {
  // Enough for everything else.
  const std::uint64_t most = mapped() + (std::uint64_t{400} << 20U);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit limit{most, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  const std::string text = refusal_of_ring();
  CHECK_THAT(text, Catch::Contains("DPDK cannot be started") &&
                       Catch::Contains("a process can start DPDK only once") &&
                       Catch::Contains("(ulimit -v)"));
  // The cause is gone, but it is too late.
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(refusal_of_ring() == text);
}

TEST_CASE("a failed start of DPDK is told every time", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(WITHOUT_MEMORY) == 0);
}

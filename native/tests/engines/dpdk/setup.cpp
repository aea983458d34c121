// Engine dpdk, with a virtual device that receives what it sends; and with another such device, or
// with two, of which the second receives what the first sends:
// DAQIRI_TEST_DPDK="net_af_packet0,iface=a net_af_packet1,iface=b".
#include "engines/dpdk/dpdk_module.h"
#include "engines/engine_setup.h"

namespace {

using namespace daqiri;

NetworkConfig ring(const test::SuiteOptions& options) {
  NetworkConfig config = test::suite_config(options, false);
  test::use_dpdk(config, {"net_ring0"});
  return config;
}

NetworkConfig direct(const test::SuiteOptions& options) {
  NetworkConfig config = ring(options);
  test::make_direct(config.ifs_[0]);
  return config;
}

/// The second transmit queue sends, so the second core reads, and hands everything over.
NetworkConfig handed_over(const test::SuiteOptions& options) {
  NetworkConfig config = ring(options);
  std::vector<RxQueueConfig>& rx = config.ifs_[0].rx_.queues_;
  RxQueueConfig reader = rx[0];
  reader.common_.name_ = "rx1";
  reader.common_.id_ = 1;
  reader.common_.cpu_core_ = "0";
  rx.push_back(reader);
  std::vector<TxQueueConfig>& tx = config.ifs_[0].tx_.queues_;
  TxQueueConfig idle = tx[0];
  idle.common_.name_ = "tx1";
  idle.common_.id_ = 1;
  tx.insert(tx.begin(), idle);
  return config;
}

NetworkConfig cable(const test::SuiteOptions& options) {
  const std::vector<std::string> devices = test::given_devices();
  NetworkConfig config = test::suite_config(options, devices.size() > 1);
  test::use_dpdk(config, devices);
  return config;
}

const bool registered = [] {
  if (!test::has_dpdk()) return false;
  test::engine_setups().push_back({.name = "dpdk", .config = ring});
  test::engine_setups().push_back(
      {.name = "dpdk, polled by its callers", .config = direct, .direct = true});
  test::engine_setups().push_back({.name = "dpdk, handed over", .config = handed_over});
  if (!test::given_devices().empty()) {
    test::engine_setups().push_back({.name = "dpdk, devices",
                                     .config = cable,
                                     .tx_port = 0,
                                     .rx_port = test::given_devices().size() > 1 ? 1 : 0,
                                     .counts_all = false});
  }
  return true;
}();

}  // namespace

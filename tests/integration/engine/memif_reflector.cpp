// Sends back what arrives on a server of net_memif.
//
// usage: memif_reflector SOCKET; prints a line when it listens, and ends with its standard input
#include <fcntl.h>
#include <poll.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what, int error) {
  std::fprintf(stderr, "%s: %s\n", what, rte_strerror(std::abs(error)));
  std::exit(1);
}

void check(const char* what, int error) {
  if (error < 0) fail(what, error);
}

bool ended() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, 0) != 0;
}

bool is_up() {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(0, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::string device = "net_memif0,role=server,socket-abstract=no,bsize=9216,socket=";
  std::vector<std::string> texts{words[0],   "--no-huge",      "--no-shconf",       "-m", "64",
                                 "--no-pci", "--no-telemetry", "--log-level=error",
                                 "--vdev=" + device + words[1]};
  std::vector<char*> pointers;
  for (std::string& each : texts) pointers.push_back(each.data());
  check("rte_eal_init", rte_eal_init(static_cast<int>(pointers.size()), pointers.data()));
  rte_mempool* const pool = rte_pktmbuf_pool_create("packets", 4095, 0, 0, 9216 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  if (pool == nullptr) fail("rte_pktmbuf_pool_create", rte_errno);
  const rte_eth_conf conf{};
  check("rte_eth_dev_configure", rte_eth_dev_configure(0, 1, 1, &conf));
  check("rte_eth_rx_queue_setup", rte_eth_rx_queue_setup(0, 0, 1024, 0, nullptr, pool));
  check("rte_eth_tx_queue_setup", rte_eth_tx_queue_setup(0, 0, 1024, 0, nullptr));
  check("rte_eth_dev_start", rte_eth_dev_start(0));
  std::puts("listens");
  std::fflush(stdout);
  std::array<rte_mbuf*, 64> packets{};
  for (unsigned turn = 0; (turn & 0x3ffU) != 0 || !ended(); ++turn) {
    const std::uint16_t found = rte_eth_rx_burst(0, 0, packets.data(), packets.size());
    std::uint16_t sent = 0;
    while (sent < found) {
      const std::uint16_t taken = rte_eth_tx_burst(0, 0, packets.data() + sent, found - sent);
      sent += taken;
      if (taken == 0 && (ended() || !is_up())) break;
    }
    for (; sent < found; ++sent) rte_pktmbuf_free(packets[sent]);
    if (found == 0) usleep(10);
  }
}

// Packets between network interfaces of the kernel, through devices of DPDK.
#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "engines/dpdk/dpdk_module.h"
#include "frames.h"
#include "session/loopback_config.h"
#include "socket/own_network.h"
#include "system/file.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// A packet socket of the kernel on an interface.
class Kernel {
 public:
  explicit Kernel(const char* interface)
      : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
    REQUIRE(bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  /// Frames that the interface holds count as those of the socket.
  void hold_many() const {
    constexpr int BYTES = 1 << 28;
    REQUIRE(setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDBUFFORCE, &BYTES, sizeof BYTES) == 0);
  }
  void send(const Bytes& frame) const {
    REQUIRE(::send(socket_.fd(), frame.data(), frame.size(), 0) ==
            static_cast<ssize_t>(frame.size()));
  }
  /// The next frame, of those that arrive within 10 s.
  [[nodiscard]] Bytes receive() const {
    pollfd waiting{socket_.fd(), POLLIN, 0};
    REQUIRE(poll(&waiting, 1, 10'000) == 1);
    Bytes frame(65536);
    frame.resize(static_cast<std::size_t>(recv(socket_.fd(), frame.data(), frame.size(), 0)));
    return frame;
  }

 private:
  File socket_;
};

/// Those of the next burst, of those that arrive within 10 s.
std::vector<Bytes> next_packets(RxQueue& rx) {
  Burst* burst = nullptr;
  const std::uint64_t end = monotonic_ns() + 10'000'000'000U;
  while ((burst = rx.receive()) == nullptr && monotonic_ns() < end) rx.wait(50'000'000);
  REQUIRE(burst != nullptr);
  std::vector<Bytes> packets;
  for (std::uint32_t i = 0; i < burst->hdr.hdr.num_pkts; ++i) {
    const auto* at = static_cast<const std::uint8_t*>(burst->pkts[0][i]);
    packets.emplace_back(at, at + burst->pkt_lens[0][i]);
  }
  burst->release();
  return packets;
}

}  // namespace

TEST_CASE("packets cross a cable between two ports", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network(CABLE, [] {
    for (int round = 0; round < 3; ++round) {
      const auto session = Session::open(
          two_ports("net_af_packet0,iface=near", "net_af_packet1,iface=far,framecnt=4096"));
      CHECK(session->port(0).io->mac_address() != session->port(1).io->mac_address());
      CHECK(session->port(1).io->link_state().state == std::string("up"));
      constexpr std::uint32_t COUNT = 2000;
      for (std::uint32_t first = 0; first < COUNT; first += 100) {
        REQUIRE(send_frames(session->tx_queue(0, 0), 5001, first, 100));
        const auto numbers = receive_numbers(session->rx_queue(1, 1), 100);
        REQUIRE(numbers.size() == 100);
        CHECK(numbers.front() == first);
        CHECK(numbers.back() == first + 99);
      }
      CHECK(session->tx_queue(0, 0).wait_idle(10'000'000'000));
      CHECK(session->tx_queue(0, 0).counters().sent == COUNT);
      CHECK(session->rx_queue(1, 1).counters().received == COUNT);
      CHECK(session->port(1).io->losses(0).lost_before_engine.value == 0);
      finish(*session);
    }
  });
}

TEST_CASE("a device exchanges packets with the kernel", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network(CABLE, [] {
    for (const char* end : {"near", "far"})
      REQUIRE(std::system(("ip link set mtu 9000 dev " + std::string(end)).c_str()) == 0);
    NetworkConfig config = loopback_config();
    for (const char* name : {"rx_frames", "tx_frames"}) config.mrs_.at(name).buf_size_ = 16384;
    use_dpdk(config, {"net_af_packet0,iface=far"});
    CHECK_THROWS_WITH(
        Session::open(config),
        Catch::Contains("has space for frames of 1981 bytes, and its network "
                        "interface receives up to 9018; add framesz=16384,blocksz=65536"));
    use_dpdk(config, {"net_af_packet0,iface=far,framesz=16384,blocksz=65536"});
    const auto session = Session::open(config);
    const Kernel kernel("near");
    for (const std::size_t length : {60, 128, 1514, 9014}) {
      kernel.send(udp_frame(5000, 7, length));
      CHECK(next_packets(session->rx_queue(0, 0)).front() == udp_frame(5000, 7, length));
      REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 9, 1, 0, 0, length));
      // It sees its own frames, too.
      while (kernel.receive() != udp_frame(5000, 9, length)) {
      }
    }
    const Bytes with_tag = tagged(udp_frame(7000, 7), {0x8100});
    kernel.send(with_tag);
    CHECK(next_packets(session->rx_queue(0, 0)).front() == with_tag);
    finish(*session);
  });
}

TEST_CASE("a tap gives packets to the kernel and gets its own", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network({"test -c /dev/net/tun"}, [] {
    for (int round = 0; round < 2; ++round) {
      NetworkConfig config = loopback_config();
      use_dpdk(config, {"net_tap0,iface=dtap0"});
      const auto session = Session::open(config);
      REQUIRE(std::system("ip link set dtap0 up >/dev/null 2>&1") == 0);
      const Kernel kernel("dtap0");
      REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 9, 1));
      while (kernel.receive() != udp_frame(5000, 9)) {
      }
      kernel.send(udp_frame(5000, 7));
      // The kernel's own may be in the same burst.
      const auto has_it = [](const std::vector<Bytes>& packets) {
        return std::ranges::find(packets, udp_frame(5000, 7)) != packets.end();
      };
      while (!has_it(next_packets(session->rx_queue(0, 0)))) {
      }
      finish(*session);
    }
  });
}

TEST_CASE("a tap sends nothing without receive queues", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network({"test -c /dev/net/tun"}, [] {
    NetworkConfig config = loopback_config();
    use_dpdk(config, {"net_tap0,iface=dtap0"});
    config.ifs_[0].rx_ = {};
    try {
      static_cast<void>(Session::open(config));
      FAIL("opened");
    } catch (const Error& error) {
      CHECK(error.status() == Status::NOT_SUPPORTED);
      CHECK(std::string(error.what()) ==
            "interface 'port0': device 'net_tap0,iface=dtap0' has no receive queue, and its driver "
            "wants one for each transmit queue; add one to the interface (rx.queues)");
    }
  });
}

TEST_CASE("packets for a tap wait while it has no buffers", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network({"test -c /dev/net/tun"}, [] {
    NetworkConfig config = loopback_config();
    use_dpdk(config, {"net_tap0,iface=dtap0"});
    config.ifs_[0].tx_ = {};
    config.rx_meta_buffers_ = 4096;
    const auto session = Session::open(config);
    REQUIRE(std::system("ip link set dtap0 txqueuelen 100000 up >/dev/null 2>&1") == 0);
    Kernel kernel("dtap0");
    kernel.hold_many();
    RxQueue& rx = session->rx_queue(0, 0);
    const memory::MemoryRegion& region = rx.region(0);
    const auto count = static_cast<std::uint32_t>(region.config().num_bufs_) + 500;
    std::vector<Burst*> held;
    std::uint32_t received = 0;
    const auto receive_until = [&](auto&& done, bool hold) {
      const std::uint64_t end = monotonic_ns() + 20'000'000'000U;
      while (!done() && monotonic_ns() < end) {
        Burst* const burst = rx.receive();
        if (burst == nullptr) continue;
        for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
          // Not the kernel's own.
          if (burst->flow_ids[i] == 10) CHECK(number_of(*burst, i) == received++);
        }
        held.push_back(burst);
        if (!hold) std::exchange(held, {}).front()->release();
      }
      REQUIRE(done());
    };
    for (std::uint32_t number = 0; number < count; ++number) kernel.send(udp_frame(5000, number));
    receive_until([&] { return region.available() == 0 && rx.levels().ring == 0; }, true);
    // One at a time, as well.
    for (std::uint32_t number = 0; number < 20; ++number) {
      kernel.send(udp_frame(5000, count + number));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(received < count);
    for (Burst* burst : std::exchange(held, {})) burst->release();
    // Without one more that would wake the device.
    receive_until([&] { return received == count + 20; }, false);
    finish(*session);
  });
}

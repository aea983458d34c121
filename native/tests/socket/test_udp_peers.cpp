#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <thread>

#include "engines/socket/udp_queues.h"
#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Peer `i` of many: a separate address of this host; all use the same port.
std::string host_of(std::uint32_t i) {
  return "127." + std::to_string(2 + i / 62'500) + "." + std::to_string(1 + i / 250 % 250) + "." +
         std::to_string(1 + i % 250);
}

/// A socket that sends from any of these addresses.
class Senders {
 public:
  explicit Senders(std::uint16_t port) : socket_("0.0.0.0"), port_(port) {}

  void send(std::uint32_t i, std::uint32_t number) const {
    const Bytes bytes = numbered(number, 20);
    iovec data{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(in_pktinfo))]{};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = IPPROTO_IP;
    header->cmsg_type = IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
    in_pktinfo info{};
    inet_pton(AF_INET, host_of(i).c_str(), &info.ipi_spec_dst);
    std::memcpy(CMSG_DATA(header), &info, sizeof info);
    REQUIRE(sendmsg(socket_.fd(), &message, 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  PlainSocket socket_;
  std::uint16_t port_;
};

/// The source address in a capture of the burst.
std::string recorded_source(const Session& session, const Burst& burst) {
  std::byte prefix[MAX_LINK_PREFIX];
  session.memory()->link_layers[0]->prefix(burst, 0, prefix);
  char text[INET_ADDRSTRLEN]{};
  inet_ntop(AF_INET, prefix + 12, text, sizeof text);
  return text;
}

/// Sends one datagram from each of the peers [first, end), a few at a time to fit the kernel
/// buffer.
void send_each(const Senders& senders, const RxQueue& rx, std::uint32_t first, std::uint32_t end) {
  constexpr std::uint32_t AT_ONCE = 100;
  const std::uint64_t before = rx.counters().received;
  for (std::uint32_t i = first; i < end; ++i) {
    senders.send(i, i);
    const std::uint64_t sent = i + 1 - first;
    if (sent % AT_ONCE == 0 || i + 1 == end)
      REQUIRE(counters_after(rx, before + sent).received >= before + sent);
  }
}

}  // namespace

TEST_CASE("Any number of peers under default settings: nothing is lost while there are buffers",
          "[udp][peers]") {
  const std::uint16_t port = free_port("0.0.0.0");
  const bool gathers = GENERATE(false, true);
  // 256 bursts of 100 packets; most of them never fill.
  const auto session = Session::open(
      udp_server("0.0.0.0", port, {.batch = 100, .timeout_us = gathers ? 1000U : 0U}));
  RxQueue& rx = session->rx_queue(0, 0);
  const Senders senders(port);
  constexpr std::uint32_t PEERS = 2000;
  send_each(senders, rx, 0, PEERS);
  // One peer continues to send.
  for (std::uint32_t i = 0; i < 800; i += 100) {
    for (std::uint32_t k = 0; k < 100; ++k) senders.send(7, 10'000 + i + k);
    REQUIRE(counters_after(rx, PEERS + i + 100).received == PEERS + i + 100);
  }
  REQUIRE(rx.counters().dropped_total() == 0);
  session->close();
  std::set<std::uint32_t> numbers;
  std::map<std::uintptr_t, std::string> hosts;
  while (Burst* burst = rx.receive()) {
    const std::string host = recorded_source(*session, *burst);
    REQUIRE(hosts.try_emplace(burst->connection_id, host).first->second == host);
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      const std::uint32_t number = number_of(bytes_of(*burst, i));
      REQUIRE(host == host_of(number < 10'000 ? number : 7));
      numbers.insert(number);
    }
    burst->release();
  }
  REQUIRE(numbers.size() == PEERS + 800);
  REQUIRE(hosts.size() == PEERS);
  REQUIRE(session->connections().list(0).size() == PEERS + 1);
  REQUIRE(balanced(rx.counters()));
  REQUIRE(rx.region(0).available() == rx.region(0).config().num_bufs_);
}

TEST_CASE("The peer received from least recently makes room, and comes back under another id",
          "[udp][peers]") {
  const std::uint16_t port = free_port("0.0.0.0");
  const auto session = Session::open(udp_server("0.0.0.0", port, {.batch = 16}));
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);
  const Senders senders(port);
  const auto receive = [&](std::uint32_t i) {
    senders.send(i, i);
    const auto packets = receive_packets(rx, 1);
    REQUIRE(packets.size() == 1);
    REQUIRE(packets[0].bytes == numbered(i, 20));
    return packets[0].connection;
  };
  const std::uintptr_t first = receive(0);
  const std::uintptr_t second = receive(1);
  constexpr auto MOST = static_cast<std::uint32_t>(sockets::UdpReceiver::MAX_PEERS);
  std::jthread consumer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (Burst* burst = rx.receive())
        burst->release();
      else
        rx.wait(1'000'000);
    }
  });
  send_each(senders, rx, 2, MOST);
  for (int i = 0; i < 10'000 && rx.counters().held > 0; ++i) usleep(1000);
  REQUIRE(rx.counters().held == 0);
  consumer.request_stop();
  consumer.join();
  REQUIRE(receive(0) == first);
  const std::uintptr_t newest = receive(MOST);
  REQUIRE(session->connections().list(0).size() == MOST + 1);
  REQUIRE(error_of([&] { static_cast<void>(session->connections().queue_of(second)); }).first ==
          Status::INVALID_PARAMETER);
  REQUIRE(send_packets(tx, {numbered(1, 10)}, second));
  REQUIRE(dropped(tx.counters(), DropReason::SEND_ERROR) == 1);
  REQUIRE(receive(1) != second);
  REQUIRE(receive(0) == first);
  REQUIRE(receive(MOST) == newest);
  REQUIRE(rx.counters().dropped_total() == 0);
  REQUIRE(balanced(rx.counters()));
}

TEST_CASE("Peers come and go on queues of different cores", "[udp][peers]") {
  const std::uint16_t port = free_port("0.0.0.0");
  NetworkConfig config =
      udp_server("0.0.0.0", port, {.batch = 2, .timeout_us = 0, .num_bufs = 16384});
  auto& queues = config.ifs_[0].rx_.queues_;
  queues.push_back(queues[0]);
  queues[0].common_.cpu_core_ = "0";
  queues[1].common_.name_ = "rx1";
  queues[1].common_.id_ = 1;
  const auto session = Session::open(config);
  const Senders senders(port);
  constexpr std::uint32_t PEERS = 1300;
  constexpr std::uint32_t ROUNDS = 2;
  std::jthread connecting([&](const std::stop_token& stop) {
    for (std::uint32_t i = 0; !stop.stop_requested(); ++i) {
      session->connections().connect("127.8.0.1", static_cast<std::uint16_t>(1 + i % 50'000), "");
      static_cast<void>(session->connections().list(0));
      usleep(2000);
    }
  });
  std::set<std::uint32_t> numbers;
  std::atomic<std::uint32_t> seen{0};
  bool wrong = false;
  std::jthread reading([&] {
    const std::uint64_t limit = monotonic_ns() + 20'000'000'000ULL;
    for (std::uint16_t q = 0; seen < PEERS * ROUNDS && monotonic_ns() < limit; q ^= 1U) {
      RxQueue& rx = session->rx_queue(0, q);
      Burst* burst = rx.receive();
      if (burst == nullptr) {
        if (rx.closed() && session->rx_queue(0, q ^ 1U).counters().held == 0 &&
            rx.counters().held == 0)
          break;
        usleep(100);
        continue;
      }
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
        const std::uint32_t number = number_of(bytes_of(*burst, i));
        if (recorded_source(*session, *burst) != host_of(number % 10'000)) wrong = true;
        if (!numbers.insert(number).second) wrong = true;
        ++seen;
      }
      burst->release();
    }
  });
  for (std::uint32_t round = 0; round < ROUNDS; ++round) {
    for (std::uint32_t i = 0; i < PEERS; ++i) senders.send(i, round * 10'000 + i);
  }
  const auto received = [&] {
    return session->rx_queue(0, 0).counters().received +
           session->rx_queue(0, 1).counters().received;
  };
  for (int i = 0; i < 30'000 && received() < PEERS * ROUNDS; ++i) usleep(1000);
  REQUIRE(received() == PEERS * ROUNDS);
  connecting.request_stop();
  connecting.join();
  session->close();
  reading.join();
  REQUIRE(seen == PEERS * ROUNDS);
  REQUIRE_FALSE(wrong);
  for (std::uint16_t q = 0; q < 2; ++q) REQUIRE(balanced(session->rx_queue(0, q).counters()));
}

TEST_CASE("A peer of two cores keeps its id until both have forgotten it", "[udp][peers]") {
  const SocketAddress local = SocketAddress::parse("127.0.0.1", 5000);
  const AddressKey address = SocketAddress::parse("127.0.0.1", 6000).key();
  sockets::UdpPeers peers(local, 2);
  const std::uintptr_t id = peers.enter(address).connection;
  REQUIRE(peers.enter(address).connection == id);
  peers.forget(id);
  REQUIRE(peers.find(id));
  CHECK(peers.find(id)->address == address);
  CHECK(peers.all().size() == 1);
  peers.forget(id);
  CHECK_FALSE(peers.find(id));
  CHECK(peers.all().empty());
  CHECK(peers.enter(address).connection != id);
}

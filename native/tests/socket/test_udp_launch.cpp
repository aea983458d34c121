#include <catch2/catch.hpp>

#include <algorithm>

#include "engines/socket/udp_queues.h"
#include "socket/own_network.h"
#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::sockets;
using namespace daqiri::test;

namespace {

constexpr std::uint64_t MS = 1'000'000;

/// fq, as the kernel describes it. The loopback interface ignores stamps; the test checks how this
/// process computes them.
LaunchQdisc fq(std::uint32_t flow_limit = 100) {
  LaunchQdisc qdisc;
  qdisc.interface = "lo";
  qdisc.found = "fq";
  qdisc.horizon = 10'000 * MS;
  qdisc.flow_limit = flow_limit;
  return qdisc;
}

LaunchQdisc etf(std::uint64_t delta, bool offload = false) {
  LaunchQdisc qdisc;
  qdisc.interface = "lo";
  qdisc.found = "etf";
  qdisc.etf = true;
  qdisc.horizon = 10'000 * MS;
  // CLOCK_TAI needs a capability; CLOCK_MONOTONIC works as well here.
  qdisc.delta = delta;
  qdisc.offload = offload;
  return qdisc;
}

struct Client {
  explicit Client(std::uint16_t port) : config(udp_client("127.0.0.1", port)) {}
  NetworkConfig config;
  UdpSocket socket{config.ifs_[0], sockets::Sharing::ALONE};
};

}  // namespace

TEST_CASE("What keeps no launch times on the way to the peer is named", "[udp][launch]") {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const LaunchQdisc found = find_launch_qdisc({}, SocketAddress::parse(host, 5000), 0);
    INFO(host << ": " << found.found << ": " << found.refusal);
    REQUIRE(found.interface == "lo");
    REQUIRE(found.found == "noqueue");
    REQUIRE(!found.keeps());

    NetworkConfig config = udp_client(host, free_port(host));
    config.ifs_[0].tx_.accurate_send_ = true;
    const auto [status, text] = error_of([&] { Session::open(config); });
    INFO(text);
    REQUIRE(status == Status::NOT_SUPPORTED);
    for (const char* part : {"'udp0'", "'lo'", "noqueue", "fq and etf", "tc qdisc replace dev lo"})
      REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("The discipline on the route to a peer is found, with its children", "[udp][launch]") {
  in_own_network(
      {"ip link set lo up", "ip link add near type veth peer name far",
       "ip addr add 10.77.0.1/24 dev near", "ip addr add fd77::1/64 dev near nodad",
       "ip link set far up", "ip link set near up",
       "tc qdisc add dev near root handle 1: tbf rate 1mbit burst 10kb limit 10kb",
       "tc qdisc add dev near parent 1: handle 2: tbf rate 1mbit burst 10kb limit 10kb"},
      [] {
        for (const char* host : {"10.77.0.2", "fd77::2"}) {
          const LaunchQdisc found = find_launch_qdisc({}, SocketAddress::parse(host, 5000), 0);
          INFO(host << ": " << found.found << ": " << found.refusal);
          REQUIRE(found.interface == "near");
          REQUIRE(found.found.starts_with("tbf with "));
          REQUIRE(found.refusal == "it sends immediately");
          REQUIRE(!found.drops_untimed);
        }
        const LaunchQdisc none = find_launch_qdisc({}, SocketAddress::parse("192.0.2.1", 5000), 0);
        REQUIRE(none.found == "unknown");
        REQUIRE(none.refusal.find("unreachable") != std::string::npos);
      });
}

TEST_CASE("Launch times in the kernel need a client, one queue and no pacing", "[udp][launch]") {
  NetworkConfig server = udp_server("127.0.0.1", free_port("127.0.0.1"));
  server.ifs_[0].tx_.accurate_send_ = true;
  const auto [status, text] = error_of([&] { Session::open(server); });
  REQUIRE(status == Status::NOT_SUPPORTED);
  REQUIRE(text.find("peers of a server") != std::string::npos);

  NetworkConfig paced = udp_client("127.0.0.1", 5000);
  paced.ifs_[0].tx_.accurate_send_ = true;
  NetworkConfig two = paced;
  paced.ifs_[0].tx_.queues_[0].pacing_mbps_ = 100;
  REQUIRE(error_of([&] { Session::open(paced); }).second.find("pacing_mbps") != std::string::npos);
  two.ifs_[0].tx_.queues_.push_back(two.ifs_[0].tx_.queues_[0]);
  two.ifs_[0].tx_.queues_[1].common_.name_ = "second";
  two.ifs_[0].tx_.queues_[1].common_.id_ = 1;
  REQUIRE(error_of([&] { Session::open(two); }).second.find("one queue") != std::string::npos);
}

TEST_CASE("Stamps follow launch times, on the discipline's clock and in order", "[udp][launch]") {
  const PlainSocket peer("127.0.0.1");
  Client client(peer.port());
  // Shortly after boot, launch times of an hour ago lie before the boot.
  const auto near = [](std::uint64_t stamp, std::uint64_t launch) {
    const std::uint64_t monotonic = launch + monotonic_ns() - realtime_ns();
    return std::max(stamp, monotonic) - std::min(stamp, monotonic) < 400 * MS;
  };
  const std::uint64_t hour = 3'600'000 * MS;
  const std::uint64_t ahead = 3'000 * MS;
  {
    UdpLaunch launch(client.socket, fq(), client.config.ifs_[0]);
    REQUIRE(launch.lead() == MS);
    launch.begin();
    const std::uint64_t now = realtime_ns();
    const std::uint64_t first = launch.stamp(now + ahead);
    REQUIRE(near(first, now + ahead));
    // After it: no launch time, a past one, an earlier one.
    REQUIRE(launch.stamp(0) == first);
    REQUIRE(launch.stamp(1000) == first);
    REQUIRE(launch.stamp(now - hour) == first);
    REQUIRE(launch.stamp(now + ahead / 2) == first);
    REQUIRE(launch.stamp(now + ahead + 5) == first + 5);
    REQUIRE(launch.shares(0, first));
    REQUIRE(launch.shares(1000, first));
    REQUIRE(launch.shares(now + ahead, first));
    REQUIRE(!launch.shares(now + ahead + 1, first));
    // Packets that were not passed to the kernel do not affect the next stamps.
    launch.begin();
    REQUIRE(near(launch.stamp(0), now));
  }
  for (const bool offload : {false, true}) {
    const std::uint64_t delta = 5 * MS;
    UdpLaunch launch(client.socket, etf(delta, offload), client.config.ifs_[0]);
    REQUIRE(launch.lead() == MS + (offload ? delta : 0));
    launch.begin();
    const std::uint64_t later = realtime_ns() + ahead;
    const std::uint64_t untimed = launch.stamp(0);
    // Without offload, etf sends `delta` before the stamp.
    REQUIRE(near(launch.stamp(later), later + (offload ? 0 : delta)));
    const std::uint64_t last = launch.stamp(later);
    REQUIRE(launch.stamp(later) == last + 1);
    REQUIRE(untimed < last);
    REQUIRE(!launch.shares(later, last));
  }
}

TEST_CASE("An odd launch time is sent at once, or within the horizon, and binds no other",
          "[udp][launch]") {
  const PlainSocket peer("127.0.0.1");
  Client client(peer.port());
  const bool reports = GENERATE(false, true);
  const LaunchQdisc qdisc = reports ? etf(MS) : fq();
  for (const std::uint64_t odd : {std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{1} << 60U,
                                  std::uint64_t{1} << 63U, ~std::uint64_t{0}}) {
    INFO(odd);
    UdpLaunch launch(client.socket, qdisc, client.config.ifs_[0]);
    const auto bound = [&](std::uint64_t from) { return from + qdisc.horizon; };
    launch.begin();
    const std::uint64_t first = launch.stamp(odd);
    REQUIRE(first <= bound(monotonic_ns()));
    if (odd <= 1000) REQUIRE(first <= monotonic_ns() + qdisc.delta);
    launch.handed(first, 1, 100);
    for (int i = 0; i < 10; ++i) {
      launch.begin();
      const std::uint64_t stamp = launch.stamp(realtime_ns() + MS);
      REQUIRE(stamp >= first);
      REQUIRE(stamp <= bound(monotonic_ns()));
      launch.handed(stamp, 1, 100);
    }
  }
}

TEST_CASE("fq gets no more packets ahead than it holds of a flow", "[udp][launch]") {
  const PlainSocket peer("127.0.0.1");
  Client client(peer.port());
  UdpLaunch launch(client.socket, fq(20), client.config.ifs_[0]);
  launch.begin();
  const std::uint64_t later = realtime_ns() + 3'000 * MS;
  std::uint32_t handed = 0;
  for (; launch.room() > 0; ++handed) launch.handed(launch.stamp(later), 1, 100);
  REQUIRE(handed == 20);
  // The loopback interface has taken all packets; none are in the kernel.
  const TransmitCompletion result = launch.completed(false);
  REQUIRE(result.sent == 20);
  REQUIRE(result.bytes == 2000);
  REQUIRE(!result.more);
  REQUIRE(launch.room() == 20);
}

TEST_CASE("A worker whose packets fq has no room for is told when there is", "[udp][launch]") {
  const PlainSocket peer("127.0.0.1");
  Client client(peer.port());
  auto session = Session::open(client.config);
  UdpPeers peers(client.socket.local(), 1);
  const std::uintptr_t connection = peers.enter(client.socket.remote().key()).connection;
  UdpLaunch launch(client.socket, fq(20), client.config.ifs_[0]);
  UdpSender sender(client.socket, peers, 0, connection, &launch, !launch.reports_drops());
  Burst* burst = nullptr;
  REQUIRE(session->tx_queue(0, 0).allocate(30, &burst) == Status::SUCCESS);
  const std::uint64_t later = realtime_ns() + 3'000 * MS;
  for (std::uint32_t i = 0; i < 30; ++i) {
    burst->pkt_lens[0][i] = 100;
    burst->timestamps[i] = later + i;
  }
  REQUIRE(sender.send(*burst, 0, 30).kept == 20);
  REQUIRE(!readable(sender.ready().fd()));
  const TransmitResult none = sender.send(*burst, 20, 10);
  REQUIRE(none.sent + none.kept + none.failed == 0);
  REQUIRE(!readable(sender.ready().fd()));
  burst->release();

  // The time when the first of them is sent.
  UdpLaunch soon(client.socket, fq(1), client.config.ifs_[0]);
  UdpSender waiting(client.socket, peers, 0, connection, &soon, !soon.reports_drops());
  REQUIRE(session->tx_queue(0, 0).allocate(2, &burst) == Status::SUCCESS);
  for (std::uint32_t i = 0; i < 2; ++i) {
    burst->pkt_lens[0][i] = 100;
    burst->timestamps[i] = realtime_ns() + 50 * MS + i;
  }
  REQUIRE(waiting.send(*burst, 0, 2).kept == 1);
  while (waiting.send(*burst, 1, 1).kept == 0) REQUIRE(readable(waiting.ready().fd(), 5000));
  burst->release();
}

TEST_CASE("Packets with stamps arrive whole, and are counted once", "[udp][launch]") {
  const PlainSocket peer("127.0.0.1");
  Client client(peer.port());
  auto session = Session::open(client.config);
  TxQueue& tx = session->tx_queue(0, 0);
  UdpPeers peers(client.socket.local(), 1);
  const std::uintptr_t connection = peers.enter(client.socket.remote().key()).connection;
  for (const LaunchQdisc& qdisc : {fq(), etf(5 * MS)}) {
    UdpLaunch launch(client.socket, qdisc, client.config.ifs_[0]);
    UdpSender sender(client.socket, peers, 0, connection, &launch, !launch.reports_drops());
    Burst* burst = nullptr;
    REQUIRE(tx.allocate(60, &burst) == Status::SUCCESS);
    const std::uint64_t now = realtime_ns();
    for (std::uint32_t i = 0; i < 60; ++i) {
      const Bytes bytes = numbered(i, 100);
      std::copy(bytes.begin(), bytes.end(), static_cast<std::uint8_t*>(burst->pkts[0][i]));
      burst->pkt_lens[0][i] = 100;
      // Rows that may share a message, and single packets.
      burst->timestamps[i] = i < 20 ? 0 : i < 40 ? now + MS : now + MS + i;
    }
    std::uint32_t sent = 0;
    for (int tries = 0; sent < 60 && tries < 1000; ++tries) {
      const TransmitResult result = sender.send(*burst, sent, 60 - sent);
      REQUIRE(result.failed == 0);
      sent += result.kept;
    }
    REQUIRE(sent == 60);
    burst->release();
    for (std::uint32_t i = 0; i < 60; ++i) {
      const auto datagram = peer.receive();
      REQUIRE(datagram.has_value());
      REQUIRE(datagram->first == numbered(i, 100));
    }
    const TransmitCompletion result = launch.completed(true);
    REQUIRE(result.sent == 60);
    REQUIRE(result.bytes == 6000);
    REQUIRE(result.missed + result.recalled == 0);
    REQUIRE(launch.completed(true).sent == 0);
  }
}

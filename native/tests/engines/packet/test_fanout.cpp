// Distribution of frames among packet sockets by the kernel.
#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <sys/socket.h>

#include <poll.h>

#include <numeric>

#include "engines/packet/fanout.h"
#include "frames.h"
#include "socket/own_network.h"
#include "steering/distribution.h"

using namespace daqiri;
using namespace daqiri::test;
using packet::NetworkInterface;

namespace {

using Bytes = std::vector<std::uint8_t>;

NetworkInterface named(const char* name) {
  NetworkInterface interface;
  interface.name = name;
  interface.index = static_cast<int>(if_nametoindex(name));
  return interface;
}

/// Sockets at one end of the link, in a group; `arrived` sends a frame from the other end.
class Group {
 public:
  Group(const RxConfig& config, const std::map<int, std::uint32_t>& by_queue, std::size_t sockets)
      : sender_(packet::open_packet_socket(named("near"))) {
    packet::bind_packet_socket(sender_, named("near"), 0);
    std::vector<int> fds;
    for (std::size_t i = 0; i < sockets; ++i) {
      sockets_.push_back(packet::open_packet_socket(named("far")));
      packet::bind_packet_socket(sockets_.back(), named("far"), ETH_P_ALL);
      fds.push_back(sockets_.back().fd());
    }
    packet::join_fanout(named("far"), fds, steering::distribution(config, by_queue));
  }
  /// The number of the only socket that gets the frame.
  int arrived(const Bytes& frame) {
    REQUIRE(send(sender_.fd(), frame.data(), frame.size(), 0) ==
            static_cast<ssize_t>(frame.size()));
    std::vector<pollfd> fds;
    for (const File& socket : sockets_) fds.push_back({socket.fd(), POLLIN, 0});
    REQUIRE(poll(fds.data(), fds.size(), 5000) == 1);
    int found = 0;
    while ((fds[static_cast<std::size_t>(found)].revents & POLLIN) == 0) ++found;
    Bytes bytes(2048);
    const ssize_t n = recv(fds[static_cast<std::size_t>(found)].fd, bytes.data(), bytes.size(), 0);
    REQUIRE(n > 0);
    return found;
  }

 private:
  File sender_;
  std::vector<File> sockets_;
};

Bytes udp(std::uint16_t from, std::uint16_t to, std::uint32_t host = 0x0A000001) {
  FrameFields fields;
  fields.udp_src = from;
  fields.udp_dst = to;
  fields.src = host;
  return make_frame(fields);
}

Bytes udp6(std::uint16_t from, std::uint16_t to) {
  Bytes frame(14 + 40 + 8, 0);
  put16(frame, 12, 0x86DD);
  frame[14] = 0x60;
  put16(frame, 18, 8);
  frame[20] = 17;
  put16(frame, 54, from);
  put16(frame, 56, to);
  put16(frame, 58, 8);
  return frame;
}

}  // namespace

TEST_CASE("Frames go to the socket of their flow's queue, others to the first", "[packet]") {
  in_own_network(CABLE, [] {
    InterfaceConfig interface = interface_with_queues(5);
    add_flow(interface, 1, 1).match_.udp_dst_ = 5000;
    add_flow(interface, 2, 2).match_.udp_dst_ = {5001, 5003};
    add_flow(interface, 3, 3).match_.udp_src_ = {4000, 4001};
    FlowMatch& host = add_flow(interface, 4, 4).match_;
    host.ipv4_src_ = htonl(0x0A000007);
    host.udp_dst_ = 6000;
    // Of the same port, but the first flow counts.
    add_flow(interface, 5, 4).match_.udp_dst_ = 5000;
    // Queues 3 and 4 have the same thread.
    Group group(interface.rx_, {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 3}}, 4);
    CHECK(group.arrived(udp(1, 5000)) == 1);
    for (std::uint16_t port = 5001; port < 5004; ++port) CHECK(group.arrived(udp(1, port)) == 2);
    CHECK(group.arrived(udp(1, 5004)) == 0);
    CHECK(group.arrived(udp(4000, 9)) == 3);
    CHECK(group.arrived(udp(4001, 9)) == 3);
    CHECK(group.arrived(udp(4002, 9)) == 0);
    CHECK(group.arrived(udp(4000, 5000)) == 1);
    CHECK(group.arrived(udp(1, 6000, 0x0A000007)) == 3);
    CHECK(group.arrived(udp(1, 6000)) == 0);
    // No UDP over IPv4, a tag, a fragment, too short, and headers that are cut off.
    CHECK(group.arrived(tagged(udp(1, 5000), {0x8100})) == 0);
    Bytes frame = udp(1, 5000);
    frame[23] = IPPROTO_TCP;
    CHECK(group.arrived(frame) == 0);
    frame = udp(1, 5000);
    frame[21] = 1;
    CHECK(group.arrived(frame) == 0);
    frame = udp(1, 5000);
    frame[12] = 0x86;
    frame[13] = 0xDD;
    CHECK(group.arrived(frame) == 0);
    frame.resize(30);
    CHECK(group.arrived(frame) == 0);
    // Flows without IPv4 addresses match UDP over IPv6; not behind an extension header.
    CHECK(group.arrived(udp6(1, 5000)) == 1);
    CHECK(group.arrived(udp6(4001, 9)) == 3);
    CHECK(group.arrived(udp6(1, 6000)) == 0);
    frame = udp6(1, 5000);
    frame[20] = 0;
    CHECK(group.arrived(frame) == 0);
  });
}

TEST_CASE("Frames with the same ports have one socket, whatever their lengths", "[packet]") {
  in_own_network(CABLE, [] {
    InterfaceConfig interface = interface_with_queues(3);
    FlowMatch& length = add_flow(interface, 1, 1).match_;
    length.ipv4_len_ = static_cast<std::uint16_t>(udp(1, 5000).size() - 14);
    length.udp_dst_ = {5000, 5001};
    add_flow(interface, 2, 2).match_.udp_dst_ = 5000;
    Group group(interface.rx_, {{0, 0}, {1, 1}, {2, 2}}, 3);
    Bytes longer = udp(1, 5000);
    longer.resize(longer.size() + 100);
    put16(longer, 16, static_cast<std::uint16_t>(longer.size() - 14));
    CHECK(group.arrived(udp(1, 5000)) == 2);
    CHECK(group.arrived(longer) == 2);
    CHECK(group.arrived(udp(1, 5001)) == 0);
  });
}

TEST_CASE("A flow of very many queues does not hide the flows after it", "[packet]") {
  in_own_network(CABLE, [] {
    InterfaceConfig interface = interface_with_queues(300);
    FlowConfig& flow = add_flow(interface, 1, 0);
    flow.match_.udp_dst_ = 5000;
    std::map<int, std::uint32_t> by_queue;
    for (int id = 0; id < 300; ++id) {
      flow.action_.ids_.push_back(static_cast<std::uint16_t>(id));
      by_queue[id] = static_cast<std::uint32_t>(id % 3);
    }
    add_flow(interface, 2, 1).match_.udp_dst_ = 5001;
    Group group(interface.rx_, by_queue, 3);
    // Which socket it is does not matter, as long as it is the same.
    const int first = group.arrived(udp(1, 5000));
    CHECK(group.arrived(udp(1, 5000)) == first);
    // The flow behind the long list is reached.
    CHECK(group.arrived(udp(1, 5001)) == 1);
  });
}

TEST_CASE("Only the first flows are distributed, because they are tried one by one", "[packet]") {
  in_own_network(CABLE, [] {
    InterfaceConfig interface = interface_with_queues(2);
    for (std::uint16_t i = 0; i < 100; ++i)
      add_flow(interface, i, 1).match_.udp_dst_ = static_cast<std::uint16_t>(5000 + i);
    const std::map<int, std::uint32_t> by_queue{{0, 0}, {1, 1}};
    Group group(interface.rx_, by_queue, 2);
    CHECK(group.arrived(udp(1, 5000)) == 1);
    CHECK(group.arrived(udp(1, 5000 + steering::MOST_FLOWS - 1)) == 1);
    // Its reader hands it over to the queue.
    CHECK(group.arrived(udp(1, 5000 + steering::MOST_FLOWS)) == 0);
  });
}

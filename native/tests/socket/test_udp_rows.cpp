#include <linux/capability.h>
#include <netinet/udp.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <random>

#include "engines/socket/udp_socket.h"
#include "log_taker.h"
#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Sends `bytes` as datagrams of `segment` bytes in one system call.
bool send_row(const PlainSocket& peer, const Bytes& bytes, std::size_t segment) {
  iovec vector{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(std::uint16_t))]{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  auto* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_UDP;
  header->cmsg_type = UDP_SEGMENT;
  header->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto size = static_cast<std::uint16_t>(segment);
  std::memcpy(CMSG_DATA(header), &size, sizeof size);
  return sendmsg(peer.fd(), &message, 0) == static_cast<ssize_t>(bytes.size());
}

void connect_to(const PlainSocket& peer, const std::string& host, std::uint16_t port) {
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  if (host.find(':') != std::string::npos) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
    REQUIRE(connect(peer.fd(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0);
    return;
  }
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
  REQUIRE(connect(peer.fd(), reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0);
}

/// Datagrams sent by one system call, with `segment` bytes each; the last one may be shorter.
struct Row {
  std::size_t segment{0};
  std::vector<Bytes> datagrams;
  [[nodiscard]] Bytes bytes() const {
    Bytes all;
    for (const Bytes& datagram : datagrams) all.insert(all.end(), datagram.begin(), datagram.end());
    return all;
  }
};

Row make_row(std::uint32_t number, std::size_t segment, std::uint32_t count, std::size_t last) {
  Row row{segment, {}};
  for (std::uint32_t i = 0; i + 1 < count; ++i)
    row.datagrams.push_back(numbered(number + i, segment));
  row.datagrams.push_back(numbered(number + count - 1, last));
  return row;
}

/// Sends and compares the rows one by one, so that no buffer overflows. Returns the number of
/// datagrams sent.
std::uint64_t exchange(const PlainSocket& peer, RxQueue& rx, const std::vector<Row>& rows,
                       std::size_t capacity) {
  std::uint64_t sent = 0;
  for (const Row& row : rows) {
    REQUIRE(send_row(peer, row.bytes(), row.segment));
    sent += row.datagrams.size();
    const auto packets = receive_packets(rx, row.datagrams.size());
    REQUIRE(packets.size() == row.datagrams.size());
    for (std::size_t i = 0; i < packets.size(); ++i) {
      Bytes expected = row.datagrams[i];
      if (expected.size() > capacity) expected.resize(capacity);
      REQUIRE((packets[i].bytes == expected));
      REQUIRE(packets[i].timestamp == packets[0].timestamp);
    }
  }
  return sent;
}

std::vector<Row> random_rows(std::uint32_t seed, std::size_t rows) {
  constexpr std::size_t SEGMENTS[]{1, 9, 64, 65, 500, 1000, 1472, 2048, 2049, 8000, 30'000, 60'000};
  std::mt19937 random(seed);
  std::vector<Row> all;
  std::uint32_t number = 0;
  std::size_t segment = 1000;
  while (all.size() < rows) {
    // Usually, the next segment size is the same.
    if (random() % 3 == 0) segment = SEGMENTS[random() % std::size(SEGMENTS)];
    const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(64, 65'000 / segment));
    const std::uint32_t count = random() % 3 == 0 ? 1 : 1 + random() % most;
    const std::size_t last = random() % 2 == 0 ? segment : 1 + random() % segment;
    all.push_back(make_row(number, segment, count, last));
    number += count;
  }
  return all;
}

/// Removes the privilege to count arrivals from this thread for a while.
class WithoutBpf {
 public:
  explicit WithoutBpf(bool wanted) {
    REQUIRE(syscall(SYS_capget, &header_, before_.data()) == 0);
    auto now = before_;
    constexpr unsigned BPF = 39;
    now[BPF / 32].effective &= ~(1U << BPF % 32);
    now[CAP_SYS_ADMIN / 32].effective &= ~(1U << CAP_SYS_ADMIN % 32);
    if (wanted) REQUIRE(syscall(SYS_capset, &header_, now.data()) == 0);
  }
  WithoutBpf(const WithoutBpf&) = delete;
  WithoutBpf& operator=(const WithoutBpf&) = delete;
  ~WithoutBpf() { syscall(SYS_capset, &header_, before_.data()); }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

}  // namespace

TEST_CASE("Rows of datagrams of any sizes become the packets they were", "[udp][rx][rows]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const auto seed = GENERATE(range(0U, 6U));
  const std::uint16_t port = free_port(host);
  const auto session = Session::open(udp_server(host, port, {.timeout_us = 200}));
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peer(host);
  connect_to(peer, host, port);
  const auto rows = random_rows(seed, 150);
  const std::uint64_t sent = exchange(peer, rx, rows, 2048);
  const RxSnapshot counters = rx.counters();
  REQUIRE(counters.received == sent);
  REQUIRE(counters.delivered == sent);
  std::uint64_t bytes = 0;
  std::uint64_t longer = 0;
  for (const Row& row : rows) {
    for (const Bytes& datagram : row.datagrams) {
      bytes += std::min<std::size_t>(datagram.size(), 2048);
      longer += datagram.size() > 2048 ? 1 : 0;
    }
  }
  REQUIRE(counters.received_bytes == bytes);
  REQUIRE(counters.truncated == longer);
  session->close();
  REQUIRE(session->memory()->regions.at("rx_data")->available() == 4096);
}

TEST_CASE("Rows are divided between header and data buffers", "[udp][rx][rows]") {
  const auto seed = GENERATE(range(10U, 14U));
  const std::uint16_t port = free_port("127.0.0.1");
  auto config = udp_server("127.0.0.1", port, {.timeout_us = 200, .buf_size = 60'000});
  MemoryRegionConfig headers = config.mrs_.at("rx_data");
  headers.name_ = "rx_headers";
  headers.buf_size_ = 64;
  config.mrs_.at("rx_data").num_bufs_ = 512;
  config.mrs_.emplace(headers.name_, headers);
  config.ifs_[0].rx_.queues_[0].common_.mrs_ = {"rx_headers", "rx_data"};
  const auto session = Session::open(config);
  const PlainSocket peer("127.0.0.1");
  connect_to(peer, "127.0.0.1", port);
  exchange(peer, session->rx_queue(0, 0), random_rows(seed, 80), 60'064);
  REQUIRE(session->rx_queue(0, 0).counters().truncated == 0);
  session->close();
  REQUIRE(session->memory()->regions.at("rx_data")->available() == 512);
  REQUIRE(session->memory()->regions.at("rx_headers")->available() == 4096);
}

TEST_CASE("A handful of buffers serves rows, and every packet is accounted", "[udp][rx][rows]") {
  const auto buffers = GENERATE(values<std::uint64_t>({2, 5, 70, 200}));
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server(
      "127.0.0.1", port, {.batch = 2, .timeout_us = 100, .num_bufs = buffers, .buf_size = 1000}));
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peer("127.0.0.1");
  connect_to(peer, "127.0.0.1", port);
  std::uint64_t sent = 0;
  std::uint64_t bytes = 0;
  std::uint64_t got = 0;
  int filled = 0;
  for (const Row& row : random_rows(static_cast<std::uint32_t>(buffers), 60)) {
    if (row.segment > 1000) continue;
    const Bytes data = row.bytes();
    REQUIRE(send_row(peer, data, row.segment));
    sent += row.datagrams.size();
    bytes += data.size();
    const RxSnapshot counters = counters_after(rx, sent);
    REQUIRE(counters.received == sent);
    REQUIRE(counters.received_bytes == bytes);
    REQUIRE(balanced(counters));
    REQUIRE(counters.held <= buffers);
    // The kept packets are the first of the row, in order.
    const auto packets = receive_packets(rx, counters.held);
    REQUIRE(packets.size() == counters.held);
    if (row.datagrams.size() >= buffers) {
      // The poller had no buffer at all if it checked before the buffers of the previous row were
      // returned; otherwise it had all of them.
      REQUIRE((packets.empty() || packets.size() == buffers));
      if (!packets.empty()) ++filled;
    }
    for (std::size_t i = 0; i < packets.size(); ++i)
      REQUIRE((packets[i].bytes == row.datagrams[i]));
    got += packets.size();
  }
  if (buffers <= 5) REQUIRE(filled > 0);
  const RxSnapshot counters = rx.counters();
  REQUIRE(got + dropped(counters, DropReason::NO_PACKET_BUFFER) == sent);
  session->close();
  REQUIRE(session->memory()->regions.at("rx_data")->available() == buffers);
}

TEST_CASE("Flows look at the length of each datagram of a row", "[udp][rx][rows]") {
  const std::uint16_t port = free_port("127.0.0.1");
  auto config = udp_server("127.0.0.1", port, {.timeout_us = 200});
  FlowConfig full;
  full.name_ = "full";
  full.id_ = 7;
  full.match_.ipv4_len_ = 528;
  config.ifs_[0].rx_.flows_.push_back(full);
  config.ifs_[0].rx_.flow_isolation_ = GENERATE(false, true);
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peer("127.0.0.1");
  connect_to(peer, "127.0.0.1", port);
  for (int round = 0; round < 3; ++round) {
    const Row row = make_row(0, 500, 10, 20);
    REQUIRE(send_row(peer, row.bytes(), row.segment));
    const bool isolated = config.ifs_[0].rx_.flow_isolation_;
    const auto packets = receive_packets(rx, isolated ? 9 : 10);
    REQUIRE(packets.size() == (isolated ? 9 : 10));
    for (std::size_t i = 0; i < packets.size(); ++i) {
      REQUIRE((packets[i].bytes == row.datagrams[i]));
      REQUIRE(packets[i].flow == (i < 9 ? 7 : 0));
    }
  }
  if (config.ifs_[0].rx_.flow_isolation_) {
    REQUIRE(dropped(counters_after(rx, 30), DropReason::FILTERED) == 3);
    REQUIRE(rx.counters().received_bytes == 3 * (9 * 500 + 20));
  }
}

TEST_CASE("Rows of several senders keep to their connections", "[udp][rx][rows][peers]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto session = Session::open(udp_server("127.0.0.1", port, {.timeout_us = 200}));
  RxQueue& rx = session->rx_queue(0, 0);
  const PlainSocket peers[3]{PlainSocket("127.0.0.1"), PlainSocket("127.0.0.1"),
                             PlainSocket("127.0.0.1")};
  std::uintptr_t connections[3]{};
  constexpr std::size_t SEGMENTS[]{1000, 700, 1300};
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (std::uint32_t p = 0; p < 3; ++p) {
      connect_to(peers[p], "127.0.0.1", port);
      const Row row = make_row(p * 1000 + round * 20, SEGMENTS[p], 20, 1 + round);
      REQUIRE(send_row(peers[p], row.bytes(), row.segment));
    }
    for (std::uint32_t p = 0; p < 3; ++p) counters_after(rx, (round + 1) * 60);
    std::uint32_t next[3]{};
    for (const Received& packet : receive_packets(rx, 60)) {
      const std::uint32_t p = packet.bytes.size() >= 4 ? number_of(packet.bytes) / 1000 : 3;
      if (p == 3) continue;
      REQUIRE(p < 3);
      if (connections[p] == 0) connections[p] = packet.connection;
      REQUIRE(packet.connection == connections[p]);
      REQUIRE(number_of(packet.bytes) == p * 1000 + round * 20 + next[p]++);
    }
    for (const std::uint32_t n : next) REQUIRE(n >= 19);
  }
  REQUIRE(rx.counters().delivered == 20 * 60);
  REQUIRE(connections[0] != connections[1]);
  REQUIRE(connections[1] != connections[2]);
}

TEST_CASE("Of rows that the kernel drops every datagram is counted",
          "[udp][rx][rows][accounting]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  const bool client = GENERATE(false, true);
  const bool exact = GENERATE(true, false);
  // Capabilities belong to a thread; those of the thread that opens a socket decide.
  const WithoutBpf limited(!exact);
  if ((sockets::count_arrivals(PlainSocket(host).fd()) != nullptr) != exact) {
    WARN((exact ? "no leave to count arrivals here (CAP_BPF): left out"
                : "anybody may count arrivals here: left out"));
    return;
  }
  LogTaker log;
  const PlainSocket peer(host);
  const std::uint16_t port = free_port(host);
  auto config = client ? udp_client(host, peer.port()) : udp_server(host, port);
  config.ifs_[0].socket_.local_addr_ = udp_at(host, port);
  config.log_level_ = LogLevel::WARN;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const std::uintptr_t connection = client ? session->connections().connect(host, peer.port(), "")
                                           : session->connections().server_at(host, port);
  const int smallest = 1;
  session->connections().set_socket_option(connection, SOL_SOCKET, SO_RCVBUF, &smallest,
                                           sizeof smallest);
  connect_to(peer, host, port);
  const Row row = make_row(0, 1000, 60, 500);
  std::uint64_t sent = 0;
  std::uint64_t got = 0;
  for (int round = 0; round < 100 && dropped(rx.counters(), DropReason::KERNEL) == 0; ++round) {
    for (int i = 0; i < 50; ++i) REQUIRE(send_row(peer, row.bytes(), row.segment));
    sent += 50 * row.datagrams.size();
    usleep(2000);
    while (Burst* burst = rx.receive()) {
      got += burst->num_packets();
      burst->release();
    }
  }
  RxSnapshot counters = counters_after(rx, exact ? sent : 0);
  REQUIRE(dropped(counters, DropReason::KERNEL) > 0);
  REQUIRE(balanced(counters));
  session->close();
  while (Burst* burst = rx.receive()) {
    got += burst->num_packets();
    burst->release();
  }
  counters = rx.counters();
  REQUIRE(balanced(counters));
  REQUIRE(counters.delivered == got);
  if (exact) {
    REQUIRE(counters.received == sent);
    REQUIRE(log.lines_with("CAP_BPF") == 0);
  } else {
    REQUIRE(log.lines_with("CAP_BPF") == 1);
    // Without the privilege to count arrivals, each row counts as one.
    REQUIRE(dropped(counters, DropReason::KERNEL) * 60 == sent - got);
  }
}

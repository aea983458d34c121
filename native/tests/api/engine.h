/// A running default engine and helpers for its use.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "api/call.h"
#include "daqiri/daqiri.h"

namespace daqiri::test {

/// Two ports that receive their own packets: port 0 with receive queues 0 and 1, port 1 with
/// receive queue 5. Bursts have 8 packets, even if the sender is interrupted.
inline constexpr const char* LOOPBACK = R"(
version: 1
master_core: 0
stream_type: raw
loopback: sw
log_level: "off"
tx_meta_buffers: 16
rx_meta_buffers: 64
memory_regions:
- {name: rx, kind: host, num_bufs: 512, buf_size: 2048}
- {name: tx, kind: host, num_bufs: 128, buf_size: 2048}
interfaces:
- name: camera
  address: loopback
  rx:
    queues:
    - {name: a, id: 0, cpu_core: any, batch_size: 8, timeout_us: 0, memory_regions: [rx]}
    - {name: b, id: 1, cpu_core: any, batch_size: 8, timeout_us: 0, memory_regions: [rx]}
    flows:
    - {name: left, id: 11, match: {udp_dst: 5000}, action: {type: queue, id: 0}}
    - {name: right, id: 12, match: {udp_dst: 5001-5009}, action: {type: queue, id: 1}}
  tx:
    queues:
    - {name: t, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]}
- name: clock
  address: loopback1
  rx:
    queues:
    - {name: c, id: 5, cpu_core: any, batch_size: 8, timeout_us: 0, memory_regions: [rx]}
  tx:
    queues:
    - {name: u, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]}
)";

/// Like LOOPBACK, with headers and payload in different regions for sending and receiving.
inline constexpr const char* SPLIT = R"(
version: 1
master_core: 0
stream_type: raw
loopback: sw
log_level: "off"
memory_regions:
- {name: heads, kind: host, num_bufs: 512, buf_size: 64}
- {name: bodies, kind: host, num_bufs: 512, buf_size: 2048}
interfaces:
- name: camera
  address: loopback
  rx:
    queues:
    - {name: a, id: 0, cpu_core: any, batch_size: 8, timeout_us: 300, split_boundary: 42, memory_regions: [heads, bodies]}
  tx:
    queues:
    - {name: t, id: 0, cpu_core: any, batch_size: 8, memory_regions: [heads, bodies]}
)";

struct Engine {
  explicit Engine(const std::string& yaml) {
    const Status status = daqiri_init(yaml);
    INFO(last_error());
    REQUIRE(status == Status::SUCCESS);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { shutdown(); }
};

/// Calls `ready` until it returns true, for at most 10 s.
template <typename Ready>
bool eventually(Ready&& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

inline constexpr std::uint32_t HEADERS = sizeof(UDPIPV4Pkt);
inline constexpr std::uint32_t PAYLOAD = 100;
inline constexpr std::uint32_t SOURCE_IP = 0x0A000001;
inline constexpr std::uint32_t DESTINATION_IP = 0x0A000002;

/// A burst with buffers for `n` packets.
inline BurstParams* filled_burst(int n, std::uint16_t port = 0, std::uint16_t queue = 0,
                                 int segments = 1) {
  BurstParams* burst = nullptr;
  REQUIRE(eventually([&] { return (burst = create_tx_burst_params()) != nullptr; }));
  set_header(burst, port, queue, n, segments);
  Status status{};
  eventually(
      [&] { return (status = get_tx_packet_burst(burst)) != Status::NO_FREE_PACKET_BUFFERS; });
  INFO(last_error());
  REQUIRE(status == Status::SUCCESS);
  return burst;
}

/// Writes frame `i` of the burst: headers and a payload that begins with `number`.
inline void write_frame(BurstParams* burst, int i, std::uint16_t udp_dst, std::uint32_t number) {
  char mac[6];
  format_eth_addr(mac, "02:00:00:00:00:01");
  std::uint8_t payload[PAYLOAD];
  std::memset(payload, static_cast<int>(number), sizeof payload);
  std::memcpy(payload, &number, sizeof number);
  REQUIRE(set_eth_header(burst, i, mac) == Status::SUCCESS);
  REQUIRE(set_ipv4_header(burst, i, 8 + PAYLOAD, IPPROTO_UDP, SOURCE_IP, DESTINATION_IP) ==
          Status::SUCCESS);
  REQUIRE(set_udp_header(burst, i, PAYLOAD, 4000, udp_dst) == Status::SUCCESS);
  REQUIRE(set_udp_payload(burst, i, payload, PAYLOAD) == Status::SUCCESS);
  REQUIRE(set_packet_lengths(burst, i, {HEADERS + PAYLOAD}) == Status::SUCCESS);
}

inline std::uint32_t number_of(BurstParams* burst, int i) {
  std::uint32_t number = 0;
  const auto* packet = static_cast<const std::uint8_t*>(get_packet_ptr(burst, i));
  REQUIRE(packet != nullptr);
  std::memcpy(&number, packet + HEADERS, sizeof number);
  return number;
}

/// Sends `n` (at most 8) frames, numbered from `first`.
inline void send_frames(int n, std::uint16_t udp_dst, std::uint32_t first = 0,
                        std::uint16_t port = 0, std::uint64_t launch = 0) {
  BurstParams* burst = filled_burst(n, port);
  for (int i = 0; i < n; ++i) {
    write_frame(burst, i, udp_dst, first + static_cast<std::uint32_t>(i));
    if (launch != 0) REQUIRE(set_packet_tx_time(burst, i, launch) == Status::SUCCESS);
  }
  REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
}

/// Waits until a receive queue has delivered `n` bursts since the engine started.
inline void await_bursts(int port, int queue, std::uint64_t n) {
  const auto session = api::running();
  REQUIRE(session != nullptr);
  const RxQueue& rx = session->rx_queue(port, queue);
  REQUIRE(eventually([&] { return rx.counters().bursts >= n; }));
}

/// Receives bursts with `get` until `n` packets have arrived or 10 s have passed. Returns their
/// numbers.
template <typename Get>
std::vector<std::uint32_t> receive_numbers(std::size_t n, Get&& get) {
  std::vector<std::uint32_t> numbers;
  eventually([&] {
    BurstParams* burst = nullptr;
    if (get(&burst) != Status::SUCCESS) return false;
    for (int i = 0; i < get_num_packets(burst); ++i) numbers.push_back(number_of(burst, i));
    free_all_packets_and_burst_rx(burst);
    return numbers.size() >= n;
  });
  return numbers;
}

}  // namespace daqiri::test

// What the programs of this folder share: how they give up, wait and end.
#pragma once

#include <daqiri/daqiri.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

/// What a program returns when this build lacks a part; what it lacks is printed.
constexpr int NOT_IN_THIS_BUILD = 3;

inline void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n", what, daqiri::last_error());
  std::exit(1);
}

inline void check(daqiri::Status status, const char* what) {
  if (status == daqiri::Status::NOT_SUPPORTED) {
    std::printf("%s: not supported: %s\n", what, daqiri::last_error());
    std::exit(NOT_IN_THIS_BUILD);
  }
  expect(status == daqiri::Status::SUCCESS, what);
}

/// Try until `done`, for 60 s at most.
template <typename Done>
void wait_for(const char* what, Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    expect(std::chrono::steady_clock::now() < end, what);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// A burst with buffers for `num` packets.
inline daqiri::BurstParams* tx_burst(int port_id, int queue_id, int num, int segments) {
  daqiri::BurstParams* burst = nullptr;
  wait_for("a burst", [&] { return (burst = daqiri::create_tx_burst_params()) != nullptr; });
  daqiri::set_header(burst, static_cast<std::uint16_t>(port_id),
                     static_cast<std::uint16_t>(queue_id), num, segments);
  wait_for("buffers", [&] {
    if (!daqiri::is_tx_burst_available(burst)) return false;
    // A thread of the engine may take some meanwhile, and give them back.
    const auto status = daqiri::get_tx_packet_burst(burst);
    if (status == daqiri::Status::NO_FREE_PACKET_BUFFERS) return false;
    check(status, "get_tx_packet_burst");
    return true;
  });
  return burst;
}

/// A burst from any queue of a port.
inline daqiri::BurstParams* rx_burst(int port_id) {
  daqiri::BurstParams* burst = nullptr;
  wait_for("a received burst", [&] {
    const auto status = daqiri::get_rx_burst(&burst, port_id);
    if (status != daqiri::Status::NULL_PTR) check(status, "get_rx_burst");
    return status == daqiri::Status::SUCCESS;
  });
  return burst;
}

/// The port whose packets reach another one: that of its own where there is one, `sender`.
inline int sending_port(int port_id) {
  const int sender = daqiri::get_port_id("sender");
  return sender < 0 ? port_id : sender;
}

/// Ethernet, IPv4 and UDP headers and `size` bytes of data.
inline void write_frame(daqiri::BurstParams* burst, int idx, const void* data, int size,
                        std::uint16_t dst_port) {
  char dst_mac[6];
  daqiri::format_eth_addr(dst_mac, "02:00:00:00:00:99");
  check(daqiri::set_eth_header(burst, idx, dst_mac), "set_eth_header");
  check(daqiri::set_ipv4_header(burst, idx, 8 + size, IPPROTO_UDP, 0x0A000001, 0x0A000002),
        "set_ipv4_header");
  check(daqiri::set_udp_header(burst, idx, size, 4000, dst_port), "set_udp_header");
  check(daqiri::set_udp_payload(burst, idx, data, size), "set_udp_payload");
  check(daqiri::set_packet_lengths(burst, idx, {sizeof(daqiri::UDPIPV4Pkt) + size}),
        "set_packet_lengths");
}

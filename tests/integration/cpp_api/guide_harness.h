// Around the blocks of a guide: the names that guides use without declaring them, an engine that
// runs, and bursts to work with.
//
//   PROGRAM BLOCK KIND
//
// runs one block, and prints the reason of the last call in it that was refused. KIND: r1, r2 for
// received bursts of one and of two segments, t1, t2 for bursts that can be sent, h1 for one that
// has no buffers yet.
#pragma once

#include <daqiri/daqiri.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<cuda_runtime.h>)
#define HARNESS_CUDA_RESULT cudaError_t
#else
#define HARNESS_CUDA_RESULT int
#define cudaSuccess 0
#endif
// No burst has an event where there is no CUDA.
extern "C" __attribute__((weak)) HARNESS_CUDA_RESULT cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}

namespace {

constexpr int PACKETS = 8;
constexpr int DATA = 64;

char payload[DATA];
char dst_mac[6] = {2, 0, 0, 0, 0, 9};

daqiri::BurstParams* burst = nullptr;
daqiri::BurstParams* rx_burst = nullptr;
daqiri::Status status = daqiri::Status::SUCCESS;
daqiri::Status st = daqiri::Status::SUCCESS;
int port_id = 0;
int queue_id = 0;
int port = 0;
int idx = 0;
int seg = 0;
int num_segments = 1;
int batch_size = PACKETS;
int num_packets = PACKETS;
std::uint32_t src_ip = 0x0A000001;
std::uint32_t dst_ip = 0x0A000002;
std::uint16_t src_port = 4000;
std::uint16_t dst_port = 5000;
void* payload_ptr = payload;
int payload_size = DATA;
int udp_payload_len = DATA;
int ip_payload_len = DATA + 8;
int total_pkt_len = DATA + 42;
std::uint64_t tx_time_ns = 0;
std::uint64_t ptp_timestamp = 0;
std::uintptr_t conn_id = 0;
cudaStream_t stream = nullptr;
daqiri::FlowRuleConfig flow;
daqiri::FlowId flow_id = 1;
daqiri::FlowOpId op_id = 0;
daqiri::FlowOpResult result;

void check(daqiri::Status found) {
  if (found == daqiri::Status::SUCCESS) return;
  std::fprintf(stderr, "%s\n", daqiri::last_error());
  std::_Exit(1);
}

/// The configuration that a guide leaves to its reader.
void example(daqiri::NetworkConfig& config) {
  check(daqiri::parse_network_config("path/to/config.yaml", config));
}

struct Block {
  const char* name;
  void (*run)();
  bool starts_the_engine;
};

/// A burst to send, that has no buffers yet.
daqiri::BurstParams* harness_empty_burst() {
  auto* found = daqiri::create_tx_burst_params();
  daqiri::set_header(found, 0, 0, PACKETS, num_segments);
  return found;
}

/// A burst that can be sent.
daqiri::BurstParams* harness_tx_burst() {
  auto* found = harness_empty_burst();
  check(daqiri::get_tx_packet_burst(found));
  for (int i = 0; i < PACKETS; i++) {
    check(daqiri::set_eth_header(found, i, dst_mac));
    check(daqiri::set_ipv4_header(found, i, ip_payload_len, IPPROTO_UDP, src_ip, dst_ip));
    check(daqiri::set_udp_header(found, i, udp_payload_len, src_port, dst_port));
    check(daqiri::set_udp_payload(found, i, payload_ptr, payload_size));
    check(num_segments == 1 ? daqiri::set_packet_lengths(found, i, {total_pkt_len})
                            : daqiri::set_packet_lengths(found, i, {42, DATA}));
  }
  return found;
}

daqiri::BurstParams* harness_rx_burst() {
  check(daqiri::send_tx_burst(harness_tx_burst()));
  daqiri::BurstParams* found = nullptr;
  while (daqiri::get_rx_burst(&found) != daqiri::Status::SUCCESS) std::this_thread::yield();
  return found;
}

void print_refusal(const char* how) { std::printf("%s: %s\n", how, daqiri::last_error()); }

/// A loop that waits for what never comes.
extern "C" void harness_waited(int) {
  print_refusal("waits");
  std::fflush(stdout);
  std::_Exit(0);
}

int harness_main(const std::vector<Block>& blocks, int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string kind = argv[2];
  num_segments = kind[1] - '0';
  for (const Block& block : blocks) {
    if (argv[1] != std::string(block.name)) continue;
    if (!block.starts_the_engine) {
      check(daqiri::daqiri_init("path/to/config.yaml"));
      rx_burst = harness_rx_burst();
      burst = kind[0] == 'r'   ? rx_burst
              : kind[0] == 't' ? harness_tx_burst()
                               : harness_empty_burst();
      // For blocks that receive one themselves.
      check(daqiri::send_tx_burst(harness_tx_burst()));
    }
    signal(SIGALRM, harness_waited);
    alarm(3);
    block.run();
    alarm(0);
    print_refusal("ends");
    daqiri::shutdown();
    return 0;
  }
  return 2;
}

}  // namespace

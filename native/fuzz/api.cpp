// The programming interface, called in any order with any arguments: null, freed and foreign
// bursts, indices and lengths out of range, before the engine starts and after it stops. Calls only
// return a status, and all buffers are returned.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "require.h"
#include "session/random_config.h"

using namespace daqiri;
using fuzz::require;

namespace {

class Program {
 public:
  explicit Program(FuzzedDataProvider& input) : input_(input) {}

  void run() {
    constexpr int MOST_CALLS = 200;
    for (int i = 0; i < MOST_CALLS && input_.remaining_bytes() > 0; ++i) call();
  }

  /// Frees all bursts that were ever seen; for freed ones, the call is rejected.
  void settle() {
    for (BurstParams* burst : seen_) free_rx_burst(burst);
    BurstParams* burst = nullptr;
    while (get_rx_burst(&burst) == Status::SUCCESS) free_rx_burst(burst);
  }

 private:
  int index() { return pick({0, 1, 2, 63, 64, -1, INT32_MIN, INT32_MAX}); }
  int segment() { return pick({0, 1, 2, 3, 4, -1, INT32_MAX}); }
  int port() { return pick({0, 0, 0, 1, -1, 65536}); }
  int queue() { return pick({0, 0, 1, 2, 7, -1, 65536}); }
  std::int64_t length() {
    return pick({0, 1, 42, 60, 64, 128, 256, 257, 65536, -1, INT32_MIN, INT32_MAX});
  }
  int pick(std::initializer_list<int> values) {
    return values.begin()[input_.ConsumeIntegralInRange<std::size_t>(0, values.size() - 1)];
  }
  BurstParams* burst() {
    const auto at = input_.ConsumeIntegralInRange<std::size_t>(0, seen_.size());
    return at == seen_.size() ? nullptr : seen_[at];
  }
  void keep(BurstParams* burst) {
    if (burst != nullptr && seen_.size() < MOST_BURSTS) {
      seen_.push_back(burst);
    } else {
      free_rx_burst(burst);
    }
  }
  /// Makes a burst that can be sent.
  void make() {
    BurstParams* made = create_tx_burst_params();
    set_header(made, 0, static_cast<std::uint16_t>(pick({0, 0, 0, 1, 9})), pick({1, 2, 8, 0, 65}),
               pick({1, 1, 2, 0, 5}));
    const Status status = get_tx_packet_burst(made);
    require((status == Status::SUCCESS) == (get_packet_ptr(made, 0) != nullptr),
            "a burst has packets once it was given some");
    keep(made);
  }
  void receive() {
    BurstParams* got = nullptr;
    Status status = Status::NULL_PTR;
    switch (input_.ConsumeIntegralInRange(0, 3)) {
      case 0:
        status = get_rx_burst(&got, port(), queue());
        break;
      case 1:
        status = get_rx_burst(&got, port());
        break;
      case 2:
        status = get_rx_burst(&got);
        break;
      default:
        status = get_rx_burst(&got, std::uintptr_t{input_.ConsumeIntegral<std::uint8_t>()},
                              input_.ConsumeBool());
    }
    require((status == Status::SUCCESS) == (got != nullptr), "a burst comes with SUCCESS only");
    keep(got);
  }
  /// Writes to the memory of a packet, if it is accessible.
  void touch() {
    BurstParams* any = burst();
    const int seg = segment();
    const int idx = index();
    void* data = get_segment_packet_ptr(any, seg, idx);
    const std::uint32_t size = get_segment_packet_length(any, seg, idx);
    if (data != nullptr) std::memset(data, 0x5A, size);
    static_cast<void>(get_packet_length(any, idx));
    static_cast<void>(get_packet_flow_id(any, idx));
    static_cast<void>(get_num_packets(any));
    static_cast<void>(get_q_id(any));
    static_cast<void>(get_burst_tot_byte(any));
    static_cast<void>(is_tx_burst_available(any));
    std::uint64_t time = 0;
    static_cast<void>(get_packet_rx_timestamp(any, idx, &time));
    ReorderBurstInfo info;
    require(get_reorder_burst_info(any, &info) != Status::SUCCESS, "nothing was reordered");
  }
  void write_headers() {
    BurstParams* any = burst();
    const int idx = index();
    const char mac[6]{2, 0, 0, 0, 0, 1};
    set_eth_header(any, idx, mac);
    set_ipv4_header(any, idx, static_cast<int>(length()), 17, 1, 2);
    set_udp_header(any, idx, static_cast<int>(length()), 4000,
                   static_cast<std::uint16_t>(test::FIRST_PORT + pick({0, 1, 2, 9})));
    static const std::array<std::uint8_t, 512> PAYLOAD{};
    const auto size = static_cast<int>(length());
    // The caller must not announce more data than it has.
    if (size <= static_cast<int>(PAYLOAD.size())) set_udp_payload(any, idx, PAYLOAD.data(), size);
  }
  void free_some() {
    BurstParams* any = burst();
    switch (input_.ConsumeIntegralInRange(0, 5)) {
      case 0:
        free_packet(any, index());
        break;
      case 1:
        free_packet_segment(any, segment(), index());
        break;
      case 2:
        free_all_segment_packets(any, segment());
        break;
      case 3:
        free_segment_packets_and_burst(any, segment());
        break;
      case 4:
        free_tx_metadata(any);
        break;
      default:
        free_all_packets_and_burst_rx(any);
    }
  }

  void call() {
    switch (input_.ConsumeIntegralInRange(0, 13)) {
      case 0:
      case 1:
        make();
        break;
      case 2:
      case 3:
        receive();
        break;
      case 4:
        touch();
        break;
      case 5:
        write_headers();
        break;
      case 6:
        free_some();
        break;
      case 7:
        set_all_packet_lengths(burst(), {length()});
        break;
      case 8:
        set_packet_lengths(burst(), index(), {length(), length()});
        break;
      case 9:
      case 10:
        static_cast<void>(send_tx_burst(burst()));
        break;
      case 11:
        set_num_packets(burst(), length());
        break;
      case 12:
        set_header(burst(), static_cast<std::uint16_t>(port()), static_cast<std::uint16_t>(queue()),
                   length(), segment());
        break;
      default:
        rare();
    }
  }
  void rare() {
    switch (input_.ConsumeIntegralInRange(0, 5)) {
      case 0:
        static_cast<void>(flush_port_queue(port(), queue()));
        break;
      case 1:
        static_cast<void>(drop_all_traffic(port()));
        break;
      case 2:
        static_cast<void>(allow_all_traffic(port()));
        break;
      case 3:
        static_cast<void>(get_tx_packet_burst(burst()));
        break;
      case 4:
        set_packet_tx_time(burst(), index(), input_.ConsumeIntegral<std::uint64_t>());
        break;
      default:
        shutdown();
    }
  }

  static constexpr std::size_t MOST_BURSTS = 32;
  FuzzedDataProvider& input_;
  std::vector<BurstParams*> seen_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  NetworkConfig config = test::random_config(
      [&input](std::uint32_t first, std::uint32_t last) {
        return input.ConsumeIntegralInRange(first, last);
      },
      2);
  // Otherwise the engine would wait at its end for packets that are not received.
  config.common_.loopback_drops_ = true;
  // Sometimes the engine is not started.
  if (input.ConsumeIntegralInRange(0, 15) != 0)
    require(daqiri_init(config) == Status::SUCCESS, "the engine starts");
  const std::shared_ptr<Session> session = api::running();
  Program program(input);
  program.run();
  program.settle();
  shutdown();
  if (session == nullptr) return 0;
  for (const auto& rx : session->port(0).rx) {
    while (Burst* burst = rx->receive()) burst->release();
    const RxSnapshot counters = rx->counters();
    require(counters.received == counters.delivered + counters.dropped_total(),
            "received is delivered and dropped");
  }
  for (const auto& [name, region] : session->memory()->regions)
    require(region->available() == region->config().num_bufs_, "all buffers come back");
  return 0;
}

// Log lines of rejected calls.
#include <functional>

#include "engine.h"
#include "log_taker.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

std::string logging(const char* yaml) {
  std::string text = yaml;
  return text.replace(text.find("\"off\""), 5, "warn");
}

/// The first refusal is logged, or a later one if another test logged one within the last second.
void require_logged(LogTaker& log, const std::string& call, const std::function<void()>& refused) {
  INFO(call);
  log.forget();
  REQUIRE(eventually([&] {
    refused();
    return log.lines_with(call + ": ") > 0;
  }));
  log.forget();
  // After that, at most one line per second is logged.
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) refused();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begun)
          .count();
  CHECK(log.lines_with(call + ": ") <= static_cast<std::size_t>(seconds) + 1);
}

}  // namespace

TEST_CASE("the first refusal of every call for a burst is in the log", "[api]") {
  LogTaker log;
  const Engine engine(logging(LOOPBACK));
  BurstParams* out = nullptr;
  require_logged(log, "get_rx_burst", [&] { get_rx_burst(&out, 0, 77); });
  require_logged(log, "get_rx_burst", [&] { get_rx_burst(&out, 77); });
  require_logged(log, "get_rx_burst", [&] { get_rx_burst(&out, std::uintptr_t{77}, true); });
  require_logged(log, "wait_rx_burst", [&] { wait_rx_burst(&out, 0, 77, 0); });

  BurstParams* empty = create_tx_burst_params();
  REQUIRE(empty != nullptr);
  set_header(empty, 0, 77, 1, 1);
  require_logged(log, "is_tx_burst_available", [&] { is_tx_burst_available(empty); });
  require_logged(log, "get_tx_packet_burst", [&] { get_tx_packet_burst(empty); });
  require_logged(log, "send_tx_burst", [&] { send_tx_burst(empty); });
  require_logged(log, "set_packet_lengths", [&] { set_packet_lengths(empty, 0, {60}); });
  free_tx_burst(empty);

  BurstParams* burst = filled_burst(1);
  char mac[6]{};
  require_logged(log, "set_header", [&] { set_header(burst, 0, 0, 1, 1); });
  require_logged(log, "set_num_packets", [&] { set_num_packets(burst, 5); });
  require_logged(log, "set_eth_header", [&] { set_eth_header(burst, 3, mac); });
  require_logged(log, "set_ipv4_header", [&] { set_ipv4_header(burst, 0, 9999, 17, 1, 2); });
  require_logged(log, "set_udp_header", [&] { set_udp_header(burst, 0, 9999, 1, 2); });
  require_logged(log, "set_udp_payload", [&] { set_udp_payload(burst, 0, mac, 9999); });
  require_logged(log, "set_packet_lengths", [&] { set_packet_lengths(burst, 0, {9999}); });
  require_logged(log, "set_all_packet_lengths", [&] { set_all_packet_lengths(burst, {9999}); });
  require_logged(log, "set_packet_tx_time", [&] { set_packet_tx_time(burst, 3, 0); });
  require_logged(log, "get_packet_ptr", [&] { get_packet_ptr(burst, 3); });
  require_logged(log, "get_packet_length", [&] { get_packet_length(burst, 3); });
  require_logged(log, "send_tx_burst", [&] { send_tx_burst(burst); });
  free_tx_burst(burst);
  require_logged(log, "free_tx_burst", [&] { free_tx_burst(burst); });
  require_logged(log, "get_num_packets", [&] { get_num_packets(nullptr); });
}

TEST_CASE("each queue has its own first refusal, and later lines tell what was left out", "[api]") {
  LogTaker log;
  const Engine engine(logging(LOOPBACK));
  BurstParams* out = nullptr;
  // Numbers that no other test uses.
  for (const int queue : {3001, 3002, 3003}) CHECK(get_rx_burst(&out, 0, queue) != Status::SUCCESS);
  for (const char* queue : {"queue 3001;", "queue 3002;", "queue 3003;"})
    CHECK(log.lines_with(queue) == 1);
  int refused = 0;
  REQUIRE(eventually([&] {
    get_rx_burst(&out, 0, 3002);
    ++refused;
    return log.lines_with("queue 3002;") > 1;
  }));
  REQUIRE(refused > 1);
  CHECK(log.lines_with("(" + std::to_string(refused - 1) +
                       " failures before it were not logged)") == 1);
}

TEST_CASE("what is only not there yet is not in the log", "[api]") {
  LogTaker log;
  const Engine engine(logging(LOOPBACK));
  BurstParams* out = nullptr;
  CHECK(get_rx_burst(&out, 0, 0) == Status::NULL_PTR);
  CHECK(wait_rx_burst(&out, 0, 0, 1000) == Status::NULL_PTR);
  std::vector<BurstParams*> bursts;
  while (BurstParams* burst = create_tx_burst_params()) bursts.push_back(burst);
  REQUIRE(bursts.size() > 2);
  CHECK_THAT(last_error(), Catch::Contains("all transmit bursts are in use"));
  set_header(bursts[0], 0, 0, 128, 1);
  REQUIRE(get_tx_packet_burst(bursts[0]) == Status::SUCCESS);
  set_header(bursts[1], 0, 0, 1, 1);
  CHECK_FALSE(is_tx_burst_available(bursts[1]));
  CHECK(get_tx_packet_burst(bursts[1]) == Status::NO_FREE_PACKET_BUFFERS);
  CHECK_THAT(last_error(), Catch::Contains("fewer than 1 packet buffers are free"));
  for (BurstParams* burst : bursts) free_tx_burst(burst);
  CHECK(log.lines().empty());
}

TEST_CASE("each warning of a configuration is told once", "[api]") {
  std::string yaml = logging(LOOPBACK);
  // One value is adjusted, three are not changed.
  yaml.replace(yaml.find("num_bufs: 512"), 13, "num_bufs: 90 ");
  yaml.replace(yaml.find("id: 12,"), 7, "id: 0, ");
  yaml.replace(yaml.find("interfaces:"), 0,
               "- {name: spare, kind: host, num_bufs: 8, buf_size: 2048}\n");
  yaml += "debug: true\n";
  LogTaker log;
  const auto require_told = [&](const char* what) {
    INFO(what);
    CHECK(log.lines().size() == 4);
    CHECK(log.lines_with("memory_regions[0].num_bufs: ") == 1);
    CHECK(log.lines_with("memory_regions[2]: is used by no queue") == 1);
    CHECK(log.lines_with("interfaces[0].rx.flows[1].id: ") == 1);
    CHECK(log.lines_with("debug: ") == 1);
    CHECK(log.lines_with("warning") == 0);
    CHECK(log.lines_with("\n") == 0);
    CHECK(log.lines_with("<text>:") == 4);
    log.forget();
  };
  NetworkConfig config;
  REQUIRE(parse_network_config(yaml, config) == Status::SUCCESS);
  require_told("parse_network_config");
  // Different lines: the same text is logged only once a second.
  const Engine engine("\n" + yaml);
  require_told("daqiri_init");
}

TEST_CASE("a burst of batch_size packets that no region holds is refused, not waited for",
          "[api]") {
  const Engine engine(R"(
version: 1
master_core: 0
stream_type: socket
log_level: "off"
memory_regions: [{name: tx, kind: host, num_bufs: 4, buf_size: 2048}]
interfaces:
- name: client
  address: 127.0.0.1
  socket_config: {mode: client, remote_addr: "udp://127.0.0.1:9"}
  tx: {queues: [{name: t, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]}]}
)");
  BurstParams* burst = create_tx_burst_params();
  set_header(burst, 0, 0, 0, 1);
  CHECK_FALSE(is_tx_burst_available(burst));
  CHECK(get_tx_packet_burst(burst) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("batch_size, 8 packets; a burst has 1 to 4"));
  free_tx_burst(burst);
}

TEST_CASE("what does not fit is told with the bytes that the buffers have", "[api]") {
  const Engine engine(SPLIT);
  BurstParams* burst = filled_burst(1, 0, 0, 2);
  const char* const BUFFERS = "the packet's buffers hold 2112 in total";
  CHECK(set_ipv4_header(burst, 0, 9999, 17, 1, 2) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains(BUFFERS));
  CHECK(set_udp_header(burst, 0, 9999, 1, 2) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains(BUFFERS));
  REQUIRE(set_packet_lengths(burst, 0, {42, 100}) == Status::SUCCESS);
  CHECK(set_udp_header(burst, 0, 9999, 1, 2) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(),
             Catch::Contains("segments, with the lengths that are set, hold 2090 in total"));
  free_all_packets_and_burst_tx(burst);
}

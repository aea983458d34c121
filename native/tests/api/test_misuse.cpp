#include <functional>

#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A call that takes a burst, and whether it was rejected.
struct BurstCall {
  const char* name;
  std::function<bool(BurstParams*)> refused;
};

bool no(Status status) { return status == Status::NULL_PTR || status == Status::INVALID_PARAMETER; }

std::vector<BurstCall> burst_calls() {
  static char mac[6]{};
  static std::uint64_t ns = 0;
  static ReorderBurstInfo info;
  const auto silent = [](auto call) {
    return [call](BurstParams* b) {
      call(b);
      return true;
    };
  };
  return {
      {"set_header", silent([](BurstParams* b) { set_header(b, 0, 0, 1, 1); })},
      {"set_num_packets", silent([](BurstParams* b) { set_num_packets(b, 1); })},
      {"get_num_packets", [](BurstParams* b) { return get_num_packets(b) == 0; }},
      {"get_q_id", [](BurstParams* b) { return get_q_id(b) == -1; }},
      {"get_burst_tot_byte", [](BurstParams* b) { return get_burst_tot_byte(b) == 0; }},
      {"get_packet_ptr", [](BurstParams* b) { return get_packet_ptr(b, 0) == nullptr; }},
      {"get_segment_packet_ptr",
       [](BurstParams* b) { return get_segment_packet_ptr(b, 0, 0) == nullptr; }},
      {"get_packet_length", [](BurstParams* b) { return get_packet_length(b, 0) == 0; }},
      {"get_segment_packet_length",
       [](BurstParams* b) { return get_segment_packet_length(b, 0, 0) == 0; }},
      {"get_packet_flow_id", [](BurstParams* b) { return get_packet_flow_id(b, 0) == 0; }},
      {"get_packet_rx_timestamp",
       [](BurstParams* b) { return no(get_packet_rx_timestamp(b, 0, &ns)); }},
      {"get_connection_id", [](BurstParams* b) { return get_connection_id(b) == 0; }},
      {"set_connection_id", silent([](BurstParams* b) { set_connection_id(b, 9); })},
      {"free_packet", silent([](BurstParams* b) { free_packet(b, 0); })},
      {"free_packet_segment", silent([](BurstParams* b) { free_packet_segment(b, 0, 0); })},
      {"free_all_segment_packets", silent([](BurstParams* b) { free_all_segment_packets(b, 0); })},
      {"free_segment_packets_and_burst",
       silent([](BurstParams* b) { free_segment_packets_and_burst(b, 0); })},
      {"free_all_packets_and_burst_rx", silent(free_all_packets_and_burst_rx)},
      {"free_all_packets_and_burst_tx", silent(free_all_packets_and_burst_tx)},
      {"free_rx_burst", silent(free_rx_burst)},
      {"free_tx_burst", silent(free_tx_burst)},
      {"free_rx_metadata", silent(free_rx_metadata)},
      {"free_tx_metadata", silent(free_tx_metadata)},
      {"get_reorder_burst_info",
       [](BurstParams* b) { return no(get_reorder_burst_info(b, &info)); }},
      {"is_tx_burst_available", [](BurstParams* b) { return !is_tx_burst_available(b); }},
      {"get_tx_packet_burst", [](BurstParams* b) { return no(get_tx_packet_burst(b)); }},
      {"set_eth_header", [](BurstParams* b) { return no(set_eth_header(b, 0, mac)); }},
      {"set_ipv4_header", [](BurstParams* b) { return no(set_ipv4_header(b, 0, 8, 17, 1, 2)); }},
      {"set_udp_header", [](BurstParams* b) { return no(set_udp_header(b, 0, 8, 1, 2)); }},
      {"set_udp_payload", [](BurstParams* b) { return no(set_udp_payload(b, 0, mac, 6)); }},
      {"set_packet_lengths", [](BurstParams* b) { return no(set_packet_lengths(b, 0, {60})); }},
      {"set_all_packet_lengths",
       [](BurstParams* b) { return no(set_all_packet_lengths(b, {60})); }},
      {"set_packet_tx_time", [](BurstParams* b) { return no(set_packet_tx_time(b, 0, 1)); }},
      {"send_tx_burst", [](BurstParams* b) { return no(send_tx_burst(b)); }},
      {"daqiri_write_raw_to_file",
       [](BurstParams* b) { return no(daqiri_write_raw_to_file(b, "/tmp", "p", 0)); }},
      {"daqiri_write_pcap_to_file",
       [](BurstParams* b) { return no(daqiri_write_pcap_to_file(b, "/tmp", "p")); }},
      {"daqiri_write_raw_to_file_async",
       [](BurstParams* b) {
         FileWriteHandle* handle = nullptr;
         return no(daqiri_write_raw_to_file_async(b, "/tmp", "p", 0, &handle)) && handle == nullptr;
       }},
      {"daqiri_write_pcap_to_file_async",
       [](BurstParams* b) {
         FileWriteHandle* handle = nullptr;
         return no(daqiri_write_pcap_to_file_async(b, "/tmp", "p", &handle)) && handle == nullptr;
       }},
      {"rdma_set_header",
       [](BurstParams* b) { return no(rdma_set_header(b, RDMAOpCode::SEND, 1, true, 1, 1, "m")); }},
      {"rdma_get_opcode", [](BurstParams* b) { return rdma_get_opcode(b) == RDMAOpCode::INVALID; }},
  };
}

/// Requires that every call is rejected and reports an error.
void check_refused(BurstParams* burst) {
  for (const BurstCall& call : burst_calls()) {
    INFO(call.name);
    get_port_id("another text");
    CHECK(call.refused(burst));
    CHECK_THAT(last_error(), Catch::StartsWith(std::string(call.name) + ": "));
  }
}

/// Checks the results of calls that need a running engine.
void check_not_running() {
  BurstParams* burst = nullptr;
  std::uint16_t port = 0;
  std::uint16_t queue = 0;
  std::uintptr_t connection = 0;
  FlowOpId op = 0;
  FlowOpResult result;
  char mac[6];
  CHECK(get_engine_type() == EngineType::UNKNOWN);
  shutdown();
  print_stats();
  CHECK_THAT(last_error(), Catch::Contains("print_stats") && Catch::Contains("daqiri_init"));
  CHECK(create_burst_params() == nullptr);
  CHECK(create_tx_burst_params() == nullptr);
  CHECK(get_rx_burst(&burst, 0, 0) == Status::NOT_READY);
  CHECK(get_rx_burst(&burst, 0) == Status::NOT_READY);
  CHECK(get_rx_burst(&burst) == Status::NOT_READY);
  CHECK(get_rx_burst(&burst, std::uintptr_t{1}, true) == Status::NOT_READY);
  CHECK(set_reorder_cuda_stream("camera", "r", nullptr) == Status::NOT_READY);
  CHECK(set_reorder_mode("camera", "r", "") == Status::NOT_READY);
  CHECK(add_rx_flow_async(0, {}, &op) == Status::NOT_READY);
  CHECK(add_rx_flows_async(0, {}, &op) == Status::NOT_READY);
  CHECK(delete_flow_async(1, &op) == Status::NOT_READY);
  CHECK(poll_flow_op(&result) == Status::NOT_READY);
  CHECK(get_mac_addr(0, mac) == Status::NOT_READY);
  CHECK(get_port_id("camera") == -1);
  CHECK(get_num_rx_queues(0) == 0);
  CHECK(drop_all_traffic(0) == Status::NOT_READY);
  CHECK(allow_all_traffic(0) == Status::NOT_READY);
  CHECK(flush_port_queue(0, 0) == Status::NOT_READY);
  CHECK(socket_connect_to_server("127.0.0.1", 1, &connection) == Status::NOT_READY);
  CHECK(socket_connect_to_server("127.0.0.1", 1, "127.0.0.1", &connection) == Status::NOT_READY);
  CHECK(socket_get_port_queue(1, &port, &queue) == Status::NOT_READY);
  CHECK(socket_get_server_conn_id("127.0.0.1", 1, &connection) == Status::NOT_READY);
  CHECK(socket_setsockopt(1, 0, 0, &port, sizeof port) == Status::NOT_READY);
  CHECK(rdma_connect_to_server("127.0.0.1", 1, &connection) == Status::NOT_READY);
  CHECK(rdma_connect_to_server("127.0.0.1", 1, "127.0.0.1", &connection) == Status::NOT_READY);
  CHECK(rdma_get_port_queue(1, &port, &queue) == Status::NOT_READY);
  CHECK(rdma_get_server_conn_id("127.0.0.1", 1, &connection) == Status::NOT_READY);
  CHECK(burst == nullptr);
}

}  // namespace

TEST_CASE("null bursts are refused by every call", "[api][misuse]") {
  SECTION("without an engine") { check_refused(nullptr); }
  SECTION("with an engine") {
    const Engine engine(LOOPBACK);
    check_refused(nullptr);
  }
}

TEST_CASE("freed bursts are refused by every call", "[api][misuse]") {
  BurstParams* burst = nullptr;
  BurstParams* received = nullptr;
  {
    const Engine engine(LOOPBACK);
    burst = filled_burst(2);
    free_all_packets_and_burst_tx(burst);
    check_refused(burst);
    send_frames(8, 5000);
    REQUIRE(eventually([&] { return get_rx_burst(&received, 0, 0) == Status::SUCCESS; }));
    free_all_packets_and_burst_rx(received);
    check_refused(received);
  }
  check_refused(burst);
  check_refused(received);
}

TEST_CASE("without an engine calls say so", "[api][misuse]") {
  SECTION("before init") { check_not_running(); }
  SECTION("after shutdown") {
    {
      const Engine engine(LOOPBACK);
    }
    check_not_running();
  }
}

TEST_CASE("indices out of range are refused", "[api][misuse]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(2);
  for (const int i : {-1, 2, 8, 1 << 30}) {
    INFO("packet " << i);
    std::uint64_t ns = 0;
    char mac[6]{};
    CHECK(get_packet_ptr(burst, i) == nullptr);
    CHECK(get_segment_packet_ptr(burst, 0, i) == nullptr);
    CHECK(get_packet_length(burst, i) == 0);
    CHECK(get_segment_packet_length(burst, 0, i) == 0);
    CHECK(get_packet_flow_id(burst, i) == 0);
    CHECK(get_packet_rx_timestamp(burst, i, &ns) == Status::INVALID_PARAMETER);
    CHECK(set_eth_header(burst, i, mac) == Status::INVALID_PARAMETER);
    CHECK(set_ipv4_header(burst, i, 8, 17, 1, 2) == Status::INVALID_PARAMETER);
    CHECK(set_udp_header(burst, i, 8, 1, 2) == Status::INVALID_PARAMETER);
    CHECK(set_udp_payload(burst, i, mac, 6) == Status::INVALID_PARAMETER);
    CHECK(set_packet_lengths(burst, i, {60}) == Status::INVALID_PARAMETER);
    CHECK(set_packet_tx_time(burst, i, 1) == Status::INVALID_PARAMETER);
    free_packet(burst, i);
    free_packet_segment(burst, 0, i);
  }
  for (const int s : {-1, 1, 4, 1 << 30}) {
    INFO("segment " << s);
    CHECK(get_segment_packet_ptr(burst, s, 0) == nullptr);
    CHECK(get_segment_packet_length(burst, s, 0) == 0);
    free_packet_segment(burst, s, 0);
    free_all_segment_packets(burst, s);
    free_segment_packets_and_burst(burst, s);
  }
  CHECK(get_packet_ptr(burst, 1) != nullptr);
  free_tx_burst(burst);
}

TEST_CASE("ports and queues that do not exist are refused by name", "[api][misuse]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = nullptr;
  char mac[6];
  for (const int port : {-1, 2, 70000}) {
    CHECK(get_rx_burst(&burst, port, 0) == Status::INVALID_PARAMETER);
    CHECK(get_rx_burst(&burst, port) == Status::INVALID_PARAMETER);
    CHECK(get_mac_addr(port, mac) == Status::INVALID_PARAMETER);
    CHECK(get_num_rx_queues(port) == 0);
    CHECK(drop_all_traffic(port) == Status::INVALID_PARAMETER);
    CHECK(allow_all_traffic(port) == Status::INVALID_PARAMETER);
    CHECK(flush_port_queue(port, 0) == Status::INVALID_PARAMETER);
  }
  CHECK(get_rx_burst(&burst, 0, 2) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("camera") && Catch::Contains("0, 1"));
  CHECK(flush_port_queue(1, 0) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("clock") && Catch::Contains("5"));
  CHECK(get_port_id("nothing") == -1);
  CHECK_THAT(last_error(), Catch::Contains("camera, clock"));
}

TEST_CASE("null pointers for results are refused", "[api][misuse]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(1);
  std::uint16_t number = 0;
  CHECK(get_rx_burst(nullptr) == Status::INVALID_PARAMETER);
  CHECK(get_rx_burst(nullptr, 0) == Status::INVALID_PARAMETER);
  CHECK(get_rx_burst(nullptr, 0, 0) == Status::INVALID_PARAMETER);
  CHECK(get_packet_rx_timestamp(burst, 0, nullptr) == Status::NULL_PTR);
  CHECK(get_reorder_burst_info(burst, nullptr) == Status::NULL_PTR);
  CHECK(set_eth_header(burst, 0, nullptr) == Status::NULL_PTR);
  CHECK(set_udp_payload(burst, 0, nullptr, 5) == Status::NULL_PTR);
  CHECK(set_udp_payload(burst, 0, nullptr, 0) == Status::SUCCESS);
  CHECK(get_mac_addr(0, nullptr) == Status::NULL_PTR);
  format_eth_addr(nullptr, "02:00:00:00:00:01");
  CHECK(socket_connect_to_server("127.0.0.1", 1, nullptr) == Status::NULL_PTR);
  CHECK(socket_get_port_queue(1, &number, nullptr) == Status::NULL_PTR);
  CHECK(socket_get_port_queue(1, nullptr, &number) == Status::NULL_PTR);
  CHECK(socket_get_server_conn_id("127.0.0.1", 1, nullptr) == Status::NULL_PTR);
  CHECK(socket_setsockopt(1, 0, 0, nullptr, 4) == Status::NULL_PTR);
  free_tx_burst(burst);
}

TEST_CASE("what this build lacks is refused in words", "[api]") {
  const Engine engine(LOOPBACK);
  std::uintptr_t connection = 0;
  std::uint16_t number = 0;
  BurstParams* burst = filled_burst(1);
  ReorderBurstInfo info;
  const auto check = [](Status status, const char* what) {
    CHECK(status == Status::NOT_SUPPORTED);
    CHECK_THAT(last_error(), Catch::Contains(what));
  };
  check(get_reorder_burst_info(burst, &info), "reorder");
  check(rdma_connect_to_server("127.0.0.1", 1, &connection), "no RDMA engine");
  check(rdma_connect_to_server("127.0.0.1", 1, "127.0.0.1", &connection), "no RDMA engine");
  check(rdma_get_port_queue(1, &number, &number), "no RDMA engine");
  check(rdma_get_server_conn_id("127.0.0.1", 1, &connection), "no RDMA engine");
  check(rdma_set_header(burst, RDMAOpCode::SEND, 1, true, 1, 1, "m"), "no RDMA engine");
  CHECK(rdma_get_opcode(burst) == RDMAOpCode::INVALID);
  check(socket_connect_to_server("127.0.0.1", 1, &connection), "socket streams only");
  check(socket_get_port_queue(1, &number, &number), "socket streams only");
  check(socket_get_server_conn_id("127.0.0.1", 1, &connection), "socket streams only");
  check(socket_setsockopt(1, 0, 0, &number, sizeof number), "socket streams only");
  BurstParams* received = nullptr;
  check(get_rx_burst(&received, std::uintptr_t{1}, true), "socket streams only");
  free_tx_burst(burst);
}

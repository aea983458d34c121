// Send messages by RDMA, and match completions by their numbers. Usage: rdma CONFIG
#include <cstring>

#include "program.h"

namespace {

constexpr int MESSAGES = 4;

void post(daqiri::RDMAOpCode operation, std::uintptr_t connection, bool server, int number,
          const char* region) {
  daqiri::BurstParams* burst = daqiri::create_tx_burst_params();
  expect(burst != nullptr, "create_tx_burst_params");
  check(daqiri::rdma_set_header(burst, operation, connection, server, 1,
                                static_cast<std::uint64_t>(number), region),
        "rdma_set_header");
  check(daqiri::get_tx_packet_burst(burst), "get_tx_packet_burst");
  if (operation == daqiri::RDMAOpCode::SEND) {
    std::memset(daqiri::get_packet_ptr(burst, 0), number, 64);
    check(daqiri::set_packet_lengths(burst, 0, {64}), "set_packet_lengths");
  }
  check(daqiri::send_tx_burst(burst), "send_tx_burst");
}

void complete(std::uintptr_t connection, bool server, daqiri::RDMAOpCode operation, int number) {
  daqiri::BurstParams* burst = nullptr;
  wait_for("a completion", [&] {
    return daqiri::get_rx_burst(&burst, connection, server) == daqiri::Status::SUCCESS;
  });
  expect(daqiri::rdma_get_opcode(burst) == operation, "its operation");
  expect(burst->transport_hdr.wr_id == static_cast<std::uint64_t>(number), "its number");
  daqiri::free_all_packets_and_burst_rx(burst);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  std::uintptr_t client = 0;
  std::uintptr_t server = 0;
  check(daqiri::rdma_connect_to_server("127.0.0.1", 4791, "127.0.0.1", &client),
        "rdma_connect_to_server");
  wait_for("a client", [&] {
    const auto status = daqiri::rdma_get_server_conn_id("127.0.0.1", 4791, &server);
    return status == daqiri::Status::SUCCESS;
  });
  std::uint16_t port = 0;
  std::uint16_t queue = 0;
  check(daqiri::rdma_get_port_queue(client, &port, &queue), "rdma_get_port_queue");
  for (int i = 0; i < MESSAGES; i++)
    post(daqiri::RDMAOpCode::RECEIVE, server, true, i, "server_rx");
  for (int i = 0; i < MESSAGES; i++) post(daqiri::RDMAOpCode::SEND, client, false, i, "client_tx");
  for (int i = 0; i < MESSAGES; i++) {
    complete(server, true, daqiri::RDMAOpCode::RECEIVE, i);
    complete(client, false, daqiri::RDMAOpCode::SEND, i);
  }
  daqiri::shutdown();
  std::puts("done");
}

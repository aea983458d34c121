#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "engine.h"
#include "free_port.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

std::string interface(const std::string& name, const std::string& socket, bool rx) {
  std::string text =
      "- name: " + name + "\n  address: 127.0.0.1\n  socket_config: {" + socket + "}\n";
  if (rx) {
    text +=
        "  rx: {queues: [{name: r, id: 0, cpu_core: any, batch_size: 4, "
        "memory_regions: [rx]}]}\n";
  }
  return text +
         "  tx: {queues: [{name: t, id: 0, cpu_core: any, batch_size: 4, memory_regions: [tx]}]}\n";
}

/// Port 0 is a server; ports 1 and 2 are its clients, which receive replies.
std::string udp_config(std::uint16_t port) {
  const std::string uri = "udp://127.0.0.1:" + std::to_string(port);
  return "version: 1\nmaster_core: 0\nstream_type: socket\nlog_level: \"off\"\nmemory_regions:\n"
         "- {name: rx, kind: host, num_bufs: 256, buf_size: 2048}\n"
         "- {name: tx, kind: host, num_bufs: 256, buf_size: 2048}\ninterfaces:\n" +
         interface("server", "mode: server, local_addr: '" + uri + "'", true) +
         interface("alice", "mode: client, remote_addr: '" + uri + "'", true) +
         interface("bob", "mode: client, remote_addr: '" + uri + "'", true);
}

void send_text(std::uint16_t port, const std::string& text, std::uintptr_t connection = 0) {
  BurstParams* burst = filled_burst(1, port);
  REQUIRE(set_udp_payload(burst, 0, text.data(), static_cast<int>(text.size())) == Status::SUCCESS);
  REQUIRE(set_packet_lengths(burst, 0, {text.size()}) == Status::SUCCESS);
  set_connection_id(burst, connection);
  CHECK(get_connection_id(burst) == connection);
  REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
}

/// The payload and the sender of the next packet.
template <typename Get>
std::string receive_text(Get&& get, std::uintptr_t* connection = nullptr) {
  BurstParams* burst = nullptr;
  REQUIRE(eventually([&] { return get(&burst) == Status::SUCCESS; }));
  CHECK(get_num_packets(burst) == 1);
  const std::string text(static_cast<const char*>(get_packet_ptr(burst, 0)),
                         get_packet_length(burst, 0));
  if (connection != nullptr) *connection = get_connection_id(burst);
  std::uint64_t ns = 0;
  CHECK(get_packet_rx_timestamp(burst, 0, &ns) == Status::SUCCESS);
  free_all_packets_and_burst_rx(burst);
  return text;
}

}  // namespace

TEST_CASE("datagrams go to a server and answers to the peer that sent them", "[api]") {
  const std::uint16_t port = free_port_for(SOCK_DGRAM);
  const Engine engine(udp_config(port));
  CHECK(get_engine_type() == EngineType::SOCKET);

  std::uintptr_t server = 0;
  REQUIRE(socket_get_server_conn_id("127.0.0.1", port, &server) == Status::SUCCESS);
  CHECK(socket_get_server_conn_id("127.0.0.1", 1, &server) == Status::INVALID_PARAMETER);
  std::uint16_t port_id = 9;
  std::uint16_t queue_id = 9;
  REQUIRE(socket_get_port_queue(server, &port_id, &queue_id) == Status::SUCCESS);
  CHECK(port_id == 0);
  CHECK(queue_id == 0);

  send_text(1, "hello from alice");
  std::uintptr_t alice = 0;
  CHECK(receive_text([&](BurstParams** b) { return get_rx_burst(b, server, true); }, &alice) ==
        "hello from alice");
  send_text(2, "hello from bob");
  std::uintptr_t bob = 0;
  CHECK(receive_text([](BurstParams** b) { return get_rx_burst(b, 0, 0); }, &bob) ==
        "hello from bob");
  CHECK(alice != 0);
  CHECK(bob != alice);
  CHECK(server != alice);

  send_text(1, "again");
  send_text(2, "and again");
  CHECK(receive_text([=](BurstParams** b) { return get_rx_burst(b, bob, true); }) == "and again");
  CHECK(receive_text([=](BurstParams** b) { return get_rx_burst(b, alice, true); }) == "again");

  send_text(0, "answer to alice", alice);
  CHECK(receive_text([](BurstParams** b) { return get_rx_burst(b, 1, 0); }) == "answer to alice");
  BurstParams* burst = nullptr;
  CHECK(get_rx_burst(&burst, 2, 0) == Status::NULL_PTR);

  std::uintptr_t client = 0;
  REQUIRE(socket_connect_to_server("127.0.0.1", port, &client) == Status::SUCCESS);
  REQUIRE(socket_get_port_queue(client, &port_id, &queue_id) == Status::SUCCESS);
  CHECK(port_id == 1);
  send_text(0, "to the client's side", alice);
  CHECK(receive_text([=](BurstParams** b) { return get_rx_burst(b, client, false); }) ==
        "to the client's side");
  CHECK(get_rx_burst(&burst, client, true) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("client's side"));
  CHECK(get_rx_burst(&burst, std::uintptr_t{999999}, true) == Status::INVALID_PARAMETER);
  CHECK(socket_connect_to_server("127.0.0.1", port, "127.0.0.1", &client) == Status::SUCCESS);
  CHECK(socket_connect_to_server("not an address", port, &client) != Status::SUCCESS);
}

TEST_CASE("a server without a peer says so, and takes no packets", "[api]") {
  const std::uint16_t port = free_port_for(SOCK_DGRAM);
  const Engine engine(udp_config(port));
  std::uintptr_t server = 0;
  REQUIRE(socket_get_server_conn_id("127.0.0.1", port, &server) == Status::SUCCESS);
  const auto send_to = [](std::uint16_t from, std::uintptr_t connection) {
    BurstParams* burst = filled_burst(1, from);
    set_connection_id(burst, connection);
    return send_tx_burst(burst);
  };
  // More attempts than there are bursts and buffers: they must be returned.
  for (int i = 0; i < 1000; ++i) REQUIRE(send_to(0, 0) == Status::CONNECT_FAILURE);
  CHECK_THAT(last_error(), Catch::Contains("transmit queue 't', connection 0: no client has sent"));
  CHECK(send_to(0, server) == Status::CONNECT_FAILURE);
  CHECK(send_to(0, 999999) == Status::CONNECT_FAILURE);
  CHECK_THAT(last_error(), Catch::Contains("connection 999999: the interface has no such"));
  // A client has one connection.
  CHECK(send_to(1, 999999) == Status::CONNECT_FAILURE);
  CHECK(send_to(1, server) == Status::CONNECT_FAILURE);

  send_text(1, "here I am");
  CHECK(receive_text([](BurstParams** b) { return get_rx_burst(b, 0, 0); }) == "here I am");
  send_text(0, "welcome");
  CHECK(receive_text([](BurstParams** b) { return get_rx_burst(b, 1, 0); }) == "welcome");
  CHECK(send_to(0, 999999) == Status::CONNECT_FAILURE);
  const auto session = api::running();
  const TxSnapshot sent = session->tx_queue(0, 0).counters();
  CHECK(sent.submitted == 1);
  CHECK(sent.dropped_total() == 0);
}

TEST_CASE("sockets have the address of a network interface, if it has one", "[api]") {
  const Engine engine(udp_config(free_port_for(SOCK_DGRAM)));
  char mac[6]{1, 2, 3, 4, 5, 6};
  CHECK(get_mac_addr(0, mac) == Status::NOT_SUPPORTED);
  CHECK_THAT(last_error(), Catch::Contains("'server' has no Ethernet address"));
  CHECK(std::all_of(std::begin(mac), std::end(mac), [](char byte) { return byte == 0; }));
}

TEST_CASE("socket options reach the kernel", "[api]") {
  const std::uint16_t port = free_port_for(SOCK_DGRAM);
  const Engine engine(udp_config(port));
  std::uintptr_t server = 0;
  REQUIRE(socket_get_server_conn_id("127.0.0.1", port, &server) == Status::SUCCESS);
  const int tos = 0x10;
  CHECK(socket_setsockopt(server, IPPROTO_IP, IP_TOS, &tos, sizeof tos) == Status::SUCCESS);
  CHECK(socket_setsockopt(server, IPPROTO_IP, 12345, &tos, sizeof tos) == Status::GENERIC_FAILURE);
  CHECK_THAT(last_error(), Catch::Contains("12345"));
  CHECK(socket_setsockopt(999999, IPPROTO_IP, IP_TOS, &tos, sizeof tos) ==
        Status::INVALID_PARAMETER);
}

TEST_CASE("socket streams have no headers to write", "[api]") {
  const Engine engine(udp_config(free_port_for(SOCK_DGRAM)));
  BurstParams* burst = filled_burst(1, 1);
  char mac[6]{};
  CHECK(set_eth_header(burst, 0, mac) == Status::NOT_SUPPORTED);
  CHECK(set_ipv4_header(burst, 0, 8, IPPROTO_UDP, 1, 2) == Status::NOT_SUPPORTED);
  CHECK(set_udp_header(burst, 0, 8, 1, 2) == Status::NOT_SUPPORTED);
  CHECK_THAT(last_error(), Catch::Contains("kernel"));
  // A datagram may be empty.
  CHECK(send_tx_burst(burst) == Status::SUCCESS);
  CHECK(receive_text([](BurstParams** b) { return get_rx_burst(b, 0, 0); }).empty());
}

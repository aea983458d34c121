// A user's program, written from the API guide: Ethernet frames over the loopback, datagrams over
// UDP.
//
//   cpp_api frames CONFIG DIRECTORY   send 1000 frames, the last 8 at set times; record what
//   arrives cpp_api datagrams PORT DIRECTORY  ask a server 100 times and read its answers; record
//   the questions cpp_api leave CONFIG              end with the engine running and a burst in hand
#include <daqiri/daqiri.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

using daqiri::BurstParams;
using daqiri::Status;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, daqiri::last_error());
  std::exit(1);
}

void check(Status status, const char* what) {
  if (status != Status::SUCCESS) give_up(what);
}

void expect(bool condition, const char* what) {
  if (!condition) give_up(what);
}

/// Try again until `done`, for 20 s at most.
template <typename Done>
void wait_for(const char* what, Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) give_up(what);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

BurstParams* tx_burst(int port_id, int batch_size) {
  BurstParams* burst = nullptr;
  wait_for("create_tx_burst_params",
           [&] { return (burst = daqiri::create_tx_burst_params()) != nullptr; });
  daqiri::set_header(burst, static_cast<std::uint16_t>(port_id), 0, batch_size, 1);
  wait_for("is_tx_burst_available", [&] { return daqiri::is_tx_burst_available(burst); });
  check(daqiri::get_tx_packet_burst(burst), "get_tx_packet_burst");
  return burst;
}

constexpr int FRAMES = 1000;
constexpr int BATCH = 50;
constexpr int TIMED = 8;
constexpr int PAYLOAD = 200;
constexpr std::uint64_t GAP_NS = 3'000'000;

void send_frames(int port_id, int first, int count, std::uint64_t launch) {
  char dst_mac[6];
  daqiri::format_eth_addr(dst_mac, "02:00:00:00:00:99");
  BurstParams* burst = tx_burst(port_id, count);
  for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
    unsigned char payload[PAYLOAD] = {};
    const int number = first + i;
    std::memcpy(payload, &number, sizeof number);
    const std::size_t total_pkt_len = sizeof(daqiri::UDPIPV4Pkt) + PAYLOAD;
    check(daqiri::set_eth_header(burst, i, dst_mac), "set_eth_header");
    check(daqiri::set_ipv4_header(burst, i, 8 + PAYLOAD, IPPROTO_UDP, 0x0A000001, 0x0A000002),
          "set_ipv4_header");
    check(daqiri::set_udp_header(burst, i, PAYLOAD, 4000, 5000), "set_udp_header");
    check(daqiri::set_udp_payload(burst, i, payload, PAYLOAD), "set_udp_payload");
    check(daqiri::set_packet_lengths(burst, i, {total_pkt_len}), "set_packet_lengths");
    if (launch != 0) {
      check(daqiri::set_packet_tx_time(burst, i, launch + GAP_NS * static_cast<std::uint64_t>(i)),
            "set_packet_tx_time");
    }
  }
  check(daqiri::send_tx_burst(burst), "send_tx_burst");
}

/// Read what arrived, in order from number `next` on, and append it to the pcap file.
void record(const std::string& directory, int& next, std::uint64_t launch) {
  BurstParams* burst;
  while (daqiri::get_rx_burst(&burst) == Status::SUCCESS) {
    expect((burst->hdr.hdr.burst_flags & daqiri::DAQIRI_BURST_FLAG_REORDERED) == 0U,
           "no aggregate");
    expect(burst->event == nullptr, "no CUDA event");
    for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
      void* pkt = daqiri::get_packet_ptr(burst, i);
      std::uint32_t len = daqiri::get_packet_length(burst, i);
      std::uint16_t flow = daqiri::get_packet_flow_id(burst, i);
      std::uint64_t rx_ts_ns = 0;
      check(daqiri::get_packet_rx_timestamp(burst, i, &rx_ts_ns), "get_packet_rx_timestamp");
      int number = -1;
      std::memcpy(&number, static_cast<char*>(pkt) + sizeof(daqiri::UDPIPV4Pkt), sizeof number);
      expect(number == next, "packets in order");
      expect(len == sizeof(daqiri::UDPIPV4Pkt) + PAYLOAD, "whole packets");
      expect(flow == 7, "flow id");
      const int timed = number - (FRAMES - TIMED);
      if (timed >= 0) {
        expect(rx_ts_ns >= launch + GAP_NS * static_cast<std::uint64_t>(timed),
               "not before its launch time");
      }
      next++;
    }
    check(daqiri::daqiri_write_pcap_to_file(burst, directory, "frames"),
          "daqiri_write_pcap_to_file");
    if (next <= BATCH) {
      daqiri::FileWriteHandle* handle = nullptr;
      auto st = daqiri::daqiri_write_raw_to_file_async(burst, directory, "payload",
                                                       sizeof(daqiri::UDPIPV4Pkt), &handle);
      daqiri::FileWriteStatus status{};
      if (st == Status::SUCCESS) {
        st = daqiri::daqiri_file_write_wait(handle, &status);
        daqiri::daqiri_file_write_destroy(handle);
      }
      check(st, "daqiri_write_raw_to_file_async");
    }
    daqiri::free_all_packets_and_burst_rx(burst);
  }
}

void frames(const std::string& config, const std::string& directory) {
  auto status = daqiri::daqiri_init(config);
  check(status, "daqiri_init");
  const int port_id = daqiri::get_port_id("camera");
  expect(port_id >= 0, "get_port_id");
  expect(daqiri::get_num_rx_queues(port_id) == 1, "get_num_rx_queues");
  char mac[6];
  check(daqiri::get_mac_addr(port_id, mac), "get_mac_addr");
  check(daqiri::flush_port_queue(port_id, 0), "flush_port_queue");
  check(daqiri::drop_all_traffic(port_id), "drop_all_traffic");
  check(daqiri::allow_all_traffic(port_id), "allow_all_traffic");

  int received = 0;
  for (int sent = 0; sent < FRAMES - TIMED; sent += BATCH) {
    send_frames(port_id, sent, std::min(BATCH, FRAMES - TIMED - sent), 0);
    record(directory, received, 0);
  }
  const std::uint64_t launch = now_ns() + 50'000'000;
  send_frames(port_id, FRAMES - TIMED, TIMED, launch);
  wait_for("every frame", [&] {
    record(directory, received, launch);
    return received == FRAMES;
  });
  daqiri::print_stats();
  daqiri::shutdown();
}

daqiri::NetworkConfig udp_config(std::uint16_t port) {
  daqiri::NetworkConfig config;
  config.common_.stream_type = daqiri::StreamType::SOCKET;
  for (const char* name : {"rx", "tx"}) {
    daqiri::MemoryRegionConfig region;
    region.name_ = name;
    region.kind_ = daqiri::MemoryKind::HOST;
    region.num_bufs_ = 512;
    region.buf_size_ = 2048;
    config.mrs_.emplace(region.name_, region);
  }
  for (const char* name : {"server", "client"}) {
    daqiri::InterfaceConfig interface;
    interface.name_ = name;
    interface.address_ = "127.0.0.1";
    interface.has_socket_ = true;
    const std::string endpoint = "udp://127.0.0.1:" + std::to_string(port);
    if (config.ifs_.empty()) {
      interface.socket_.mode_ = daqiri::SocketMode::SERVER;
      interface.socket_.local_addr_ = endpoint;
    } else {
      interface.socket_.mode_ = daqiri::SocketMode::CLIENT;
      interface.socket_.remote_addr_ = endpoint;
    }
    daqiri::RxQueueConfig rx;
    rx.common_.name_ = "rx";
    rx.common_.cpu_core_ = "any";
    rx.common_.batch_size_ = 16;
    rx.common_.mrs_ = {"rx"};
    interface.rx_.queues_ = {rx};
    daqiri::TxQueueConfig tx;
    tx.common_.name_ = "tx";
    tx.common_.cpu_core_ = "any";
    tx.common_.batch_size_ = 16;
    tx.common_.mrs_ = {"tx"};
    interface.tx_.queues_ = {tx};
    config.ifs_.push_back(interface);
  }
  return config;
}

void send_text(int port_id, const std::string& text, std::uintptr_t connection) {
  BurstParams* burst = tx_burst(port_id, 1);
  check(daqiri::set_udp_payload(burst, 0, text.data(), static_cast<int>(text.size())),
        "set_udp_payload");
  check(daqiri::set_packet_lengths(burst, 0, {text.size()}), "set_packet_lengths");
  daqiri::set_connection_id(burst, connection);
  check(daqiri::send_tx_burst(burst), "send_tx_burst");
}

std::string text_of(BurstParams* burst) {
  return {static_cast<char*>(daqiri::get_packet_ptr(burst, 0)),
          daqiri::get_packet_length(burst, 0)};
}

void datagrams(std::uint16_t port, const std::string& directory) {
  auto config = udp_config(port);
  check(daqiri::daqiri_init(config), "daqiri_init");
  expect(daqiri::get_engine_type() == daqiri::EngineType::SOCKET, "get_engine_type");
  std::uintptr_t server = 0;
  std::uintptr_t client = 0;
  check(daqiri::socket_get_server_conn_id("127.0.0.1", port, &server), "socket_get_server_conn_id");
  check(daqiri::socket_connect_to_server("127.0.0.1", port, &client), "socket_connect_to_server");
  std::uint16_t client_port = 0;
  std::uint16_t client_queue = 0;
  check(daqiri::socket_get_port_queue(client, &client_port, &client_queue),
        "socket_get_port_queue");
  for (int i = 0; i < 100; i++) {
    const std::string question = "question " + std::to_string(i);
    send_text(client_port, question, client);
    BurstParams* burst = nullptr;
    wait_for("a question",
             [&] { return daqiri::get_rx_burst(&burst, server, true) == Status::SUCCESS; });
    expect(text_of(burst) == question, "the question that was asked");
    check(daqiri::daqiri_write_pcap_to_file(burst, directory, "datagrams"),
          "daqiri_write_pcap_to_file");
    const std::uintptr_t peer = daqiri::get_connection_id(burst);
    daqiri::free_all_packets_and_burst_rx(burst);
    send_text(daqiri::get_port_id("server"), "answer " + std::to_string(i), peer);
    wait_for("an answer",
             [&] { return daqiri::get_rx_burst(&burst, client, false) == Status::SUCCESS; });
    expect(text_of(burst) == "answer " + std::to_string(i), "the answer that was given");
    daqiri::free_all_packets_and_burst_rx(burst);
  }
  daqiri::shutdown();
}

void leave(const std::string& config) {
  check(daqiri::daqiri_init(config), "daqiri_init");
  send_frames(0, 0, BATCH, 0);
  BurstParams* burst = nullptr;
  wait_for("a burst", [&] { return daqiri::get_rx_burst(&burst) == Status::SUCCESS; });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "frames" && argc == 4) {
    frames(argv[2], argv[3]);
  } else if (what == "datagrams" && argc == 4) {
    datagrams(static_cast<std::uint16_t>(std::atoi(argv[2])), argv[3]);
  } else if (what == "leave" && argc == 3) {
    leave(argv[2]);
  } else {
    std::fprintf(stderr,
                 "cpp_api frames CONFIG DIRECTORY | datagrams PORT DIRECTORY | leave CONFIG\n");
    return 2;
  }
  std::printf("%s: done with daqiri %s\n", what.c_str(), daqiri::version_string());
  return 0;
}

// A server and a client of a socket stream send each other messages, in one process or in two.
// Usage: sockets server|client|both udp|tcp PORT COUNT
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "program.h"

namespace {

constexpr std::size_t SIZE = 100;
constexpr int BATCH = 8;
/// Says who the client is, before there is anything to say: UDP has no connections.
constexpr int HELLO = -1;

daqiri::InterfaceConfig interface(const std::string& role, const std::string& endpoint) {
  daqiri::InterfaceConfig interface;
  interface.name_ = role;
  interface.address_ = "127.0.0.1";
  if (role == "server") {
    interface.socket_.mode_ = daqiri::SocketMode::SERVER;
    interface.socket_.local_addr_ = endpoint;
  } else {
    interface.socket_.mode_ = daqiri::SocketMode::CLIENT;
    interface.socket_.remote_addr_ = endpoint;
  }
  daqiri::RxQueueConfig rx;
  rx.common_.name_ = "rx";
  rx.common_.cpu_core_ = "any";
  rx.common_.batch_size_ = BATCH;  // no more in a burst; what is there is handed over
  rx.common_.mrs_ = {"rx"};
  interface.rx_.queues_ = {rx};
  daqiri::TxQueueConfig tx;
  tx.common_.name_ = "tx";
  tx.common_.cpu_core_ = "any";
  tx.common_.batch_size_ = BATCH;
  tx.common_.mrs_ = {"tx"};
  interface.tx_.queues_ = {tx};
  return interface;
}

daqiri::NetworkConfig config(const std::vector<std::string>& roles, const std::string& endpoint) {
  daqiri::NetworkConfig config;
  config.common_.stream_type = daqiri::StreamType::SOCKET;
  for (const char* name : {"rx", "tx"}) {
    daqiri::MemoryRegionConfig region;
    region.name_ = name;
    region.kind_ = daqiri::MemoryKind::HOST;
    region.num_bufs_ = 2048;
    region.buf_size_ = 2048;
    config.mrs_.emplace(name, region);
  }
  for (const auto& role : roles) config.ifs_.push_back(interface(role, endpoint));
  return config;
}

class Side {
 public:
  Side(const std::string& role, bool tcp, std::uint16_t port, int count)
      : server_(role == "server"),
        tcp_(tcp),
        port_(port),
        count_(count),
        seen_(static_cast<std::size_t>(count)),
        port_id_(daqiri::get_port_id(role)) {
    expect(port_id_ >= 0, "get_port_id");
  }

  [[nodiscard]] bool done() const {
    return sent_ == count_ && received_ == count_ && text_.empty();
  }

  /// Send a burst, if the peer can be sent to, and take a burst, if there is one. Never waits.
  void step() {
    receive();
    if (server_) {
      send_as_server();
    } else if (tcp_ || heard_) {
      if (sent_ < count_) sent_ += send(0, sent_, std::min(BATCH, count_ - sent_));
    } else if (std::chrono::steady_clock::now() >= next_hello_) {
      send(0, HELLO, 1);
      next_hello_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    }
  }

  /// Whether a send was refused because there was nobody yet.
  [[nodiscard]] bool waited() const { return waited_; }

 private:
  void send_as_server() {
    if (sent_ == count_) return;
    std::uintptr_t connection = 0;
    const auto status = daqiri::socket_get_server_conn_id("127.0.0.1", port_, &connection);
    if (tcp_ && status == daqiri::Status::NULL_PTR) {
      waited_ = true;
      return;
    }
    check(status, "socket_get_server_conn_id");
    const int number = send(connection, sent_, std::min(BATCH, count_ - sent_));
    if (number == 0) waited_ = true;
    sent_ += number;
  }

  /// Send messages from `first` on; how many, 0: there is nobody yet.
  int send(std::uintptr_t connection, int first, int number) {
    auto* burst = tx_burst(port_id_, 0, number, 1);
    for (int i = 0; i < number; i++) {
      std::array<char, SIZE> message{};
      const int value = first + i;
      std::memcpy(message.data(), &value, sizeof value);
      check(daqiri::set_udp_payload(burst, i, message.data(), SIZE), "set_udp_payload");
      check(daqiri::set_packet_lengths(burst, i, {SIZE}), "set_packet_lengths");
    }
    daqiri::set_connection_id(burst, connection);
    const auto status = daqiri::send_tx_burst(burst);
    if (status == daqiri::Status::CONNECT_FAILURE) return 0;  // it has freed the burst
    check(status, "send_tx_burst");
    return number;
  }

  void receive() {
    daqiri::BurstParams* burst = nullptr;
    const auto status = daqiri::get_rx_burst(&burst, port_id_);
    if (status == daqiri::Status::NULL_PTR) return;
    check(status, "get_rx_burst");
    expect(daqiri::get_num_packets(burst) <= BATCH, "at most batch_size packets");
    for (int i = 0; i < daqiri::get_num_packets(burst); i++) {
      const char* packet = static_cast<char*>(daqiri::get_packet_ptr(burst, i));
      // A packet of TCP is what has arrived: messages may be cut.
      text_.append(packet, daqiri::get_packet_length(burst, i));
      while (text_.size() >= SIZE) {
        take();
        text_.erase(0, SIZE);
      }
    }
    heard_ = true;
    daqiri::free_all_packets_and_burst_rx(burst);
  }

  void take() {
    int number = 0;
    std::memcpy(&number, text_.data(), sizeof number);
    if (number == HELLO) return;
    expect(number >= 0 && number < count_, "a number of a message");
    expect(!tcp_ || number == received_, "messages in order");
    expect(!seen_[static_cast<std::size_t>(number)], "every message once");
    seen_[static_cast<std::size_t>(number)] = true;
    received_++;
  }

  bool server_;
  bool tcp_;
  std::uint16_t port_;
  int count_;
  std::vector<bool> seen_;
  int port_id_;
  int sent_{0};
  int received_{0};
  bool heard_{false};
  bool waited_{false};
  std::string text_;
  std::chrono::steady_clock::time_point next_hello_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string role = argv[1];
  const std::string protocol = argv[2];
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[3]));
  const int count = std::atoi(argv[4]);
  const std::vector<std::string> roles =
      role == "both" ? std::vector<std::string>{"server", "client"} : std::vector{role};
  auto network = config(roles, protocol + "://127.0.0.1:" + argv[3]);
  check(daqiri::daqiri_init(network), "daqiri_init");
  std::puts("ready");
  std::fflush(stdout);
  std::vector<Side> sides;
  sides.reserve(roles.size());
  for (const auto& each : roles) sides.emplace_back(each, protocol == "tcp", port, count);
  wait_for("all messages", [&] {
    bool done = true;
    for (Side& side : sides) {
      side.step();
      done = done && side.done();
    }
    return done;
  });
  daqiri::print_stats();
  daqiri::shutdown();
  std::printf("%s: %d sent and received%s\n", argv[1], count,
              sides.front().waited() ? ", after a wait for the peer" : "");
}

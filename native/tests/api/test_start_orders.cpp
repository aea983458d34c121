// A server and a client as in user programs. Either may start first, in one process and in two.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "engine.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t COUNT = 1000;
constexpr std::uint32_t HELLO = 0xFFFFFFFF;
constexpr std::size_t SIZE = 64;
constexpr const char* SIDE = "one side of a conversation";

std::string side_of(bool server, bool tcp, std::uint16_t port) {
  const std::string uri = std::string(tcp ? "tcp" : "udp") + "://127.0.0.1:" + std::to_string(port);
  const std::string queue = "id: 0, cpu_core: any, memory_regions: ";
  return std::string("- name: ") + (server ? "server" : "client") +
         "\n  address: 127.0.0.1\n  socket_config: {" +
         (server ? "mode: server, local_addr: '" : "mode: client, remote_addr: '") + uri +
         "'}\n  rx: {queues: [{name: r, batch_size: 8, " + queue +
         "[rx]}]}\n  tx: {queues: [{name: t, batch_size: 1, " + queue + "[tx]}]}\n";
}

std::string conversation(const std::string& interfaces) {
  return "version: 1\nmaster_core: 0\nstream_type: socket\nlog_level: \"off\"\nmemory_regions:\n"
         "- {name: rx, kind: host, num_bufs: 4096, buf_size: 2048}\n"
         "- {name: tx, kind: host, num_bufs: 256, buf_size: 2048}\ninterfaces:\n" +
         interfaces;
}

/// Sends COUNT numbered messages and receives as many, one step at a time.
class Side {
 public:
  Side(bool server, bool tcp, std::uint16_t port)
      : server_(server), tcp_(tcp), port_(port), id_(get_port_id(server ? "server" : "client")) {
    REQUIRE(id_ >= 0);
  }

  /// Requires that a server without a client reports that.
  void require_alone() {
    std::uintptr_t connection = 0;
    const Status found = socket_get_server_conn_id("127.0.0.1", port_, &connection);
    REQUIRE(found == (tcp_ ? Status::NULL_PTR : Status::SUCCESS));
    REQUIRE(send(0, 0) == Status::CONNECT_FAILURE);
    REQUIRE(std::string(last_error()).find("connection 0: no client ") != std::string::npos);
    REQUIRE(send(0, connection) == Status::CONNECT_FAILURE);
  }
  void step() {
    receive();
    if (connection_ == 0 && !connect()) return;
    // A datagram to a server that is not running is lost, so the client waits for a first reply.
    const bool greets = !tcp_ && !server_ && received_ == 0;
    if (greets) {
      static_cast<void>(send(HELLO, connection_));
      usleep(5000);
    } else if (sent_ < COUNT) {
      const Status status = send(sent_, connection_);
      if (status == Status::SUCCESS) ++sent_;
      // Allowed only for a server whose client has not connected.
      if (status != Status::SUCCESS) REQUIRE(status == Status::CONNECT_FAILURE);
      if (status != Status::SUCCESS) REQUIRE((server_ && received_ == 0));
    }
  }
  [[nodiscard]] bool done() const { return sent_ == COUNT && received_ == COUNT; }

 private:
  bool connect() {
    const Status status = server_ ? socket_get_server_conn_id("127.0.0.1", port_, &connection_)
                                  : socket_connect_to_server("127.0.0.1", port_, &connection_);
    if (status != Status::SUCCESS) REQUIRE((server_ && tcp_ && status == Status::NULL_PTR));
    return status == Status::SUCCESS;
  }
  Status send(std::uint32_t number, std::uintptr_t connection) const {
    BurstParams* burst = filled_burst(1, static_cast<std::uint16_t>(id_));
    std::array<std::uint8_t, SIZE> message{};
    std::memcpy(message.data(), &number, sizeof number);
    std::memcpy(get_packet_ptr(burst, 0), message.data(), SIZE);
    REQUIRE(set_packet_lengths(burst, 0, {SIZE}) == Status::SUCCESS);
    set_connection_id(burst, connection);
    return send_tx_burst(burst);
  }
  void receive() {
    BurstParams* burst = nullptr;
    if (get_rx_burst(&burst, id_, 0) != Status::SUCCESS) return;
    for (int i = 0; i < get_num_packets(burst); ++i) {
      stream_.append(static_cast<const char*>(get_packet_ptr(burst, i)),
                     get_packet_length(burst, i));
    }
    free_all_packets_and_burst_rx(burst);
    for (; stream_.size() >= SIZE; stream_.erase(0, SIZE)) {
      std::uint32_t number = 0;
      std::memcpy(&number, stream_.data(), sizeof number);
      if (number == HELLO) continue;
      REQUIRE(number == received_);
      ++received_;
    }
  }

  bool server_;
  bool tcp_;
  std::uint16_t port_;
  int id_;
  std::uintptr_t connection_{0};
  std::uint32_t sent_{0};
  std::uint32_t received_{0};
  std::string stream_;
};

/// A port that is not in use.
std::uint16_t unused_port(bool tcp) {
  const int fd = socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

/// Runs one test of this program in another process.
class Process {
 public:
  Process(const std::string& role, bool tcp, std::uint16_t port) {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    ready_ = ends[0];
    setenv("DAQIRI_TEST_SIDE",
           (role + " " + (tcp ? "tcp " : "udp ") + std::to_string(port)).c_str(), 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 9);
    std::string program = "/proc/self/exe";
    std::string wanted = SIDE;
    std::array<char*, 3> arguments{program.data(), wanted.data(), nullptr};
    REQUIRE(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    close(ready_);
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  /// Whether the process has initialised the engine.
  [[nodiscard]] bool ready() const {
    pollfd waiting{ready_, POLLIN, 0};
    char byte = 0;
    return poll(&waiting, 1, 60'000) == 1 && read(ready_, &byte, 1) == 1;
  }
  [[nodiscard]] bool succeeded() {
    int status = 1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status == 0;
  }

 private:
  int ready_{-1};
  pid_t pid_{-1};
};

}  // namespace

TEST_CASE(SIDE, "[.]") {
  const char* given = std::getenv("DAQIRI_TEST_SIDE");
  REQUIRE(given != nullptr);
  std::istringstream words(given);
  std::string role;
  std::string transport;
  std::uint16_t port = 0;
  words >> role >> transport >> port;
  const bool server = role != "client";
  const bool tcp = transport == "tcp";
  const Engine engine(conversation(side_of(server, tcp, port)));
  Side side(server, tcp, port);
  if (role == "lone-server") side.require_alone();
  REQUIRE(write(9, "r", 1) == 1);
  REQUIRE(eventually([&] {
    for (int i = 0; i < 1000 && !side.done(); ++i) side.step();
    return side.done();
  }));
}

TEST_CASE("a server and its client in one process exchange every message", "[api]") {
  for (const bool tcp : {false, true}) {
    for (const bool server_first : {false, true}) {
      INFO((tcp ? "TCP" : "UDP") << (server_first ? ", server first" : ", client first"));
      const std::uint16_t port = unused_port(tcp);
      const std::string server = side_of(true, tcp, port);
      const std::string client = side_of(false, tcp, port);
      const Engine engine(conversation(server_first ? server + client : client + server));
      Side one(server_first, tcp, port);
      Side other(!server_first, tcp, port);
      REQUIRE(eventually([&] {
        for (int i = 0; i < 1000 && !(one.done() && other.done()); ++i) {
          one.step();
          other.step();
        }
        return one.done() && other.done();
      }));
    }
  }
}

TEST_CASE("a server and its client in two processes exchange every message", "[api]") {
  for (const bool tcp : {false, true}) {
    for (const bool server_first : {false, true}) {
      INFO((tcp ? "TCP" : "UDP") << (server_first ? ", server first" : ", client first"));
      const std::uint16_t port = unused_port(tcp);
      Process first(server_first ? "lone-server" : "client", tcp, port);
      REQUIRE(first.ready());
      Process second(server_first ? "client" : "server", tcp, port);
      CHECK(second.succeeded());
      CHECK(first.succeeded());
    }
  }
}

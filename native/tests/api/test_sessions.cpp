#include <atomic>
#include <thread>

#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A session that the destructor closes.
struct Opened {
  explicit Opened(const std::string& yaml = LOOPBACK) {
    const Status status = session_open(yaml, &id);
    INFO(last_error());
    REQUIRE(status == Status::SUCCESS);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { session_close(id); }
  SessionId id{0};
};

/// Receives from queue 0 of port 0 of the selected session.
std::vector<std::uint32_t> receive_eight() {
  return receive_numbers(8, [](BurstParams** b) { return get_rx_burst(b, 0, 0); });
}

std::vector<std::uint32_t> eight_from(std::uint32_t first) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < 8; ++i) numbers.push_back(first + i);
  return numbers;
}

}  // namespace

TEST_CASE("explicit sessions run beside each other and the default one", "[api][sessions]") {
  const Engine engine(LOOPBACK);
  const Opened one;
  const Opened two(SPLIT);
  CHECK(one.id != DEFAULT_SESSION);
  CHECK(two.id != one.id);
  CHECK(session_selected() == DEFAULT_SESSION);
  CHECK(get_num_rx_queues(0) == 2);
  CHECK(get_port_id("clock") == 1);
  send_frames(8, 5000, 100);
  {
    const SessionScope scope(one.id);
    CHECK(scope.status() == Status::SUCCESS);
    CHECK(session_selected() == one.id);
    send_frames(8, 5000, 200);
    {
      const SessionScope inner(two.id);
      CHECK(get_num_rx_queues(0) == 1);
      CHECK(get_port_id("clock") == -1);
    }
    CHECK(session_selected() == one.id);
    CHECK(receive_eight() == eight_from(200));
  }
  CHECK(session_selected() == DEFAULT_SESSION);
  CHECK(receive_eight() == eight_from(100));
}

TEST_CASE("explicit sessions need no default one", "[api][sessions]") {
  const Opened one;
  BurstParams* burst = nullptr;
  CHECK(get_rx_burst(&burst) == Status::NOT_READY);
  CHECK_THAT(last_error(), Catch::Contains("daqiri_init"));
  REQUIRE(session_select(one.id) == Status::SUCCESS);
  CHECK(get_engine_type() != EngineType::UNKNOWN);
  send_frames(8, 5000, 1);
  CHECK(receive_eight() == eight_from(1));
  shutdown();
  CHECK(get_num_rx_queues(0) == 2);
  REQUIRE(session_select(DEFAULT_SESSION) == Status::SUCCESS);
  CHECK(get_num_rx_queues(0) == 0);
}

TEST_CASE("init and shutdown are of the default session, whatever is selected", "[api][sessions]") {
  const Opened one;
  const SessionScope scope(one.id);
  REQUIRE(daqiri_init(SPLIT) == Status::SUCCESS);
  CHECK(daqiri_init(SPLIT) == Status::INTERNAL_ERROR);
  CHECK_THAT(last_error(), Catch::Contains("session_open"));
  CHECK(get_num_rx_queues(0) == 2);
  {
    const SessionScope inner(DEFAULT_SESSION);
    CHECK(get_num_rx_queues(0) == 1);
  }
  shutdown();
  CHECK(get_num_rx_queues(0) == 2);
}

TEST_CASE("a session built in code is completed like the default one", "[api][sessions]") {
  NetworkConfig config;
  REQUIRE(parse_network_config(LOOPBACK, config) == Status::SUCCESS);
  config.common_.engine_type = EngineType::UNKNOWN;
  SessionId id = 0;
  REQUIRE(session_open(config, &id) == Status::SUCCESS);
  CHECK(config.common_.engine_type != EngineType::UNKNOWN);
  CHECK(config.ifs_[1].port_id_ == 1);
  CHECK(session_close(id) == Status::SUCCESS);
}

TEST_CASE("a session that cannot start says why and leaves nothing", "[api][sessions]") {
  SessionId id = 77;
  CHECK(session_open("version: 7\n", &id) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::StartsWith("session_open: ") && Catch::Contains("version"));
  CHECK(id == 0);
  id = 77;
  NetworkConfig empty;
  CHECK(session_open(empty, &id) == Status::INVALID_PARAMETER);
  CHECK(id == 0);
  CHECK(session_open("/nowhere/engine.yaml", &id) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("/nowhere/engine.yaml"));
  CHECK(session_open(LOOPBACK, nullptr) == Status::NULL_PTR);
  CHECK(session_open(empty, nullptr) == Status::NULL_PTR);
}

TEST_CASE("sessions that are not open are refused", "[api][sessions][misuse]") {
  const Engine engine(LOOPBACK);
  SessionId closed = 0;
  {
    const Opened one;
    closed = one.id;
    REQUIRE(session_select(closed) == Status::SUCCESS);
  }
  SECTION("a thread that selected it is told, and not sent elsewhere") {
    BurstParams* burst = nullptr;
    CHECK(get_rx_burst(&burst) == Status::NOT_READY);
    CHECK_THAT(last_error(), Catch::Contains("session_select"));
    CHECK(create_tx_burst_params() == nullptr);
    CHECK(get_engine_type() == EngineType::UNKNOWN);
    CHECK(flush_port_queue(0, 0) == Status::NOT_READY);
    print_stats();
    CHECK_THAT(last_error(), Catch::StartsWith("print_stats: "));
    REQUIRE(session_select(DEFAULT_SESSION) == Status::SUCCESS);
    CHECK(get_num_rx_queues(0) == 2);
  }
  REQUIRE(session_select(DEFAULT_SESSION) == Status::SUCCESS);
  SECTION("a selection fails and stays as it was") {
    for (const SessionId id : {closed, closed + 1000}) {
      CHECK(session_select(id) == Status::INVALID_PARAMETER);
      CHECK_THAT(last_error(), Catch::Contains("session " + std::to_string(id)));
      CHECK(session_selected() == DEFAULT_SESSION);
    }
  }
  SECTION("a scope selects it, so that calls fail") {
    const SessionScope scope(closed);
    CHECK(scope.status() == Status::INVALID_PARAMETER);
    CHECK(flush_port_queue(0, 0) == Status::NOT_READY);
  }
  SECTION("closing") {
    CHECK(session_close(closed) == Status::INVALID_PARAMETER);
    CHECK(session_close(closed + 1000) == Status::INVALID_PARAMETER);
    CHECK(session_close(DEFAULT_SESSION) == Status::INVALID_PARAMETER);
    CHECK_THAT(last_error(), Catch::Contains("shutdown"));
    CHECK(get_num_rx_queues(0) == 2);
  }
  SECTION("its number is not given again") {
    const Opened next;
    CHECK(next.id > closed);
  }
}

TEST_CASE("a scope restores a session that was closed meanwhile", "[api][sessions]") {
  const Engine engine(LOOPBACK);
  const Opened inner;
  SessionId outer = 0;
  REQUIRE(session_open(LOOPBACK, &outer) == Status::SUCCESS);
  REQUIRE(session_select(outer) == Status::SUCCESS);
  {
    const SessionScope scope(inner.id);
    REQUIRE(session_close(outer) == Status::SUCCESS);
    CHECK(get_num_rx_queues(0) == 2);
  }
  CHECK(session_selected() == outer);
  CHECK(get_num_rx_queues(0) == 0);
  REQUIRE(session_select(DEFAULT_SESSION) == Status::SUCCESS);
}

TEST_CASE("what a thread selects is its own", "[api][sessions]") {
  const Opened one;
  const SessionScope scope(one.id);
  std::thread([&] {
    CHECK(session_selected() == DEFAULT_SESSION);
    CHECK(get_num_rx_queues(0) == 0);
    CHECK(session_select(one.id) == Status::SUCCESS);
    CHECK(get_num_rx_queues(0) == 2);
  }).join();
}

TEST_CASE("a burst remembers its session", "[api][sessions]") {
  const Engine engine(SPLIT);
  const Opened one;
  BurstParams* burst = nullptr;
  {
    const SessionScope scope(one.id);
    burst = create_tx_burst_params();
  }
  // From here on, no thread selects the session.
  REQUIRE(burst != nullptr);
  std::thread([&] {
    set_header(burst, 0, 0, 8, 1);
    CHECK(is_tx_burst_available(burst));
    REQUIRE(get_tx_packet_burst(burst) == Status::SUCCESS);
    for (int i = 0; i < 8; ++i) write_frame(burst, i, 5000, 40 + static_cast<std::uint32_t>(i));
  }).join();
  REQUIRE(send_tx_burst(burst) == Status::SUCCESS);
  BurstParams* elsewhere = nullptr;
  {
    const SessionScope scope(one.id);
    REQUIRE(eventually([&] { return get_rx_burst(&burst, 0, 0) == Status::SUCCESS; }));
  }
  CHECK(get_rx_burst(&elsewhere) == Status::NULL_PTR);
  std::thread([&] {
    CHECK(get_num_packets(burst) == 8);
    CHECK(number_of(burst, 7) == 47);
    CHECK(get_packet_flow_id(burst, 0) == 11);
    free_packet(burst, 0);
    free_rx_burst(burst);
  }).join();
  CHECK(get_num_packets(burst) == 0);
}

TEST_CASE("bursts of a closed session can be read and freed, not sent", "[api][sessions]") {
  const Engine engine(LOOPBACK);
  BurstParams* filled = nullptr;
  BurstParams* received = nullptr;
  BurstParams* empty = nullptr;
  {
    const Opened one;
    const SessionScope scope(one.id);
    empty = create_tx_burst_params();
    set_header(empty, 0, 0, 1, 1);
    filled = filled_burst(1);
    write_frame(filled, 0, 5000, 3);
    send_frames(8, 5000, 9);
    REQUIRE(eventually([&] { return get_rx_burst(&received, 0, 0) == Status::SUCCESS; }));
  }
  CHECK(number_of(received, 0) == 9);
  CHECK(number_of(filled, 0) == 3);
  CHECK(send_tx_burst(filled) == Status::NOT_READY);
  CHECK(get_tx_packet_burst(empty) == Status::NOT_READY);
  CHECK_FALSE(is_tx_burst_available(empty));
  CHECK_THAT(last_error(), Catch::Contains("shut down"));
  free_tx_burst(filled);
  free_tx_burst(empty);
  free_rx_burst(received);
  CHECK(send_tx_burst(filled) == Status::INVALID_PARAMETER);
}

TEST_CASE("threads use sessions of their own while others come and go", "[api][sessions]") {
  const Engine engine(LOOPBACK);
  std::vector<std::thread> threads;
  std::atomic<int> whole{0};
  for (std::uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t round = 0; round < 4; ++round) {
        SessionId id = DEFAULT_SESSION;
        // The first thread uses the default session.
        if (t > 0 && session_open(LOOPBACK, &id) != Status::SUCCESS) return;
        const SessionScope scope(id);
        const std::uint32_t first = 1000 * t + 100 * round;
        BurstParams* burst = nullptr;
        bool good = eventually([&] { return (burst = create_tx_burst_params()) != nullptr; });
        set_header(burst, 0, 0, 8, 1);
        good = good && get_tx_packet_burst(burst) == Status::SUCCESS;
        for (int i = 0; good && i < 8; ++i) {
          const std::uint32_t number = first + static_cast<std::uint32_t>(i);
          good = set_udp_payload(burst, i, &number, sizeof number) == Status::SUCCESS &&
                 set_packet_lengths(burst, i, {64}) == Status::SUCCESS &&
                 set_ipv4_header(burst, i, 44, IPPROTO_UDP, 1, 2) == Status::SUCCESS;
        }
        good = good && send_tx_burst(burst) == Status::SUCCESS;
        std::uint32_t packets = 0;
        good = good && eventually([&] {
                 BurstParams* received = nullptr;
                 if (get_rx_burst(&received, 0) == Status::SUCCESS) {
                   for (int i = 0; i < get_num_packets(received); ++i) {
                     std::uint32_t number = 0;
                     std::memcpy(&number, static_cast<char*>(get_packet_ptr(received, i)) + HEADERS,
                                 sizeof number);
                     if (number == first + packets) ++packets;
                   }
                   free_rx_burst(received);
                 }
                 return packets == 8;
               });
        if (t > 0) good = session_close(id) == Status::SUCCESS && good;
        if (good) ++whole;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(whole == 12);
}

TEST_CASE("threads close what others select", "[api][sessions]") {
  std::atomic<SessionId> current{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!done.load()) {
        const SessionScope scope(current.load());
        BurstParams* burst = create_tx_burst_params();
        if (burst != nullptr) {
          set_header(burst, 0, 0, 2, 1);
          const bool ready = get_tx_packet_burst(burst) == Status::SUCCESS &&
                             set_all_packet_lengths(burst, {64}) == Status::SUCCESS;
          const Status status = ready ? send_tx_burst(burst) : Status::NOT_READY;
          if (status != Status::SUCCESS && status != Status::NO_SPACE_AVAILABLE)
            free_tx_burst(burst);
        }
        if (get_rx_burst(&burst) == Status::SUCCESS) free_rx_burst(burst);
      }
    });
  }
  for (int round = 0; round < 8; ++round) {
    const Opened one;
    current = one.id;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  done = true;
  for (auto& thread : threads) thread.join();
}

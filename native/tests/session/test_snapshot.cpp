#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "log_taker.h"
#include "session/loopback_config.h"
#include "session/snapshot.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A temporary runtime directory.
class RuntimeDirectory {
 public:
  RuntimeDirectory() {
    std::string pattern = "/tmp/daqiri-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeDirectory() {
    if (before_.empty()) {
      unsetenv("XDG_RUNTIME_DIR");
    } else {
      setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
    }
    std::filesystem::remove_all(path_);
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> sockets() const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(path_ + "/daqiri")) return found;
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/daqiri"))
      found.push_back(entry.path());
    return found;
  }

 private:
  std::string path_;
  std::string before_;
};

/// The reply of the socket; empty without one. Closes `fd`.
std::string ask(const std::string& path, int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  std::string text;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    char part[4096];
    for (ssize_t n = 0; (n = read(fd, part, sizeof part)) > 0;)
      text.append(part, static_cast<std::size_t>(n));
  }
  close(fd);
  return text;
}

/// Processor time used by this process.
std::uint64_t processor_ns() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(used.tv_nsec);
}

bool contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("A snapshot tells counters and levels of everything", "[session][snapshot]") {
  const auto session = Session::open(loopback_config(8, 0));
  REQUIRE(send_frames(session->tx_queue(0, 0), 5001, 0, 20));
  REQUIRE(session->tx_queue(0, 0).wait_idle(5'000'000'000));
  while (session->rx_queue(0, 1).counters().received < 20) usleep(1000);
  const SessionSnapshot snapshot = SessionSnapshot::of(*session);
  REQUIRE(snapshot.engine == "loopback");
  REQUIRE(snapshot.pid == getpid());
  REQUIRE(snapshot.rx.size() == 2);
  REQUIRE(snapshot.rx[1].counters.received == 20);
  REQUIRE(balanced(snapshot.rx[1].counters));
  REQUIRE(snapshot.rx[1].levels.ring == 2);
  // Two full bursts are in the ring, one is open.
  REQUIRE(snapshot.rx[1].levels.bursts - snapshot.rx[1].levels.bursts_free == 3);
  REQUIRE(snapshot.tx.size() == 1);
  REQUIRE(snapshot.tx[0].counters.sent == 20);
  REQUIRE(snapshot.tx[0].levels.bursts == session->config().tx_meta_buffers_);
  REQUIRE(snapshot.regions.size() == 2);
  REQUIRE(snapshot.regions[0].name == "rx_frames");
  REQUIRE(snapshot.regions[0].buffers - snapshot.regions[0].free >= 20);
  const std::string table = snapshot.table();
  for (const char* word : {"port0/rx1", "port0/tx0", "port0/flow1", "rx_frames", "2/256"}) {
    CAPTURE(table, word);
    REQUIRE(contains(table, word));
  }
}

TEST_CASE("A snapshot is a row of numbers that have names", "[session][snapshot]") {
  SessionSnapshot snapshot;
  snapshot.time = 1;
  snapshot.steady = 2;
  const auto number = [](auto& group, std::uint64_t first) {
    for (Counter& counter : counters_of(group)) counter = first++;
  };
  snapshot.ports.resize(2);
  number(snapshot.ports[1].counters, 60);
  snapshot.rx.resize(2);
  number(snapshot.rx[1].counters, 10);
  snapshot.rx[1].counters.dropped.back() = 17;
  number(snapshot.rx[1].levels, 18);
  snapshot.tx.resize(1);
  number(snapshot.tx[0].counters, 30);
  snapshot.tx[0].counters.dropped.front() = 36;
  snapshot.tx[0].lateness.maximum = 37;
  snapshot.tx[0].levels.bursts = 38;
  snapshot.flows.resize(2);
  snapshot.flows[1].counters.packets = 39;
  snapshot.flows[1].counters.bytes = 40;
  snapshot.reorder.resize(1);
  number(snapshot.reorder[0].counters, 41);
  const std::vector<std::uint64_t> row = snapshot.row();
  const auto rx_names = SessionSnapshot::rx_names();
  const auto tx_names = SessionSnapshot::tx_names();
  const auto port_names = SessionSnapshot::port_names();
  const std::size_t rx0 = 2 + 2 * port_names.size();
  const std::size_t rx_size = rx_names.size() + NUM_DROP_REASONS;
  const auto flow_names = SessionSnapshot::flow_names();
  const auto reorder_names = SessionSnapshot::reorder_names();
  REQUIRE(reorder_names.front() == "packets");
  REQUIRE(flow_names == std::vector<std::string_view>{"packets", "bytes"});
  REQUIRE(row.size() ==
          rx0 + 2 * rx_size + tx_names.size() + NUM_DROP_REASONS + 4 + reorder_names.size());
  REQUIRE(row[0] == 1);
  REQUIRE(row[1] == 2);
  const auto at = [&](const std::vector<std::string_view>& names, std::size_t first,
                      std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    REQUIRE(found != names.end());
    return row.at(first + static_cast<std::size_t>(found - names.begin()));
  };
  REQUIRE(at(port_names, 2, "lost_before_engine") == 0);
  REQUIRE(at(port_names, 2 + port_names.size(), "lost_before_engine") == 60);
  REQUIRE(at(port_names, 2 + port_names.size(), "lost_dropped") == 64);
  const std::size_t rx1 = rx0 + rx_size;
  REQUIRE(at(rx_names, rx0, "received") == 0);
  REQUIRE(at(rx_names, rx1, "received") == 10);
  REQUIRE(at(rx_names, rx1, "ring_high_water") == 16);
  REQUIRE(at(rx_names, rx1, "bursts_total") == 21);
  REQUIRE(row[rx1 + rx_size - 1] == 17);
  const std::size_t tx0 = rx1 + rx_size;
  REQUIRE(at(tx_names, tx0, "submitted") == 30);
  REQUIRE(at(tx_names, tx0, "lateness_max") == 37);
  REQUIRE(at(tx_names, tx0, "bursts_total") == 38);
  REQUIRE(row[tx0 + tx_names.size()] == 36);
  const std::size_t flow0 = row.size() - reorder_names.size() - 4;
  REQUIRE(row[flow0] == 0);
  REQUIRE(row[flow0 + 2] == 39);
  REQUIRE(row[flow0 + 3] == 40);
  REQUIRE(row[flow0 + 4] == 41);
  REQUIRE(at(reorder_names, flow0 + 4, "restarts") == row.back());
}

TEST_CASE("Losses before the engine are a table, where there are any", "[session][snapshot]") {
  SessionSnapshot snapshot;
  snapshot.ports.resize(2);
  snapshot.ports[0].port = "sound";
  REQUIRE(!contains(snapshot.table(), "lost before engine"));
  snapshot.ports[1] = {"lossy", {{"", 6}, {"", 1}, {"", 2}, {"", 3}, {"", 4}}};
  REQUIRE(snapshot.table() ==
          "port   lost before engine  card  backlog  errors  dropped\n"
          "lossy                   6     1        2       3  4\n");
}

TEST_CASE("Counters are copied once a period, and are final when closed",
          "[session][housekeeper]") {
  const RuntimeDirectory runtime;
  const bool with_socket = GENERATE(true, false);
  if (!with_socket) std::filesystem::remove(runtime.path());
  const auto session = Session::open(loopback_config());
  const auto first = session->latest();
  REQUIRE(first->rx.at(0).counters.received == 0);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      const auto seen = session->latest();
      if (!balanced(seen->rx[0].counters) || !balanced(seen->tx[0].counters)) std::abort();
    }
  });
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 200));
  REQUIRE(receive_numbers(session->rx_queue(0, 0), 200).size() == 200);
  for (int i = 0; i < 1000 && session->latest()->rx[0].counters.delivered < 200; ++i)
    usleep(10'000);
  done = true;
  reader.join();
  const auto later = session->latest();
  REQUIRE(later->rx[0].counters.delivered == 200);
  REQUIRE(later->time - first->time >= Housekeeper::PERIOD_NS);
  // A snapshot does not change later.
  REQUIRE(first->rx[0].counters.received == 0);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  session->close();
  REQUIRE(session->latest()->rx[0].counters.received == 210);
  REQUIRE(session->latest()->rx[0].counters.held == 10);
  REQUIRE(receive_numbers(session->rx_queue(0, 0), 10).size() == 10);
  REQUIRE(session->latest()->rx[0].counters.delivered == 210);
}

TEST_CASE("Names are quoted in JSON", "[session][snapshot]") {
  SessionSnapshot snapshot;
  snapshot.engine = "a\"b\\c\n";
  REQUIRE(contains(snapshot.json(), R"("engine": "a\"b\\c\n")"));
}

TEST_CASE("A session answers on its socket until it is closed", "[session][housekeeper]") {
  const RuntimeDirectory runtime;
  const auto a = Session::open(loopback_config());
  const auto b = Session::open(loopback_config());
  REQUIRE(runtime.sockets().size() == 2);
  for (const std::string& path : runtime.sockets()) {
    for (int i = 0; i < 3; ++i) {
      const std::string answer = ask(path);
      REQUIRE(contains(answer, R"("pid": )" + std::to_string(getpid())));
      REQUIRE(answer.back() == '\n');
    }
  }
  a->close();
  REQUIRE(runtime.sockets().size() == 1);
  b->close();
  REQUIRE(runtime.sockets().empty());
}

TEST_CASE("A session that can have no socket does without", "[session][housekeeper]") {
  const RuntimeDirectory runtime;
  LogTaker log;
  NetworkConfig config = loopback_config();
  config.log_level_ = LogLevel::WARN;
  SECTION("a directory that others can write in") {
    std::filesystem::create_directory(runtime.path() + "/daqiri");
    std::filesystem::permissions(runtime.path() + "/daqiri", std::filesystem::perms::all);
    const auto session = Session::open(config);
    REQUIRE(runtime.sockets().empty());
    REQUIRE(log.lines_with("'daqiri-ophyd stats' cannot show this engine") == 1);
    REQUIRE(log.lines_with("only this user can write to") == 1);
  }
  SECTION("a link to a directory of this user") {
    std::filesystem::create_directory(runtime.path() + "/other");
    std::filesystem::create_directory_symlink(runtime.path() + "/other",
                                              runtime.path() + "/daqiri");
    const auto session = Session::open(config);
    REQUIRE(runtime.sockets().empty());
    REQUIRE(log.lines_with("only this user can write to") == 1);
  }
  SECTION("no directory") {
    std::filesystem::remove(runtime.path());
    const auto session = Session::open(loopback_config());
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
    REQUIRE(receive_numbers(session->rx_queue(0, 0), 10).size() == 10);
  }
  SECTION("a path that is too long for a socket") {
    const std::string deep = runtime.path() + "/" + std::string(120, 'x');
    std::filesystem::create_directory(deep);
    setenv("XDG_RUNTIME_DIR", deep.c_str(), 1);
    const auto session = Session::open(loopback_config());
    REQUIRE(ask(Housekeeper::directory()).empty());
  }
}

TEST_CASE("A session takes no other file for its socket", "[session][housekeeper]") {
  const RuntimeDirectory runtime;
  std::filesystem::create_directory(runtime.path() + "/daqiri");
  std::filesystem::permissions(runtime.path() + "/daqiri", std::filesystem::perms::owner_all);
  const auto first = Session::open(loopback_config());
  const std::string path = runtime.sockets().at(0);
  const std::size_t dot = path.rfind('.') + 1;
  const std::string next = path.substr(0, dot) + std::to_string(std::stoi(path.substr(dot)) + 1);
  std::ofstream(next) << "notes";
  const auto second = Session::open(loopback_config());
  REQUIRE(std::filesystem::is_regular_file(next));
  REQUIRE(runtime.sockets().size() == 3);
  second->close();
  REQUIRE(std::filesystem::file_size(next) == 5);
  REQUIRE(runtime.sockets().size() == 2);
}

TEST_CASE("A reader that does not read does not stop the others", "[session][housekeeper]") {
  const RuntimeDirectory runtime;
  const auto session = Session::open(loopback_config());
  const std::string path = runtime.sockets().at(0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int idle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(connect(idle, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE_FALSE(ask(path).empty());
  close(idle);
  REQUIRE_FALSE(ask(path).empty());
}

TEST_CASE("Without a free descriptor a reader waits its turn, and the engine sleeps",
          "[session][housekeeper]") {
#ifdef __SANITIZE_ADDRESS__
  WARN("skipped: the address sanitizer looks at memory by way of a pipe");
  return;
#endif
  const RuntimeDirectory runtime;
  const auto session = Session::open(loopback_config());
  const std::string path = runtime.sockets().at(0);
  const int reader = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{256, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<int> taken;
  for (int fd = 0; (fd = fcntl(reader, F_DUPFD_CLOEXEC, 0)) >= 0;) taken.push_back(fd);
  auto answer = std::async(std::launch::async, [&] { return ask(path, reader); });
  const auto first = session->latest();
  const std::uint64_t used = processor_ns();
  while (session->latest()->time < first->time + 5 * Housekeeper::PERIOD_NS) usleep(10'000);
  // A thread that polls would use a whole core.
  CHECK(processor_ns() - used < 2 * Housekeeper::PERIOD_NS);
  CHECK(answer.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(contains(answer.get(), R"("pid": )" + std::to_string(getpid())));
}

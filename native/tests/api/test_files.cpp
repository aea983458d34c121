#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine.h"

using namespace daqiri;
using namespace daqiri::test;
namespace fs = std::filesystem;

namespace {

struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "daqiri-api-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { fs::remove_all(path); }
  std::string path;
};

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

BurstParams* received_burst(std::uint32_t first) {
  send_frames(8, 5000, first);
  BurstParams* burst = nullptr;
  REQUIRE(eventually([&] { return get_rx_burst(&burst, 0, 0) == Status::SUCCESS; }));
  REQUIRE(get_num_packets(burst) == 8);
  return burst;
}

constexpr std::size_t PCAP_HEADER = 24;
constexpr std::size_t RECORD = 16 + HEADERS + PAYLOAD;

}  // namespace

TEST_CASE("a burst is appended to a pcap file", "[api]") {
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(10);
  REQUIRE(daqiri_write_pcap_to_file(burst, directory.path, "capture") == Status::SUCCESS);
  FileWriteHandle* handle = nullptr;
  REQUIRE(daqiri_write_pcap_to_file_async(burst, directory.path, "capture", &handle) ==
          Status::SUCCESS);
  FileWriteStatus status{};
  REQUIRE(daqiri_file_write_wait(handle, &status) == Status::SUCCESS);
  CHECK(status.completed_packets == 8);
  CHECK(status.failed_packets == 0);
  CHECK(daqiri_file_write_poll(handle, nullptr) == Status::SUCCESS);
  CHECK(daqiri_file_write_destroy(handle) == Status::SUCCESS);
  const std::string file = content(fs::path(directory.path) / "capture.pcap");
  REQUIRE(file.size() == PCAP_HEADER + 16 * RECORD);
  for (std::size_t i = 0; i < 16; ++i) {
    const char* packet = file.data() + PCAP_HEADER + i * RECORD + 16;
    CHECK(std::memcmp(packet, get_packet_ptr(burst, static_cast<int>(i % 8)), HEADERS + PAYLOAD) ==
          0);
  }
  free_rx_burst(burst);
}

TEST_CASE("a burst is written to a file per packet", "[api]") {
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(20);
  SECTION("at once") {
    REQUIRE(daqiri_write_raw_to_file(burst, directory.path, "p", HEADERS) == Status::SUCCESS);
  }
  SECTION("in the background") {
    FileWriteHandle* handle = nullptr;
    FileWriteStatus status{};
    REQUIRE(daqiri_write_raw_to_file_async(burst, directory.path, "p", HEADERS, &handle) ==
            Status::SUCCESS);
    Status outcome = Status::NOT_READY;
    REQUIRE(eventually(
        [&] { return (outcome = daqiri_file_write_poll(handle, &status)) != Status::NOT_READY; }));
    CHECK(outcome == Status::SUCCESS);
    CHECK(status.completed_packets == 8);
    CHECK(status.bytes_written == 8 * PAYLOAD);
    CHECK(daqiri_file_write_destroy(handle) == Status::SUCCESS);
  }
  for (int i = 0; i < 8; ++i) {
    const std::string packet = content(fs::path(directory.path) / ("p_" + std::to_string(i)));
    REQUIRE(packet.size() == PAYLOAD);
    CHECK(std::memcmp(packet.data(), static_cast<const char*>(get_packet_ptr(burst, i)) + HEADERS,
                      PAYLOAD) == 0);
  }
  free_rx_burst(burst);
}

TEST_CASE("files that cannot be written are refused with the reason", "[api]") {
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(0);
  FileWriteHandle* handle = nullptr;
  CHECK(daqiri_write_pcap_to_file(burst, "/nowhere/at/all", "p") == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::StartsWith("daqiri_write_pcap_to_file: ") &&
                               Catch::Contains("/nowhere/at/all"));
  CHECK(daqiri_write_raw_to_file(burst, "relative", "p", 0) == Status::INVALID_PARAMETER);
  CHECK(daqiri_write_raw_to_file_async(burst, directory.path, "a/b", 0, &handle) ==
        Status::INVALID_PARAMETER);
  CHECK(handle == nullptr);
  CHECK(daqiri_write_raw_to_file_async(burst, directory.path, "p", 0, nullptr) == Status::NULL_PTR);
  std::ofstream(fs::path(directory.path) / "text.pcap") << "this is no capture at all, is it";
  CHECK(daqiri_write_pcap_to_file(burst, directory.path, "text") == Status::INVALID_PARAMETER);
  REQUIRE(daqiri_write_pcap_to_file_async(burst, directory.path, "text", &handle) ==
          Status::SUCCESS);
  FileWriteStatus status{};
  CHECK(daqiri_file_write_wait(handle, &status) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Catch::Contains("text.pcap"));
  CHECK(status.failed_packets == 8);
  CHECK(daqiri_file_write_destroy(handle) == Status::SUCCESS);
  free_rx_burst(burst);
}

TEST_CASE("file handles are told from destroyed ones", "[api][misuse]") {
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(0);
  FileWriteHandle* handle = nullptr;
  REQUIRE(daqiri_write_pcap_to_file_async(burst, directory.path, "p", &handle) == Status::SUCCESS);
  CHECK(daqiri_file_write_destroy(handle) == Status::SUCCESS);
  CHECK(fs::file_size(fs::path(directory.path) / "p.pcap") == PCAP_HEADER + 8 * RECORD);
  for (FileWriteHandle* bad : {handle, static_cast<FileWriteHandle*>(nullptr)}) {
    const Status expected = bad == nullptr ? Status::NULL_PTR : Status::INVALID_PARAMETER;
    CHECK(daqiri_file_write_poll(bad, nullptr) == expected);
    CHECK(daqiri_file_write_wait(bad, nullptr) == expected);
    CHECK(daqiri_file_write_destroy(bad) == expected);
  }
  free_rx_burst(burst);
}

namespace {

/// A background write that is blocked, because its first file is a pipe without a reader.
struct StuckWrite {
  StuckWrite(BurstParams* burst, const std::string& directory) : pipe(directory + "/p_0") {
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    REQUIRE(daqiri_write_raw_to_file_async(burst, directory, "p", HEADERS, &handle) ==
            Status::SUCCESS);
    CHECK(daqiri_file_write_poll(handle, nullptr) == Status::NOT_READY);
  }
  StuckWrite(const StuckWrite&) = delete;
  StuckWrite& operator=(const StuckWrite&) = delete;
  ~StuckWrite() { finish(); }
  /// Reads the pipe, so that the rest is written too. Returns the content of the first file.
  std::string finish() {
    if (handle == nullptr) return {};
    const std::string first = content(pipe);
    CHECK(daqiri_file_write_wait(handle, nullptr) == Status::SUCCESS);
    CHECK(daqiri_file_write_destroy(handle) == Status::SUCCESS);
    handle = nullptr;
    return first;
  }
  std::string pipe;
  FileWriteHandle* handle{nullptr};
};

std::string payload_of(std::uint32_t number) {
  std::string payload(PAYLOAD, static_cast<char>(number));
  std::memcpy(payload.data(), &number, sizeof number);
  return payload;
}

}  // namespace

TEST_CASE("a burst that is freed while it is written is written whole", "[api][misuse]") {
  const TemporaryDirectory directory;
  bool session_ends_first = false;
  SECTION("with the engine running") {}
  SECTION("after shutdown") { session_ends_first = true; }
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(30);
  StuckWrite write(burst, directory.path);
  if (session_ends_first) {
    shutdown();
    free_all_packets_and_burst_rx(burst);
  } else {
    free_all_packets_and_burst_rx(burst);
    free_all_packets_and_burst_rx(burst);
    CHECK(get_num_packets(burst) == 0);
    // If the burst had been freed, its buffers would have been filled again by now.
    for (std::uint32_t round = 0; round < 600; round += 8) {
      BurstParams* next = received_burst(1000 + round);
      CHECK(next != burst);
      free_rx_burst(next);
    }
  }
  CHECK(write.finish() == payload_of(30));
  for (std::uint32_t i = 1; i < 8; ++i) {
    CHECK(content(fs::path(directory.path) / ("p_" + std::to_string(i))) == payload_of(30 + i));
  }
}

TEST_CASE("a burst is not changed or sent while it is written", "[api][misuse]") {
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(3);
  for (int i = 0; i < 3; ++i) write_frame(burst, i, 5000, 60 + static_cast<std::uint32_t>(i));
  StuckWrite write(burst, directory.path);
  char mac[6]{};
  const auto refused = [](Status status, const char* call) {
    CHECK(status == Status::NOT_READY);
    CHECK_THAT(last_error(), Catch::StartsWith(std::string(call) + ": ") &&
                                 Catch::Contains("daqiri_file_write_wait"));
  };
  refused(send_tx_burst(burst), "send_tx_burst");
  refused(get_tx_packet_burst(burst), "get_tx_packet_burst");
  refused(set_eth_header(burst, 0, mac), "set_eth_header");
  refused(set_ipv4_header(burst, 0, 8, 17, 1, 2), "set_ipv4_header");
  refused(set_udp_header(burst, 0, 8, 1, 2), "set_udp_header");
  refused(set_udp_payload(burst, 0, mac, 6), "set_udp_payload");
  refused(set_packet_lengths(burst, 0, {60}), "set_packet_lengths");
  refused(set_all_packet_lengths(burst, {60}), "set_all_packet_lengths");
  refused(set_packet_tx_time(burst, 0, 1), "set_packet_tx_time");
  set_num_packets(burst, 1);
  set_connection_id(burst, 9);
  set_header(burst, 0, 0, 1, 1);
  free_packet(burst, 0);
  free_packet_segment(burst, 0, 1);
  free_all_segment_packets(burst, 0);
  refused(Status::NOT_READY, "free_all_segment_packets");
  CHECK(get_num_packets(burst) == 3);
  CHECK(get_connection_id(burst) == 0);
  CHECK(number_of(burst, 0) == 60);
  CHECK(daqiri_write_pcap_to_file(burst, directory.path, "beside") == Status::SUCCESS);
  CHECK(write.finish() == payload_of(60));
  CHECK(content(fs::path(directory.path) / "p_2") == payload_of(62));
  CHECK(send_tx_burst(burst) == Status::SUCCESS);
}

TEST_CASE("a destroyed handle is no later write's", "[api][misuse]") {
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(0);
  std::vector<FileWriteHandle*> destroyed;
  for (int i = 0; i < 20; ++i) {
    FileWriteHandle* handle = nullptr;
    REQUIRE(daqiri_write_pcap_to_file_async(burst, directory.path, "p", &handle) ==
            Status::SUCCESS);
    for (FileWriteHandle* old : destroyed)
      CHECK(daqiri_file_write_poll(old, nullptr) == Status::INVALID_PARAMETER);
    REQUIRE(daqiri_file_write_destroy(handle) == Status::SUCCESS);
    destroyed.push_back(handle);
  }
  free_rx_burst(burst);
}

TEST_CASE("a forked child writes in the background, and ends", "[api]") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: the thread sanitizer does not follow threads of forked children");
  return;
#endif
#ifdef __SANITIZE_ADDRESS__
  WARN("skipped: a forked child may find the address sanitizer's allocator locked for ever");
  return;
#endif
  const TemporaryDirectory directory;
  const Engine engine(LOOPBACK);
  BurstParams* burst = received_burst(40);
  StuckWrite write(burst, directory.path);
  const pid_t child = fork();
  if (child == 0) {
    FileWriteHandle* own = nullptr;
    const bool parents = daqiri_file_write_poll(write.handle, nullptr) == Status::INVALID_PARAMETER;
    const bool started =
        daqiri_write_pcap_to_file_async(burst, directory.path, "child", &own) == Status::SUCCESS;
    const bool written =
        started && own != write.handle && daqiri_file_write_wait(own, nullptr) == Status::SUCCESS;
    std::exit(parents && written ? 0 : 1);
  }
  int status = -1;
  const bool ended = eventually([&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  CHECK(ended);
  CHECK(status == 0);
  CHECK(fs::file_size(fs::path(directory.path) / "child.pcap") == PCAP_HEADER + 8 * RECORD);
  CHECK(write.finish() == payload_of(40));
  free_rx_burst(burst);
}

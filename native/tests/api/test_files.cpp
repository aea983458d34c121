#include <unistd.h>

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

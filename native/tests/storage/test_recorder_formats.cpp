// File formats and writers.
#include <unistd.h>

#include <csignal>
#include <numeric>

#include "storage/packet_writer.h"
#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

/// A directory on a disk if there is one.
std::string disk_directory() { return std::filesystem::exists("/var/tmp") ? "/var/tmp" : "/tmp"; }

class DiskDir {
 public:
  DiskDir() {
    path_ = disk_directory() + "/daqiri-test-XXXXXX";
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  DiskDir(const DiskDir&) = delete;
  DiskDir& operator=(const DiskDir&) = delete;
  ~DiskDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void require_frames(const std::vector<SeenPacket>& seen, std::uint32_t first, std::size_t length) {
  for (std::uint32_t i = 0; i < seen.size(); ++i)
    REQUIRE(seen[i].bytes == udp_frame(5000, first + i, length));
}

NetworkConfig silent_port(int batch = 64) {
  NetworkConfig config = roomy_config(batch);
  config.log_level_ = LogLevel::OFF;
  return config;
}

}  // namespace

TEST_CASE("Both writers leave the same bytes", "[storage][recorder][direct]") {
  const DiskDir disk;
  RecorderOptions options;
  options.directory = disk.path();
  options.writer = GENERATE(WriterKind::BUFFERED, WriterKind::DIRECT, WriterKind::AUTO);
  const bool nanosecond = GENERATE(false, true);
  options.nanosecond = nanosecond;
  options.roll_bytes = 2'500'000;
  options.durable = nanosecond;
  Recording r(options);
  // More than all blocks of the direct writer, and files that end anywhere in a block.
  for (std::uint32_t i = 0; i < 8; ++i) {
    r.send(i * 1000, 1000, 1000 + i);
    REQUIRE(r.recorded((i + 1) * 1000));
  }
  r.recorder->stop();
  CHECK(r.recorder->snapshot().error.empty());
  std::uint32_t number = 0;
  for (const RecordedFile& file : r.recorder->files()) {
    const Bytes bytes = read_file(file.path);
    const PcapIndex index = index_pcap(bytes.data(), bytes.size(), file.path);
    CHECK(index.torn_bytes == 0);
    CHECK(index.nanosecond == nanosecond);
    REQUIRE(index.offsets.size() == file.packets);
    CHECK(bytes.size() <= 24 + options.roll_bytes + 1100);
    for (std::size_t i = 0; i < file.packets; ++i, ++number) {
      const auto expected = udp_frame(5000, number, 1000 + number / 1000);
      REQUIRE(index.lengths[i] == expected.size());
      REQUIRE(std::memcmp(bytes.data() + index.offsets[i], expected.data(), expected.size()) == 0);
    }
    CHECK(tshark(file.path, {"frame.len"}).size() == file.packets);
    CHECK(value_of(sidecar_of(file.path), "writer") == "\"" + r.recorder->writer() + "\"");
  }
  CHECK(number == 8000);
  CHECK(r.recorder->files().size() == 4);
}

TEST_CASE("A direct writer does not keep packets back for long", "[storage][recorder][direct]") {
  const DiskDir disk;
  RecorderOptions options;
  options.directory = disk.path();
  options.writer = WriterKind::DIRECT;
  Recording r(options);
  for (std::uint32_t i = 0; i < 3; ++i) {
    r.send(i * 100, 100);
    REQUIRE(r.recorded((i + 1) * 100));
    const std::string path = disk.path() + "/capture_000000.pcap";
    REQUIRE(within_limit([&] { return std::filesystem::file_size(path) == 24 + (i + 1) * 14400; }));
    require_frames(tcpdump(path), 0, 128);
  }
}

TEST_CASE("A direct writer in memory is a buffered one", "[storage][recorder][direct]") {
  RecorderOptions options;
  options.writer = GENERATE(WriterKind::DIRECT, WriterKind::AUTO);
  options.directory = "/dev/shm";
  options.prefix = "daqiri-test-" + std::to_string(getpid());
  Recording r(options, silent_port());
  CHECK(r.recorder->writer() == "buffered");
  r.send(0, 10);
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 1);
  CHECK(value_of(sidecar_of(files[0].path), "writer") == "\"buffered\"");
  unlink(files[0].path.c_str());
  unlink((files[0].path + ".json").c_str());
}

TEST_CASE("What a writer cannot write is cut off and counted", "[storage][recorder][direct]") {
  const DiskDir disk;
  RecorderOptions options;
  options.directory = disk.path();
  options.writer = GENERATE(WriterKind::BUFFERED, WriterKind::DIRECT);
  options.format = GENERATE(CaptureFormat::PCAP, CaptureFormat::RAW);
  Recording r(options, silent_port());
  const bool raw = options.format == CaptureFormat::RAW;
  const std::uint64_t record = raw ? 1000 : 1016;
  {
    const FileSizeLimit limit(2'500'000);
    for (std::uint32_t i = 0; i < 6; ++i) r.send(i * 1000, 1000, 1000);
    REQUIRE(within_limit([&] {
      const RecorderSnapshot s = r.recorder->snapshot();
      return s.packets + s.dropped == 6000 && s.failing;
    }));
    r.recorder->stop();
  }
  const RecorderSnapshot snapshot = r.recorder->snapshot();
  CHECK_THAT(snapshot.error, Contains("capture_000000") && Contains("File too large"));
  CHECK(snapshot.packets + snapshot.dropped == 6000);
  CHECK(snapshot.packets >= 1500'000 / record);
  CHECK(r.rx.counters().dropped_total() == 0);
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].packets == snapshot.packets);
  CHECK(files[0].dropped == snapshot.dropped);
  CHECK(std::filesystem::file_size(files[0].path) == (raw ? 0 : 24) + record * snapshot.packets);
  if (!raw) return require_frames(tcpdump(files[0].path), 0, 1000);
  // The last packets are an incomplete batch.
  const Bytes index = read_file(files[0].path + ".npy");
  REQUIRE(index.size() == 192 + snapshot.packets * sizeof(RawIndex::Row));
  RawIndex::Row row{};
  for (std::uint64_t i = 0; i < snapshot.packets; ++i) {
    std::memcpy(&row, index.data() + 192 + i * sizeof row, sizeof row);
    REQUIRE(row.offset == i * 1000);
    REQUIRE(row.length == 1000);
    REQUIRE(row.timestamp != 0);
  }
}

TEST_CASE("Raw files hold packets back to back, with an index that NumPy reads",
          "[storage][recorder][raw]") {
  RecorderOptions options;
  options.format = CaptureFormat::RAW;
  options.packet_data_offset = GENERATE(0, 42, 1000);
  options.roll_packets = 150;
  Recording r(options);
  r.send(0, 200);
  r.send(200, 100, 1500);
  REQUIRE(r.recorded(300));
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 2);
  CHECK(r.dir.names() == std::vector<std::string>{"capture_000000.raw", "capture_000000.raw.json",
                                                  "capture_000000.raw.npy", "capture_000001.raw",
                                                  "capture_000001.raw.json",
                                                  "capture_000001.raw.npy"});
  std::uint32_t number = 0;
  for (const RecordedFile& file : files) {
    const Bytes data = read_file(file.path);
    std::istringstream rows(output_of(
        "/usr/bin/env python3 -c '\nimport struct, sys\nb = open(sys.argv[1], \"rb\").read()\n"
        "assert b[:8] == b\"\\x93NUMPY\\x01\\x00\"\nn = 10 + int.from_bytes(b[8:10], \"little\")\n"
        "assert n % 64 == 0\nd = eval(b[10:n])\nassert (len(b) - n) == 24 * d[\"shape\"][0]\n"
        "for r in struct.iter_unpack(\"<QIIQ\", b[n:]): print(*r)' " +
        file.path + ".npy"));
    std::uint64_t end = 0;
    std::uint64_t offset = 0, length = 0, flow = 0, time = 0;
    std::uint64_t packets = 0;
    while (rows >> offset >> length >> flow >> time) {
      const auto frame = udp_frame(5000, number, number < 200 ? 128 : 1500);
      const std::size_t skipped = std::min<std::size_t>(options.packet_data_offset, frame.size());
      CHECK(offset == end);
      REQUIRE(length == frame.size() - skipped);
      REQUIRE(std::equal(frame.begin() + static_cast<std::ptrdiff_t>(skipped), frame.end(),
                         data.begin() + static_cast<std::ptrdiff_t>(offset)));
      CHECK(flow == 10);
      if (packets == 0) CHECK(time == static_cast<std::uint64_t>(file.t_first_ns));
      end = offset + length;
      ++packets;
      ++number;
    }
    CHECK(packets == 150);
    CHECK(end == data.size());
    const std::string json = sidecar_of(file.path);
    CHECK(value_of(json, "format") == "\"raw\"");
    CHECK(value_of(json, "packet_data_offset") == std::to_string(options.packet_data_offset));
  }
}

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "storage/bursts.h"
#include "storage/packet_writer.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t T0 = 1'700'000'000'123'456'789;

/// Five bytes of reconstructed headers; the last one is the number of the packet.
class Reconstructed final : public LinkLayer {
 public:
  [[nodiscard]] std::uint32_t link_type() const noexcept override { return LINKTYPE_RAW; }
  [[nodiscard]] bool reconstructs_headers() const noexcept override { return true; }
  std::uint32_t prefix(const BurstParams& /*burst*/, std::size_t i,
                       std::byte* out) const noexcept override {
    for (int b = 0; b < 4; ++b) out[b] = std::byte{0x45};
    out[4] = static_cast<std::byte>(i);
    return 5;
  }
};

std::uint64_t records(std::size_t n, std::size_t length) { return n * (16 + length); }

/// Appends to `path` and returns the error.
std::pair<Status, std::string> append_refusal(const std::string& path, std::uint32_t longest = 0) {
  return refusal([&] { PacketWriter().append(path, longest); });
}

}  // namespace

TEST_CASE("tcpdump and tshark read what the pcap writer wrote", "[storage][pcap]") {
  const TempDir dir;
  Bench bench(2, 64, 4096);
  // Short, long and empty segments, with lengths on both sides of the copy limit.
  std::vector<std::vector<Bytes>> packets;
  std::vector<Bytes> whole;
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::size_t first = std::array{0U, 14U, 60U, 511U, 512U, 513U, 1500U, 4096U}[i % 8];
    // tcpdump prints no time for an empty packet.
    const std::size_t second =
        first > 0 && i % 5 == 0 ? 0 : std::array{3U, 1U, 512U, 2000U}[i / 16];
    packets.push_back({random_bytes(first, i), random_bytes(second, 1000 + i)});
    whole.push_back(packets.back()[0]);
    whole.back().insert(whole.back().end(), packets.back()[1].begin(), packets.back()[1].end());
  }
  const bool nanosecond = GENERATE(false, true);
  const auto burst = bench.burst(packets, T0, 1'001);
  const std::string path = dir / "all.pcap";
  PacketWriter writer(pcap::Format{LINKTYPE_ETHERNET, nanosecond});
  writer.append(path);
  // In two calls with ranges of packets.
  CHECK(writer.write(*burst, ETHERNET, 0, 10) == 10);
  CHECK(writer.write(*burst, ETHERNET, 10, 54) == 54);
  CHECK(writer.tally().packets == 64);
  CHECK(writer.tally().t_first_ns == static_cast<std::int64_t>(T0));
  CHECK(writer.tally().t_last_ns == static_cast<std::int64_t>(T0 + 63 * 1'001));
  writer.close();
  CHECK_FALSE(writer.failed());
  CHECK(writer.size() == std::filesystem::file_size(path));

  const auto seen = tcpdump(path);
  REQUIRE(seen.size() == 64);
  const auto rows = tshark(path, {"frame.time_epoch", "frame.len", "frame.cap_len"});
  REQUIRE(rows.size() == 64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint64_t ns = T0 + i * 1'001;
    const std::uint64_t stored = nanosecond ? ns : ns / 1000 * 1000;
    std::string fraction = std::to_string(stored % 1'000'000'000);
    fraction.insert(0, 9 - fraction.size(), '0');
    const std::string time = std::to_string(stored / 1'000'000'000) + "." + fraction;
    CHECK(seen[i].time == time);
    CHECK(seen[i].bytes == whole[i]);
    CHECK(rows[i] ==
          std::vector{time, std::to_string(whole[i].size()), std::to_string(whole[i].size())});
  }
}

TEST_CASE("More packets than a system call takes", "[storage][pcap]") {
  const TempDir dir;
  const std::size_t length = GENERATE(std::size_t{64}, std::size_t{1000});
  Bench bench(1, 5000, 1024);
  const auto burst = bench.burst(5000, length);
  PacketWriter writer;
  writer.append(dir / "many.pcap");
  REQUIRE(writer.write(*burst, ETHERNET, 0, 5000) == 5000);
  writer.close();
  const Bytes file = read_file(dir / "many.pcap");
  REQUIRE(file.size() == 24 + records(5000, length));
  bool same = true;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    same &= std::memcmp(file.data() + 24 + records(i, length) + 16, burst->pkts[0][i], length) == 0;
  }
  CHECK(same);
}

TEST_CASE("Reconstructed headers stand before every packet", "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(3, 700);
  PacketWriter writer(pcap::Format{LINKTYPE_RAW, true});
  writer.append(dir / "raw.pcap");
  REQUIRE(writer.write(*burst, Reconstructed{}, 0, 3) == 3);
  CHECK(writer.tally().bytes == 3 * 705);
  writer.close();
  const Bytes file = read_file(dir / "raw.pcap");
  REQUIRE(file.size() == 24 + records(3, 705));
  CHECK(file[20] == LINKTYPE_RAW);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::uint8_t* packet = file.data() + 24 + records(i, 705) + 16;
    CHECK(packet[0] == 0x45);
    CHECK(packet[4] == i);
    CHECK(std::memcmp(packet + 5, burst->pkts[0][i], 700) == 0);
  }
}

TEST_CASE("Packets without a timestamp carry the time of writing", "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst({{Bytes(60)}, {Bytes(60)}});
  PacketWriter writer(pcap::Format{LINKTYPE_ETHERNET, true});
  const auto before = static_cast<std::int64_t>(realtime_ns());
  writer.append(dir / "now.pcap");
  REQUIRE(writer.write(*burst, ETHERNET, 0, 2) == 2);
  CHECK(writer.tally().t_first_ns >= before);
  CHECK(writer.tally().t_last_ns <= static_cast<std::int64_t>(realtime_ns()));
}

TEST_CASE("A packet beyond the snap length is cut, and says how long it was", "[storage][pcap]") {
  const TempDir dir;
  constexpr std::size_t LONG = 300'000;
  Bench bench(2, 4, LONG);
  const auto burst =
      bench.burst({{random_bytes(100, 1), random_bytes(LONG, 2)}, {Bytes(60), Bytes()}}, T0, 1);
  PacketWriter writer;
  writer.append(dir / "long.pcap", LONG + 100);
  REQUIRE(writer.write(*burst, ETHERNET, 0, 2) == 2);
  writer.close();
  const auto rows = tshark(dir / "long.pcap", {"frame.len", "frame.cap_len"});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == std::vector<std::string>{"300100", "262144"});
  CHECK(rows[1] == std::vector<std::string>{"60", "60"});
  const Bytes file = read_file(dir / "long.pcap");
  CHECK(std::memcmp(file.data() + 24 + 16 + 100, burst->pkts[1][0], 262'144 - 100) == 0);
}

TEST_CASE("The size limit ends a write behind the packet that reaches it", "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(10, 84);
  PacketWriter writer;
  writer.append(dir / "limit.pcap");
  CHECK(writer.write(*burst, ETHERNET, 0, 10, 24 + 300) == 3);
  CHECK(writer.write(*burst, ETHERNET, 3, 7, 24 + 301) == 1);
  CHECK(writer.write(*burst, ETHERNET, 4, 6, 24 + 301) == 0);
  CHECK(writer.size() == 24 + 400);
}

TEST_CASE("Bursts are appended to a compatible file", "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(5, 100);
  const std::string path = dir / "grown.pcap";
  for (int i = 0; i < 3; ++i) {
    PacketWriter writer;
    writer.append(path);
    CHECK(writer.write(*burst, ETHERNET, 0, 5) == 5);
    CHECK(writer.bytes_written() == records(5, 100) + (i == 0 ? 24 : 0));
    CHECK(writer.tally().packets == 5);
  }
  CHECK(tcpdump(path).size() == 15);

  SECTION("written by somebody else, with a smaller snap length") {
    Bytes file = read_file(path);
    file[16] = 200, file[17] = file[18] = file[19] = 0;
    write_file(path, file);
    PacketWriter writer;
    writer.append(path, 200);
    CHECK(writer.write(*burst, ETHERNET, 0, 5) == 5);
    writer.close();
    CHECK(tcpdump(path).size() == 20);
    const auto [status, text] = append_refusal(path, 201);
    CHECK(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("snap length of 200") && Contains("201"));
  }
  SECTION("an empty file gets its header") {
    write_file(path, {});
    PacketWriter writer;
    writer.append(path);
    CHECK(std::filesystem::file_size(path) == 24);
  }
}

TEST_CASE("An incompatible file is refused and stays as it was", "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const std::string path = dir / "other.pcap";
  {
    const auto burst = bench.burst(3, 100);
    PacketWriter writer;
    writer.append(path);
    REQUIRE(writer.write(*burst, ETHERNET, 0, 3) == 3);
  }
  const Bytes good = read_file(path);
  Bytes bad = good;
  std::string expected;
  SECTION("text") {
    bad.assign(100, 'x');
    expected = "not a pcap file";
  }
  SECTION("shorter than a header") {
    bad.resize(20);
    expected = "20 bytes";
  }
  SECTION("nanoseconds") {
    bad[0] = 0x4D, bad[1] = 0x3C;
    expected = "nanoseconds";
  }
  SECTION("the other byte order") {
    std::reverse(bad.begin(), bad.begin() + 4);
    std::swap(bad[4], bad[5]);
    std::swap(bad[6], bad[7]);
    std::reverse(bad.begin() + 16, bad.begin() + 20);
    std::reverse(bad.begin() + 20, bad.begin() + 24);
    expected = "byte order";
  }
  SECTION("version 2.5") {
    bad[6] = 5;
    expected = "version 2.5";
  }
  SECTION("raw IP") {
    bad[20] = LINKTYPE_RAW;
    expected = "link type 101";
  }
  SECTION("pcapng") {
    const Bytes magic{0x0A, 0x0D, 0x0D, 0x0A};
    std::copy(magic.begin(), magic.end(), bad.begin());
    expected = "pcapng";
  }
  SECTION("a tail of zeros") {
    bad.resize(bad.size() + 4096);
    expected = "pcap repair --output";
  }
  SECTION("a record that nobody writes") {
    const Bytes header(16, 0xFF);
    bad.insert(bad.end(), header.begin(), header.end());
    expected = "16 bytes are not packets";
  }
  write_file(path, bad);
  const auto [status, text] = append_refusal(path);
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains(path) && Contains(expected));
  CHECK(read_file(path) == bad);
}

TEST_CASE("A torn record at the end of a file is cut off before more is appended",
          "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const std::string path = dir / "torn.pcap";
  const auto burst = bench.burst(2, 100);
  {
    PacketWriter writer;
    writer.append(path);
    writer.write(*burst, ETHERNET, 0, 2);
  }
  // This process left the file complete; truncate it afterwards.
  const auto torn = GENERATE(30U, 100U, 105U, 115U);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - torn);
  {
    PacketWriter writer;
    writer.append(path);
    CHECK(writer.size() == 24 + records(1, 100));
    CHECK(writer.write(*burst, ETHERNET, 0, 2) == 2);
  }
  CHECK(std::filesystem::file_size(path) == 24 + records(3, 100));
  CHECK(tcpdump(path).size() == 3);
}

TEST_CASE("What is not a file of ours to write is refused", "[storage][pcap]") {
  const TempDir dir;
  SECTION("a device") {
    std::filesystem::create_symlink("/dev/full", dir / "device.pcap");
    const auto [status, text] = append_refusal(dir / "device.pcap");
    CHECK(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("not a regular file"));
  }
  SECTION("a pipe that nobody reads") {
    REQUIRE(mkfifo((dir / "pipe.pcap").c_str(), 0600) == 0);
    CHECK(append_refusal(dir / "pipe.pcap").first == Status::INVALID_PARAMETER);
  }
  SECTION("a directory") {
    std::filesystem::create_directory(dir / "folder.pcap");
    const auto [status, text] = append_refusal(dir / "folder.pcap");
    CHECK(status == Status::GENERIC_FAILURE);
    CHECK_THAT(text, Contains("folder.pcap") && Contains("directory"));
  }
  SECTION("a missing directory") {
    const auto [status, text] = append_refusal(dir / "missing/file.pcap");
    CHECK(status == Status::GENERIC_FAILURE);
    CHECK_THAT(text, Contains("missing/file.pcap") && Contains("No such file"));
  }
  SECTION("a file that is being written") {
    PacketWriter first;
    first.append(dir / "busy.pcap");
    CHECK(append_refusal(dir / "busy.pcap").first == Status::NOT_READY);
    first.close();
    CHECK(append_refusal(dir / "busy.pcap").first == Status::SUCCESS);
  }
  SECTION("a file that is there") {
    write_file(dir / "there.pcap", {});
    const auto [status, text] = refusal([&] { PacketWriter().create(dir / "there.pcap"); });
    CHECK(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("there.pcap") && Contains("not overwritten"));
  }
  SECTION("a file that is there when the next one is prepared") {
    write_file(dir / "there.pcap", {});
    write_file(dir / "there.raw.npy", {});
    PacketWriter writer;
    writer.create(dir / "present.pcap");
    CHECK(refusal([&] { writer.prepare(dir / "there.pcap"); }).first == Status::INVALID_PARAMETER);
    CHECK_FALSE(writer.failed());
    PacketWriter raw{RawFormat{}};
    const auto [status, text] = refusal([&] { raw.prepare(dir / "there.raw"); });
    CHECK(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("there.raw.npy") && Contains("not overwritten"));
    raw.discard_prepared();
    CHECK(dir.names() == std::vector<std::string>{"present.pcap", "there.pcap", "there.raw.npy"});
  }
}

TEST_CASE("A failed write leaves whole records and the first error", "[storage][pcap]") {
  const TempDir dir;
  const std::size_t length = GENERATE(std::size_t{100}, std::size_t{1000});
  Bench bench;
  const auto burst = bench.burst(50, length);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // Within the 31st record.
  const std::uint64_t whole = 24 + records(30, length);
  rlimit limit{whole + 50, before.rlim_max};
  PacketWriter writer;
  writer.append(dir / "cut.pcap");
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const std::uint32_t written = writer.write(*burst, ETHERNET, 0, 50);
  // Short packets wait for more.
  CHECK(writer.holds_back() == (length == 100));
  writer.put_held_back();
  const std::uint32_t refused = writer.write(*burst, ETHERNET, 0, 50);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(written == (length == 100 ? 50 : 30));
  CHECK(refused == 0);
  CHECK(writer.failed());
  CHECK_THAT(writer.error(), Contains("cut.pcap") && Contains("File too large"));
  CHECK(writer.tally().packets == 30);
  CHECK(writer.tally().bytes == 30 * length);
  CHECK(writer.tally().t_last_ns == static_cast<std::int64_t>(burst->timestamps[29]));
  CHECK(writer.write(*burst, ETHERNET, 0, 50) == 0);
  writer.close();
  CHECK_THAT(writer.error(), Contains("File too large"));
  CHECK(std::filesystem::file_size(dir / "cut.pcap") == whole);
  CHECK(tcpdump(dir / "cut.pcap").size() == 30);
  // The next file starts without the error.
  writer.append(dir / "next.pcap");
  CHECK(writer.write(*burst, ETHERNET, 0, 50) == 50);
  CHECK_FALSE(writer.failed());
}

namespace {

/// Notes whether anything may be in flight.
class SlowOutput final : public FileOutput {
 public:
  explicit SlowOutput(bool& in_flight) : in_flight_(in_flight) {}
  [[nodiscard]] const char* name() const noexcept override { return "slow"; }
  int begin(int fd, const std::string& path, const FileTally& whole) noexcept override {
    whole_ = whole;
    return buffered_->begin(fd, path, whole);
  }
  int put(RecordBatch& batch) noexcept override {
    in_flight_ = true;
    const int problem = buffered_->put(batch);
    whole_ = buffered_->whole();
    return problem;
  }
  int sync() noexcept override {
    in_flight_ = false;
    return 0;
  }

 private:
  bool& in_flight_;
  std::unique_ptr<FileOutput> buffered_{buffered_output()};
};

}  // namespace

TEST_CASE("Short packets are not put into a file that is gone", "[storage][pcap]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(10, 100);
  const bool raw = GENERATE(false, true);
  const bool removed = GENERATE(false, true);
  const std::string path = dir / (raw ? "short.raw" : "short.pcap");
  bool in_flight = false;
  auto output = std::make_unique<SlowOutput>(in_flight);
  PacketWriter writer = raw ? PacketWriter(RawFormat{}, std::move(output))
                            : PacketWriter(pcap::Format{}, std::move(output));
  writer.create(path);
  REQUIRE(writer.write(*burst, ETHERNET, 0, 10) == 10);
  writer.put_held_back();
  REQUIRE(in_flight);
  REQUIRE(writer.write(*burst, ETHERNET, 0, 10) == 10);
  CHECK(writer.holds_back());
  CHECK(writer.records() == 20);
  CHECK(writer.flushed() == 10);
  if (removed) {
    std::filesystem::remove(path);
  } else {
    std::filesystem::resize_file(path, 500);
  }
  writer.put_held_back();
  CHECK(writer.failed());
  CHECK_THAT(writer.error(), Contains(path + " was removed or cut"));
  CHECK_FALSE(writer.still_there());
  CHECK_FALSE(writer.holds_back());
  CHECK_FALSE(writer.retry());
  CHECK(writer.records() == 10);
  CHECK(writer.write(*burst, ETHERNET, 0, 10) == 0);
  CHECK(in_flight);
  writer.close();
  // What was on its way would go to the next file.
  CHECK_FALSE(in_flight);
  CHECK(std::filesystem::exists(path) == !removed);
  if (!removed) CHECK(std::filesystem::file_size(path) == 500);
  writer.create(dir / "next");
  CHECK(writer.write(*burst, ETHERNET, 0, 10) == 10);
  writer.close();
  CHECK_FALSE(writer.failed());
}

TEST_CASE("A closed file is removed with its index, and no other of its name", "[storage][pcap]") {
  const TempDir dir;
  PacketWriter writer = GENERATE(false, true) ? PacketWriter(RawFormat{}) : PacketWriter();
  const std::string path = dir / "closed";
  writer.create(path);
  writer.close();
  SECTION("its own") {
    writer.remove();
    CHECK(dir.names().empty());
  }
  SECTION("another one") {
    std::filesystem::rename(path, dir / "elsewhere");
    write_file(path, {});
    writer.remove();
    CHECK(std::filesystem::exists(path));
    CHECK(std::filesystem::exists(dir / "elsewhere"));
  }
}

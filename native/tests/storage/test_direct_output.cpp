#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "storage/bursts.h"
#include "storage/failing_write.h"
#include "storage/packet_writer.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Packets of `length` bytes without zeros, at times without two zero bytes in a row.
HeldBurst dense_burst(Bench& bench, std::size_t n, std::size_t length) {
  std::vector<std::vector<Bytes>> packets(n, {Bytes(length, 0x5A)});
  return bench.burst(packets, 1'700'000'000'123'456'789, 1);
}

/// The current bytes of the file; the size is read first.
Bytes content_of(int fd) {
  struct stat found{};
  REQUIRE(fstat(fd, &found) == 0);
  Bytes bytes(static_cast<std::size_t>(found.st_size));
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n =
        pread(fd, bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(filled));
    REQUIRE(n > 0);
    filled += static_cast<std::size_t>(n);
  }
  return bytes;
}

/// Whether all records are intact up to the end of `bytes`, which may be inside a record.
bool is_prefix(const Bytes& bytes, std::size_t length) {
  const std::size_t step = 16 + length;
  const Bytes payload(length, 0x5A);
  for (std::size_t at = 24; at < bytes.size(); at += step) {
    if (bytes.size() - at < 16) return true;
    if (bytes[at + 8] != (length & 0xFFU) || bytes[at + 9] != length >> 8U) return false;
    const std::size_t n = std::min(bytes.size() - at - 16, length);
    if (std::memcmp(bytes.data() + at + 16, payload.data(), n) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("A file that is being written is a prefix of its records at any moment",
          "[storage][direct]") {
  const TempDir dir("/var/tmp");
  constexpr std::size_t LENGTH = 1500;
  const WriterKind kind = GENERATE(WriterKind::DIRECT, WriterKind::BUFFERED);
  Bench bench(1, 1000);
  const auto burst = dense_burst(bench, 1000, LENGTH);
  std::string why_not;
  PacketWriter writer(pcap::Format{}, make_output(possible_writer(kind, dir.path(), why_not)));
  if (!why_not.empty()) WARN("buffered, not direct: " << why_not);
  const std::string path = dir / "live.pcap";
  writer.create(path);
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::atomic<bool> done{false};
  std::atomic<int> looks{0};
  std::atomic<int> bad{0};
  std::thread reader([&] {
    while (!done) {
      bad += is_prefix(content_of(file.fd()), LENGTH) ? 0 : 1;
      ++looks;
    }
  });
  for (int i = 0; i < 40; ++i) {
    REQUIRE(writer.write(*burst, ETHERNET, 0, 1000) == 1000);
    if (i % 7 == 0) writer.sync();
  }
  REQUIRE(within_limit([&] { return looks > 0; }));
  done = true;
  reader.join();
  CHECK(bad == 0);
  writer.sync();
  CHECK(content_of(file.fd()).size() == writer.size());
  writer.close();
  REQUIRE(writer.error().empty());
  const Bytes all = content_of(file.fd());
  CHECK(all.size() == 24 + 40'000 * (16 + LENGTH));
  CHECK(is_prefix(all, LENGTH));
}

TEST_CASE("An output goes on with a new file, whatever became of the one before",
          "[storage][direct]") {
  const TempDir dir("/var/tmp");
  Bench bench(1, 1000);
  const auto burst = dense_burst(bench, 1000, 1500);
  std::string why_not;
  PacketWriter writer(pcap::Format{},
                      make_output(possible_writer(WriterKind::DIRECT, dir.path(), why_not)));
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string path = dir / (std::to_string(i) + ".pcap");
    writer.create(path);
    // One, two and three blocks and a part.
    for (std::size_t n = 0; n <= i; ++n) REQUIRE(writer.write(*burst, ETHERNET, 0, 1000) == 1000);
    writer.sync();
    writer.sync();
    REQUIRE(writer.write(*burst, ETHERNET, 0, 7) == 7);
    writer.close();
    CHECK(writer.error().empty());
    CHECK(tcpdump(path).size() == 1000 * (i + 1) + 7);
  }
}

TEST_CASE("A writer goes on in the same file after an error", "[storage][direct]") {
  const TempDir dir("/var/tmp");
  Bench bench(1, 1000);
  const auto burst = dense_burst(bench, 1000, 1500);
  const WriterKind kind = GENERATE(WriterKind::DIRECT, WriterKind::BUFFERED);
  std::string why_not;
  PacketWriter writer(pcap::Format{}, make_output(possible_writer(kind, dir.path(), why_not)));
  if (!why_not.empty()) WARN("buffered, not direct: " << why_not);
  const std::string path = dir / "again.pcap";
  writer.create(path);
  // Ends within a page, which is read again.
  REQUIRE(writer.write(*burst, ETHERNET, 0, 100) == 100);
  writer.sync();
  {
    const FileSizeLimit limit(writer.size() + 1000);
    writer.write(*burst, ETHERNET, 100, 900);
    writer.sync();
    REQUIRE(writer.failed());
    REQUIRE(writer.tally().packets == 100);
  }
  REQUIRE(writer.retry());
  REQUIRE(writer.write(*burst, ETHERNET, 100, 900) == 900);
  writer.close();
  CHECK(writer.error().empty());
  const Bytes all = read_file(path);
  CHECK(all.size() == 24 + 1000 * (16 + 1500));
  CHECK(is_prefix(all, 1500));
}

TEST_CASE("A direct writer tells an error of the disk", "[storage][direct]") {
  const TempDir dir("/var/tmp");
  std::string why_not;
  if (possible_writer(WriterKind::DIRECT, dir.path(), why_not) != WriterKind::DIRECT) {
    WARN("not tested: " << why_not);
    return;
  }
  Bench bench(1, 1000);
  const auto burst = dense_burst(bench, 1000, 1500);
  const int error = GENERATE(EIO, EINVAL);
  // More than a block, and less.
  const std::uint32_t packets = GENERATE(1000U, 100U);
  PacketWriter writer(pcap::Format{}, make_output(WriterKind::DIRECT));
  writer.create(dir / "broken.pcap");
  writer.sync();
  const FailingWrite fault(true, 0, error);
  writer.write(*burst, ETHERNET, 0, packets);
  writer.sync();
  CHECK(fault.met());
  INFO(writer.error());
  CHECK(writer.failed() == (error == EIO));
  CHECK(writer.tally().packets == (error == EIO ? 0 : packets));
}

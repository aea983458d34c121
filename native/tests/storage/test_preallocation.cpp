#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "storage/bursts.h"
#include "storage/file_output.h"
#include "storage/packet_writer.h"
#include "system/file.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint64_t MIB = std::uint64_t{1} << 20U;

struct stat look(int fd) {
  struct stat found{};
  REQUIRE(fstat(fd, &found) == 0);
  return found;
}

std::uint64_t taken(int fd) { return static_cast<std::uint64_t>(look(fd).st_blocks) * 512; }

File new_file(const std::string& path) {
  File file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  REQUIRE(file.is_open());
  return file;
}

/// Whether files in this folder can have disk blocks after their end.
bool preallocates(const TempDir& dir) {
  const File file = new_file(dir / "probe");
  return fallocate(file.fd(), FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
}

}  // namespace

TEST_CASE("Disk blocks are allocated ahead of the data and freed", "[storage][preallocation]") {
  const TempDir dir;
  const bool possible = preallocates(dir);
  const File file = new_file(dir / "f");
  Preallocation ahead;
  ahead.begin(file.fd(), 0);
  ahead.reserve(MIB - 1);
  CHECK(taken(file.fd()) == 0);
  ahead.reserve(4 * MIB);
  CHECK(look(file.fd()).st_size == 0);
  if (possible) CHECK(taken(file.fd()) >= 8 * MIB);
  REQUIRE(write_fully(file.fd(), "data", 4, 0) == 0);
  CHECK(ahead.trim(4) == 0);
  CHECK(look(file.fd()).st_size == 4);
  CHECK(taken(file.fd()) <= MIB);
}

TEST_CASE("In memory, nothing is allocated ahead", "[storage][preallocation]") {
  const TempDir dir("/dev/shm");
  const File file = new_file(dir / "f");
  Preallocation ahead;
  ahead.begin(file.fd(), 0);
  ahead.reserve(64 * MIB);
  CHECK(taken(file.fd()) == 0);
}

TEST_CASE("A full disk costs the preallocation, not the data", "[storage][preallocation]") {
  const TempDir dir;
  if (!preallocates(dir)) return;
  const File file = new_file(dir / "f");
  Preallocation ahead;
  ahead.begin(file.fd(), 0);
  // No disk is large enough.
  ahead.reserve(std::uint64_t{1} << 60U);
  ahead.reserve(std::uint64_t{1} << 61U);
  CHECK(write_fully(file.fd(), "data", 4, 0) == 0);
  CHECK(ahead.trim(4) == 0);
  CHECK(look(file.fd()).st_size == 4);
}

TEST_CASE("A file of a writer has nothing allocated behind its end", "[storage][preallocation]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(60, 9000);
  for (const WriterKind kind : {WriterKind::BUFFERED, WriterKind::DIRECT}) {
    std::string why_not;
    PacketWriter writer(pcap::Format{}, make_output(possible_writer(kind, dir.path(), why_not)));
    const std::string path = dir / (std::string(writer.output_name()) + ".pcap");
    writer.create(path);
    for (int i = 0; i < 10; ++i) REQUIRE(writer.write(*burst, LinkLayer(), 0, 60) == 60);
    writer.close();
    REQUIRE(writer.error().empty());
    const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    constexpr std::uint64_t SIZE = 24 + 600 * (16 + 9000);
    CHECK(look(file.fd()).st_size == SIZE);
    fsync(file.fd());
    CHECK(taken(file.fd()) <= SIZE + MIB);
  }
}

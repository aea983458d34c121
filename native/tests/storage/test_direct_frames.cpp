// Writing frames without the page cache.
#include <fcntl.h>

#include <memory>
#include <utility>

#include "storage/bursts.h"
#include "storage/device_backend.h"
#include "storage/direct_frames.h"
#include "storage/failing_write.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

File make_file(const std::string& path) {
  File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(file.is_open());
  return file;
}

/// More buffers than the writes can hold.
Bench frames_of(std::size_t bytes) { return Bench(1, 8, bytes); }

HeldBurst frame(Bench& bench, const Bytes& bytes) {
  HeldBurst made;
  REQUIRE(within_limit([&] {
    made = bench.burst_or_none({{bytes}}, 1);
    return made != nullptr;
  }));
  return made;
}

}  // namespace

TEST_CASE("Frames are in the file as they were, each up to the end of its last page with zeros",
          "[storage][direct]") {
  const TempDir dir("/var/tmp");
  const std::size_t size =
      GENERATE(1UL, DIRECT_PAGE, 3 * DIRECT_PAGE - 5, 4 * DIRECT_PAGE, std::size_t{1} << 20U);
  // With buffers at page boundaries and elsewhere.
  const std::size_t stride = whole_pages(size) + GENERATE(0UL, 64UL);
  Bench bench = frames_of(stride);
  const File file = make_file(dir / "frames");
  Bytes expected;
  {
    DirectWrites writes(size);
    writes.begin(file.fd(), dir / "frames");
    for (std::uint32_t i = 0; i < 40; ++i) {
      Bytes bytes = random_bytes(size, i);
      const HeldBurst held = frame(bench, bytes);
      REQUIRE(writes.put(expected.size(), held->pkts[0][0], size, held.get()) == 0);
      bytes.resize(whole_pages(size));
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    CHECK(writes.wait() == 0);
    CHECK(writes.whole() == 40);
  }
  CHECK(read_file(dir / "frames") == expected);
}

TEST_CASE("What a disk refuses ends the whole frames of a file", "[storage][direct]") {
  const TempDir dir("/var/tmp");
  constexpr std::size_t SIZE = 64 * DIRECT_PAGE;
  const bool held_bursts = GENERATE(true, false);
  Bench bench = frames_of(SIZE);
  const File file = make_file(dir / "frames");
  DirectWrites writes(SIZE);
  writes.begin(file.fd(), dir / "frames");
  const Bytes bytes = random_bytes(SIZE, 1);
  {
    const FileSizeLimit limit(5 * SIZE + 3);
    int problem = 0;
    for (std::uint64_t i = 0; i < 12 && problem == 0; ++i) {
      const HeldBurst held = frame(bench, bytes);
      problem = writes.put(i * SIZE, held->pkts[0][0], SIZE, held_bursts ? held.get() : nullptr);
    }
    CHECK(writes.wait() == EFBIG);
    CHECK(writes.put(12 * SIZE, bytes.data(), SIZE, nullptr) == EFBIG);
  }
  CHECK(writes.whole() == 5);
  const Bytes found = read_file(dir / "frames");
  REQUIRE(found.size() >= 5 * SIZE);
  for (std::size_t i = 0; i < 5; ++i)
    REQUIRE(std::equal(bytes.begin(), bytes.end(), &found[i * SIZE]));
  // All bursts have been returned.
  std::vector<HeldBurst> all;
  for (int i = 0; i < 4; ++i) all.push_back(frame(bench, bytes));
  // Writing continues.
  writes.begin(file.fd(), dir / "frames");
  CHECK(writes.put(5 * SIZE, bytes.data(), SIZE, nullptr) == 0);
  CHECK(writes.wait() == 0);
  CHECK(writes.whole() == 1);
}

TEST_CASE("An error of the disk is not hidden by a write through the page cache",
          "[storage][direct]") {
  const TempDir dir("/var/tmp");
  std::string why_not;
  if (possible_writer(WriterKind::DIRECT, dir.path(), why_not) != WriterKind::DIRECT) {
    WARN("not tested: " << why_not);
    return;
  }
  const int error = GENERATE(EIO, EINVAL);
  const bool told = error == EIO;
  const File file = make_file(dir / "frames");
  const Bytes bytes = random_bytes(DIRECT_PAGE, 1);
  DirectWrites writes(DIRECT_PAGE);
  writes.begin(file.fd(), dir / "frames");
  {
    const FailingWrite fault(true, 0, error);
    REQUIRE(writes.put(0, bytes.data(), DIRECT_PAGE, nullptr) == 0);
    CHECK(writes.wait() == (told ? error : 0));
    CHECK(fault.met());
  }
  CHECK(writes.whole() == (told ? 0 : 1));
  CHECK(read_file(dir / "frames") == (told ? Bytes() : bytes));
}

TEST_CASE("Frames of a device are written one by one, from where they are, at any offset",
          "[storage][direct]") {
  const TempDir dir("/var/tmp");
  const std::size_t size = GENERATE(1UL, DIRECT_PAGE, 3 * DIRECT_PAGE - 5);
  Bench bench = frames_of(whole_pages(size) + 64);
  const File file = make_file(dir / "frames");
  Bytes expected;
  auto made = std::make_unique<DeviceBackend>();
  const DeviceBackend& backend = *made;
  DirectWrites writes(size, std::move(made));
  REQUIRE(writes.begin(file.fd(), dir / "frames") == 0);
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Bytes bytes = random_bytes(size, i);
    const HeldBurst held = frame(bench, bytes);
    // Without an owner, the frame is in host memory, like one taken over from another file.
    Burst* const owner = i % 8 == 7 ? nullptr : held.get();
    REQUIRE(writes.put(expected.size(), held->pkts[0][0], size, owner) == 0);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  CHECK(writes.wait() == 0);
  CHECK(writes.whole() == 40);
  CHECK(backend.single());
  CHECK(read_file(dir / "frames") == expected);
}

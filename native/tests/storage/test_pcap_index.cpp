#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "storage/bursts.h"
#include "storage/index_pcap.h"
#include "storage/packet_writer.h"
#include "system/file.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

/// A pcap file in memory, and its content.
struct Made {
  Bytes file;
  struct {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint32_t> lengths;
    std::vector<std::uint32_t> wire_lengths;
    std::vector<std::int64_t> timestamps;
  } truth;
};

template <typename T>
std::vector<T> values(const PageArray<T>& array) {
  return {array.begin(), array.end()};
}

void put32(Bytes& file, std::uint32_t value, bool swapped) {
  for (int b = 0; b < 4; ++b) {
    file.push_back(static_cast<std::uint8_t>(value >> 8 * (swapped ? 3 - b : b)));
  }
}

Made make(std::uint32_t seed, std::size_t packets, bool swapped, bool nanosecond) {
  std::mt19937 random(seed);
  Made made;
  put32(made.file, nanosecond ? pcap::MAGIC_NANOSECOND : pcap::MAGIC_MICROSECOND, swapped);
  put32(made.file, swapped ? 0x0002'0004U : 0x0004'0002U, swapped);
  put32(made.file, 0, swapped);
  put32(made.file, 0, swapped);
  put32(made.file, pcap::SNAP_LENGTH, swapped);
  put32(made.file, 1, swapped);
  for (std::size_t i = 0; i < packets; ++i) {
    const std::uint32_t seconds = 1'600'000'000U + static_cast<std::uint32_t>(random() % 1000);
    const auto fraction =
        static_cast<std::uint32_t>(random() % (nanosecond ? 1'000'000'000U : 1'000'000U));
    const auto length =
        static_cast<std::uint32_t>(random() % 4 == 0 ? random() % 3000 : random() % 80);
    const std::uint32_t wire = length + static_cast<std::uint32_t>(random() % 10);
    put32(made.file, seconds, swapped);
    put32(made.file, fraction, swapped);
    put32(made.file, length, swapped);
    put32(made.file, wire, swapped);
    made.truth.offsets.push_back(made.file.size());
    made.truth.lengths.push_back(length);
    made.truth.wire_lengths.push_back(wire);
    made.truth.timestamps.push_back(std::int64_t{seconds} * 1'000'000'000 +
                                    std::int64_t{fraction} * (nanosecond ? 1 : 1000));
    made.file.resize(made.file.size() + length, static_cast<std::uint8_t>(i));
  }
  return made;
}

PcapIndex index_of(const Bytes& file) { return index_pcap(file.data(), file.size(), "test.pcap"); }

}  // namespace

TEST_CASE("Any valid file is indexed exactly, in both byte orders", "[storage][index]") {
  const bool swapped = GENERATE(false, true);
  const bool nanosecond = GENERATE(false, true);
  // Also with more packets than the sample used to reserve memory.
  const std::size_t packets = GENERATE(0, 1, 7, 16'383, 16'384, 16'385, 40'000);
  const Made made = make(static_cast<std::uint32_t>(packets), packets, swapped, nanosecond);
  const PcapIndex index = index_of(made.file);
  CHECK(index.link_type == 1);
  CHECK(index.snap_length == 262'144);
  CHECK(index.nanosecond == nanosecond);
  CHECK(index.swapped == swapped);
  CHECK(index.torn_bytes == 0);
  CHECK(values(index.offsets) == made.truth.offsets);
  CHECK(values(index.lengths) == made.truth.lengths);
  CHECK(values(index.wire_lengths) == made.truth.wire_lengths);
  CHECK(values(index.timestamps) == made.truth.timestamps);
}

TEST_CASE("A file on tmpfs is read, with the same index", "[storage][index]") {
  const bool zeros = GENERATE(false, true);
  Made made = make(11, 20'000, false, true);
  // Records longer than a window, whose headers are read one by one.
  for (int i = 0; i < 40; ++i) {
    for (const std::uint32_t word : {1U, 2U, 300'000U, 300'000U}) put32(made.file, word, false);
    made.file.resize(made.file.size() + 300'000);
  }
  if (zeros) made.file.resize(made.file.size() + 700'001);
  const std::string path = "/dev/shm/daqiri-test-" + std::to_string(getpid()) + ".pcap";
  write_file(path, made.file);
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  unlink(path.c_str());
  CHECK(pcap::Records::pays(file.fd()));
  const MappedFile whole(file.fd(), path);
  PcapIndexer indexer(whole);
  while (indexer.advance()) {
  }
  const PcapIndex read = indexer.take();
  const PcapIndex mapped = index_of(made.file);
  CHECK(values(read.offsets) == values(mapped.offsets));
  CHECK(values(read.lengths) == values(mapped.lengths));
  CHECK(values(read.wire_lengths) == values(mapped.wire_lengths));
  CHECK(values(read.timestamps) == values(mapped.timestamps));
  CHECK(read.torn_bytes == (zeros ? 700'001 : 0));
  CHECK(read.offsets.size() == 20'040);

  SECTION("cut meanwhile") {
    PcapIndexer late(whole);
    const std::uint64_t half = made.file.size() / 2;
    REQUIRE(truncate(("/proc/self/fd/" + std::to_string(file.fd())).c_str(),
                     static_cast<off_t>(half)) == 0);
    const auto [status, text] = refusal([&] {
      while (late.advance()) {
      }
    });
    CHECK(status == Status::GENERIC_FAILURE);
    CHECK_THAT(text, Contains(path + " was cut from ") && Contains(" to " + std::to_string(half)));
  }
}

TEST_CASE("tcpdump finds what the index says in a made file", "[storage][index]") {
  const TempDir dir;
  const Made made = make(5, 50, true, true);
  write_file(dir / "made.pcap", made.file);
  const auto seen = tcpdump(dir / "made.pcap");
  REQUIRE(seen.size() == 50);
  for (std::size_t i = 0; i < 50; ++i) CHECK(seen[i].bytes.size() == made.truth.lengths[i]);
}

TEST_CASE("A file of the pcap writer is indexed", "[storage][index]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(64, 333);
  PacketWriter writer(pcap::Format{LINKTYPE_ETHERNET, true});
  writer.append(dir / "own.pcap");
  writer.write(*burst, LinkLayer{}, 0, 64);
  writer.close();
  const Bytes file = read_file(dir / "own.pcap");
  const PcapIndex index = index_of(file);
  REQUIRE(index.offsets.size() == 64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    CHECK(index.timestamps[i] == static_cast<std::int64_t>(burst->timestamps[i]));
    CHECK(std::memcmp(file.data() + index.offsets[i], burst->pkts[0][i], 333) == 0);
  }
}

TEST_CASE("A file cut anywhere keeps its whole packets and counts the rest", "[storage][index]") {
  const Made made = make(3, 40, false, false);
  for (std::size_t size = 24; size < made.file.size(); ++size) {
    const PcapIndex index = index_pcap(made.file.data(), size, "cut.pcap");
    std::size_t whole = 0;
    std::size_t end = 24;
    while (whole < 40 && made.truth.offsets[whole] + made.truth.lengths[whole] <= size) {
      end = made.truth.offsets[whole] + made.truth.lengths[whole];
      ++whole;
    }
    if (index.offsets.size() != whole || index.torn_bytes != size - end) {
      FAIL("cut at " << size << ": " << index.offsets.size() << " packets, " << index.torn_bytes
                     << " torn");
    }
  }
}

TEST_CASE("A tail of zeros is torn, a packet of zeros is not", "[storage][index]") {
  Made made = make(4, 10, false, false);
  const std::size_t size = made.file.size();
  made.file.resize(size + 16 * 1000);
  CHECK(index_of(made.file).torn_bytes == 16'000);
  CHECK(index_of(made.file).offsets.size() == 10);
  made.file.back() = 1;
  CHECK(index_of(made.file).offsets.size() >= 10 + 999);
  // Zeros before a torn record are torn, too: a file cut to whole records stays valid.
  made.file.back() = 0;
  made.file.push_back(1);
  CHECK(index_of(made.file).torn_bytes == 16'001);
}

TEST_CASE("What is not classic pcap is refused by name", "[storage][index]") {
  Made made = make(1, 3, false, false);
  const auto refused = [&](const std::string& expected) {
    const auto [status, text] = refusal([&] { index_of(made.file); });
    CHECK(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("test.pcap") && Contains(expected));
  };
  const auto set_magic = [&](std::uint32_t magic) { std::memcpy(made.file.data(), &magic, 4); };
  SECTION("empty") {
    made.file.clear();
    refused("0 bytes");
  }
  SECTION("modified") {
    set_magic(0xA1B2CD34U);
    refused("modified pcap");
  }
  SECTION("modified, other order") {
    set_magic(0x34CDB2A1U);
    refused("modified pcap");
  }
  SECTION("pcapng") {
    set_magic(0x0A0D0D0AU);
    refused("editcap -F pcap");
  }
  SECTION("anything") {
    set_magic(0x12345678U);
    refused("0x12345678");
  }
  SECTION("another version") {
    made.file[4] = 3;
    refused("3.4");
  }
  SECTION("a record of half a gigabyte") {
    const std::size_t at = made.truth.offsets[2] - 16;
    made.file[at + 11] = 0x20;
    refused("byte " + std::to_string(at));
  }
}

TEST_CASE("Mutated files give an error or an index within the file", "[storage][index][property]") {
  std::mt19937 random(20'251);
  for (int round = 0; round < 4000; ++round) {
    Made made =
        make(static_cast<std::uint32_t>(round), random() % 30, round % 2 == 0, round % 3 == 0);
    const int mutations = 1 + static_cast<int>(random() % 8);
    for (int m = 0; m < mutations; ++m) {
      switch (random() % 4) {
        case 0:
          made.file[random() % made.file.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
          break;
        case 1:
          made.file[random() % made.file.size()] = static_cast<std::uint8_t>(random());
          break;
        case 2:
          made.file.resize(1 + random() % made.file.size());
          break;
        default: {
          const auto at = static_cast<std::ptrdiff_t>(random() % made.file.size());
          made.file.insert(made.file.begin() + at, random() % 20,
                           static_cast<std::uint8_t>(random() % 2 * 255));
        }
      }
    }
    // The exact size, so that a sanitizer detects reads beyond the end.
    const Bytes file(made.file.begin(), made.file.end());
    try {
      const PcapIndex index = index_of(file);
      std::uint64_t end = 24;
      for (std::size_t i = 0; i < index.offsets.size(); ++i) {
        if (index.offsets[i] != end + 16) FAIL("round " << round);
        end = index.offsets[i] + index.lengths[i];
      }
      if (end + index.torn_bytes != file.size()) FAIL("round " << round);
    } catch (const Error& e) {
      if (e.status() != Status::INVALID_PARAMETER) FAIL("round " << round << ": " << e.what());
    }
  }
  SUCCEED();
}

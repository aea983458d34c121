// The bare loops of a pcap reader over a mapped file: a walk without a result, an index, and a copy
// of the packets to rows of one array.
//
// usage: peers_pcap_read FILE ROW_BYTES

#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/pcap_file.h"

namespace {

struct Index {
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> lengths;
  std::vector<std::uint32_t> wire_lengths;
  std::vector<std::int64_t> timestamps;
};

Index index_of(const bench::MappedFile& file) {
  Index index;
  bench::RecordHeader header{};
  std::memcpy(&header, file.data() + bench::FILE_HEADER, sizeof header);
  const std::size_t guess = file.size() / (sizeof header + header.captured) + 1;
  index.offsets.reserve(guess);
  index.lengths.reserve(guess);
  index.wire_lengths.reserve(guess);
  index.timestamps.reserve(guess);
  for (std::size_t at = bench::FILE_HEADER; at + sizeof header <= file.size();) {
    std::memcpy(&header, file.data() + at, sizeof header);
    at += sizeof header;
    index.offsets.push_back(at);
    index.lengths.push_back(header.captured);
    index.wire_lengths.push_back(header.wire);
    index.timestamps.push_back(static_cast<std::int64_t>(header.seconds) * 1'000'000'000 +
                               header.fraction);
    at += header.captured;
  }
  return index;
}

/// Bytes of all packets.
std::uint64_t walk(const bench::MappedFile& file) {
  bench::RecordHeader header{};
  std::uint64_t bytes = 0;
  for (std::size_t at = bench::FILE_HEADER; at + sizeof header <= file.size();) {
    std::memcpy(&header, file.data() + at, sizeof header);
    bytes += header.captured;
    at += sizeof header + header.captured;
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: peers_pcap_read FILE ROW_BYTES\n", stderr);
    return 2;
  }
  const auto row = bench::number<std::size_t>(argv[2]);
  const std::uint64_t started = bench::now_ns();
  const std::uint64_t bytes = walk(bench::MappedFile(argv[1]));
  const std::uint64_t begun = bench::now_ns();
  const bench::MappedFile file(argv[1]);
  const Index index = index_of(file);
  const std::uint64_t indexed = bench::now_ns();
  std::vector<std::uint8_t> rows(index.offsets.size() * row, 1);  // in memory before it is timed
  const std::uint64_t before = bench::now_ns();
  for (std::size_t i = 0; i < index.offsets.size(); ++i)
    std::memcpy(&rows[i * row], file.data() + index.offsets[i], index.lengths[i]);
  const std::uint64_t gathered = bench::now_ns();
  std::ostringstream line;
  line << R"({"packets": )" << index.offsets.size() << R"(, "walk_ns": )" << begun - started
       << R"(, "index_ns": )" << indexed - begun << R"(, "gather_ns": )" << gathered - before
       << R"(, "check": )" << bytes + rows[rows.size() / 2] << "}";
  bench::print_line(line.str());
  return 0;
}

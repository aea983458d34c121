// Packets to pcap and raw files on a disk that fills up at any byte: the file holds whole packets,
// the first of those that were written, and the index of a raw file tells the truth at any moment.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "daqiri/error.h"
#include "packet_bursts.h"
#include "require.h"
#include "scratch_folder.h"
#include "storage/packet_writer.h"

using namespace daqiri;
using fuzz::require;

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t INDEX_HEADER = 192;

/// The longest that a file of this process may become.
void limit_files(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "the size of files can be limited");
}

template <typename Value>
void append(Bytes& bytes, const Value& value) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

/// What a file is to hold, and how far it came.
class Recording {
 public:
  Recording(const fuzz::ScratchFolder& folder, FuzzedDataProvider& input)
      : input_(input),
        folder_(folder),
        raw_(input.ConsumeBool()),
        nanosecond_(input.ConsumeBool()),
        skip_(input.ConsumeIntegralInRange<std::uint32_t>(0, 3000)),
        path_(folder / (raw_ ? "a.raw" : "a.pcap")),
        bursts_(input.ConsumeIntegralInRange(1, 3)) {
    if (raw_) {
      writer_ = std::make_unique<PacketWriter>(RawFormat{skip_});
    } else {
      writer_ = std::make_unique<PacketWriter>(format());
    }
  }

  /// Returns whether there is a file now; if not, nothing of it is left.
  bool begin() {
    try {
      writer_->create(path_);
    } catch (const Error& error) {
      require(error.status() == Status::GENERIC_FAILURE, "a full disk is no mistake of the caller");
      require(folder_.is_empty(), "a file that cannot begin leaves nothing");
      return false;
    }
    if (raw_) return true;
    append(expected_, pcap::header_of(format()));
    ends_[0] = expected_.size();
    return true;
  }

  void write() {
    const auto burst = bursts_.make(
        input_.ConsumeIntegralInRange<std::uint32_t>(1, fuzz::PacketBursts::CAPACITY), [this] {
          return input_.ConsumeIntegralInRange<std::uint32_t>(0, fuzz::PacketBursts::LONGEST);
        });
    const auto n = static_cast<std::uint32_t>(burst->hdr.hdr.num_pkts);
    const auto first = input_.ConsumeIntegralInRange<std::uint32_t>(0, n - 1);
    const std::uint64_t room = input_.ConsumeBool()
                                   ? PacketWriter::NO_LIMIT
                                   : writer_->size() + input_.ConsumeIntegral<std::uint16_t>();
    const bool failed = writer_->failed();
    const std::uint32_t taken = writer_->write(*burst, link_, first, n - first, room);
    require(taken <= n - first, "no more is taken than is given");
    require(!failed || taken == 0, "nothing is taken after an error");
    // Of a write that failed a part may be in the file.
    const std::uint32_t given = writer_->failed() && !failed ? n - first : taken;
    for (std::uint32_t i = first; i < first + given; ++i) expect(*burst, i);
    require(writer_->failed() || room == PacketWriter::NO_LIMIT || taken == n - first ||
                writer_->size() >= room,
            "a write ends early at its limit only");
    if (!writer_->failed()) check_whole_count();
  }

  void sync() { writer_->sync(); }
  /// Between two writes: what the index counts is there.
  void look() const {
    if (raw_) check_index(fuzz::content_of(path_ + ".npy"), fuzz::content_of(path_), false);
  }

  void end(bool durable) {
    writer_->close(durable);
    require(writer_->failed() == !writer_->error().empty(), "a failure has a reason");
    require(writer_->tally().packets < ends_.size(), "no more is in the file than was given");
    if (!writer_->failed()) check_whole_count();
    const Bytes content = fuzz::content_of(path_);
    require(content.size() == ends_[writer_->tally().packets] && content.size() == writer_->size(),
            "the file ends behind its last packet");
    require(std::equal(content.begin(), content.end(), expected_.begin()),
            "the file holds the first of what was written");
    if (raw_) check_index(fuzz::content_of(path_ + ".npy"), content, true);
  }

 private:
  [[nodiscard]] pcap::Format format() const { return {LINKTYPE_ETHERNET, nanosecond_}; }
  void check_whole_count() const {
    require(writer_->tally().packets == ends_.size() - 1, "what was taken is counted");
  }

  void expect(const Burst& burst, std::uint32_t packet) {
    Bytes bytes = fuzz::bytes_of(burst, packet);
    const auto length = static_cast<std::uint32_t>(bytes.size());
    const std::uint64_t time = burst.timestamps[packet];
    if (raw_) {
      bytes.erase(bytes.begin(), bytes.begin() + std::min(skip_, length));
      rows_.push_back({expected_.size(), static_cast<std::uint32_t>(bytes.size()),
                       burst.flow_ids[packet], time});
    } else {
      const auto fraction = static_cast<std::uint32_t>(time % 1'000'000'000);
      append(expected_,
             pcap::RecordHeader{static_cast<std::uint32_t>(time / 1'000'000'000),
                                nanosecond_ ? fraction : fraction / 1000, length, length});
    }
    expected_.insert(expected_.end(), bytes.begin(), bytes.end());
    ends_.push_back(expected_.size());
  }

  /// As NumPy reads it; `complete`: it ends behind its rows.
  void check_index(const Bytes& index, const Bytes& data, bool complete) const {
    require(index.size() >= INDEX_HEADER, "an index has its header");
    require(std::memcmp(index.data(), "\x93NUMPY\x01\x00\xB6\x00", 10) == 0, "format 1.0");
    const std::string header(index.begin() + 10, index.begin() + INDEX_HEADER);
    const std::string shape = "'shape': (";
    const std::size_t at = header.find(shape);
    require(at != std::string::npos && header.back() == '\n', "an index has its shape");
    const std::uint64_t count = std::strtoull(header.c_str() + at + shape.size(), nullptr, 10);
    require(count <= rows_.size(), "no more is counted than was given");
    const std::size_t size = INDEX_HEADER + count * sizeof(RawIndex::Row);
    require(complete ? index.size() == size : index.size() >= size, "all rows are there");
    require(!complete || count == writer_->tally().packets, "the index counts what is there");
    if (count == 0) return;
    require(std::memcmp(index.data() + INDEX_HEADER, rows_.data(), size - INDEX_HEADER) == 0,
            "rows tell where packets are");
    require(rows_[count - 1].offset + rows_[count - 1].length <= data.size(),
            "what a row tells of is in the file");
  }

  FuzzedDataProvider& input_;
  const fuzz::ScratchFolder& folder_;
  bool raw_;
  bool nanosecond_;
  std::uint32_t skip_;
  std::string path_;
  fuzz::PacketBursts bursts_;
  LinkLayer link_;
  std::unique_ptr<PacketWriter> writer_;
  /// All bytes that were given, and the file's length after each packet.
  Bytes expected_;
  std::vector<std::size_t> ends_{0};
  std::vector<RawIndex::Row> rows_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer's own handler would end the process at a file that is too long.
  std::signal(SIGXFSZ, SIG_IGN);
  static const fuzz::ScratchFolder folder;
  folder.clear();
  FuzzedDataProvider input(data, size);
  Recording recording(folder, input);
  const auto any_limit = [&input] {
    limit_files(input.ConsumeBool() ? RLIM_INFINITY
                                    : input.ConsumeIntegralInRange<rlim_t>(0, 1U << 17U));
  };
  any_limit();
  if (recording.begin()) {
    for (int step = 0; step < 24 && input.remaining_bytes() > 0; ++step) {
      switch (input.ConsumeIntegralInRange(0, 7)) {
        case 0:
          any_limit();
          break;
        case 1:
          recording.sync();
          break;
        case 2:
          recording.look();
          break;
        default:
          recording.write();
      }
    }
    recording.end(input.ConsumeBool());
  }
  limit_files(RLIM_INFINITY);
  return 0;
}

// Rates of the pcap index and of copying packets into one array, for files of 1500 and 8000 byte
// packets, each against its limit and its peer, alternating in one run:
//   index:  a loop over a memory map that follows the records and keeps nothing (the limit), and
//           libpcap's pcap_next_ex (the peer). Each opens the file, walks it and closes it again.
//   gather: one memcpy of all bytes of the file. Both read the mapped file, both write to memory
//           that was written before.
//
// usage: bench_pcap_read [directory, default /dev/shm] [MB per file, default 1000] [rounds, default
// 9]

#include <fcntl.h>
#include <pcap/pcap.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "storage/pcap_index.h"
#include "system/file.h"
#include "system/mapped_file.h"
#include "timing/clock.h"

using namespace daqiri;
// libpcap has a struct with the same name as the namespace.
namespace classic = daqiri::pcap;

namespace {

/// A pcap file that the destructor deletes.
class Sample {
 public:
  Sample(const std::string& directory, std::uint32_t length, std::uint64_t bytes)
      : path_(directory + "/bench_pcap_read.pcap"),
        length_(length),
        packets_(std::max<std::uint64_t>(1, bytes / (sizeof(classic::RecordHeader) + length))) {
    const File file(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file.is_open()) throw file_error("cannot create", path_, errno);
    std::vector<char> block;
    const auto append = [&](const auto& header) {
      const auto* begin = reinterpret_cast<const char*>(&header);
      block.insert(block.end(), begin, begin + sizeof header);
    };
    append(classic::FileHeader{.magic = classic::MAGIC_NANOSECOND, .link_type = 1});
    for (std::uint64_t i = 0; i < packets_; ++i) {
      append(classic::RecordHeader{1'700'000'000U, static_cast<std::uint32_t>(i % 1'000'000'000U),
                                   length, length});
      block.resize(block.size() + length, static_cast<char>(i));
      if (block.size() < 4'000'000 && i + 1 < packets_) continue;
      const int problem = write_fully(file.fd(), block.data(), block.size(), size_);
      if (problem != 0) throw file_error("cannot write", path_, problem);
      size_ += block.size();
      block.clear();
    }
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;
  ~Sample() { unlink(path_.c_str()); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint32_t length() const { return length_; }
  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  std::uint32_t length_;
  std::uint64_t packets_;
  std::uint64_t size_{0};
};

class Mapped {
 public:
  explicit Mapped(const Sample& sample) : mapped_(opened(sample).fd(), sample.path()) {}
  [[nodiscard]] const std::uint8_t* data() const { return mapped_.data(); }
  [[nodiscard]] const MappedFile& file() const { return mapped_; }

 private:
  static File opened(const Sample& sample) {
    return File(open(sample.path().c_str(), O_RDONLY | O_CLOEXEC));
  }
  MappedFile mapped_;
};

PcapIndex indexed(const Mapped& mapped) {
  PcapIndexer indexer(mapped.file());
  while (indexer.advance()) {
  }
  return indexer.take();
}

std::uint64_t ours(const Sample& sample) {
  const Mapped mapped(sample);
  return indexed(mapped).offsets.size();
}

std::uint64_t bare(const Sample& sample) {
  const Mapped mapped(sample);
  const std::uint8_t* data = mapped.data();
  std::uint64_t at = sizeof(classic::FileHeader), packets = 0, sum = 0;
  while (sample.size() - at >= sizeof(classic::RecordHeader)) {
    classic::RecordHeader record;
    std::memcpy(&record, data + at, sizeof record);
    if (record.captured > sample.size() - at - sizeof record) break;
    sum += record.seconds + record.fraction + record.original;
    at += sizeof record + record.captured;
    ++packets;
  }
  return sum == 1 ? 0 : packets;
}

std::uint64_t libpcap(const Sample& sample) {
  char error[PCAP_ERRBUF_SIZE];
  const std::unique_ptr<pcap_t, void (*)(pcap_t*)> file(
      pcap_open_offline_with_tstamp_precision(sample.path().c_str(), PCAP_TSTAMP_PRECISION_NANO,
                                              error),
      pcap_close);
  if (file == nullptr) throw std::runtime_error(error);
  std::uint64_t packets = 0, sum = 0;
  pcap_pkthdr* header = nullptr;
  const u_char* data = nullptr;
  while (pcap_next_ex(file.get(), &header, &data) == 1) {
    sum += static_cast<std::uint64_t>(header->ts.tv_usec) + header->len;
    ++packets;
  }
  return sum == 1 ? 0 : packets;
}

template <typename Work>
double seconds(Work&& work) {
  const std::uint64_t begin = monotonic_ns();
  work();
  return static_cast<double>(monotonic_ns() - begin) * 1e-9;
}

/// Median and spread of a series.
struct Series {
  std::vector<double> values;
  [[nodiscard]] std::string text(const char* format) {
    std::sort(values.begin(), values.end());
    char out[96];
    std::snprintf(out, sizeof out, format, values[values.size() / 2], values.front(),
                  values.back());
    return out;
  }
};

constexpr std::array WALKS{ours, bare, libpcap};

constexpr const char* RATE = "%7.2f (%.2f to %.2f)";

void compare_index(const Sample& sample, int rounds) {
  Series own, limit, peer, to_limit, to_peer;
  for (int round = -1; round < rounds; ++round) {
    const auto rate = [&](auto&& walk) {
      const double s = seconds([&] {
        if (walk(sample) != sample.packets()) throw std::runtime_error("wrong number of packets");
      });
      return static_cast<double>(sample.packets()) / s * 1e-6;
    };
    // In turn, as the cache content of one measurement affects the next.
    std::array<double, 3> rates{};
    for (std::size_t turn = 0; turn < WALKS.size(); ++turn) {
      const std::size_t w = (turn + static_cast<std::size_t>(round + 1)) % WALKS.size();
      rates.at(w) = rate(WALKS.at(w));
    }
    const auto [a, b, c] = rates;
    if (round < 0) continue;  // warm-up
    own.values.push_back(a);
    limit.values.push_back(b);
    peer.values.push_back(c);
    to_limit.values.push_back(a / b);
    to_peer.values.push_back(a / c);
  }
  std::printf("%5u B index,  Mpackets/s: ours %s, bare loop %s, libpcap %s\n", sample.length(),
              own.text(RATE).c_str(), limit.text(RATE).c_str(), peer.text(RATE).c_str());
  std::printf("%5u B index,  ratio to bare loop %s, to libpcap %s\n", sample.length(),
              to_limit.text(RATE).c_str(), to_peer.text(RATE).c_str());
}

void compare_gather(const Sample& sample, int rounds) {
  const Mapped mapped(sample);
  const PcapIndex index = indexed(mapped);
  const std::vector<std::int64_t> offsets(index.offsets.begin(), index.offsets.end());
  std::vector<std::uint8_t> to(sample.size());
  Series own, limit, ratio;
  for (int round = -1; round < rounds; ++round) {
    const auto gathered = [&] {
      return static_cast<double>(sample.packets() * sample.length()) * 1e-9 / seconds([&] {
               gather_rows(mapped.data(), offsets.data(), index.lengths.data(), offsets.size(),
                           to.data(), sample.length());
             });
    };
    const auto copied = [&] {
      return static_cast<double>(sample.size()) * 1e-9 /
             seconds([&] { std::memcpy(to.data(), mapped.data(), sample.size()); });
    };
    const double a = gathered();
    const double b = copied();
    if (round < 0) continue;
    own.values.push_back(a);
    limit.values.push_back(b);
    ratio.values.push_back(a / b);
  }
  std::printf("%5u B gather, GB/s: ours %s, memcpy %s, ratio %s\n", sample.length(),
              own.text(RATE).c_str(), limit.text(RATE).c_str(), ratio.text(RATE).c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string directory = argc > 1 ? argv[1] : "/dev/shm";
  const auto bytes = static_cast<std::uint64_t>(bench::number_or(argc, argv, 2, 1000.0) * 1e6);
  const int rounds = std::max(1, bench::number_or(argc, argv, 3, 9));
  std::printf("pcap files of %.0f MB in %s; median (lowest to highest) of %d rounds\n",
              static_cast<double>(bytes) * 1e-6, directory.c_str(), rounds);
  for (const std::uint32_t length : {1500U, 8000U}) {
    const Sample sample(directory, length, bytes);
    compare_index(sample, rounds);
    compare_gather(sample, rounds);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

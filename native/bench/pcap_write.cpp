// Cost of writing bursts of 64 packets to a pcap file: PacketWriter (a recorder's file, kept
// open) and write_pcap (opens, appends, closes for every burst), against plain write(2) calls of
// the same bytes, one a burst, from one buffer. Alternating in one run; each file is removed after
// its measurement.
//
// usage: bench_pcap_write [directory, default /dev/shm] [MB per measurement, default 256] [rounds,
// default 5]

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.h"
#include "memory/region.h"
#include "storage/file_write.h"
#include "storage/packet_writer.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t BATCH = 64;
constexpr std::uint32_t BURSTS = 128;
constexpr std::uint64_t RECORD_HEADER = 16;

/// Full bursts that are used in turn, so that packets come from as much memory as in a real
/// session.
class Packets {
 public:
  explicit Packets(std::uint32_t length) : length_(length), pool_(BURSTS, BATCH, 1, false) {
    MemoryRegionConfig config;
    config.name_ = "packets";
    config.num_bufs_ = BATCH * BURSTS;
    config.buf_size_ = length;
    region_ = memory::MemoryRegion::allocate(config);
    for (std::uint32_t b = 0; b < BURSTS; ++b) {
      Burst* burst = pool_.take();
      burst->owners[0] = region_.get();
      burst->owned = region_->take(burst->buffers[0], BATCH);
      burst->hdr.hdr.num_pkts = BATCH;
      for (std::uint32_t i = 0; i < BATCH; ++i) {
        burst->pkts[0][i] = region_->address(burst->buffers[0][i]);
        burst->pkt_lens[0][i] = length;
        burst->timestamps[i] = realtime_ns();
        std::memset(burst->pkts[0][i], static_cast<int>(i), length);
      }
      bursts_.push_back(burst);
    }
  }
  Packets(const Packets&) = delete;
  Packets& operator=(const Packets&) = delete;
  ~Packets() {
    for (Burst* burst : bursts_) burst->release();
  }
  [[nodiscard]] Burst& burst(std::uint64_t i) const { return *bursts_[i % BURSTS]; }
  [[nodiscard]] std::uint64_t burst_bytes() const { return BATCH * (RECORD_HEADER + length_); }

 private:
  std::uint32_t length_;
  std::unique_ptr<memory::MemoryRegion> region_;
  BurstPool pool_;
  std::vector<Burst*> bursts_;
};

/// Time that `work` takes, in ns. The file is removed afterwards.
template <typename Work>
std::uint64_t timed(const std::string& path, Work&& work) {
  const std::uint64_t begin = monotonic_ns();
  work();
  const std::uint64_t end = monotonic_ns();
  unlink(path.c_str());
  return end - begin;
}

std::uint64_t kept_open(const Packets& packets, const std::string& directory,
                        std::uint64_t bursts) {
  const std::string path = directory + "/bench_writer.pcap";
  return timed(path, [&] {
    const LinkLayer ethernet;
    PacketWriter writer(pcap::Format{LINKTYPE_ETHERNET, true}, buffered_output(true));
    writer.create(path);
    for (std::uint64_t b = 0; b < bursts; ++b) writer.write(packets.burst(b), ethernet, 0, BATCH);
    writer.close();
    if (writer.failed()) throw std::runtime_error(writer.error());
  });
}

std::uint64_t call_by_call(const Packets& packets, const std::string& directory,
                           std::uint64_t bursts) {
  return timed(directory + "/bench_calls.pcap", [&] {
    for (std::uint64_t b = 0; b < bursts; ++b)
      write_pcap(packets.burst(b), directory, "bench_calls", true);
  });
}

std::uint64_t plain(const Packets& packets, const std::string& path, std::uint64_t bursts) {
  const std::vector<char> bytes(packets.burst_bytes(), 'x');
  return timed(path, [&] {
    const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.is_open()) throw file_error("cannot create", path, errno);
    for (std::uint64_t b = 0; b < bursts; ++b) {
      const int problem = write_fully(file.fd(), bytes.data(), bytes.size(), b * bytes.size());
      if (problem != 0) throw file_error("cannot write", path, problem);
    }
  });
}

double middle(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void compare(const std::string& directory, std::uint32_t length, std::uint64_t bytes, int rounds) {
  const Packets packets(length);
  const std::uint64_t bursts = std::max<std::uint64_t>(1, bytes / packets.burst_bytes());
  const double per_packet = 1.0 / static_cast<double>(bursts * BATCH);
  std::vector<double> ours, calls, bare, ratios, call_ratios;
  for (int round = -1; round < rounds; ++round) {
    const auto a = static_cast<double>(kept_open(packets, directory, bursts));
    const auto b = static_cast<double>(plain(packets, directory + "/bench_plain", bursts));
    const auto c = static_cast<double>(call_by_call(packets, directory, bursts));
    if (round < 0) continue;  // warm-up
    ours.push_back(a * per_packet);
    bare.push_back(b * per_packet);
    calls.push_back(c * per_packet);
    ratios.push_back(a / b);
    call_ratios.push_back(c / b);
  }
  const auto rate = [&](double ns) { return length * 1e3 / ns; };
  const double w = middle(ours), p = middle(bare), c = middle(calls);
  std::printf(
      "%5u B: writer %6.0f ns/packet %6.0f MB/s, call a burst %6.0f ns/packet %6.0f MB/s, plain "
      "write %6.0f "
      "ns/packet %6.0f MB/s; time ratio to plain: writer %.2f, call %.2f\n",
      length, w, rate(w), c, rate(c), p, rate(p), middle(ratios), middle(call_ratios));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string directory = argc > 1 ? argv[1] : "/dev/shm";
  const auto bytes = static_cast<std::uint64_t>(bench::number_or(argc, argv, 2, 256.0) * 1e6);
  const int rounds = std::max(1, bench::number_or(argc, argv, 3, 5));
  std::printf("pcap to %s, medians of %d rounds, packet bytes a second:\n", directory.c_str(),
              rounds);
  for (const std::uint32_t length : {64U, 1000U, 8000U}) compare(directory, length, bytes, rounds);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

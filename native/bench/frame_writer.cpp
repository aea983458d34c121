// Writers of frame files alone: complete frames of 2 MiB, in as many buffers as a plan may have,
// passed to the writer as by a recorder. One measurement per run, printed as JSON. The time
// includes flushing to the disk.
//
// usage: bench_frame_writer WHAT FRAMES DIRECTORY [plugin folder [writers]]
//        writers: so many at once, each with so many frames
//        WHAT: chunked or compressed, with "-direct" for the direct writer
//              pwrite-direct: plain calls with O_DIRECT, eight at once
//              count: nothing is written

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "arguments.h"
#include "memory/region.h"
#include "storage/frame_writer.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t SIDE = 1024;
constexpr std::uint32_t FRAME = SIDE * SIDE * 2;
constexpr std::uint32_t UNITS = 256;
constexpr std::uint32_t BUFFERS = 24;
constexpr std::uint64_t SYNC_NS = 1'000'000'000;
constexpr int AT_ONCE = 8;

/// Frames of a reorder plan as a recorder receives them: bursts with one buffer.
class ReadyFrames {
 public:
  ReadyFrames() : pool_(BUFFERS, 1, 1, false) {
    MemoryRegionConfig config;
    config.name_ = "frames";
    config.num_bufs_ = BUFFERS;
    config.buf_size_ = FRAME;
    region_ = memory::MemoryRegion::allocate(config);
    std::uint32_t buffer = 0;
    std::vector<std::uint32_t> taken;
    // Like detector data: low counts and noise.
    std::minstd_rand random(1);
    std::poisson_distribution<std::uint16_t> counts(3);
    std::vector<std::uint16_t> pixels(FRAME / 2);
    for (std::uint16_t& pixel : pixels) pixel = counts(random);
    while (region_->take(&buffer, 1) == 1) {
      std::rotate(pixels.begin(), pixels.begin() + 1, pixels.end());
      std::memcpy(region_->address(buffer), pixels.data(), FRAME);
      taken.push_back(buffer);
    }
    region_->give(taken.data(), static_cast<std::uint32_t>(taken.size()));
    valid_.fill(~std::uint64_t{0});
  }

  /// Waits for a buffer while all are being written to the disk.
  Burst& next(std::uint64_t number) {
    Burst* burst = nullptr;
    while ((burst = pool_.take()) == nullptr) wait();
    burst->owners[0] = region_.get();
    while (region_->take(burst->buffers[0], 1) == 0) wait();
    burst->owned = 1;
    burst->hdr.hdr.num_pkts = 1;
    burst->pkts[0][0] = region_->address(burst->buffers[0][0]);
    burst->pkt_lens[0][0] = FRAME;
    burst->timestamps[0] = burst->last_time = realtime_ns();
    burst->reorder.batch_id = number;
    burst->reorder.source_packet_count = UNITS;
    burst->valid = valid_.data();
    burst->units = UNITS;
    return *burst;
  }

 private:
  static void wait() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

  std::unique_ptr<memory::MemoryRegion> region_;
  BurstPool pool_;
  std::array<std::uint64_t, UNITS / 64> valid_{};
};

FrameForm form() {
  ReorderConfig config;
  config.name_ = "camera";
  config.frame_.shape_ = {SIDE, SIDE};
  config.frame_.dtype_ = "uint16";
  return {config, UNITS};
}

std::unique_ptr<FrameWriter> writer_for(const std::string& what, const std::string& directory,
                                        const std::string& plugins) {
  if (!what.starts_with("chunked") && !what.starts_with("compressed")) {
    throw std::runtime_error("WHAT is '" + what +
                             "'; files are chunked: accepted are chunked, compressed, "
                             "chunked-direct, compressed-direct, pwrite-direct and count");
  }
  std::string why_not;
  const WriterKind wanted = what.ends_with("-direct") ? WriterKind::DIRECT : WriterKind::BUFFERED;
  const WriterKind kind = possible_writer(wanted, directory, why_not);
  if (!why_not.empty()) throw std::runtime_error(why_not);
  std::unique_ptr<FrameCompressor> compressor;
  if (what.starts_with("compressed"))
    compressor = std::make_unique<FrameCompressor>(BitshuffleLz4::load(plugins), FRAME, 2, 1);
  return std::make_unique<FrameWriter>(form(), std::move(compressor),
                                       kind == WriterKind::DIRECT ? direct_backend() : nullptr);
}

void record(FrameWriter& writer, ReadyFrames& ready, std::uint64_t frames,
            const std::string& path) {
  writer.create(path);
  std::uint64_t sync_at = monotonic_ns() + SYNC_NS;
  for (std::uint64_t i = 0; i < frames; ++i) {
    Burst& frame = ready.next(i);
    writer.write(frame, 0, 1, RecordWriter::NO_LIMIT);
    frame.release();
    if (monotonic_ns() < sync_at) continue;
    writer.sync();
    sync_at = monotonic_ns() + SYNC_NS;
  }
  writer.close(true);
  if (writer.failed() || writer.records() != frames) throw std::runtime_error(writer.error());
}

void plain(ReadyFrames& ready, std::uint64_t frames, const std::string& path) {
  const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0644));
  if (!file.is_open()) throw file_error("cannot create", path, errno);
  // The buffers of the frames, used in turn.
  std::vector<Burst*> bursts;
  for (std::uint32_t i = 0; i < BUFFERS; ++i) bursts.push_back(&ready.next(i));
  if (fallocate(file.fd(), 0, 0, static_cast<off_t>(frames * FRAME)) != 0)
    throw file_error("cannot allocate", path, errno);
  std::atomic<std::uint64_t> next{0};
  std::atomic<int> problem{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < AT_ONCE; ++t) {
      threads.emplace_back([&] {
        for (std::uint64_t i = next++; i < frames && problem == 0; i = next++) {
          const int found =
              write_fully(file.fd(), bursts[i % BUFFERS]->pkts[0][0], FRAME, i * FRAME);
          if (found != 0) problem = found;
        }
      });
    }
  }
  for (Burst* burst : bursts) burst->release();
  if (problem != 0 || fdatasync(file.fd()) != 0) throw file_error("cannot write", path, problem);
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::fputs("usage: bench_frame_writer WHAT FRAMES DIRECTORY [plugin folder [writers]]\n",
               stderr);
    return 2;
  }
  const std::string what = argv[1];
  const auto frames = bench::number<std::uint64_t>(argv[2]);
  const std::string directory = argv[3];
  const auto at_once = argc > 5 ? bench::number<std::size_t>(argv[5]) : 1;
  const auto path = [&](std::size_t i) {
    return directory + "/frames" + std::to_string(i) + ".h5";
  };
  std::deque<ReadyFrames> ready(at_once);
  std::vector<std::unique_ptr<FrameWriter>> writers;
  const bool bare = what == "pwrite-direct" || what == "count";
  for (std::size_t i = 0; i < at_once && !bare; ++i)
    writers.push_back(writer_for(what, directory, argc > 4 ? argv[4] : ""));
  const double cpu = cpu_seconds();
  const std::uint64_t begun = monotonic_ns();
  if (what == "pwrite-direct") {
    plain(ready.front(), frames, path(0));
  } else if (what == "count") {
    for (std::uint64_t i = 0; i < frames; ++i) ready.front().next(i).release();
  } else {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < at_once; ++i)
      threads.emplace_back([&, i] { record(*writers[i], ready[i], frames, path(i)); });
  }
  const std::uint64_t took = monotonic_ns() - begun;
  std::printf(R"({"ns": %llu, "bytes": %llu, "cpu": %.3f})"
              "\n",
              static_cast<unsigned long long>(took),
              static_cast<unsigned long long>(at_once * frames * FRAME), cpu_seconds() - cpu);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

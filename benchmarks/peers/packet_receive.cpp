// The bare loop of a receiver of Ethernet frames: a TPACKET_V3 ring of AF_PACKET, whose frames are
// only counted. With a file, it stores the receive times of the kernel.
//
// usage: peers_packet_receive DEVICE SIZE RING_BYTES [FILE]; answers each line with its counters.
// `others` are frames of another size. FILE gets the times since the line before, ns in 64 bits
// each.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/frames.h"

namespace {

constexpr unsigned BLOCK_BYTES = 256 << 10;
constexpr unsigned FRAME_BYTES = 2048;
/// Timeout after which the kernel passes on a partly filled block, in ms.
constexpr unsigned PATIENCE = 5;

std::atomic<std::uint64_t> packets{0};
std::atomic<std::uint64_t> others{0};
/// Time when the latest packet was counted, in ns.
std::atomic<std::uint64_t> latest{0};

std::mutex mutex;
std::vector<std::int64_t> times;

void write_times(const char* path) {
  const std::scoped_lock lock(mutex);
  const int fd = bench::check(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), path);
  const std::size_t bytes = times.size() * sizeof(std::int64_t);
  if (bench::check(write(fd, times.data(), bytes), path) != static_cast<ssize_t>(bytes))
    bench::fail(path);
  close(fd);
  times.clear();
}

class Ring {
 public:
  Ring(const char* device, std::size_t bytes)
      : blocks_(static_cast<unsigned>(bytes / BLOCK_BYTES)) {
    fd_ = bench::check(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "socket");
    const int version = TPACKET_V3;
    bench::check(setsockopt(fd_, SOL_PACKET, PACKET_VERSION, &version, sizeof version),
                 "PACKET_VERSION");
    tpacket_req3 request{};
    request.tp_block_size = BLOCK_BYTES;
    request.tp_block_nr = blocks_;
    request.tp_frame_size = FRAME_BYTES;
    request.tp_frame_nr = BLOCK_BYTES / FRAME_BYTES * blocks_;
    request.tp_retire_blk_tov = PATIENCE;
    bench::check(setsockopt(fd_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request),
                 "PACKET_RX_RING");
    void* mapped = mmap(nullptr, std::size_t{blocks_} * BLOCK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) bench::fail("mmap");
    base_ = static_cast<std::uint8_t*>(mapped);
    bench::bind_to_device(fd_, device, ETH_P_ALL);
  }

  /// Calls `each` with the frames of the next block.
  template <typename Each>
  void read_block(Each each) {
    tpacket_hdr_v1& block =
        reinterpret_cast<tpacket_block_desc*>(base_ + std::size_t{next_} * BLOCK_BYTES)->hdr.bh1;
    std::atomic_ref<std::uint32_t> status(block.block_status);
    while ((status.load(std::memory_order_acquire) & TP_STATUS_USER) == 0) {
      pollfd ready{fd_, POLLIN, 0};
      poll(&ready, 1, -1);
    }
    auto* at = reinterpret_cast<std::uint8_t*>(&block) - offsetof(tpacket_block_desc, hdr) +
               block.offset_to_first_pkt;
    for (std::uint32_t i = 0; i < block.num_pkts; ++i) {
      const auto& frame = *reinterpret_cast<const tpacket3_hdr*>(at);
      each(frame);
      at += frame.tp_next_offset;
    }
    status.store(TP_STATUS_KERNEL, std::memory_order_release);
    next_ = next_ + 1 == blocks_ ? 0 : next_ + 1;
  }

 private:
  int fd_{-1};
  unsigned blocks_;
  unsigned next_{0};
  std::uint8_t* base_{nullptr};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fputs("usage: peers_packet_receive DEVICE SIZE RING_BYTES [FILE]\n", stderr);
    return 2;
  }
  const auto size = bench::number<std::uint32_t>(argv[2]);
  Ring ring(argv[1], bench::number<std::size_t>(argv[3]));
  const char* file = argc == 5 ? argv[4] : nullptr;
  if (file != nullptr) times.reserve(1 << 20);
  bench::answer_lines([file] {
    if (file != nullptr) write_times(file);
    std::ostringstream line;
    line << R"({"packets": )" << packets << R"(, "others": )" << others << R"(, "latest": )"
         << latest << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line("{}");
  std::uint64_t count = 0, strange = 0;
  while (true) {
    ring.read_block([&](const tpacket3_hdr& frame) {
      ++(frame.tp_len == size ? count : strange);
      if (file == nullptr) return;
      const std::scoped_lock lock(mutex);
      times.push_back(std::int64_t{frame.tp_sec} * 1'000'000'000 + frame.tp_nsec);
    });
    packets.store(count, std::memory_order_relaxed);
    others.store(strange, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
}

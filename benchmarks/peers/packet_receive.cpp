// The bare loop of a receiver of Ethernet frames: a TPACKET_V3 ring of AF_PACKET, whose frames are
// only counted. With a file, it stores the receive times of the kernel.
//
// usage: peers_packet_receive DEVICE SIZE RING_BYTES [FILE]; answers each line with its counters.
// `others` are frames of another size. FILE gets the times since the line before, ns in 64 bits
// each.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/packet_ring.h"

namespace {

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fputs("usage: peers_packet_receive DEVICE SIZE RING_BYTES [FILE]\n", stderr);
    return 2;
  }
  const auto size = bench::number<std::uint32_t>(argv[2]);
  bench::PacketRing ring(argv[1], bench::number<std::size_t>(argv[3]));
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

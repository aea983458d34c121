// The bare loop of a receiver of Ethernet frames with AF_XDP on queue 0 of a device: an XDP program
// passes on every frame, and the loop counts and returns the descriptors of a ring.
//
// usage: peers_xdp_receive DEVICE SIZE MEMORY_BYTES; answers each line with its counters. `others`
// are frames of another size.

#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <sstream>

#include "arguments.h"
#include "peers/frames.h"

// Defined by Linux, but missing in the headers of some distributions.
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

namespace {

constexpr std::uint32_t CHUNK_BYTES = 4096;
constexpr std::uint32_t LARGEST_RING = 65536;
/// From this number of frames on, the next are received immediately. With fewer, the loop pauses,
/// because each frame would cost a wake-up; the memory of the benchmark lasts for this pause at
/// four times the rate of the sender.
constexpr std::uint32_t BUSY = 32;
constexpr timespec PAUSE{0, 800'000};

std::atomic<std::uint64_t> packets{0};
std::atomic<std::uint64_t> others{0};
/// Time when the latest packet was counted, in ns.
std::atomic<std::uint64_t> latest{0};

int bpf(bpf_cmd command, bpf_attr& attributes, const char* what) {
  return bench::check(static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes)),
                      what);
}

template <typename T>
std::uint64_t pointer(const T* to) {
  return reinterpret_cast<std::uintptr_t>(to);
}

/// A ring shared with the kernel.
template <typename Element>
struct SharedRing {
  SharedRing(int fd, std::int64_t page, const xdp_ring_offset& at, std::uint32_t size)
      : mask(size - 1) {
    void* mapped = mmap(nullptr, at.desc + size * sizeof(Element), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, fd, page);
    if (mapped == MAP_FAILED) bench::fail("mmap of a ring");
    auto* base = static_cast<std::uint8_t*>(mapped);
    producer = reinterpret_cast<std::uint32_t*>(base + at.producer);
    consumer = reinterpret_cast<std::uint32_t*>(base + at.consumer);
    elements = reinterpret_cast<Element*>(base + at.desc);
  }
  [[nodiscard]] Element& operator[](std::uint32_t i) const { return elements[i & mask]; }
  [[nodiscard]] std::atomic_ref<std::uint32_t> produced() const {
    return std::atomic_ref(*producer);
  }
  [[nodiscard]] std::atomic_ref<std::uint32_t> consumed() const {
    return std::atomic_ref(*consumer);
  }

  std::uint32_t mask;
  std::uint32_t* producer;
  std::uint32_t* consumer;
  Element* elements;
};

/// A socket with its memory, all of which the kernel may fill.
int open_socket(std::size_t bytes, std::uint32_t ring) {
  const int fd = bench::check(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0), "socket");
  const auto set = [&](int option, const auto& value, const char* what) {
    bench::check(setsockopt(fd, SOL_XDP, option, &value, sizeof value), what);
  };
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) bench::fail("mmap of the memory");
  xdp_umem_reg region{};
  region.addr = pointer(memory);
  region.len = bytes;
  region.chunk_size = CHUNK_BYTES;
  set(XDP_UMEM_REG, region, "XDP_UMEM_REG");
  set(XDP_UMEM_FILL_RING, ring, "XDP_UMEM_FILL_RING");
  set(XDP_UMEM_COMPLETION_RING, std::uint32_t{64}, "XDP_UMEM_COMPLETION_RING");
  set(XDP_RX_RING, ring, "XDP_RX_RING");
  return fd;
}

void bind_to_queue(int fd, const char* device) {
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = bench::device_index(device);
  address.sxdp_flags = XDP_USE_NEED_WAKEUP | XDP_USE_SG;
  const std::uint64_t end = bench::now_ns() + 2'000'000'000;
  // The kernel releases the queue of an ended program only after some time.
  while (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EBUSY || bench::now_ns() > end) bench::fail("bind");
    usleep(5000);
  }
}

/// The driver runs a program that passes all frames to the socket, until this process ends.
void take_frames(int fd, const char* device) {
  bpf_attr map{};
  map.map_type = BPF_MAP_TYPE_XSKMAP;
  map.key_size = map.value_size = 4;
  map.max_entries = 1;
  const int sockets = bpf(BPF_MAP_CREATE, map, "BPF_MAP_CREATE");
  const std::uint32_t queue = 0;
  bpf_attr entry{};
  entry.map_fd = static_cast<std::uint32_t>(sockets);
  entry.key = pointer(&queue);
  entry.value = pointer(&fd);
  bpf(BPF_MAP_UPDATE_ELEM, entry, "BPF_MAP_UPDATE_ELEM");
  const auto instruction = [](int code, int to, int from, int offset, std::int32_t value) {
    bpf_insn made{};
    made.code = static_cast<std::uint8_t>(code);
    made.dst_reg = static_cast<std::uint8_t>(to) & 0xFU;
    made.src_reg = static_cast<std::uint8_t>(from) & 0xFU;
    made.off = static_cast<std::int16_t>(offset);
    made.imm = value;
    return made;
  };
  const std::array code{
      instruction(BPF_LDX | BPF_W | BPF_MEM, 2, 1, offsetof(xdp_md, rx_queue_index), 0),
      instruction(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, sockets),
      instruction(0, 0, 0, 0, 0),
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, XDP_PASS),
      instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map),
      instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
  bpf_attr program{};
  program.prog_type = BPF_PROG_TYPE_XDP;
  program.expected_attach_type = BPF_XDP;
  program.insns = pointer(code.data());
  program.insn_cnt = static_cast<std::uint32_t>(code.size());
  program.license = pointer("Apache-2.0");
  program.prog_flags = BPF_F_XDP_HAS_FRAGS;
  bpf_attr link{};
  link.link_create.prog_fd =
      static_cast<std::uint32_t>(bpf(BPF_PROG_LOAD, program, "BPF_PROG_LOAD"));
  link.link_create.target_ifindex = bench::device_index(device);
  link.link_create.attach_type = BPF_XDP;
  link.link_create.flags = XDP_FLAGS_DRV_MODE;
  bpf(BPF_LINK_CREATE, link, "BPF_LINK_CREATE");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: peers_xdp_receive DEVICE SIZE MEMORY_BYTES\n", stderr);
    return 2;
  }
  const auto size = bench::number<std::uint32_t>(argv[2]);
  const auto chunks = std::min(
      std::bit_floor(static_cast<std::uint32_t>(bench::number<std::size_t>(argv[3]) / CHUNK_BYTES)),
      LARGEST_RING);
  const int fd = open_socket(std::size_t{chunks} * CHUNK_BYTES, chunks);
  xdp_mmap_offsets at{};
  socklen_t length = sizeof at;
  bench::check(getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length), "XDP_MMAP_OFFSETS");
  const SharedRing<xdp_desc> received(fd, XDP_PGOFF_RX_RING, at.rx, chunks);
  const SharedRing<std::uint64_t> fill(fd, XDP_UMEM_PGOFF_FILL_RING, at.fr, chunks);
  for (std::uint32_t i = 0; i < chunks; ++i) fill[i] = std::uint64_t{i} * CHUNK_BYTES;
  std::uint32_t filled = chunks;
  fill.produced().store(filled, std::memory_order_release);
  bind_to_queue(fd, argv[1]);
  take_frames(fd, argv[1]);
  bench::answer_lines([] {
    std::ostringstream line;
    line << R"({"packets": )" << packets << R"(, "others": )" << others << R"(, "latest": )"
         << latest << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line("{}");
  std::uint64_t count = 0, strange = 0;
  std::uint32_t bytes = 0;
  for (std::uint32_t next = 0;;) {
    const std::uint32_t waiting = received.produced().load(std::memory_order_acquire) - next;
    if (waiting == 0) {
      pollfd ready{fd, POLLIN, 0};
      poll(&ready, 1, -1);
      continue;
    }
    for (const std::uint32_t end = next + waiting; next != end; ++next) {
      const xdp_desc& piece = received[next];
      fill[filled++] = piece.addr - piece.addr % CHUNK_BYTES;
      bytes += piece.len;
      if ((piece.options & XDP_PKT_CONTD) != 0) continue;
      ++(bytes == size ? count : strange);
      bytes = 0;
    }
    received.consumed().store(next, std::memory_order_release);
    fill.produced().store(filled, std::memory_order_release);
    packets.store(count, std::memory_order_relaxed);
    others.store(strange, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
    if (waiting < BUSY) nanosleep(&PAUSE, nullptr);
  }
}

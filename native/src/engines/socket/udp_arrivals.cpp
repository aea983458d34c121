#include "engines/socket/udp_arrivals.h"

#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "system/file.h"

namespace daqiri::sockets {

namespace {

/// The kernel rounds a map that is shared with user space up to pages.
constexpr std::size_t MAP_BYTES = 4096;

int bpf(bpf_cmd command, bpf_attr& attributes) noexcept {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

constexpr bpf_insn instruction(int code, int dst = 0, int src = 0, int off = 0,
                               int imm = 0) noexcept {
  bpf_insn result{};
  result.code = static_cast<std::uint8_t>(code);
  result.dst_reg = static_cast<std::uint8_t>(dst & 0xF);
  result.src_reg = static_cast<std::uint8_t>(src & 0xF);
  result.off = static_cast<std::int16_t>(off);
  result.imm = imm;
  return result;
}

int make_counter() noexcept {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_ARRAY;
  attributes.key_size = sizeof(std::uint32_t);
  attributes.value_size = sizeof(std::uint64_t);
  attributes.max_entries = 1;
  attributes.map_flags = BPF_F_MMAPABLE;
  return bpf(BPF_MAP_CREATE, attributes);
}

/// Adds gso_segs of a packet, or 1 where it is 0, to the counter, and passes the packet whole.
int load_filter(int counter) noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-cstyle-cast): offsetof of a C struct
  constexpr int GSO_SEGS = offsetof(struct __sk_buff, gso_segs);
  const std::array<bpf_insn, 8> program{
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, GSO_SEGS),
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_2, 0, 1, 0),
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 1),
      instruction(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_VALUE, 0, counter),
      instruction(0),
      instruction(BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_1, BPF_REG_2, 0, BPF_ADD),
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, -1),
      instruction(BPF_JMP | BPF_EXIT)};
  static constexpr char LICENSE[] = "Apache-2.0";
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  attributes.insns = reinterpret_cast<std::uintptr_t>(program.data());
  attributes.insn_cnt = program.size();
  attributes.license = reinterpret_cast<std::uintptr_t>(LICENSE);
  return bpf(BPF_PROG_LOAD, attributes);
}

}  // namespace

UdpArrivals::~UdpArrivals() {
  if (count_ != nullptr) munmap(count_, MAP_BYTES);
}

bool UdpArrivals::attach(int fd) noexcept {
  const File counter(make_counter());
  if (!counter.is_open()) return false;
  const File filter(load_filter(counter.fd()));
  if (!filter.is_open()) return false;
  void* shared = mmap(nullptr, MAP_BYTES, PROT_READ, MAP_SHARED, counter.fd(), 0);
  if (shared == MAP_FAILED) return false;
  const int program = filter.fd();
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) != 0) {
    munmap(shared, MAP_BYTES);
    return false;
  }
  count_ = static_cast<std::uint64_t*>(shared);
  return true;
}

std::uint64_t UdpArrivals::count() const noexcept {
  return std::atomic_ref(*count_).load(std::memory_order_acquire);
}

}  // namespace daqiri::sockets

#include "engines/packet/umem.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "daqiri/error.h"
#include "memory/host_pages.h"

namespace daqiri::packet {

Umem::Umem(const std::string& interface, std::uint64_t bytes, std::uint32_t chunk_bytes)
    : BufferOwner("packets of " + interface, chunk_bytes, memory::Place::HOST),
      chunk_bytes_(chunk_bytes),
      chunks_(static_cast<std::uint32_t>(bytes / chunk_bytes)),
      free_(chunks_),
      uses_(std::make_unique<std::atomic<std::uint32_t>[]>(chunks_)) {
  void* mapped = memory::map_pages(this->bytes());
  if (mapped == MAP_FAILED) {
    throw Error(Status::NO_FREE_PACKET_BUFFERS,
                "cannot allocate " + std::to_string(this->bytes()) + " bytes for the frames of '" +
                    interface + "': " + std::strerror(errno) +
                    "; lower num_bufs or buf_size of the queues' memory regions");
  }
  base_ = static_cast<std::byte*>(mapped);
  // The kernel writes to these pages, so a forked child must not have copies.
  madvise(mapped, this->bytes(), MADV_DONTFORK);
}

Umem::~Umem() {
  if (getpid() == process_) munmap(base_, bytes());
}

std::uint32_t Umem::recover(std::uint32_t queue) {
  std::vector<bool> free(chunks_, false);
  std::vector<std::uint32_t> all(chunks_);
  const std::uint32_t idle = free_.take(all.data(), chunks_);
  for (std::uint32_t i = 0; i < idle; ++i) free[all[i]] = true;
  std::uint32_t count = idle;
  for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
    if (free[chunk] || uses_[chunk].load(std::memory_order_relaxed) != (LENT | queue)) continue;
    all[count++] = chunk;
  }
  free_.give(all.data(), count);
  return count - idle;
}

void Umem::give(const std::uint32_t* chunks, std::uint32_t n) noexcept {
  if (getpid() != process_) return;
  std::array<std::uint32_t, 64> done;
  std::uint32_t count = 0;
  const auto hand_over = [&] {
    if (count == 0) return;
    given_.fetch_add(count, std::memory_order_relaxed);
    free_.give(done.data(), count);
    count = 0;
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    if (uses_[chunks[i]].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    done[count++] = chunks[i];
    if (count == done.size()) hand_over();
  }
  hand_over();
}

}  // namespace daqiri::packet

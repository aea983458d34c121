/// Memory that a GPU reads: pinned host memory.
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "cuda/driver.h"
#include "daqiri/error.h"
#include "memory/host_pages.h"

namespace daqiri::cuda {

namespace {

/// For all GPUs of the process (CU_MEMHOSTREGISTER_PORTABLE), at an address of theirs (DEVICEMAP).
constexpr unsigned PIN_FLAGS = 0x01U | 0x02U;

/// CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
constexpr int HOST_POINTER = 91;

/// Pages that stay in memory and that GPUs read and write.
class Pinned {
 public:
  Pinned(const memory::RegionExtent& extent, const std::string& what) : base_(extent.base) {
    const Context context(what);
    const Driver& driver = context.driver();
    int same_address = 0;
    if (driver.call().attribute(&same_address, HOST_POINTER, 0) != 0 || same_address == 0) {
      throw Error(Status::NOT_SUPPORTED,
                  what +
                      ": GPU 0 cannot use pinned memory at the CPU's addresses "
                      "(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM); use kind 'host' or 'huge'");
    }
    const Result result = driver.call().pin(base_, extent.bytes, PIN_FLAGS);
    if (result == 0) return;
    throw Error(Status::NO_FREE_PACKET_BUFFERS, what + ": " + std::to_string(extent.bytes) +
                                                    " bytes cannot be pinned for the GPU (" +
                                                    driver.text_of(result) +
                                                    "); lower num_bufs or buf_size");
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    // A forked child has no CUDA.
    if (getpid() != process_) return;
    try {
      const Context context("memory region");
      context.driver().call().unpin(base_);
    } catch (const Error&) {
      // The GPU is gone, and with it what was pinned.
      return;
    }
  }

 private:
  void* base_;
  pid_t process_{getpid()};
};

class PinnedRegion final : public memory::MemoryRegion {
 public:
  PinnedRegion(const MemoryRegionConfig& config, memory::HostPages&& pages)
      : MemoryRegion(config, pages.extent(), true),
        pages_(std::move(pages)),
        pinned_(extent(), "memory region '" + config.name_ + "'") {}

 private:
  memory::HostPages pages_;
  Pinned pinned_;
};

std::unique_ptr<memory::MemoryRegion> allocate_pinned(const MemoryRegionConfig& config,
                                                      const memory::RegionNeeds& needs) {
  return std::make_unique<PinnedRegion>(config, memory::HostPages(config, needs));
}

std::string why_absent() { return Driver::why_absent(); }

const memory::RegisteredMemoryKind pinned(MemoryKind::HOST_PINNED, allocate_pinned, why_absent);

}  // namespace

}  // namespace daqiri::cuda

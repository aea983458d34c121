/// Memory for GPUs: pinned host memory, and GPU memory.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "cuda/driver.h"
#include "cuda/packet_copies.h"
#include "daqiri/error.h"
#include "memory/host_pages.h"
#include "system/log.h"

namespace daqiri::cuda {

namespace {

/// CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
constexpr int HOST_POINTER = 91;

std::size_t host_page() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// Pins pages so that GPUs can access them. Throws Error.
PinnedPages pin(const memory::RegionExtent& extent, const std::string& what, int gpu) {
  const Context context(what, gpu);
  const Driver& driver = context.driver();
  int same_address = 0;
  if (driver.call().attribute(&same_address, HOST_POINTER, gpu) != 0 || same_address == 0) {
    throw Error(Status::NOT_SUPPORTED,
                what + ": GPU " + std::to_string(gpu) +
                    " cannot use pinned memory at the CPU's addresses "
                    "(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM); use kind 'host' or 'huge'");
  }
  const Result result = driver.call().pin(extent.base, extent.bytes, HOST_FLAGS);
  if (result == 0) return {extent.base, gpu};
  throw Error(Status::NO_FREE_PACKET_BUFFERS,
              what + ": " + std::to_string(extent.bytes) + " bytes cannot be pinned for the GPU (" +
                  driver.text_of(result) + "); lower num_bufs or buf_size");
}

class PinnedRegion final : public memory::MemoryRegion {
 public:
  PinnedRegion(const MemoryRegionConfig& config, memory::HostPages&& pages)
      : MemoryRegion(config, pages.extent(), memory::Place::PINNED),
        pages_(std::move(pages)),
        pinned_(pin(extent(), "memory region '" + config.name_ + "'", 0)) {}

 private:
  void free_memory() noexcept override {
    pinned_.reset();
    pages_.reset();
  }

  std::optional<memory::HostPages> pages_;
  PinnedPages pinned_;
};

std::unique_ptr<memory::MemoryRegion> allocate_pinned(const MemoryRegionConfig& config,
                                                      const memory::RegionNeeds& needs) {
  return std::make_unique<PinnedRegion>(config, memory::HostPages(config, needs));
}

/// Memory of a GPU.
class DeviceMemory {
 public:
  /// Allocates as `extent` specifies, in whole pages of `page`: those of the host, as required for
  /// dma-bufs, or of GPUs. Throws Error.
  DeviceMemory(memory::RegionExtent extent, std::string what, int gpu, std::size_t page)
      : extent_(extent), what_(std::move(what)), gpu_(gpu) {
    extent_.bytes = (extent_.bytes + page - 1) / page * page;
    const Context context(what_, gpu_);
    const Functions& call = context.driver().call();
    Result result = call.allocate(allocated_.out(context), extent_.bytes + page);
    if (result == 0) result = call.make_event(copies_->done.out(context), EVENT_FLAGS);
    if (result == 0) result = call.make_stream(copies_->stream.out(context), STREAM_FLAGS);
    void* const stream = copies_->stream.get();
    // Clear data that other programs left in the memory.
    if (result == 0) result = call.fill(allocated_.get(), 0, extent_.bytes + page, stream);
    if (result == 0) result = call.wait_for_stream(stream);
    if (result != 0) {
      copies_.reset();
      allocated_.reset();
      std::string text = what_;
      text.append(": GPU ").append(std::to_string(gpu_)).append(" cannot allocate ");
      text.append(std::to_string(extent_.bytes + page)).append(" bytes (");
      text.append(context.driver().text_of(result)).append(")");
      std::size_t free = 0;
      std::size_t total = 0;
      if (call.memory(&free, &total) == 0) {
        text.append("; ").append(std::to_string(free)).append(" of its ");
        text.append(std::to_string(total)).append(" bytes are free");
      }
      throw Error(Status::NO_FREE_PACKET_BUFFERS,
                  text + "; lower num_bufs or buf_size, or end other programs that use it");
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the GPU
    extent_.base = reinterpret_cast<std::byte*>((allocated_.get() + page - 1) / page * page);
  }

  [[nodiscard]] const memory::RegionExtent& extent() const noexcept { return extent_; }
  /// Throws Error NOT_SUPPORTED.
  [[nodiscard]] int export_dma_buf() const {
    /// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    constexpr int DMA_BUF = 1;
    int file = -1;
    const std::string problem = with_gpu([&](const Functions& call) {
      /// CUDA_ERROR_NOT_SUPPORTED
      constexpr Result NOT_SUPPORTED = 801;
      return call.export_range == nullptr
                 ? NOT_SUPPORTED
                 : call.export_range(&file, address_of(extent_.base), extent_.bytes, DMA_BUF, 0);
    });
    if (problem.empty()) return file;
    throw Error(Status::NOT_SUPPORTED,
                what_ + ": GPU " + std::to_string(gpu_) + " exports no dma-buf (" + problem +
                    "); this requires NVIDIA's open kernel modules, CUDA 11.7 and Linux 5.12");
  }
  /// How network cards write to the memory.
  struct Cards {
    /// Why they cannot; empty: they can.
    std::string why_not;
    /// See PacketCopies::follow_cards.
    bool flush{false};
  };
  /// From now on, copies that CUDA begins are complete when its calls return, as GPUDirect RDMA
  /// requires.
  [[nodiscard]] Cards admit_cards() const {
    /// CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, ..._FLUSH_WRITES_OPTIONS and
    /// ..._WRITES_ORDERING
    constexpr int SUPPORTED = 116;
    constexpr int FLUSHES = 117;
    constexpr int ORDERING = 118;
    /// CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER: the GPU sees writes in the order of the bus.
    constexpr int OWNER = 100;
    /// CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
    constexpr unsigned BY_HOST = 1;
    /// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    constexpr int SYNC_MEMOPS = 6;
    Cards cards;
    const std::string problem = with_gpu([&](const Functions& call) {
      const auto attribute = [&](int which) {
        int value = 0;
        return call.attribute(&value, which, gpu_) == 0 ? value : 0;
      };
      cards.flush = attribute(ORDERING) < OWNER;
      if (attribute(SUPPORTED) == 0) {
        cards.why_not = "it has no GPUDirect RDMA";
      } else if (cards.flush && (call.flush_writes == nullptr ||
                                 (static_cast<unsigned>(attribute(FLUSHES)) & BY_HOST) == 0)) {
        cards.why_not = "the driver cannot wait for what cards have written to it";
      }
      const unsigned on = 1;
      return cards.why_not.empty()
                 ? call.set_pointer_attribute(&on, SYNC_MEMOPS, address_of(extent_.base))
                 : Result{0};
    });
    if (!problem.empty()) cards.why_not = problem;
    return cards;
  }
  /// Returns the error; empty: success.
  [[nodiscard]] std::string read(const void* data, void* to, std::size_t bytes) const {
    const std::lock_guard lock(copies_->mutex);
    return with_gpu([&](const Functions& call) {
      void* const stream = copies_->stream.get();
      Result result = call.copy_to_host(to, address_of(data), bytes, stream);
      if (result != 0) return result;
      // Waiting for the stream itself would keep a core busy.
      result = call.record_event(copies_->done.get(), stream);
      return result == 0 ? call.wait_for_event(copies_->done.get()) : result;
    });
  }

 private:
  template <typename Use>
  std::string with_gpu(Use use) const {
    if (Driver::forked()) return what_ + " belongs to the process that opened the engine";
    try {
      const Context context(what_, gpu_);
      const Result result = use(context.driver().call());
      return result == 0 ? std::string() : context.driver().text_of(result);
    } catch (const Error& e) {
      return e.what();
    }
  }

  /// A separate stream for copies; one copy at a time.
  struct Copies {
    std::mutex mutex;
    Event done;
    Stream stream;
  };

  memory::RegionExtent extent_;
  DeviceAllocation allocated_;
  std::string what_;
  int gpu_;
  std::unique_ptr<Copies> copies_{std::make_unique<Copies>()};
};

/// Copies in pinned memory, from which disks read and to which GPUs copy at full rate.
class PinnedMirror final : public memory::HostMirror {
 public:
  /// For a region, which must outlive this object.
  PinnedMirror(const memory::MemoryRegion& region, std::shared_ptr<const DeviceMemory> memory)
      : region_(region), memory_(std::move(memory)) {
    const std::size_t page = host_page();
    stride_ = (region.buf_size() + page - 1) / page * page;
    const std::size_t bytes = stride_ * region.config().num_bufs_;
    const Context context(what(), region.gpu());
    const Result result =
        context.driver().call().allocate_host(base_.out(context), bytes, HOST_FLAGS);
    if (result != 0) {
      throw Error(Status::NO_FREE_PACKET_BUFFERS,
                  what() + ", which is on a GPU: recording needs " + std::to_string(bytes) +
                      " bytes of pinned memory (" + context.driver().text_of(result) +
                      "); lower num_bufs or buf_size");
    }
  }

  std::byte* copy(std::uint32_t buffer, std::size_t bytes) override {
    std::byte* const place = static_cast<std::byte*>(base_.get()) + buffer * stride_;
    const std::string problem = memory_->read(region_.address(buffer), place, bytes);
    if (!problem.empty()) {
      throw Error(Status::GENERIC_FAILURE, what() + ": frames cannot be copied from GPU " +
                                               std::to_string(region_.gpu()) + " (" + problem +
                                               "); start the program again");
    }
    return place;
  }

 private:
  [[nodiscard]] std::string what() const { return "memory region '" + region_.name() + "'"; }

  const memory::MemoryRegion& region_;
  std::shared_ptr<const DeviceMemory> memory_;
  std::size_t stride_;
  HostAllocation base_;
};

Error given_back(const memory::MemoryRegion& region) {
  return {Status::NOT_READY,
          "memory region '" + region.name() + "' was freed: the engine is closed; open it again"};
}

class DeviceRegion final : public memory::MemoryRegion {
 public:
  DeviceRegion(const MemoryRegionConfig& config, DeviceMemory&& memory)
      : MemoryRegion(config, memory.extent(), memory::Place::DEVICE),
        memory_(std::make_shared<const DeviceMemory>(std::move(memory))) {}

  [[nodiscard]] bool copy_to_host(const void* data, void* to,
                                  std::size_t bytes) const noexcept override {
    // The caller holds a buffer, so the memory exists.
    return memory_->read(data, to, bytes).empty();
  }
  [[nodiscard]] std::unique_ptr<memory::HostMirror> mirror() const override {
    return std::make_unique<PinnedMirror>(*this, held());
  }
  [[nodiscard]] std::shared_ptr<const void> hold() const override { return held(); }
  [[nodiscard]] int export_dma_buf() const override { return held()->export_dma_buf(); }

 private:
  /// Throws Error NOT_READY if the memory was freed.
  [[nodiscard]] std::shared_ptr<const DeviceMemory> held() const {
    const std::lock_guard lock(mutex_);
    if (memory_ != nullptr) return memory_;
    throw given_back(*this);
  }
  void free_memory() noexcept override {
    std::shared_ptr<const DeviceMemory> last;
    const std::lock_guard lock(mutex_);
    last.swap(memory_);
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const DeviceMemory> memory_;
};

/// The same packets in pinned memory and in GPU memory, at the same offsets.
struct PacketMemory {
  PacketMemory(const MemoryRegionConfig& config, const memory::RegionNeeds& needs,
               const std::string& what)
      : pages(config, needs),
        pinned(pin(pages.extent(), what, config.affinity_)),
        device(pages.extent(), what, config.affinity_,
               needs.let_cards_write ? memory::GPU_PAGE : host_page()) {}

  memory::HostPages pages;
  PinnedPages pinned;
  DeviceMemory device;
};

/// Packets that applications use on a GPU. Engines write them to pinned memory, or network cards to
/// the GPU; then pinned memory is for those who read them on the host.
class PacketRegion final : public memory::MemoryRegion {
 public:
  /// `place`: where packets are written. Takes the memory when nothing fails any more.
  PacketRegion(const MemoryRegionConfig& config, memory::Place place,
               std::unique_ptr<PacketMemory>& memory, std::unique_ptr<PacketCopies> copies)
      : MemoryRegion(
            config,
            place == memory::Place::DEVICE ? memory->device.extent() : memory->pages.extent(),
            place),
        memory_(std::move(memory)),
        copies_(std::move(copies)) {}

  [[nodiscard]] memory::DeviceCopies* device_copies() const noexcept override {
    return copies_.get();
  }
  [[nodiscard]] bool copy_to_host(const void* data, void* to,
                                  std::size_t bytes) const noexcept override {
    // The caller holds a buffer, so the memory exists.
    return copies_->flush() && memory_->device.read(data, to, bytes).empty();
  }
  [[nodiscard]] int export_dma_buf() const override {
    const std::lock_guard lock(mutex_);
    if (memory_ != nullptr) return memory_->device.export_dma_buf();
    throw given_back(*this);
  }

 private:
  void free_memory() noexcept override {
    // Bursts may be released before their packets have been copied to the GPU.
    copies_->finish();
    const std::lock_guard lock(mutex_);
    memory_.reset();
  }

  /// Serializes the export and the release of the memory.
  mutable std::mutex mutex_;
  std::unique_ptr<PacketMemory> memory_;
  /// Bursts may hold its events, even after their packets were freed.
  std::unique_ptr<PacketCopies> copies_;
};

std::unique_ptr<memory::MemoryRegion> allocate_for_packets(const MemoryRegionConfig& config,
                                                           const memory::RegionNeeds& needs) {
  const std::string what = "memory region '" + config.name_ + "'";
  auto memory = std::make_unique<PacketMemory>(config, needs, what);
  auto copies = std::make_unique<PacketCopies>(
      memory->device.extent().base - memory->pages.extent().base, what, config.affinity_);
  std::string why = needs.why_no_card;
  bool by_cards = false;
  if (needs.let_cards_write) {
    const DeviceMemory::Cards cards = memory->device.admit_cards();
    why = cards.why_not.empty() ? needs.let_cards_write(memory->device.extent()) : cards.why_not;
    by_cards = why.empty();
    if (by_cards) copies->follow_cards(cards.flush);
  }
  if (!why.empty()) {
    log(LogLevel::INFO, what + ": packets reach GPU " + std::to_string(config.affinity_) +
                            " by way of host memory: " + why);
  }
  try {
    return std::make_unique<PacketRegion>(config,
                                          by_cards ? memory::Place::DEVICE : memory::Place::PINNED,
                                          memory, std::move(copies));
  } catch (...) {
    if (by_cards) needs.keep_cards_away();
    throw;
  }
}

std::unique_ptr<memory::MemoryRegion> allocate_device(const MemoryRegionConfig& config,
                                                      const memory::RegionNeeds& needs) {
  if (needs.staged) return allocate_for_packets(config, needs);
  // The alignment of cuMemAlloc, suitable for loads of a warp.
  constexpr std::size_t ALIGNMENT = 256;
  memory::RegionNeeds device = needs;
  device.alignment = std::max(device.alignment, ALIGNMENT);
  const std::size_t page = host_page();
  return std::make_unique<DeviceRegion>(
      config, DeviceMemory(memory::RegionExtent::of(config, device, page),
                           "memory region '" + config.name_ + "'", config.affinity_, page));
}

std::string why_absent() { return Driver::why_absent(); }

const memory::RegisteredMemoryKind pinned(MemoryKind::HOST_PINNED, allocate_pinned, why_absent);
const memory::RegisteredMemoryKind device(MemoryKind::DEVICE, allocate_device, why_absent);

}  // namespace

}  // namespace daqiri::cuda

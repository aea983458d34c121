/// Packet buffers by number: their owner, and the list of free buffers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daqiri/cuda_types.h"
#include "system/doorbell.h"
#include "system/pages.h"

namespace daqiri::memory {

/// A region's packets in GPU memory and in host memory, at the same offsets: applications use GPU
/// memory, engines that cannot access the GPU use host memory. If network cards write to the GPU
/// (Place::DEVICE), the host has copies of those packets only that were asked for.
class DeviceCopies {
 public:
  /// `distance`: `on_device` - `on_host`, from a packet's address in host memory to that in GPU
  /// memory.
  explicit DeviceCopies(std::ptrdiff_t distance) noexcept : distance_(distance) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  virtual ~DeviceCopies() = default;

  [[nodiscard]] void* on_device(void* on_host) const noexcept {
    return static_cast<std::byte*>(on_host) + distance_;
  }
  [[nodiscard]] void* on_host(void* on_device) const noexcept {
    return static_cast<std::byte*>(on_device) - distance_;
  }

  /// Packets of a burst; a null address: the packet was freed.
  struct Packets {
    void* const* addresses;
    const std::uint32_t* bytes;
    std::uint32_t count;
  };
  /// Begin to copy packets from the host to the GPU, after the event `after` (null: at once).
  /// Returns an event that is complete when the copies are. Any thread. Throws Error
  /// GENERIC_FAILURE if the GPU has failed.
  virtual cudaEvent_t to_device(const Packets& packets, cudaEvent_t after) = 0;
  /// What copies to the host wait for: copies begun here before, or all work that this process has
  /// given to the GPU.
  enum class Behind : std::uint8_t { COPIES, EVERYTHING };
  /// Copy packets from the GPU to the host. Any thread. Throws as above.
  virtual void to_host(const Packets& packets, Behind behind) = 0;
  /// Copy packets on the GPU to rows of `width` bytes there, padded with zeros; complete on return.
  /// Any thread. Throws as above.
  virtual void gather(const Packets& packets, std::uint64_t to, std::size_t width) = 0;
  /// Wait until an event of `to_device` is complete; null: do not wait. Any thread. Throws as
  /// above.
  virtual void wait_for(cudaEvent_t event) = 0;
  /// Wait for all copies begun by `to_device`, so that none writes to GPU memory later. Any thread.
  /// Also returns if the GPU has failed.
  virtual void finish() noexcept = 0;
  [[nodiscard]] virtual int gpu() const noexcept = 0;

 private:
  std::ptrdiff_t distance_;
};

/// Who can read packets where they are.
enum class Place : std::uint8_t {
  /// The CPU; copies go to GPUs by way of pinned memory.
  HOST,
  /// The CPU, and GPUs at the same addresses.
  PINNED,
  /// One GPU. Access by the CPU would fault.
  DEVICE
};

/// Free buffers and all buffers of an owner; zeros: it does not know.
struct BufferLevels {
  std::uint64_t free{0};
  std::uint64_t buffers{0};
};

class MemoryRegion;

/// Numbered buffers: of a memory region, of a kernel's ring of blocks, of a driver's pool.
///
/// An engine that delivers packets in its own memory implements this, and shares ownership with its
/// session (SessionMemory::owners), because packets may be held long after the session is closed.
class BufferOwner {
 public:
  /// `gpu`: the one that contains the memory; for host memory, the default GPU 0.
  BufferOwner(std::string name, std::uint32_t buf_size, Place place, int gpu = 0)
      : name_(std::move(name)), buf_size_(buf_size), place_(place), gpu_(gpu) {}
  BufferOwner(const BufferOwner&) = delete;
  BufferOwner& operator=(const BufferOwner&) = delete;
  virtual ~BufferOwner() = default;

  /// Free `n` buffers. Any thread.
  virtual void give(const std::uint32_t* buffers, std::uint32_t n) noexcept = 0;
  /// Whether buffers must be freed soon: the application, which may hold packets, gets copies.
  [[nodiscard]] virtual bool wanted_soon() const noexcept { return false; }
  /// Copy packet data from a device to host memory. Returns false if the device has failed. Any
  /// thread.
  [[nodiscard]] virtual bool copy_to_host(const void* data, void* to,
                                          std::size_t bytes) const noexcept {
    std::memcpy(to, data, bytes);
    return true;
  }

  /// Null: packets have no copies on a device.
  [[nodiscard]] virtual DeviceCopies* device_copies() const noexcept { return nullptr; }
  /// The memory region that contains the buffers; null: none.
  [[nodiscard]] virtual const MemoryRegion* region() const noexcept { return nullptr; }
  /// Any thread.
  [[nodiscard]] virtual BufferLevels levels() const noexcept { return {}; }

  /// A queue found no free buffer: queues should deliver open bursts. Any thread.
  void note_shortage() noexcept { shortages_.fetch_add(1, std::memory_order_relaxed); }
  /// Like `note_shortage`, and wake sleeping pollers.
  void ask_for_buffers() noexcept {
    note_shortage();
    for (Doorbell* poller : pollers_) poller->ring();
  }
  /// Add a poller whose queues take buffers from here. Call before any thread asks for buffers; the
  /// poller must exist as long as threads ask.
  void add_poller(Doorbell& poller) {
    if (std::ranges::find(pollers_, &poller) == pollers_.end()) pollers_.push_back(&poller);
  }
  [[nodiscard]] std::uint64_t shortages() const noexcept {
    return shortages_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Most bytes of packet data in a buffer.
  [[nodiscard]] std::uint32_t buf_size() const noexcept { return buf_size_; }
  [[nodiscard]] Place place() const noexcept { return place_; }
  [[nodiscard]] bool host_readable() const noexcept { return place_ != Place::DEVICE; }
  [[nodiscard]] int gpu() const noexcept { return gpu_; }

 private:
  std::string name_;
  std::uint32_t buf_size_;
  Place place_;
  int gpu_;
  std::atomic<std::uint64_t> shortages_{0};
  std::vector<Doorbell*> pollers_;
};

/// A LIFO of the numbers 0..count-1; any thread may take and give.
///
/// A tagged stack of blocks: the head contains the first number of the top block and a tag that
/// every change increments, so that a compare-exchange never mistakes a recycled top for an
/// unchanged one. `take` and `give` move whole chains of blocks with one compare-exchange. A block
/// is a cache line, because what one core gives another one takes: a line that another core has
/// written takes longer to read than to do all else here.
class FreeList {
 public:
  explicit FreeList(std::uint32_t count)
      : blocks_(map_pages<Block>((std::size_t{count} + 1) * sizeof(Block))), available_(count) {
    std::uninitialized_default_construct_n(blocks_.get(), count);
    // The lowest numbers on top.
    for (std::uint32_t end = count; end > 0;) {
      const std::uint32_t begin = (end - 1) / IN_BLOCK * IN_BLOCK;
      std::array<std::uint32_t, IN_BLOCK> numbers;
      for (std::uint32_t i = begin; i < end; ++i) numbers[i - begin] = i;
      push(numbers.data(), end - begin);
      end = begin;
    }
  }

  /// Take up to `n` numbers. Returns how many were taken.
  std::uint32_t take(std::uint32_t* numbers, std::uint32_t n) noexcept {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (int attempts = 0;;) {
      std::uint32_t taken = 0;
      // Those of the last block that are too many.
      std::array<std::uint32_t, IN_BLOCK> rest;
      std::uint32_t left = 0;
      auto top = static_cast<std::uint32_t>(head);
      // As soon as the first block is here: those behind it. Each block then tells one more.
      if (top != END) {
        for (const auto& ahead : blocks_[top].ahead)
          prefetch(ahead.load(std::memory_order_relaxed));
      }
      // Other threads may change the chain; the tag then makes the exchange fail, and the walk is
      // repeated.
      while (taken < n && top != END) {
        const Block& block = blocks_[top];
        prefetch(block.ahead.back().load(std::memory_order_relaxed));
        numbers[taken++] = top;
        const std::uint32_t count = block.count.load(std::memory_order_relaxed);
        const std::uint32_t wanted = std::min(count, n - taken);
        for (std::uint32_t i = 0; i < wanted; ++i)
          numbers[taken++] = block.others[i].load(std::memory_order_relaxed);
        for (std::uint32_t i = wanted; i < count; ++i)
          rest[left++] = block.others[i].load(std::memory_order_relaxed);
        top = block.next.load(std::memory_order_relaxed);
      }
      // Another thread is about to give some, or the rest of a block: at once, or when the kernel
      // lets it run again.
      if (taken < n && available() > taken && ++attempts < MOST_ATTEMPTS) {
        if (attempts > MOST_ATTEMPTS / 2) std::this_thread::yield();
        head = head_.load(std::memory_order_acquire);
        continue;
      }
      if (taken == 0) return 0;
      if (head_.compare_exchange_weak(head, successor(head, top), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        available_.fetch_sub(taken, std::memory_order_relaxed);
        if (left > 0) push(rest.data(), left);
        // Of the next call, mostly.
        prefetch(top);
        return taken;
      }
    }
  }
  /// Return `n` numbers: the next ones that are taken, in this order.
  void give(const std::uint32_t* numbers, std::uint32_t n) noexcept {
    if (n == 0) return;
    available_.fetch_add(n, std::memory_order_relaxed);
    push(numbers, n);
  }
  /// Take all `count` numbers permanently, or none if one is missing. They still count as free. No
  /// thread takes numbers meanwhile.
  bool take_all(std::uint32_t count) noexcept {
    // A modification, so that threads that return numbers later see what was written before.
    std::uint64_t head = head_.fetch_add(0, std::memory_order_acq_rel);
    for (;;) {
      if (available() < count) return false;
      std::uint32_t found = 0;
      for (auto top = static_cast<std::uint32_t>(head); top != END && found < count;) {
        found += 1 + blocks_[top].count.load(std::memory_order_relaxed);
        top = blocks_[top].next.load(std::memory_order_relaxed);
      }
      if (found < count) return false;
      if (head_.compare_exchange_weak(head, successor(head, END), std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        return true;
    }
  }
  /// Number of free numbers; exact if no other thread is active.
  [[nodiscard]] std::uint32_t available() const noexcept {
    return available_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t END = 0xFFFFFFFFU;
  static constexpr std::uint32_t IN_BLOCK = 12;
  static constexpr int MOST_ATTEMPTS = 100;
  /// Has the place of its first number.
  struct alignas(64) Block {
    std::atomic<std::uint32_t> next;
    /// The blocks after the next one that were given with this one; END: fewer were.
    std::array<std::atomic<std::uint32_t>, 3> ahead;
    /// Numbers besides the first.
    std::atomic<std::uint32_t> count;
    std::array<std::atomic<std::uint32_t>, IN_BLOCK - 1> others;
  };
  static_assert(sizeof(Block) == 64);

  /// Inline: GCC leaves out calls of functions that only prefetch, because they change nothing.
  [[gnu::always_inline]] void prefetch(std::uint32_t block) const noexcept {
    if (block != END) __builtin_prefetch(&blocks_[block]);
  }
  /// The next head: the tag in the upper half, the top number in the lower half.
  static std::uint64_t successor(std::uint64_t head, std::uint32_t top) noexcept {
    return ((head >> 32U) + 1) << 32U | top;
  }
  void push(const std::uint32_t* numbers, std::uint32_t n) noexcept {
    Block* block = nullptr;
    for (std::uint32_t i = 0; i < n; i += IN_BLOCK) {
      block = &blocks_[numbers[i]];
      const std::uint32_t count = (n - i < IN_BLOCK ? n - i : IN_BLOCK) - 1;
      block->count.store(count, std::memory_order_relaxed);
      for (std::uint32_t k = 0; k < count; ++k)
        block->others[k].store(numbers[i + 1 + k], std::memory_order_relaxed);
      const auto first_of = [&](std::uint32_t at) { return at < n ? numbers[at] : END; };
      block->next.store(first_of(i + IN_BLOCK), std::memory_order_relaxed);
      for (std::uint32_t k = 0; k < block->ahead.size(); ++k)
        block->ahead[k].store(first_of(i + (2 + k) * IN_BLOCK), std::memory_order_relaxed);
    }
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      block->next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, successor(head, numbers[0]),
                                          std::memory_order_acq_rel, std::memory_order_relaxed));
  }

  /// From the kernel: sessions come and go, and the heap would grow by holes of this size.
  Pages<Block> blocks_;
  alignas(64) std::atomic<std::uint64_t> head_{END};
  alignas(64) std::atomic<std::uint32_t> available_;
};

}  // namespace daqiri::memory

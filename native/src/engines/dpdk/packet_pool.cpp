#include "engines/dpdk/packet_pool.h"

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"

namespace daqiri::dpdk {

namespace {

/// DPDK wants a name for each.
std::string new_name() {
  static std::atomic<unsigned> made{0};
  return "daqiri_" + std::to_string(made.fetch_add(1));
}

[[noreturn]] void refuse(const std::string& user, std::uint32_t mbufs, int error) {
  throw Error(Status::NO_FREE_PACKET_BUFFERS,
              user + ": DPDK cannot make " + std::to_string(mbufs) +
                  " headers of packets: " + Reports::reason(error) +
                  "; lower num_bufs, or reserve free hugepages (sysctl vm.nr_hugepages) and start "
                  "the program again");
}

}  // namespace

void FreePool::operator()(rte_mempool* pool) const noexcept {
  if (owns_eal()) rte_mempool_free(pool);
}

Mempool make_header_pool(std::uint32_t mbufs, int socket, const std::string& user) {
  // Without caches: they belong to cores that DPDK knows, and it knows none of the engine's.
  Mempool pool(rte_pktmbuf_pool_create(new_name().c_str(), mbufs, 0, 0, 0, socket));
  if (pool == nullptr) refuse(user, mbufs, rte_errno);
  return pool;
}

void FreeMemory::operator()(std::uint8_t* memory) const noexcept {
  if (owns_eal()) rte_free(memory);
}

DeviceMemory make_device_memory(std::size_t bytes, int socket, const std::string& user) {
  if (bytes == 0) return {};
  DeviceMemory memory(static_cast<std::uint8_t*>(rte_malloc_socket(nullptr, bytes, 0, socket)));
  if (memory == nullptr) {
    throw Error(Status::NO_FREE_PACKET_BUFFERS,
                user + ": DPDK has no " + std::to_string(bytes) +
                    " bytes for the headers of tunnels; reserve free hugepages (sysctl "
                    "vm.nr_hugepages) and start the program again");
  }
  return memory;
}

namespace {

thread_local PacketPool::Stock* stock_of_thread{nullptr};

}  // namespace

PacketPool::Stock::Stock(const PacketPool& pool) noexcept
    : pool_(pool), before_(std::exchange(stock_of_thread, this)) {}

PacketPool::Stock::~Stock() {
  stock_of_thread = before_;
  pool_.region_.give(numbers_.data(), count_);
}

rte_mbuf* PacketPool::Stock::take() noexcept {
  if (count_ == 0) count_ = pool_.region_.take(numbers_.data(), MOST);
  return count_ == 0 ? nullptr : pool_.mbufs_[numbers_[--count_]];
}

/// The region's list of free buffers as DPDK calls it.
struct RegionOps {
  static int alloc(rte_mempool*) noexcept { return 0; }
  static void free(rte_mempool*) noexcept {}
  static int enqueue(rte_mempool* mempool, void* const* mbufs, unsigned n) noexcept {
    const PacketPool& pool = of(mempool);
    if (pool.mbufs_.empty()) return 0;
    std::array<std::uint32_t, AT_ONCE> numbers;
    for (unsigned done = 0; done < n;) {
      const unsigned part = std::min(n - done, AT_ONCE);
      for (unsigned i = 0; i < part; ++i)
        numbers[i] = PacketPool::number_of(*static_cast<const rte_mbuf*>(mbufs[done + i]));
      pool.region_.give(numbers.data(), part);
      done += part;
    }
    return 0;
  }
  static int dequeue(rte_mempool* mempool, void** mbufs, unsigned n) noexcept {
    const PacketPool& pool = of(mempool);
    if (pool.mbufs_.empty()) return -ENOBUFS;
    if (n == 1 && stock_of_thread != nullptr && &stock_of_thread->pool_ == &pool) {
      rte_mbuf* const taken = stock_of_thread->take();
      mbufs[0] = taken;
      if (taken == nullptr) pool.region_.note_shortage();
      return taken == nullptr ? -ENOBUFS : 0;
    }
    std::array<std::uint32_t, AT_ONCE> numbers;
    for (unsigned done = 0; done < n;) {
      const unsigned part = std::min(n - done, AT_ONCE);
      const std::uint32_t taken = pool.region_.take(numbers.data(), part);
      if (taken < part) {
        pool.region_.give(numbers.data(), taken);
        enqueue(mempool, mbufs, done);
        // Open bursts may hold the buffers.
        pool.region_.note_shortage();
        return -ENOBUFS;
      }
      for (unsigned i = 0; i < part; ++i) mbufs[done + i] = pool.mbufs_[numbers[i]];
      done += part;
    }
    return 0;
  }
  static unsigned count(const rte_mempool* mempool) noexcept {
    return of(mempool).region_.available();
  }
  /// Registers them with DPDK, once.
  static bool known() {
    static const int index = [] {
      rte_mempool_ops ops{};
      std::strncpy(ops.name, NAME, sizeof ops.name - 1);
      ops.alloc = alloc;
      ops.free = free;
      ops.enqueue = enqueue;
      ops.dequeue = dequeue;
      ops.get_count = count;
      return rte_mempool_register_ops(&ops);
    }();
    return index >= 0;
  }

  static constexpr const char* NAME = "daqiri_region";

 private:
  static constexpr unsigned AT_ONCE = 64;
  static PacketPool& of(const rte_mempool* mempool) noexcept {
    return *static_cast<PacketPool*>(mempool->pool_config);
  }
};

PacketPool::PacketPool(memory::MemoryRegion& region, int socket) : region_(region) {
  const auto count = static_cast<std::uint32_t>(region.config().num_bufs_);
  const auto fail = [&](int error) {
    refuse("memory region '" + region.config().name_ + "'", count, error);
  };
  if (!RegionOps::known()) fail(ENOSPC);
  constexpr std::size_t PRIVATE = RTE_ALIGN(sizeof(Private), RTE_MBUF_PRIV_ALIGN);
  mempool_.reset(rte_mempool_create_empty(new_name().c_str(), count, sizeof(rte_mbuf) + PRIVATE, 0,
                                          sizeof(rte_pktmbuf_pool_private), socket, 0));
  if (mempool_ == nullptr) fail(rte_errno);
  if (const int error = rte_mempool_set_ops_byname(mempool(), RegionOps::NAME, this); error != 0)
    fail(error);
  rte_pktmbuf_pool_private about{};
  about.mbuf_data_room_size = static_cast<std::uint16_t>(HEADROOM + region.buf_size());
  about.mbuf_priv_size = PRIVATE;
  about.flags = RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF;
  rte_pktmbuf_pool_init(mempool(), &about);
  if (const int made = rte_mempool_populate_default(mempool()); made < 0) fail(made);
  std::vector<rte_mbuf*> mbufs(count);
  rte_mempool_obj_iter(
      mempool(),
      [](rte_mempool*, void* all, void* mbuf, unsigned i) {
        (*static_cast<std::vector<rte_mbuf*>*>(all))[i] = static_cast<rte_mbuf*>(mbuf);
      },
      &mbufs);
  for (std::uint32_t i = 0; i < count; ++i) set_up(*mbufs[i], i);
  mbufs_ = std::move(mbufs);
}

PacketPool::~PacketPool() { mbufs_.clear(); }

void PacketPool::set_up(rte_mbuf& mbuf, std::uint32_t number) noexcept {
  constexpr std::size_t PRIVATE = RTE_ALIGN(sizeof(Private), RTE_MBUF_PRIV_ALIGN);
  std::memset(static_cast<void*>(&mbuf), 0, sizeof mbuf + PRIVATE);
  mbuf.pool = mempool();
  mbuf.priv_size = PRIVATE;
  mbuf.buf_addr = beginning_of(number);
  // The EAL runs with addresses that are the same for cards.
  rte_mbuf_iova_set(&mbuf, reinterpret_cast<rte_iova_t>(mbuf.buf_addr));
  mbuf.buf_len = static_cast<std::uint16_t>(HEADROOM + region_.buf_size());
  mbuf.data_off = HEADROOM;
  mbuf.port = RTE_MBUF_PORT_INVALID;
  mbuf.nb_segs = 1;
  mbuf.ol_flags = RTE_MBUF_F_EXTERNAL;
  rte_mbuf_refcnt_set(&mbuf, 1);
  Private& of = private_of(mbuf);
  of.number = number;
  of.shared.fcb_opaque = &mbuf;
  // As in rte_pktmbuf_pool_create_extbuf: called when another mbuf was the last that referred to
  // the buffer.
  of.shared.free_cb = [](void*, void* opaque) {
    auto* const owner = static_cast<rte_mbuf*>(opaque);
    rte_mbuf_ext_refcnt_set(owner->shinfo, 1);
    owner->ol_flags = RTE_MBUF_F_EXTERNAL;
    owner->next = nullptr;
    owner->nb_segs = 1;
    rte_mbuf_refcnt_set(owner, 1);
    rte_mbuf_raw_free(owner);
  };
  rte_mbuf_ext_refcnt_set(&of.shared, 1);
  mbuf.shinfo = &of.shared;
}

}  // namespace daqiri::dpdk

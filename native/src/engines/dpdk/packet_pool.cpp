#include "engines/dpdk/packet_pool.h"

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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

/// Asked for each packet. 8 bytes of the space that the loader keeps for libraries loaded later, in
/// place of a call.
[[gnu::tls_model("initial-exec")]] thread_local PacketPool::Stock* stock_of_thread{nullptr};

/// After each mbuf.
struct Private {
  rte_mbuf_ext_shared_info shared;
  std::uint32_t number;
};
constexpr std::size_t PRIVATE = RTE_ALIGN(sizeof(Private), RTE_MBUF_PRIV_ALIGN);

Private& private_of(rte_mbuf& mbuf) noexcept {
  return *static_cast<Private*>(rte_mbuf_to_priv(&mbuf));
}

/// Called when another mbuf was the last that referred to the buffer of `opaque`, as in
/// rte_pktmbuf_pool_create_extbuf.
void free_pinned(void*, void* opaque) noexcept {
  auto* const owner = static_cast<rte_mbuf*>(opaque);
  rte_mbuf_ext_refcnt_set(owner->shinfo, 1);
  owner->ol_flags = RTE_MBUF_F_EXTERNAL;
  owner->next = nullptr;
  owner->nb_segs = 1;
  rte_mbuf_refcnt_set(owner, 1);
  rte_mbuf_raw_free(owner);
}

/// Called while the mbuf `opaque` is freed, and before its pool has it: it refers to the next
/// buffer as soon as its sender takes it.
void free_sent(void*, void* opaque) noexcept {
  rte_mbuf_ext_refcnt_set(&private_of(*static_cast<rte_mbuf*>(opaque)).shared, 1);
}

/// `pinned`: always the same buffer.
void set_up(rte_mbuf& mbuf, rte_mempool* pool, std::uint32_t number, bool pinned) noexcept {
  std::memset(static_cast<void*>(&mbuf), 0, sizeof mbuf + PRIVATE);
  mbuf.pool = pool;
  mbuf.priv_size = PRIVATE;
  mbuf.port = RTE_MBUF_PORT_INVALID;
  mbuf.nb_segs = 1;
  mbuf.ol_flags = RTE_MBUF_F_EXTERNAL;
  rte_mbuf_refcnt_set(&mbuf, 1);
  Private& of = private_of(mbuf);
  of.number = number;
  of.shared.fcb_opaque = &mbuf;
  of.shared.free_cb = pinned ? free_pinned : free_sent;
  rte_mbuf_ext_refcnt_set(&of.shared, 1);
  mbuf.shinfo = &of.shared;
}

/// `Ops`: its functions are the pool's, with `owner` as their object. Throws Error; `user`: for its
/// text.
template <typename Ops>
ExternalMbufs make_mbufs(std::uint32_t count, std::uint16_t room, int socket, void* owner,
                         const std::string& user) {
  // Registered with DPDK once.
  static const int index = [] {
    rte_mempool_ops ops{};
    std::strncpy(ops.name, Ops::NAME, sizeof ops.name - 1);
    ops.alloc = [](rte_mempool*) { return 0; };
    ops.free = [](rte_mempool*) {};
    ops.enqueue = Ops::enqueue;
    ops.dequeue = Ops::dequeue;
    ops.get_count = Ops::count;
    return rte_mempool_register_ops(&ops);
  }();
  const auto fail = [&](int error) { refuse(user, count, error); };
  if (index < 0) fail(ENOSPC);
  ExternalMbufs mbufs;
  // Without caches: they belong to cores that DPDK knows, and it knows none of the engine's.
  mbufs.mempool.reset(rte_mempool_create_empty(new_name().c_str(), count,
                                               sizeof(rte_mbuf) + PRIVATE, 0,
                                               sizeof(rte_pktmbuf_pool_private), socket, 0));
  rte_mempool* const pool = mbufs.mempool.get();
  if (pool == nullptr) fail(rte_errno);
  if (const int error = rte_mempool_set_ops_byname(pool, Ops::NAME, owner); error != 0) fail(error);
  rte_pktmbuf_pool_private about{};
  about.mbuf_data_room_size = room;
  about.mbuf_priv_size = PRIVATE;
  about.flags = Ops::PINNED ? RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF : 0U;
  rte_pktmbuf_pool_init(pool, &about);
  if (const int made = rte_mempool_populate_default(pool); made < 0) fail(made);
  mbufs.all.resize(count);
  rte_mempool_obj_iter(
      pool,
      [](rte_mempool*, void* all, void* mbuf, unsigned i) {
        (*static_cast<std::vector<rte_mbuf*>*>(all))[i] = static_cast<rte_mbuf*>(mbuf);
      },
      &mbufs.all);
  for (std::uint32_t i = 0; i < count; ++i) set_up(*mbufs.all[i], pool, i, Ops::PINNED);
  return mbufs;
}

}  // namespace

PacketPool::Stock::Stock(const PacketPool& pool) noexcept
    : pool_(pool), mempool_(pool.mempool()), before_(std::exchange(stock_of_thread, this)) {}

PacketPool::Stock::~Stock() {
  stock_of_thread = before_;
  pool_.region_.give(numbers_.data() + next_, count_ - next_);
}

bool PacketPool::Stock::refill() noexcept {
  next_ = 0;
  count_ = pool_.region_.take(numbers_.data(), AT_ONCE);
  if (count_ == 0) return false;
  for (std::uint32_t i = 0; i < count_; ++i) mbufs_[i] = pool_.mbufs_.all[numbers_[i]];
  std::fill_n(&mbufs_[count_], AHEAD, mbufs_[count_ - 1]);
  for (std::uint32_t i = 0; i < AHEAD; ++i) prefetch(*mbufs_[i]);
  return true;
}

/// The region's list of free buffers as DPDK calls it.
struct RegionOps {
  static int enqueue(rte_mempool* mempool, void* const* mbufs, unsigned n) noexcept {
    const PacketPool& pool = of(mempool);
    if (pool.mbufs_.all.empty()) return 0;
    std::array<std::uint32_t, PacketPool::AT_ONCE> numbers;
    for (unsigned done = 0; done < n;) {
      const unsigned part = std::min(n - done, PacketPool::AT_ONCE);
      for (unsigned i = 0; i < part; ++i)
        numbers[i] = pool.number_of(*static_cast<const rte_mbuf*>(mbufs[done + i]));
      pool.region_.give(numbers.data(), part);
      done += part;
    }
    return 0;
  }
  static int dequeue(rte_mempool* mempool, void** mbufs, unsigned n) noexcept {
    PacketPool::Stock* stock = stock_of_thread;
    // Pieces of a packet are of several pools.
    while (stock != nullptr && stock->mempool_ != mempool) stock = stock->before_;
    if (n == 1 && stock != nullptr) [[likely]] {
      mbufs[0] = stock->take();
      if (mbufs[0] != nullptr) return 0;
      stock->pool_.region_.note_shortage();
      return -ENOBUFS;
    }
    return dequeue_many(mempool, mbufs, n);
  }
  static unsigned count(const rte_mempool* mempool) noexcept {
    return of(mempool).region_.available();
  }

  static constexpr const char* NAME = "daqiri_region";
  static constexpr bool PINNED = true;

 private:
  static PacketPool& of(const rte_mempool* mempool) noexcept {
    return *static_cast<PacketPool*>(mempool->pool_config);
  }
  [[gnu::noinline]] static int dequeue_many(rte_mempool* mempool, void** mbufs,
                                            unsigned n) noexcept {
    const PacketPool& pool = of(mempool);
    if (pool.mbufs_.all.empty()) return -ENOBUFS;
    std::array<std::uint32_t, PacketPool::AT_ONCE> numbers;
    for (unsigned done = 0; done < n;) {
      const unsigned part = std::min(n - done, PacketPool::AT_ONCE);
      const std::uint32_t taken = pool.region_.take(numbers.data(), part);
      if (taken < part) {
        pool.region_.give(numbers.data(), taken);
        enqueue(mempool, mbufs, done);
        // Open bursts may hold the buffers.
        pool.region_.note_shortage();
        return -ENOBUFS;
      }
      for (unsigned i = 0; i < part; ++i) mbufs[done + i] = pool.mbufs_.all[numbers[i]];
      done += part;
    }
    return 0;
  }
};

PacketPool::PacketPool(memory::MemoryRegion& region, int socket)
    : region_(region), buffers_(region, nullptr) {
  const auto count = static_cast<std::uint32_t>(region.config().num_bufs_);
  const auto room = static_cast<std::uint16_t>(HEADROOM + region.buf_size());
  ExternalMbufs mbufs = make_mbufs<RegionOps>(count, room, socket, this,
                                              "memory region '" + region.config().name_ + "'");
  for (std::uint32_t i = 0; i < count; ++i) {
    rte_mbuf& mbuf = *mbufs.all[i];
    set_memory(mbuf, static_cast<std::byte*>(region.address(i)) - HEADROOM, room);
    mbuf.data_off = HEADROOM;
  }
  mbufs_ = std::move(mbufs);
  buffers_ = Buffers(region, mempool());
}

PacketPool::~PacketPool() { mbufs_.all.clear(); }

/// What devices free of a SendPool.
struct SendOps {
  static int enqueue(rte_mempool* mempool, void* const* mbufs, unsigned n) noexcept {
    const SendPool& pool = *static_cast<const SendPool*>(mempool->pool_config);
    if (pool.mbufs_.all.empty()) return 0;
    // Mostly neighbours.
    SendPool::Word* word = nullptr;
    std::uint64_t freed = 0;
    for (unsigned i = 0; i < n; ++i) {
      const std::uint32_t number = private_of(*static_cast<rte_mbuf*>(mbufs[i])).number;
      SendPool::Word& its = pool.word_of(number);
      if (&its != word && word != nullptr)
        word->freed.fetch_or(std::exchange(freed, 0), std::memory_order_release);
      word = &its;
      freed |= std::uint64_t{1} << number % SendPool::BITS;
    }
    if (word != nullptr) word->freed.fetch_or(freed, std::memory_order_release);
    return 0;
  }
  /// Only their sender takes them.
  static int dequeue(rte_mempool*, void**, unsigned) noexcept { return -ENOBUFS; }
  static unsigned count(const rte_mempool*) noexcept { return 0; }

  static constexpr const char* NAME = "daqiri_send";
  /// mlx5 registers the buffers that pinned mbufs have when it first sees their pool, once.
  static constexpr bool PINNED = false;
};

SendPool::SendPool(std::uint32_t count, int socket, const std::string& user)
    : mask_(count - 1), words_(std::make_unique<Word[]>(count / BITS)) {
  ExternalMbufs mbufs = make_mbufs<SendOps>(count, 0, socket, this, user);
  mbufs_ = std::move(mbufs);
}

SendPool::~SendPool() { mbufs_.all.clear(); }

rte_mbuf* SendPool::take(std::span<const iovec> pieces, std::uint32_t bytes) noexcept {
  const auto count = static_cast<std::uint32_t>(pieces.size());
  if (next_ - oldest_ + count > mask_ + 1) return nullptr;
  const auto make_piece = [&](std::uint32_t i) {
    return &make(next_ + i, pieces[i].iov_base, static_cast<std::uint32_t>(pieces[i].iov_len),
                 i + 1 == count);
  };
  rte_mbuf* first = make_piece(count - 1);
  for (std::uint32_t i = count - 1; i-- > 0;) {
    rte_mbuf* const piece = make_piece(i);
    piece->next = std::exchange(first, piece);
  }
  first->nb_segs = static_cast<std::uint16_t>(count);
  first->pkt_len = bytes;
  next_ += count;
  return first;
}

void SendPool::untake(rte_mbuf& packet) noexcept {
  next_ -= packet.nb_segs;
  if (packet.nb_segs == 1) return;
  packet.nb_segs = 1;
  for (rte_mbuf* piece = &packet; piece != nullptr;) piece = std::exchange(piece->next, nullptr);
}

std::uint32_t SendPool::release() noexcept {
  std::uint32_t packets = 0;
  while (oldest_ != next_) {
    Word& word = word_of(oldest_);
    const std::uint32_t first = oldest_ % BITS;
    const std::uint64_t freed = word.freed.load(std::memory_order_acquire) >> first;
    // Not beyond the word, nor those that are not taken.
    const auto run = std::min<std::uint32_t>(static_cast<std::uint32_t>(std::countr_one(freed)),
                                             std::min(BITS - first, next_ - oldest_));
    if (run == 0) break;
    const std::uint64_t bits = (UINT64_MAX >> (BITS - run)) << first;
    word.freed.fetch_and(~bits, std::memory_order_relaxed);
    packets += static_cast<std::uint32_t>(std::popcount(word.last & bits));
    oldest_ += run;
    if (first + run < BITS) break;
  }
  return packets;
}

void SendPool::release_all() noexcept {
  for (std::uint32_t i = 0; i <= mask_; i += BITS) word_of(i).freed = 0;
  oldest_ = next_;
}

}  // namespace daqiri::dpdk

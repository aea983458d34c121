// Instead of DPDK's own functions: a device puts the pieces of packets into buffers of several
// pools, as cards do, also in memory that the CPU cannot access, and looks at the memory of those
// to send.
#include <dlfcn.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_memory.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

namespace {

/// 0 pieces: it does not split packets. 1: it receives them into one memory and takes tags out, as
/// most cards do. Of eight, one is the sender's, as with net_ring, one is in short pieces, and the
/// device uses one for itself a little longer.
rte_eth_rxseg_capa offered{};
/// Of each queue, as it was set up; by what its driver calls it.
std::map<std::uint16_t, std::vector<rte_eth_rxseg_split>> set_up;
struct Queue {
  std::vector<rte_eth_rxseg_split> pieces;
  /// Packets that the device still uses.
  std::vector<rte_mbuf*> used;
};
std::map<void*, Queue> queues;
/// Packets that found no buffers.
std::atomic<unsigned> missed{0};
/// Of the latest packet: where its pieces are.
std::array<std::atomic<const void*>, 4> latest{};
/// Mbufs to send, and those of them whose pool says that each always has the same buffer.
std::atomic<unsigned> sent{0};
std::atomic<unsigned> sent_pinned{0};
/// Of the device's driver for GPUs (cuMemcpyHtoDAsync); null: it is no card.
int (*copy_to_gpu)(unsigned long long, const void*, std::size_t, void*){nullptr};
/// Its address is that of the bus of cards.
char bus_of_cards{0};
/// What the card says when it is to have memory of a GPU; 0: it takes it.
int gpu_error{0};
/// Of the latest memory that DPDK got to know.
std::size_t pages{0};
/// Memory of GPUs that cards have, by its first byte.
struct OnGpu {
  std::size_t bytes{0};
  unsigned mappings{0};
};
std::map<const char*, OnGpu> on_gpus;
eth_rx_burst_t receive_burst{nullptr};
eth_tx_burst_t send_burst{nullptr};

template <typename Function>
Function* of_dpdk(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Instead of memcpy.
void put(void* to, const char* bytes, std::size_t count) {
  const auto found = on_gpus.upper_bound(static_cast<const char*>(to));
  if (found != on_gpus.begin() &&
      static_cast<const char*>(to) < std::prev(found)->first + std::prev(found)->second.bytes) {
    copy_to_gpu(reinterpret_cast<std::uintptr_t>(to), bytes, count, &bus_of_cards);
  } else {
    std::memcpy(to, bytes, count);
  }
}

/// A packet in as many pieces as it needs, of at most `most` bytes; null: there are no buffers.
rte_mbuf* split(const std::vector<rte_eth_rxseg_split>& pieces, const rte_mbuf& packet,
                std::uint32_t most) {
  std::vector<char> whole(packet.pkt_len);
  const auto* const bytes =
      static_cast<const char*>(rte_pktmbuf_read(&packet, 0, packet.pkt_len, whole.data()));
  rte_mbuf* first = nullptr;
  rte_mbuf** end = &first;
  std::uint32_t done = 0;
  for (std::size_t s = 0; done < packet.pkt_len; ++s) {
    // What is left goes to the memory of the last piece.
    const rte_eth_rxseg_split& into = pieces[std::min(s, pieces.size() - 1)];
    rte_mbuf* const piece = rte_pktmbuf_alloc(into.mp);
    if (piece == nullptr) {
      rte_pktmbuf_free(first);
      return nullptr;
    }
    piece->data_off = static_cast<std::uint16_t>(into.offset + (s == 0 ? RTE_PKTMBUF_HEADROOM : 0));
    piece->data_len = static_cast<std::uint16_t>(
        std::min({std::uint32_t{into.length}, most, packet.pkt_len - done}));
    put(rte_pktmbuf_mtod(piece, void*), bytes + done, piece->data_len);
    done += piece->data_len;
    if (s < latest.size()) latest[s] = rte_pktmbuf_mtod(piece, const void*);
    *end = piece;
    end = &piece->next;
    first->nb_segs = static_cast<std::uint16_t>(s + 1);
  }
  first->pkt_len = done;
  return first;
}

/// Takes the VLAN tag out, if the packet has one.
void strip_tag(rte_mbuf& packet) {
  constexpr std::uint16_t ADDRESSES = 12;
  auto* const frame = rte_pktmbuf_mtod(&packet, std::uint8_t*);
  if (packet.data_len < ADDRESSES + 4 || frame[ADDRESSES] != 0x81 || frame[ADDRESSES + 1] != 0)
    return;
  packet.vlan_tci = static_cast<std::uint16_t>(frame[ADDRESSES + 2] << 8U | frame[ADDRESSES + 3]);
  packet.ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
  std::memmove(frame + 4, frame, ADDRESSES);
  rte_pktmbuf_adj(&packet, 4);
}

std::uint16_t receive_split(void* queue, rte_mbuf** packets, std::uint16_t most) {
  const std::uint16_t count = receive_burst(queue, packets, most);
  const auto known = queues.find(queue);
  if (known == queues.end()) return count;
  auto& [pieces, used] = known->second;
  for (rte_mbuf* packet : used) {
    std::memset(rte_pktmbuf_mtod(packet, void*), 0xFF, packet->data_len);
    rte_pktmbuf_free(packet);
  }
  used.clear();
  std::uint16_t left = 0;
  for (std::uint16_t i = 0; i < count; ++i) {
    const bool whole = offered.max_nseg == 1;
    if (whole && i % 8 == 7) {
      packets[left++] = packets[i];
      continue;
    }
    constexpr std::uint32_t SHORT = 100;
    rte_mbuf* const made =
        split(pieces, *packets[i], whole && i % 8 == 5 ? SHORT : packets[i]->pkt_len);
    rte_pktmbuf_free(packets[i]);
    if (made == nullptr) {
      ++missed;
      continue;
    }
    if (whole) strip_tag(*made);
    if (whole && i % 8 == 3 && made->nb_segs == 1) {
      rte_mbuf_refcnt_update(made, 1);
      used.push_back(made);
    }
    packets[left++] = made;
  }
  return left;
}

std::uint16_t look_and_send(void* queue, rte_mbuf** packets, std::uint16_t count) {
  // Whoever receives them owns them.
  for (std::uint16_t i = 0; i < count; ++i) {
    for (const rte_mbuf* piece = packets[i]; piece != nullptr; piece = piece->next) {
      ++sent;
      if (RTE_MBUF_HAS_PINNED_EXTBUF(piece)) ++sent_pinned;
    }
  }
  return send_burst(queue, packets, count);
}

}  // namespace

extern "C" {

int rte_eth_dev_info_get(std::uint16_t port, rte_eth_dev_info* info) {
  const int error = of_dpdk<decltype(rte_eth_dev_info_get)>("rte_eth_dev_info_get")(port, info);
  if (offered.max_nseg > 0)
    info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER;
  info->rx_seg_capa = offered;
  return error;
}

int rte_eth_rx_queue_setup(std::uint16_t port, std::uint16_t queue, std::uint16_t descriptors,
                           unsigned socket, const rte_eth_rxconf* conf, rte_mempool* pool) {
  std::vector<rte_eth_rxseg_split>& pieces = set_up[queue];
  pieces.clear();
  for (std::uint16_t s = 0; pool == nullptr && s < conf->rx_nseg; ++s)
    pieces.push_back(conf->rx_seg[s].split);
  if (pool != nullptr && offered.max_nseg == 1) {
    rte_eth_rxseg_split& whole = pieces.emplace_back();
    whole.mp = pool;
    whole.length =
        static_cast<std::uint16_t>(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM);
  }
  return of_dpdk<decltype(rte_eth_rx_queue_setup)>("rte_eth_rx_queue_setup")(
      port, queue, descriptors, socket, conf, pool);
}

int rte_eth_dev_start(std::uint16_t port) {
  const int error = of_dpdk<decltype(rte_eth_dev_start)>("rte_eth_dev_start")(port);
  queues.clear();
  for (const auto& [queue, pieces] : set_up) {
    if (!pieces.empty()) queues[rte_eth_fp_ops[port].rxq.data[queue]].pieces = pieces;
  }
  receive_burst = rte_eth_fp_ops[port].rx_pkt_burst;
  send_burst = rte_eth_fp_ops[port].tx_pkt_burst;
  rte_eth_fp_ops[port].rx_pkt_burst = receive_split;
  rte_eth_fp_ops[port].tx_pkt_burst = look_and_send;
  return error;
}

const rte_bus* rte_dev_bus(const rte_device* device) {
  if (copy_to_gpu != nullptr) return reinterpret_cast<const rte_bus*>(&bus_of_cards);
  return of_dpdk<decltype(rte_dev_bus)>("rte_dev_bus")(device);
}

const char* rte_bus_name(const rte_bus* bus) {
  if (static_cast<const void*>(bus) == &bus_of_cards) return "pci";
  return of_dpdk<decltype(rte_bus_name)>("rte_bus_name")(bus);
}

/// Cards of the bus have memory of GPUs only: what else they would need is a virtual device's.
int rte_dev_dma_map(rte_device*, void* address, std::uint64_t iova, std::size_t bytes) {
  const bool good = gpu_error == 0 && iova == reinterpret_cast<std::uintptr_t>(address);
  if (good) {
    OnGpu& memory = on_gpus[static_cast<const char*>(address)];
    memory = {bytes, memory.mappings + 1};
  }
  rte_errno = good ? 0 : gpu_error;
  return good ? 0 : -1;
}

int rte_extmem_register(void* address, std::size_t bytes, rte_iova_t iovas[], unsigned count,
                        std::size_t page) {
  pages = page;
  return of_dpdk<decltype(rte_extmem_register)>("rte_extmem_register")(address, bytes, iovas, count,
                                                                       page);
}

int rte_dev_dma_unmap(rte_device*, void* address, std::uint64_t, std::size_t bytes) {
  const auto found = on_gpus.find(static_cast<const char*>(address));
  if (found == on_gpus.end() || found->second.bytes != bytes) return -1;
  if (--found->second.mappings == 0) on_gpus.erase(found);
  return 0;
}

/// The device is a card, which says this error when it is to reach a GPU. Null: it is no card.
void be_card(int (*copy)(unsigned long long, const void*, std::size_t, void*), int error) {
  copy_to_gpu = copy;
  gpu_error = error;
}

/// How often cards have memory of GPUs.
unsigned mappings_of_gpus() {
  unsigned count = 0;
  for (const auto& [base, memory] : on_gpus) count += memory.mappings;
  return count;
}

/// Pages of the latest memory that DPDK got to know, in bytes.
std::size_t latest_pages() { return pages; }

/// From now on. 0 pieces: nothing.
void offer(unsigned pieces, bool several_pools, bool offsets, unsigned align_log2) {
  offered.max_nseg = static_cast<std::uint16_t>(pieces);
  offered.multi_pools = several_pools ? 1 : 0;
  offered.offset_allowed = offsets ? 1 : 0;
  offered.offset_align_log2 = align_log2 & 0xFU;
}

unsigned missed_packets() { return missed; }

void mbufs_sent(unsigned* all, unsigned* pinned) {
  *all = sent;
  *pinned = sent_pinned;
}

const void* latest_piece(unsigned number) { return latest[number]; }
}

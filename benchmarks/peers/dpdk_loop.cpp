// The bare loops of a program over a device of DPDK. For each queue, one thread reads packets and
// passes them over a ring to another, which reads their headers, frees and counts them.
//
// usage: peers_dpdk_loop WHAT DEVICE SIZE QUEUES CORES; answers each line with its counters
//
// WHAT: receive; exchange: a third thread sends, or the second one if it would have the same core;
// copied: like exchange, and the first thread copies each packet to a buffer of its own pool, as a
// receiver must that gives the sender's buffers back; alone: receive, in one thread; send: to
// DEVICE in one thread, the other end receives. CORES: with commas, those of the first threads,
// then those of the second ones, then those that send.

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_ring.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <sstream>
#include <string_view>

#include "arguments.h"
#include "dpdk_work.h"
#include "peers/frames.h"

namespace {

constexpr std::uint16_t AT_ONCE = 64;
constexpr std::uint16_t DESCRIPTORS = 1024;
constexpr unsigned CACHE = 256;

using Packets = std::array<rte_mbuf*, AT_ONCE>;

[[noreturn]] void fail(const std::string& what, int error) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), rte_strerror(std::abs(error)));
  std::exit(1);
}

bool has_hugepages() {
  unsigned long count = 0;
  std::ifstream("/proc/sys/vm/nr_hugepages") >> count;
  return count > 0;
}

/// `core`: of the thread that starts it. Like the engine: hugepages where there are some.
void start_eal(const std::string& core, std::size_t bytes) {
  std::vector<std::string> texts{"peer",
                                 "--lcores=0@" + core,
                                 "--iova-mode=va",
                                 "--no-telemetry",
                                 "--file-prefix=peer-" + std::to_string(getpid()),
                                 "--log-level=error",
                                 "--no-pci"};
  if (has_hugepages()) {
    texts.emplace_back("--in-memory");
  } else {
    const std::size_t mib = (bytes >> 20U) + 128;
    texts.insert(texts.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(mib)});
  }
  std::vector<char*> pointers(texts.size() + 1);
  std::transform(texts.begin(), texts.end(), pointers.begin(), [](auto& each) { return &each[0]; });
  if (rte_eal_init(static_cast<int>(texts.size()), pointers.data()) < 0)
    fail("rte_eal_init", rte_errno);
}

rte_mempool* make_pool(const std::string& name, std::uint32_t size) {
  const std::uint32_t room = RTE_PKTMBUF_HEADROOM + bench::buffer_size(size);
  rte_mempool* const pool =
      rte_pktmbuf_pool_create(name.c_str(), bench::BUFFERS, CACHE, 0,
                              static_cast<std::uint16_t>(room), static_cast<int>(rte_socket_id()));
  if (pool == nullptr) fail("rte_pktmbuf_pool_create", rte_errno);
  return pool;
}

rte_ring* make_ring(unsigned number) {
  rte_ring* const ring =
      rte_ring_create(("passed" + std::to_string(number)).c_str(), bench::BUFFERS,
                      static_cast<int>(rte_socket_id()), RING_F_SP_ENQ | RING_F_SC_DEQ);
  if (ring == nullptr) fail("rte_ring_create", rte_errno);
  return ring;
}

/// Returns the number of the port.
std::uint16_t open_device(const std::string& device, std::uint16_t queues, bool receives,
                          bool sends, const std::vector<rte_mempool*>& pools) {
  const std::size_t comma = std::min(device.find(','), device.size());
  const std::string name = device.substr(0, comma);
  const std::string arguments = device.substr(std::min(comma + 1, device.size()));
  if (const int error = rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str()); error != 0)
    fail(device, error);
  std::uint16_t port = 0;
  if (const int error = rte_eth_dev_get_port_by_name(name.c_str(), &port); error != 0)
    fail(device, error);
  rte_eth_conf conf{};
  const std::uint16_t rx = receives ? queues : 0;
  const std::uint16_t tx = sends ? queues : 0;
  if (const int error = rte_eth_dev_configure(port, rx, tx, &conf); error != 0)
    fail("rte_eth_dev_configure", error);
  for (std::uint16_t i = 0; i < rx; ++i) {
    const int error = rte_eth_rx_queue_setup(port, i, DESCRIPTORS, 0, nullptr, pools[i]);
    if (error != 0) fail("rte_eth_rx_queue_setup", error);
  }
  for (std::uint16_t i = 0; i < tx; ++i) {
    const int error = rte_eth_tx_queue_setup(port, i, DESCRIPTORS, 0, nullptr);
    if (error != 0) fail("rte_eth_tx_queue_setup", error);
  }
  if (const int error = rte_eth_dev_start(port); error != 0) fail("rte_eth_dev_start", error);
  return port;
}

/// One queue of the device, and what its threads use.
struct Queue {
  Queue(std::uint16_t of_port, std::uint16_t its_number, std::uint32_t its_size,
        rte_mempool* received_into, rte_mempool* sent_from)
      : port(of_port),
        number(its_number),
        size(its_size),
        received(received_into),
        sent(sent_from),
        passed(make_ring(number)),
        frame(bench::udp_frame(size, static_cast<std::uint16_t>(bench::FIRST_PORT + number))) {}

  std::uint16_t port;
  std::uint16_t number;
  std::uint32_t size;
  rte_mempool* received;
  rte_mempool* sent;
  rte_ring* passed;
  std::vector<std::uint8_t> frame;
  bench::Work work;
};

/// Without a cache, pools are slower: caches belong to threads that DPDK knows.
void begin_thread(unsigned core) {
  bench::pin_to(core);
  if (rte_thread_register() != 0) fail("rte_thread_register", rte_errno);
}

/// Read the headers, count and free.
void consume(Queue& queue, Packets& packets, unsigned count) {
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < count; ++i)
    sum += bench::read_header(rte_pktmbuf_mtod(packets[i], const std::uint8_t*));
  rte_pktmbuf_free_bulk(packets.data(), count);
  queue.work.count(count, sum);
}

/// There are more buffers than packets in flight.
rte_mbuf* copy_of(const Queue& queue, rte_mbuf* packet) {
  rte_mbuf* const copy = rte_pktmbuf_alloc(queue.received);
  if (copy == nullptr) fail("rte_pktmbuf_alloc", rte_errno);
  std::memcpy(rte_pktmbuf_mtod(copy, void*), rte_pktmbuf_mtod(packet, const void*),
              packet->data_len);
  copy->data_len = packet->data_len;
  copy->pkt_len = packet->pkt_len;
  rte_pktmbuf_free(packet);
  return copy;
}

[[noreturn]] void read(Queue& queue, unsigned core, bool copies) {
  begin_thread(core);
  Packets packets;
  for (;;) {
    const std::uint16_t count = rte_eth_rx_burst(queue.port, queue.number, packets.data(), AT_ONCE);
    if (count == 0) continue;
    for (std::uint16_t i = 0; copies && i < count; ++i) packets[i] = copy_of(queue, packets[i]);
    for (unsigned done = 0; done < count;) {
      done += rte_ring_sp_enqueue_burst(queue.passed, reinterpret_cast<void**>(&packets[done]),
                                        count - done, nullptr);
      if (done < count) rte_pause();
    }
  }
}

/// Sends packets of the queue's frame, those first that the device has refused.
class Sender {
 public:
  explicit Sender(Queue& queue) : queue_(queue) {}

  /// Returns the number that the device accepted.
  std::uint16_t send() {
    if (left_ == 0 && rte_pktmbuf_alloc_bulk(queue_.sent, packets_.data(), AT_ONCE) == 0) {
      for (rte_mbuf* packet : packets_) {
        bench::write_header(rte_pktmbuf_mtod(packet, std::uint8_t*), queue_.frame);
        packet->data_len = static_cast<std::uint16_t>(queue_.size);
        packet->pkt_len = queue_.size;
      }
      left_ = AT_ONCE;
    }
    if (left_ == 0) return 0;
    const std::uint16_t accepted =
        rte_eth_tx_burst(queue_.port, queue_.number, &packets_[AT_ONCE - left_], left_);
    left_ = static_cast<std::uint16_t>(left_ - accepted);
    return accepted;
  }

 private:
  Queue& queue_;
  Packets packets_{};
  std::uint16_t left_{0};
};

[[noreturn]] void take(Queue& queue, unsigned core, bool sends) {
  begin_thread(core);
  Sender sender(queue);
  Packets packets;
  std::uint64_t in_flight = 0;
  for (;;) {
    const unsigned count = rte_ring_sc_dequeue_burst(
        queue.passed, reinterpret_cast<void**>(packets.data()), AT_ONCE, nullptr);
    if (count > 0) consume(queue, packets, count);
    in_flight -= sends ? count : 0;
    const std::uint16_t sent =
        sends && in_flight + AT_ONCE <= bench::IN_FLIGHT ? sender.send() : std::uint16_t{0};
    in_flight += sent;
    // Another program may have the same core.
    if (count == 0 && sent == 0) sched_yield();
  }
}

/// Sends as far ahead of the thread that takes as that one would.
[[noreturn]] void send_ahead(Queue& queue, unsigned core) {
  begin_thread(core);
  Sender sender(queue);
  for (std::uint64_t sent = 0;;) {
    if (sent - queue.work.packets.load(std::memory_order_relaxed) + AT_ONCE <= bench::IN_FLIGHT)
      sent += sender.send();
    else
      rte_pause();
  }
}

[[noreturn]] void read_alone(Queue& queue, unsigned core) {
  begin_thread(core);
  Packets packets;
  for (;;) {
    const std::uint16_t count = rte_eth_rx_burst(queue.port, queue.number, packets.data(), AT_ONCE);
    if (count > 0) consume(queue, packets, count);
  }
}

[[noreturn]] void send_alone(Queue& queue, unsigned core) {
  begin_thread(core);
  Sender sender(queue);
  for (;;) {
    const std::uint16_t sent = sender.send();
    if (sent > 0)
      queue.work.count(sent, 0);
    else
      sched_yield();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs(
        "usage: peers_dpdk_loop receive|exchange|copied|alone|send DEVICE SIZE QUEUES CORES\n",
        stderr);
    return 2;
  }
  const std::string_view what = argv[1];
  const auto size = bench::number<std::uint32_t>(argv[3]);
  const auto count = bench::number<std::uint16_t>(argv[4]);
  const std::vector<unsigned> cores = bench::cores_of(argv[5]);
  const bool exchanges = what == "exchange" || what == "copied";
  const bool one_thread = what == "alone" || what == "send";
  if (cores.size() < count * (one_thread ? 1U : exchanges ? 3U : 2U)) {
    std::fputs("peers_dpdk_loop: too few cores\n", stderr);
    return 2;
  }
  start_eal(std::to_string(cores.front()),
            4 * std::size_t{count} * bench::BUFFERS * (bench::buffer_size(size) + 512));
  std::vector<rte_mempool*> received, sent;
  for (unsigned i = 0; i < count; ++i) {
    received.push_back(make_pool("received" + std::to_string(i), size));
    sent.push_back(exchanges || what == "send" ? make_pool("sent" + std::to_string(i), size)
                                               : nullptr);
  }
  const std::uint16_t port =
      open_device(argv[2], count, what != "send", exchanges || what == "send", received);
  std::deque<Queue> queues;
  std::vector<std::thread> threads;
  for (std::uint16_t i = 0; i < count; ++i) {
    Queue& queue = queues.emplace_back(port, i, size, received[i], sent[i]);
    if (what == "alone") {
      threads.emplace_back([&queue, core = cores[i]] { read_alone(queue, core); });
    } else if (what == "send") {
      threads.emplace_back([&queue, core = cores[i]] { send_alone(queue, core); });
    } else {
      threads.emplace_back([&, core = cores[i]] { read(queue, core, what == "copied"); });
      const unsigned core = cores[count + i];
      const bool apart = exchanges && cores[2U * count + i] != core;
      threads.emplace_back(
          [&queue, core, sends = exchanges && !apart] { take(queue, core, sends); });
      if (apart)
        threads.emplace_back([&queue, from = cores[2U * count + i]] { send_ahead(queue, from); });
    }
  }
  bench::answer_lines([&] { return bench::counters_of(queues); });
  bench::print_line("{}");
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// What the stages of engine dpdk cost, each with the engine's own functions, over a device that
// makes packets (net_null): cycles of the time stamp counter per packet.
//
// usage: ours_dpdk_stages SIZE SECONDS; prints a line of JSON
//
// poll: a burst of packets from the driver, in buffers of the region. steer: find the flow of each
// and count it. batch: number, address, length, flow and time of each. hand over: to the queue's
// burst and ring, and to the application. free: the application reads each header and releases the
// burst.

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "arguments.h"
#include "daqiri/error.h"
#include "dpdk_work.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/hand_over.h"
#include "engines/dpdk/packet_pool.h"
#include "io/rx_queue.h"
#include "peers/frames.h"
#include "steering/steering.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint16_t AT_ONCE = dpdk::Batch::MOST;
constexpr std::uint16_t DESCRIPTORS = 1024;
/// Short beside what the kernel gives a thread at once: the median block is undisturbed.
constexpr std::uint32_t BURSTS_IN_BLOCK = 128;
constexpr int BATCH = 256;
/// Packets whose headers are prefetched, and those whose mbufs are, as the engine does.
constexpr std::uint32_t AHEAD = 4;
constexpr std::uint32_t MBUFS_AHEAD = 8;

/// Sums of cycles.
struct Stages {
  std::uint64_t poll{0}, steer{0}, batch{0}, hand_over{0}, free{0};
  std::uint64_t packets{0};
};

/// Cycles per packet in the median block.
double median(const std::vector<Stages>& blocks, std::uint64_t Stages::* stage) {
  std::vector<double> each;
  for (const Stages& block : blocks)
    each.push_back(static_cast<double>(block.*stage) /
                   static_cast<double>(std::max<std::uint64_t>(block.packets, 1)));
  const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
  std::nth_element(each.begin(), middle, each.end());
  return middle == each.end() ? 0 : *middle;
}

std::uint8_t* data_of(const rte_mbuf& packet) { return rte_pktmbuf_mtod(&packet, std::uint8_t*); }

void expect(int error, const char* what) {
  if (error == 0) return;
  errno = std::abs(error);
  bench::fail(what);
}

class Bench {
 public:
  explicit Bench(std::uint32_t size) {
    dpdk::start_eal();
    MemoryRegionConfig region;
    region.name_ = "received";
    region.num_bufs_ = bench::BUFFERS;
    region.buf_size_ = bench::buffer_size(size);
    memory_->regions.emplace("received", memory::MemoryRegion::allocate(
                                             region, {.headroom = dpdk::PacketPool::HEADROOM}));
    RxQueueConfig queue;
    queue.common_.name_ = "rx";
    queue.common_.batch_size_ = BATCH;
    queue.common_.mrs_ = {"received"};
    queue_ = std::make_unique<RxQueue>(InterfaceConfig{}, queue, 256, memory_);
    FlowConfig flow;
    flow.name_ = "stream";
    flow.id_ = 1;
    flow.match_.udp_dst_ = bench::FIRST_PORT;
    flow.action_.type_ = FlowType::QUEUE;
    flow.actions_ = {flow.action_};
    InterfaceConfig interface;
    interface.rx_.queues_ = {queue};
    interface.rx_.flows_ = {flow};
    auto program = std::make_shared<const steering::Program>(interface);
    steering_.grow(*program);
    steering_.publish(std::move(program));
    open(size);
    // The driver makes packets without data: it leaves the buffers as they are.
    const auto frame = bench::udp_frame(size, bench::FIRST_PORT);
    for (std::uint32_t i = 0; i < bench::BUFFERS; ++i)
      std::memcpy(queue_->region(0).address(i), frame.data(), frame.size());
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    expect(rte_eth_dev_stop(port_), "rte_eth_dev_stop");
    expect(rte_eth_dev_close(port_), "rte_eth_dev_close");
  }

  std::string run(double seconds) {
    std::vector<Stages> blocks;
    std::uint64_t read = 0;
    const auto end = monotonic_ns() + static_cast<std::uint64_t>(seconds * 1e9);
    while (monotonic_ns() < end) {
      Stages& sums = blocks.emplace_back();
      for (std::uint32_t i = 0; i < BURSTS_IN_BLOCK; ++i) pass(sums, read);
    }
    std::ostringstream line;
    double all = 0;
    const auto put = [&](const char* name, std::uint64_t Stages::* stage) {
      const double cycles = median(blocks, stage);
      all += cycles;
      line << '"' << name << "\": " << cycles << ", ";
    };
    line << '{';
    put("poll", &Stages::poll);
    put("steer", &Stages::steer);
    put("batch", &Stages::batch);
    put("hand over", &Stages::hand_over);
    put("free", &Stages::free);
    line << R"("all": )" << all << R"(, "blocks": )" << blocks.size() << R"(, "sum": )" << read
         << "}";
    return line.str();
  }

 private:
  void open(std::uint32_t size) {
    const std::string arguments = "size=" + std::to_string(size);
    expect(rte_eal_hotplug_add("vdev", "net_null0", arguments.c_str()), "net_null0");
    expect(rte_eth_dev_get_port_by_name("net_null0", &port_), "net_null0");
    pool_ = std::make_unique<dpdk::PacketPool>(queue_->region(0), rte_eth_dev_socket_id(port_));
    rte_eth_conf conf{};
    expect(rte_eth_dev_configure(port_, 1, 0, &conf), "rte_eth_dev_configure");
    expect(rte_eth_rx_queue_setup(port_, 0, DESCRIPTORS, 0, nullptr, pool_->mempool()),
           "rte_eth_rx_queue_setup");
    expect(rte_eth_dev_start(port_), "rte_eth_dev_start");
  }

  /// One burst of the driver's.
  void pass(Stages& sums, std::uint64_t& read) {
    std::array<rte_mbuf*, AT_ONCE + MBUFS_AHEAD> packets;
    const std::uint64_t t0 = rte_rdtsc();
    dpdk::PacketPool::Stock stock(*pool_);
    const std::uint32_t count = rte_eth_rx_burst(port_, 0, packets.data(), AT_ONCE);
    const std::uint64_t time = realtime_ns();
    const std::uint64_t t1 = rte_rdtsc();
    if (count == 0) return;
    // The engine finds flows and notes packets in one loop; here each has its own. All packets are
    // in buffers of the region, and of one flow.
    std::fill_n(packets.begin() + count, MBUFS_AHEAD, packets[count - 1]);
    std::uint32_t alike = 0;
    FlowId flow = 0;
    std::uint64_t bytes = 0;
    {
      const steering::Steering::Pass pass(reader_);
      const steering::Verdict& verdict = verdict_of(*packets[0]);
      const steering::RecentVerdicts::Latest latest = reader_.latest();
      const dpdk::PacketPool::Buffers buffers = pool_->buffers();
      for (; alike < count; ++alike) {
        __builtin_prefetch(packets[alike + MBUFS_AHEAD]);
        __builtin_prefetch(data_of(*packets[alike + AHEAD]));
        const rte_mbuf& packet = *packets[alike];
        if (!buffers.hold(packet) || packet.pkt_len < latest.fewest || !latest.is(data_of(packet)))
          break;
        bytes += packet.pkt_len;
      }
      flow = verdict.flow;
      run_.add(verdict.position, alike, bytes);
      run_.end();
    }
    const std::uint64_t t2 = rte_rdtsc();
    {
      const dpdk::PacketPool::Buffers buffers = pool_->buffers();
      const dpdk::Batch::Places places = batch_.places();
      for (std::uint32_t i = 0; i < alike; ++i) {
        places.buffers[i] = buffers.number_of(*packets[i]);
        places.data[i] = data_of(*packets[i]);
        places.lengths[i] = packets[i]->pkt_len;
        places.times[i] = time;
      }
      batch_.add(alike, flow);
    }
    const std::uint64_t t3 = rte_rdtsc();
    batch_.deliver(*queue_);
    queue_->end_pass();
    Burst* const burst = queue_->receive();
    const std::uint64_t t4 = rte_rdtsc();
    if (burst != nullptr) {
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i)
        read += bench::read_header(burst->pkts[0][i]);
      burst->release();
    }
    const std::uint64_t t5 = rte_rdtsc();
    sums.poll += t1 - t0;
    sums.steer += t2 - t1;
    sums.batch += t3 - t2;
    sums.hand_over += t4 - t3;
    sums.free += t5 - t4;
    sums.packets += count;
    if (alike < count) throw Error(Status::GENERIC_FAILURE, "net_null: packets are not alike");
  }

  const steering::Verdict& verdict_of(const rte_mbuf& packet) {
    const auto* const frame = data_of(packet);
    // Not only for its verdict: from then on it is a recent one.
    if (reader_.recent(frame, packet.pkt_len) == nullptr)
      reader_.classify(frame, packet.pkt_len, packet.pkt_len);
    return *reader_.recent(frame, packet.pkt_len);
  }

  std::shared_ptr<SessionMemory> memory_{std::make_shared<SessionMemory>()};
  std::unique_ptr<RxQueue> queue_;
  steering::Steering steering_;
  steering::Steering::Reader reader_{steering_};
  steering::FlowRun run_{steering_.add_tally()};
  std::unique_ptr<dpdk::PacketPool> pool_;
  std::uint16_t port_{0};
  dpdk::Batch batch_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: ours_dpdk_stages SIZE SECONDS\n", stderr);
    return 2;
  }
  try {
    Bench bench(bench::number<std::uint32_t>(argv[1]));
    bench.run(0.05);
    bench::print_line(bench.run(bench::number<double>(argv[2])));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

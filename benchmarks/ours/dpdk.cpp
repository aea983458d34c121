// Receives from a device of DPDK through the C++ interface of the engine, as peers_dpdk_loop does
// with DPDK alone. For each queue, a poller of the engine reads, and a thread of the program
// receives bursts, reads the headers of their packets, releases and counts them.
//
// usage: ours_dpdk receive|exchange DEVICE SIZE QUEUES CORES; answers each line with its counters
//
// exchange: the program sends, too, to a device that receives what it sends; the queues to send
// have no threads of the engine (poll_mode: direct). CORES: with commas, those of the pollers, then
// those of the threads that receive bursts, then those of the threads that send; where two are the
// same, one thread does both.

#include <daqiri/daqiri.h>

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "dpdk_work.h"
#include "peers/frames.h"

namespace {

constexpr int BATCH = 256;

daqiri::MemoryRegionConfig region(const std::string& name, std::uint32_t size) {
  daqiri::MemoryRegionConfig region;
  region.name_ = name;
  region.num_bufs_ = bench::BUFFERS;
  region.buf_size_ = bench::buffer_size(size);
  return region;
}

daqiri::CommonQueueConfig common(const std::string& name, std::size_t id) {
  daqiri::CommonQueueConfig common;
  common.name_ = name + std::to_string(id);
  common.id_ = static_cast<int>(id);
  return common;
}

/// `cores`: as in the arguments.
daqiri::NetworkConfig configuration(const char* device, std::uint32_t size, std::size_t queues,
                                    const std::vector<unsigned>& cores, bool sends) {
  using namespace daqiri;
  NetworkConfig config;
  config.log_level_ = LogLevel::ERROR;
  config.common_.stream_type = StreamType::RAW;
  config.common_.engine = EngineType::DPDK;
  InterfaceConfig interface;
  interface.name_ = "port";
  interface.address_ = device;
  for (std::size_t i = 0; i < queues; ++i) {
    RxQueueConfig rx;
    rx.common_ = common("rx", i);
    rx.common_.cpu_core_ = std::to_string(cores[i]);
    rx.common_.batch_size_ = BATCH;
    // A device has one memory to receive into.
    rx.common_.mrs_ = {"received"};
    rx.timeout_us_ = 1000;
    interface.rx_.queues_.push_back(rx);
    if (sends) {
      TxQueueConfig tx;
      tx.common_ = common("tx", i);
      tx.poll_mode_ = QueuePollMode::DIRECT;
      tx.common_.mrs_ = {"sent" + std::to_string(i)};
      config.mrs_.emplace(tx.common_.mrs_[0], region(tx.common_.mrs_[0], size));
      interface.tx_.queues_.push_back(tx);
    }
    FlowConfig flow;
    flow.name_ = "stream" + std::to_string(i);
    flow.id_ = static_cast<FlowId>(i + 1);
    flow.match_.udp_dst_ = static_cast<std::uint16_t>(bench::FIRST_PORT + i);
    flow.action_.type_ = FlowType::QUEUE;
    flow.action_.id_ = static_cast<std::uint16_t>(i);
    flow.actions_ = {flow.action_};
    interface.rx_.flows_.push_back(flow);
  }
  MemoryRegionConfig received = region("received", size);
  received.num_bufs_ *= queues;
  config.mrs_.emplace("received", received);
  config.ifs_ = {interface};
  return config;
}

struct Queue {
  Queue(std::uint16_t its_number, std::uint32_t its_size)
      : number(its_number),
        size(its_size),
        frame(bench::udp_frame(size, static_cast<std::uint16_t>(bench::FIRST_PORT + number))) {}

  std::uint16_t number;
  std::uint32_t size;
  std::vector<std::uint8_t> frame;
  bench::Work work;
};

/// Read the headers, count and release. Returns the number of packets.
std::uint32_t consume(Queue& queue, daqiri::BurstParams* burst) {
  const auto count = static_cast<std::uint32_t>(daqiri::get_num_packets(burst));
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    sum += bench::read_header(daqiri::get_packet_ptr(burst, static_cast<int>(i)));
  daqiri::free_all_packets_and_burst_rx(burst);
  queue.work.count(count, sum);
  return count;
}

/// Sends packets of the queue's frame.
class Sender {
 public:
  explicit Sender(const Queue& queue) : queue_(queue) {}

  /// `in_flight`: packets that were sent and not received yet. Returns the number of packets; 0:
  /// too many are in flight, or no burst or buffer is free.
  std::uint32_t send(std::uint64_t in_flight) {
    if (burst_ == nullptr) burst_ = daqiri::create_tx_burst_params();
    if (burst_ == nullptr) return 0;
    daqiri::set_header(burst_, 0, queue_.number, BATCH, 1);
    // Sends, too, what the device had no place for.
    if (!daqiri::is_tx_burst_available(burst_) || in_flight + BATCH > bench::IN_FLIGHT ||
        daqiri::get_tx_packet_burst(burst_) != daqiri::Status::SUCCESS)
      return 0;
    for (int i = 0; i < BATCH; ++i)
      bench::write_header(daqiri::get_packet_ptr(burst_, i), queue_.frame);
    daqiri::set_all_packet_lengths(burst_, {static_cast<int>(queue_.size)});
    daqiri::BurstParams* const burst = std::exchange(burst_, nullptr);
    if (daqiri::send_tx_burst(burst) == daqiri::Status::SUCCESS) return BATCH;
    daqiri::free_all_packets_and_burst_tx(burst);
    return 0;
  }

 private:
  const Queue& queue_;
  daqiri::BurstParams* burst_{nullptr};
};

[[noreturn]] void take(Queue& queue, unsigned core, bool sends) {
  bench::pin_to(core);
  Sender sender(queue);
  std::uint64_t in_flight = 0;
  for (;;) {
    const std::uint32_t sent = sends ? sender.send(in_flight) : 0;
    in_flight += sent;
    daqiri::BurstParams* burst = nullptr;
    if (daqiri::get_rx_burst(&burst, 0, queue.number) == daqiri::Status::SUCCESS) {
      const std::uint32_t received = consume(queue, burst);
      in_flight -= sends ? received : 0;
    } else if (sent == 0) {
      // Another program may have the same core.
      sched_yield();
    }
  }
}

/// Sends as far ahead of the thread that takes as that one would.
[[noreturn]] void send_ahead(Queue& queue, unsigned core) {
  bench::pin_to(core);
  Sender sender(queue);
  for (std::uint64_t sent = 0;;)
    sent += sender.send(sent - queue.work.packets.load(std::memory_order_relaxed));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (argc != 6 || (what != "receive" && what != "exchange")) {
    std::fputs("usage: ours_dpdk receive|exchange DEVICE SIZE QUEUES CORES\n", stderr);
    return 2;
  }
  const auto size = bench::number<std::uint32_t>(argv[3]);
  const auto count = bench::number<std::uint16_t>(argv[4]);
  const std::vector<unsigned> cores = bench::cores_of(argv[5]);
  const bool sends = what == "exchange";
  if (cores.size() < (sends ? 3U : 2U) * count) {
    std::fputs("ours_dpdk: too few cores\n", stderr);
    return 2;
  }
  daqiri::NetworkConfig config = configuration(argv[2], size, count, cores, sends);
  const daqiri::Status opened = daqiri::daqiri_init(config);
  if (opened == daqiri::Status::NOT_SUPPORTED) {
    // What this build lacks.
    bench::print_line(R"({"missing": "this build has no engine dpdk"})");
    return 0;
  }
  if (opened != daqiri::Status::SUCCESS) {
    std::fprintf(stderr, "%s\n", daqiri::last_error());
    return 1;
  }
  std::deque<Queue> queues;
  std::vector<std::thread> threads;
  for (std::uint16_t i = 0; i < count; ++i) {
    Queue& queue = queues.emplace_back(i, size);
    const unsigned core = cores[count + i];
    const bool apart = sends && cores[2U * count + i] != core;
    threads.emplace_back([&queue, core, alone = sends && !apart] { take(queue, core, alone); });
    if (apart)
      threads.emplace_back([&queue, from = cores[2U * count + i]] { send_ahead(queue, from); });
  }
  bench::answer_lines([&] { return bench::counters_of(queues); });
  bench::print_line("{}");
  for (std::thread& thread : threads) thread.join();
  return 0;
}

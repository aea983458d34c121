// A session from open to close: the input determines the configuration, the packets, and the
// actions of the application. Each packet must be delivered complete and in order, or dropped and
// counted, and all buffers must be returned.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "daqiri/error.h"
#include "require.h"
#include "session/loopback_config.h"
#include "session/random_config.h"
#include "session/session.h"

using namespace daqiri;
using fuzz::require;

namespace {

struct Sent {
  std::vector<std::uint8_t> bytes;
  FlowId flow;
};

class Application {
 public:
  Application(Session& session, FuzzedDataProvider& input) : session_(session), input_(input) {}
  ~Application() {
    for (Burst* burst : kept_) burst->release();
  }
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  void run() {
    constexpr int MOST_STEPS = 64;
    for (int step = 0; step < MOST_STEPS && input_.remaining_bytes() > 0; ++step) {
      switch (input_.ConsumeIntegralInRange(0, 9)) {
        case 0:
          receive(any_queue());
          break;
        case 1:
          release_one();
          break;
        case 2:
          any_queue().request_flush();
          break;
        case 3:
          filter(any_queue());
          break;
        default:
          send();
      }
    }
  }

  /// Receives the remaining packets of a closed session and checks the counters.
  void settle() {
    std::uint64_t received = 0;
    for (const auto& rx : session_.port(0).rx) {
      while (receive(*rx)) {
      }
      const RxSnapshot counters = rx->counters();
      require(test::balanced(counters) && counters.held == 0,
              "received is delivered and dropped once nothing is held");
      require(counters.delivered == delivered_[rx->id()], "what is delivered is counted");
      received += counters.received;
    }
    for (Burst* burst : kept_) burst->release();
    kept_.clear();
    const TxSnapshot left = session_.tx_queue(0, 0).counters();
    require(test::balanced(left) && left.held == 0,
            "submitted is sent and dropped once the session is closed");
    require(left.sent == submitted_, "due packets leave before a session closes");
    require(received == left.sent, "what leaves arrives");
    for (const auto& [name, region] : session_.memory()->regions)
      require(region->available() == region->config().num_bufs_, "all buffers come back");
  }

 private:
  RxQueue& any_queue() {
    const auto& queues = session_.port(0).rx;
    return *queues[input_.ConsumeIntegralInRange<std::size_t>(0, queues.size() - 1)];
  }

  std::vector<std::uint8_t> packet(std::uint32_t longest) {
    const auto size = input_.ConsumeIntegralInRange<std::uint32_t>(1, longest);
    if (size < 46 || input_.ConsumeBool()) {
      auto bytes = input_.ConsumeBytes<std::uint8_t>(size);
      bytes.resize(size);
      return bytes;
    }
    const auto port = input_.ConsumeIntegralInRange(test::FIRST_PORT, test::LAST_PORT);
    return test::udp_frame(port, input_.ConsumeIntegral<std::uint32_t>(), size);
  }

  void send() {
    TxQueue& tx = session_.tx_queue(0, 0);
    const auto count =
        input_.ConsumeIntegralInRange<std::uint32_t>(1, std::min(8U, tx.batch_size()));
    Burst* burst = nullptr;
    if (tx.allocate(count, &burst) != Status::SUCCESS) return;
    std::vector<std::vector<std::uint8_t>> packets;
    for (std::uint32_t i = 0; i < count; ++i) {
      packets.push_back(packet(tx.max_packet_size()));
      std::memcpy(burst->pkts[0][i], packets.back().data(), packets.back().size());
      burst->pkt_lens[0][i] = static_cast<std::uint32_t>(packets.back().size());
    }
    if (tx.send(burst) != Status::SUCCESS) return;
    submitted_ += count;
    for (auto& bytes : packets) {
      const auto verdict = steering_->classify(
          steering::PacketView::of_frame(bytes.data(), static_cast<std::uint32_t>(bytes.size())));
      sent_[verdict.queue].push_back({std::move(bytes), verdict.flow});
    }
  }

  bool receive(RxQueue& rx) {
    Burst* burst = rx.receive();
    if (burst == nullptr) return false;
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) take(rx, *burst, i);
    delivered_[rx.id()] += burst->num_packets();
    kept_.push_back(burst);
    return true;
  }

  /// A received packet must be one of the sent ones; those before it were dropped.
  void take(const RxQueue& rx, const Burst& burst, std::uint32_t i) {
    std::vector<std::uint8_t> bytes;
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
      const auto* data = static_cast<const std::uint8_t*>(burst.pkts[s][i]);
      require(burst.pkt_lens[s][i] <= rx.segment_capacity(s), "a segment fits its buffer");
      bytes.insert(bytes.end(), data, data + burst.pkt_lens[s][i]);
    }
    auto& sent = sent_[rx.id()];
    while (!sent.empty() && (sent.front().bytes != bytes || sent.front().flow != burst.flow_ids[i]))
      sent.pop_front();
    require(!sent.empty(), "what arrives was sent, in this order");
    sent.pop_front();
  }

  void release_one() {
    if (kept_.empty()) return;
    const auto at = input_.ConsumeIntegralInRange<std::size_t>(0, kept_.size() - 1);
    kept_[at]->release();
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void filter(RxQueue& rx) {
    rx.set_drop_all(true);
    require(rx.receive() == nullptr, "nothing is delivered while all is dropped");
    if (input_.ConsumeBool()) rx.set_drop_all(false);
  }

  Session& session_;
  std::shared_ptr<const steering::Program> steering_{session_.port(0).steering.program()};
  FuzzedDataProvider& input_;
  /// By id of the receive queue.
  std::map<std::uint16_t, std::deque<Sent>> sent_;
  std::map<std::uint16_t, std::uint64_t> delivered_;
  std::uint64_t submitted_{0};
  std::vector<Burst*> kept_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  const auto pick = [&input](std::uint32_t first, std::uint32_t last) {
    return input.ConsumeIntegralInRange(first, last);
  };
  // One transmit queue, as several queues have no common order.
  NetworkConfig config = test::random_config(pick, 1);
  // One thread sends and receives, so it cannot wait for itself.
  config.common_.loopback_drops_ = true;
  const auto session = Session::open(config);
  Application application(*session, input);
  application.run();
  for (const auto& rx : session->port(0).rx) rx->set_drop_all(false);
  session->close();
  application.settle();
  return 0;
}

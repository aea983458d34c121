/// Threads that serve the queues of one core: one for all receive queues and one for all transmit
/// queues. Direct queues (poll_mode) have no thread; their callers do the same work.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/direct_work.h"
#include "io/io_engine.h"
#include "system/doorbell.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

class Poller final : public DirectWork {
 public:
  /// `never_sleeps`: its queues are polled without pauses.
  Poller(std::string cpu_core, bool never_sleeps)
      : cpu_core_(std::move(cpu_core)), never_sleeps_(never_sleeps) {}
  /// A poller for direct queues. `never_sleeps`: nothing tells it of packets.
  explicit Poller(bool never_sleeps) : Poller({}, never_sleeps) { direct_ = true; }
  ~Poller() override { begin_stop(); }

  /// Call before `start`.
  void add(PortIo& io, RxQueue& queue);
  void start() {
    if (!direct_) thread_ = start_thread([this] { run(); });
  }
  /// Request the end: receive what has arrived, deliver open bursts, end.
  void begin_stop() noexcept {
    stop_.request_stop();
    doorbell_.ring();
  }
  /// Request the end and wait for it. Direct: call once.
  void stop() noexcept;
  [[nodiscard]] bool has(const std::string& cpu_core, bool never_sleeps) const noexcept {
    return !direct_ && cpu_core == cpu_core_ && never_sleeps == never_sleeps_;
  }

 private:
  void step() noexcept override { pass(); }
  bool step_or_wait(std::uint64_t ns) noexcept override;
  void run() noexcept;
  void finish() noexcept;
  std::uint32_t pass() noexcept;
  std::uint32_t receive() noexcept;
  /// Receive what other pollers still have for its queues when all stop.
  void take_rest() noexcept;
  /// Sleep at most `ns`. Returns false if a signal interrupted.
  bool sleep(std::uint64_t ns) noexcept;
  /// How long packets may accumulate in sockets, ns; 0: not at all.
  [[nodiscard]] std::uint64_t pause_allowed() const noexcept;
  /// Whether its core is shared and all its queues wake it only after packets have accumulated.
  [[nodiscard]] bool finds_gathered() const noexcept;
  /// Whether nothing will arrive any longer in any of its queues.
  [[nodiscard]] bool ended() const noexcept;
  /// ns until an open burst is due, at most `most`.
  [[nodiscard]] std::uint64_t until_due(std::uint64_t most) const noexcept;

  struct Polled {
    PortIo* io;
    RxQueue* queue;
  };

  std::string cpu_core_;
  bool never_sleeps_;
  bool direct_{false};
  std::vector<Polled> queues_;
  std::vector<int> fds_;
  /// Packets that its sources had.
  std::uint64_t seen_{0};
  /// When the next open burst is due, CLOCK_MONOTONIC ns; 0: none.
  std::uint64_t next_due_{0};
  Doorbell doorbell_;
  std::stop_source stop_;
  /// Last member, so that the thread ends before the others are destroyed.
  std::jthread thread_;
};

/// Puts packets on the wire in order, at their launch times and within the queue's pacing.
///
/// Before a launch time the worker sleeps, then reads the port's clock in a loop. It therefore
/// follows every step and drift of the clock, and no packet leaves before the clock has reached the
/// launch time. Packets that are due together leave in one call of the engine. The thread never
/// blocks on one queue while another has packets due: a queue's turn ends before the next launch
/// time of another.
class Transmitter final : public DirectWork {
 public:
  /// `clock`: the clock of the ports of all its queues.
  Transmitter(std::string cpu_core, const Clock& clock)
      : cpu_core_(std::move(cpu_core)), clock_(clock) {}
  /// A transmitter for a direct queue.
  explicit Transmitter(const Clock& clock) : Transmitter({}, clock) { direct_ = true; }
  ~Transmitter() override { begin_stop(); }

  /// Call before `start`.
  void add(PortIo& io, TxQueue& queue);
  void start() {
    if (!direct_) thread_ = start_thread([this] { run(); });
  }
  /// Request the end: send what is due now, drop the rest as flushed, end.
  void begin_stop() noexcept {
    stop_.request_stop();
    doorbell_.ring();
  }
  /// Request the end and wait for it. Direct: call once.
  void stop() noexcept;
  [[nodiscard]] bool has(const std::string& cpu_core, const Clock& clock) const noexcept {
    return !direct_ && cpu_core == cpu_core_ && clock == clock_;
  }

 private:
  static constexpr std::uint64_t NEVER = ~std::uint64_t{0};

  /// A queue and the state of the worker for it.
  struct Served {
    PortIo* io;
    TxQueue* queue;
    TransmitTraits traits;
    /// Rate that the worker keeps, Mb/s; 0: none.
    std::uint64_t pacing_mbps;
    Burst* burst{nullptr};
    /// When the next packet may leave, ns on the port's clock; 0: now, NEVER: there is none.
    std::uint64_t due{NEVER};
    /// CLOCK_MONOTONIC ns before which pacing allows no packet, and the remainder of the division
    /// by the rate.
    std::uint64_t paced_until{0};
    std::uint64_t pacing_rest{0};
    /// Smoothed time per packet in `PortIo::transmit`, ns.
    std::uint64_t packet_cost;
    /// When to call `PortIo::completed`, ns on the port's clock; NEVER: the engine keeps no
    /// packets.
    std::uint64_t ask{NEVER};
    /// The engine did not accept packets that were due. `traits.ready` tells when to retry;
    /// without it, and where a device is full, the retry follows after `retry_ns`. `wait_ns`: the
    /// longest wait, in both cases.
    bool refused{false};
    std::uint64_t retry_ns;
    std::uint64_t wait_ns;
    /// errno of the latest packets that could not be sent.
    int error{0};
    /// Whether they were not accepted because no peer is connected.
    bool unconnected{false};
    /// The queue is being flushed, until this time at the latest, CLOCK_MONOTONIC ns; 0: no flush.
    std::uint64_t flush_until{0};
  };

  /// When a packet must be submitted to the engine.
  static std::uint64_t wanted_at(const Served& served, std::uint64_t launch) noexcept {
    return launch > served.traits.launch_lead ? launch - served.traits.launch_lead : 0;
  }

  void step() noexcept override;
  bool step_or_wait(std::uint64_t ns) noexcept override;
  void run() noexcept;
  void work_until_stopped() noexcept;
  /// Serve each queue once. Returns false if there was nothing to do.
  bool serve_all() noexcept;
  /// Wait for work, about `ns` at most. Returns false if it must stop and there is nothing to wait
  /// for.
  bool rest(std::uint64_t ns) noexcept;
  /// Send what is due and fits the queue's turn. Returns false if nothing was sent.
  bool serve(Served& served) noexcept;
  void transmit(Served& served, std::uint32_t run) noexcept;
  /// Continue a flush. Returns true when it is complete.
  bool flush(Served& served) noexcept;
  /// Count what happened to packets that the engine kept.
  void count_completed(Served& served, bool last) noexcept;
  /// Number of packets that the queue may send before another queue's turn.
  [[nodiscard]] std::uint32_t turn(const Served& served) const noexcept;
  /// Log why packets could not be sent, once until the reason changes.
  static void note_error(Served& served, int error) noexcept;
  void wait_until(std::uint64_t due) noexcept;
  /// How long before a launch time the worker must be awake.
  [[nodiscard]] std::uint64_t spin_ns() const noexcept;
  [[nodiscard]] bool may_sleep_until(std::uint64_t due) const noexcept;
  /// Sleep until the doorbell rings or a queue may be retried, at most `ns`.
  void sleep(std::uint64_t ns) noexcept;
  /// Whether an idle queue has packets to send, or a flush is requested.
  [[nodiscard]] bool anything_new() const noexcept;

  std::string cpu_core_;
  Clock clock_;
  bool direct_{false};
  std::vector<Served> queues_;
  /// Descriptors of queues whose packets were not accepted.
  std::vector<int> fds_;
  int realtime_priority_{0};
  /// The port's clock when it was last read.
  std::uint64_t now_{0};
  /// When packets last left, CLOCK_MONOTONIC ns.
  std::uint64_t last_left_{0};
  /// Delay of the worker's wake-ups, at most MOST_SPIN_NS: the largest of the latest ones.
  std::uint64_t woken_late_ns_{0};
  /// A signal has interrupted a sleep.
  bool interrupted_{false};
  /// Number of passes since the request to stop.
  int drain_{0};
  Doorbell doorbell_;
  std::stop_source stop_;
  /// Last member, so that the thread ends before the others are destroyed.
  std::jthread thread_;
};

}  // namespace daqiri

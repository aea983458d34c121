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
  /// `never_sleeps`: its queues are polled without pause.
  Poller(std::string cpu_core, bool never_sleeps)
      : cpu_core_(std::move(cpu_core)), never_sleeps_(never_sleeps) {}
  /// Of direct queues.
  Poller() : Poller({}, false) { direct_ = true; }
  ~Poller() override { begin_stop(); }

  /// Before `start`.
  void add(PortIo& io, RxQueue& queue);
  void start() {
    if (!direct_) thread_ = start_thread([this] { run(); });
  }
  /// Receive what has arrived, hand over open bursts, end.
  void begin_stop() noexcept {
    stop_.request_stop();
    doorbell_.ring();
  }
  /// And wait until it has ended. Direct: once.
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
  /// What other pollers still have for its queues when all stop.
  void take_rest() noexcept;
  /// For `ns` at most. False: interrupted by a signal.
  bool sleep(std::uint64_t ns) noexcept;
  /// How long packets may be left to gather in sockets, ns; 0: not at all.
  [[nodiscard]] std::uint64_t pause_allowed() const noexcept;
  /// Whether packets of all its queues have gathered when it is woken, and its core is for others.
  [[nodiscard]] bool finds_gathered() const noexcept;
  /// ns until an open burst is due, `most` at most.
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
  /// CLOCK_MONOTONIC ns of the first open burst whose timeout passes; 0: none.
  std::uint64_t next_due_{0};
  Doorbell doorbell_;
  std::stop_source stop_;
  /// Last: it ends before the rest goes.
  std::jthread thread_;
};

/// Puts packets on the wire in order, each at its launch time and within the queue's pacing.
///
/// Before a launch time the worker sleeps, then spins on the port's clock itself: what it reads
/// follows every step and drift of the clock, and no packet leaves before it has read the launch
/// time. Packets that are due together leave in one call of the engine. One thread, which never
/// blocks on one queue while another has packets due: a queue's turn ends before the next launch
/// time of another.
class Transmitter final : public DirectWork {
 public:
  /// `clock`: that of all its queues' ports.
  Transmitter(std::string cpu_core, const Clock& clock)
      : cpu_core_(std::move(cpu_core)), clock_(clock) {}
  /// Of a direct queue.
  explicit Transmitter(const Clock& clock) : Transmitter({}, clock) { direct_ = true; }
  ~Transmitter() override { begin_stop(); }

  /// Before `start`.
  void add(PortIo& io, TxQueue& queue);
  void start() {
    if (!direct_) thread_ = start_thread([this] { run(); });
  }
  /// Send what is due now, drop the rest as flushed, end.
  void begin_stop() noexcept {
    stop_.request_stop();
    doorbell_.ring();
  }
  /// And wait until it has ended. Direct: once.
  void stop() noexcept;
  [[nodiscard]] bool has(const std::string& cpu_core, const Clock& clock) const noexcept {
    return !direct_ && cpu_core == cpu_core_ && clock == clock_;
  }

 private:
  static constexpr std::uint64_t NEVER = ~std::uint64_t{0};

  /// A queue, and what the worker knows of it.
  struct Served {
    PortIo* io;
    TxQueue* queue;
    TransmitTraits traits;
    Burst* burst{nullptr};
    /// When the next packet may leave, ns on the port's clock; 0: at once, NEVER: there is none.
    std::uint64_t due{NEVER};
    /// CLOCK_MONOTONIC ns before which pacing allows no packet, and what is left of the division by
    /// the rate.
    std::uint64_t paced_until{0};
    std::uint64_t pacing_rest{0};
    /// ns that a packet takes in `PortIo::transmit`, smoothed.
    std::uint64_t packet_cost;
    /// When to ask what became of packets that the engine keeps, ns on the port's clock; NEVER: it
    /// keeps none.
    std::uint64_t ask{NEVER};
    /// What was due was not taken; `traits.ready_fd` tells when it may be, or it is tried again
    /// after so many ns.
    bool refused{false};
    std::uint64_t retry_ns;
    /// Of the latest packets that could not be sent, errno.
    int error{0};
    /// Refused for want of a peer.
    bool unconnected{false};
    /// The queue is being flushed, until CLOCK_MONOTONIC ns at the latest; 0: it is not.
    std::uint64_t flush_until{0};
  };

  /// When a packet is due at the engine.
  static std::uint64_t wanted_at(const Served& served, std::uint64_t launch) noexcept {
    return launch > served.traits.launch_lead ? launch - served.traits.launch_lead : 0;
  }

  void step() noexcept override;
  bool step_or_wait(std::uint64_t ns) noexcept override;
  void run() noexcept;
  void work_until_stopped() noexcept;
  /// A turn of each queue. False: there was nothing to do.
  bool serve_all() noexcept;
  /// Wait until there is something to do, for about `ns` at most. False: it was told to stop, and
  /// there is nothing to wait for.
  bool rest(std::uint64_t ns) noexcept;
  /// Send what is due and fits the queue's turn. False: nothing was.
  bool serve(Served& served) noexcept;
  void transmit(Served& served, std::uint32_t run) noexcept;
  /// Go on with a flush. True: it is done.
  bool flush(Served& served) noexcept;
  /// Count what became of packets that the engine kept.
  void count_completed(Served& served, bool last) noexcept;
  /// Packets that the queue may send before it is another's turn.
  [[nodiscard]] std::uint32_t turn(const Served& served) const noexcept;
  /// Log why packets could not be sent: once for each cause, until it is another.
  static void note_error(Served& served, int error) noexcept;
  void wait_until(std::uint64_t due) noexcept;
  /// How long before a launch time it is awake.
  [[nodiscard]] std::uint64_t spin_ns() const noexcept;
  [[nodiscard]] bool may_sleep_until(std::uint64_t due) const noexcept;
  /// Sleep until the doorbell rings or a queue that was refused may be served, for `ns` at most.
  void sleep(std::uint64_t ns) noexcept;
  /// A queue that had nothing to send has something, or is to be flushed.
  [[nodiscard]] bool anything_new() const noexcept;

  std::string cpu_core_;
  Clock clock_;
  bool direct_{false};
  std::vector<Served> queues_;
  /// Of queues that were refused.
  std::vector<int> fds_;
  int realtime_priority_{0};
  /// The port's clock when it was last read.
  std::uint64_t now_{0};
  /// CLOCK_MONOTONIC ns when packets left last.
  std::uint64_t last_left_{0};
  /// By how much the kernel woke it late, at most MOST_SPIN_NS: the worst of the last waits.
  std::uint64_t woken_late_ns_{0};
  /// A signal has ended a sleep.
  bool interrupted_{false};
  /// Passes since it was told to stop.
  int drain_{0};
  Doorbell doorbell_;
  std::stop_source stop_;
  /// Last: it ends before the rest goes.
  std::jthread thread_;
};

}  // namespace daqiri

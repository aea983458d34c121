/// The thread that serves all receive queues of one core.
#pragma once

#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/io_engine.h"
#include "system/doorbell.h"

namespace daqiri {

class Poller {
 public:
  /// `never_sleeps`: its queues are polled without pause.
  Poller(std::string cpu_core, bool never_sleeps)
      : cpu_core_(std::move(cpu_core)), never_sleeps_(never_sleeps) {}

  /// Before `start`.
  void add(PortIo& io, RxQueue& queue);
  void start();
  /// Receive what has arrived, hand over open bursts, end the thread. Idempotent.
  void stop() noexcept { thread_ = {}; }
  /// As it was made.
  [[nodiscard]] bool has(const std::string& cpu_core, bool never_sleeps) const noexcept {
    return cpu_core == cpu_core_ && never_sleeps == never_sleeps_;
  }

 private:
  void run(std::stop_token stop) noexcept;
  std::uint32_t pass() noexcept;
  std::uint32_t receive() noexcept;
  void sleep() noexcept;
  /// How long packets may be left to gather in sockets, ns; 0: not at all.
  [[nodiscard]] std::uint64_t pause_allowed() const noexcept;
  /// ns until an open burst is due, `most` at most.
  [[nodiscard]] std::uint64_t until_due(std::uint64_t most) const noexcept;

  struct Polled {
    PortIo* io;
    RxQueue* queue;
  };

  std::string cpu_core_;
  bool never_sleeps_;
  std::vector<Polled> queues_;
  std::vector<int> fds_;
  /// CLOCK_MONOTONIC ns of the first open burst whose timeout passes; 0: none.
  std::uint64_t next_due_{0};
  Doorbell doorbell_;
  /// Of the thread's own.
  std::stop_token stop_;
  /// Last: it ends before the rest goes.
  std::jthread thread_;
};

}  // namespace daqiri

/// The thread that serves all receive queues of one core.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "io/io_engine.h"
#include "system/doorbell.h"

namespace daqiri {

class Poller {
 public:
  /// `never_sleeps`: its queues are polled without pause.
  Poller(std::string cpu_core, bool never_sleeps)
      : cpu_core_(std::move(cpu_core)), never_sleeps_(never_sleeps) {}
  ~Poller() { stop(); }

  /// Before `start`.
  void add(PortIo& io, RxQueue& queue);
  void start();
  /// Receive what has arrived, hand over open bursts, end the thread. Idempotent.
  void stop() noexcept;
  [[nodiscard]] const std::string& cpu_core() const noexcept { return cpu_core_; }

 private:
  void run() noexcept;
  std::uint32_t pass(std::uint64_t* next_due) noexcept;
  std::uint32_t receive() noexcept;
  /// What the sources held when a queue was asked to discard it is received.
  void drain(std::uint32_t received) noexcept;
  void sleep(std::uint64_t next_due) noexcept;
  /// How long packets may be left to gather in sockets, ns; 0: not at all.
  [[nodiscard]] std::uint64_t pause_allowed() const noexcept;
  void pause(std::uint64_t pause_ns, std::uint64_t next_due) const noexcept;

  struct Polled {
    PortIo* io;
    RxQueue* queue;
  };

  std::string cpu_core_;
  bool never_sleeps_;
  std::vector<Polled> queues_;
  std::vector<int> fds_;
  Doorbell doorbell_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace daqiri

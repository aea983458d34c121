/// The thread that serves all transmit queues of one core.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "burst/doorbell.h"
#include "session/io_engine.h"

namespace daqiri {

/// Puts packets on the wire in order, each at its launch time (sleep, then spin) and within the
/// queue's pacing. One thread, which never blocks on one queue while another has packets due.
class Transmitter {
 public:
  Transmitter(IoEngine& engine, std::string cpu_core)
      : engine_(engine), cpu_core_(std::move(cpu_core)) {}
  ~Transmitter() { stop(); }

  /// Before `start`.
  void add(TxQueue& queue);
  void start();
  /// Send what is due now, drop the rest as flushed, end the thread. Idempotent.
  void stop() noexcept;
  [[nodiscard]] const std::string& cpu_core() const noexcept { return cpu_core_; }

 private:
  void run() noexcept;
  /// Send what is due. Returns 0 after progress, else ns (port clock) when the queue's next packet
  /// is due.
  std::uint64_t serve(TxQueue& queue, Burst& burst) noexcept;
  void wait_until(std::uint64_t due) noexcept;
  void sleep() noexcept;
  [[nodiscard]] bool anything_queued() noexcept;

  IoEngine& engine_;
  std::string cpu_core_;
  std::vector<TxQueue*> queues_;
  Doorbell doorbell_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace daqiri

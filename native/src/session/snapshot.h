/// What a session has done and holds, at one moment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/counters.h"
#include "session/session.h"

namespace daqiri {

struct RxQueueState {
  std::string port;
  std::string queue;
  RxSnapshot counters;
  QueueLevels levels;
};

struct TxQueueState {
  std::string port;
  std::string queue;
  TxSnapshot counters;
  /// The pool of bursts is one for all transmit queues.
  QueueLevels levels;
  /// ns
  std::uint64_t lateness_p50{0};
  std::uint64_t lateness_p99{0};
  std::uint64_t lateness_p999{0};
  std::uint64_t lateness_max{0};
};

struct RegionState {
  std::string name;
  std::uint64_t free{0};
  std::uint64_t buffers{0};
  std::uint64_t buf_size{0};
};

/// Taken from what the packet threads publish; they are not disturbed.
struct SessionSnapshot {
  static SessionSnapshot of(const Session& session);

  std::string engine;
  int pid{0};
  /// When the session was opened, CLOCK_REALTIME ns; with the pid, what tells sessions apart.
  std::uint64_t opened{0};
  /// Now: CLOCK_REALTIME and CLOCK_MONOTONIC, ns.
  std::uint64_t time{0};
  std::uint64_t steady{0};
  std::vector<RxQueueState> rx;
  std::vector<TxQueueState> tx;
  std::vector<RegionState> regions;

  /// One JSON object (RFC 8259) on one line.
  [[nodiscard]] std::string json() const;
  /// Tables of plain text: receive queues, transmit queues, memory regions.
  [[nodiscard]] std::string table() const;
};

}  // namespace daqiri

/// What a session has done and holds, at one moment.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
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

/// ns between launch times and transmission.
struct Lateness {
  Counter p50{"lateness_p50"};
  Counter p99{"lateness_p99"};
  Counter p999{"lateness_p999"};
  Counter maximum{"lateness_max"};
};

struct TxQueueState {
  std::string port;
  std::string queue;
  TxSnapshot counters;
  /// The pool of bursts is one for all transmit queues.
  QueueLevels levels;
  Lateness lateness;
  /// PortIo::launch_times.
  std::string launch_times;
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
  /// Flat: `time`, `steady`, then of each receive queue the numbers of `rx_names` and the drops in
  /// the order of DropReason, then of each transmit queue those of `tx_names` and the drops.
  [[nodiscard]] std::vector<std::uint64_t> row() const;
  static std::vector<std::string_view> rx_names();
  static std::vector<std::string_view> tx_names();
  /// Tables of plain text: receive queues, transmit queues, memory regions.
  [[nodiscard]] std::string table() const;
};

}  // namespace daqiri

/// Counters and levels of a session at one moment, and the thread that publishes them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "metrics/counters.h"
#include "reorder/assembler.h"
#include "session/session.h"
#include "system/doorbell.h"
#include "system/file.h"

namespace daqiri {

/// What brings the packets to where the application has them: PortIo::receive_path, and the GPU
/// that they are copied to.
[[nodiscard]] std::string receive_path_of(const Port& port, const RxQueue& queue);

struct RxQueueState {
  std::string port;
  std::string queue;
  RxSnapshot counters;
  QueueLevels levels;
  /// As `receive_path_of`.
  std::string receive_path;
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

struct FlowState {
  std::string port;
  /// Its name; of one that has none, its id.
  std::string flow;
  FlowSnapshot counters;
};

struct ReorderState {
  std::string port;
  std::string plan;
  reorder::ReorderSnapshot counters;
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
  /// Before the flows: what a queue has received, they have counted.
  std::vector<RxQueueState> rx;
  std::vector<TxQueueState> tx;
  std::vector<FlowState> flows;
  /// Flows that were added at run time, from the oldest on, and what those that were removed have
  /// counted together, as "(removed)".
  std::vector<FlowState> added_flows;
  std::vector<ReorderState> reorder;
  std::vector<RegionState> regions;

  /// One JSON object (RFC 8259) on one line.
  [[nodiscard]] std::string json() const;
  /// Flat: `time`, `steady`, then of each receive queue the numbers of `rx_names` and the drops in
  /// the order of DropReason, then of each transmit queue those of `tx_names` and the drops, then
  /// of each receive flow those of `flow_names`, then of each reorder plan those of
  /// `reorder_names`.
  [[nodiscard]] std::vector<std::uint64_t> row() const;
  static std::vector<std::string_view> rx_names();
  static std::vector<std::string_view> tx_names();
  static std::vector<std::string_view> flow_names();
  static std::vector<std::string_view> reorder_names();
  /// Tables of plain text: receive queues, transmit queues, flows, reorder plans, memory regions.
  [[nodiscard]] std::string table() const;
};

/// Takes a snapshot once a period, for those who look often and need not be exact. Answers on a
/// Unix socket: whoever connects is sent a snapshot of that moment (SessionSnapshot::json) and the
/// end of the stream.
///
/// The socket is <directory>/<pid>.<number> in the directory `directory()` of this user, and goes
/// with the session. That of a process that was killed refuses connections. A session without one
/// (no such directory can be had) works all the same; the log warns of it.
class Housekeeper {
 public:
  static constexpr std::uint64_t PERIOD_NS = 100'000'000;

  /// `master_core`: the thread runs there if this process may use it, else anywhere.
  Housekeeper(const Session& session, int master_core);
  Housekeeper(const Housekeeper&) = delete;
  Housekeeper& operator=(const Housekeeper&) = delete;
  ~Housekeeper() { stop(); }

  /// Idempotent.
  void stop() noexcept;
  /// Take a snapshot now: what is told of the session has changed. Throws std::bad_alloc.
  void renew();
  /// A period old at most, plus what the thread had to wait for its turn. Any thread.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> latest() const;

  /// $XDG_RUNTIME_DIR/daqiri, or /tmp/daqiri-<uid>.
  static std::string directory();

 private:
  void listen();
  void run(const std::stop_token& stop) noexcept;
  /// False when the next one is to wait for the next period.
  bool answer() noexcept;

  const Session& session_;
  int master_core_;
  /// Of the socket; empty: there is none.
  std::string path_;
  File socket_;
  Doorbell doorbell_;
  /// One snapshot after the other; before `mutex_`.
  std::mutex renewing_;
  mutable std::mutex mutex_;  // over the next
  std::shared_ptr<const SessionSnapshot> latest_;
  std::jthread thread_;
};

}  // namespace daqiri

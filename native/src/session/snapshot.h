/// Counters and levels of a session at one moment, and the thread that publishes them.
#pragma once

#include <array>
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
#include "session/rates.h"
#include "session/session.h"
#include "system/doorbell.h"
#include "system/file.h"

namespace daqiri {

/// How packets reach the application's memory: PortIo::receive_path, and the GPU to which they are
/// copied.
[[nodiscard]] std::string receive_path_of(const Port& port, const RxQueue& queue);

struct PortState {
  std::string port;
  PortSnapshot counters;
};

struct RxQueueState {
  std::string port;
  std::string queue;
  int id{0};
  RxSnapshot counters;
  QueueLevels levels;
  /// See `receive_path_of`.
  std::string receive_path;
};

/// ns between launch times and transmission.
struct Lateness {
  Counter p50{"lateness_p50"};
  Counter p99{"lateness_p99"};
  Counter p999{"lateness_p999"};
  Counter maximum{"lateness_max"};
};

/// Bounds of `TxQueueState::lateness_counts`: powers of two, in ns (1 us to 4.3 s).
inline constexpr std::array<std::uint32_t, 12> LATENESS_EXPONENTS{10, 12, 14, 16, 18, 20,
                                                                  22, 24, 26, 28, 30, 32};

struct TxQueueState {
  std::string port;
  std::string queue;
  int id{0};
  TxSnapshot counters;
  /// All transmit queues share one pool of bursts.
  QueueLevels levels;
  Lateness lateness;
  /// Packets whose lateness was below 2^exponent ns, for each of LATENESS_EXPONENTS; then all.
  std::array<std::uint64_t, LATENESS_EXPONENTS.size() + 1> lateness_counts{};
  /// See PortIo::launch_times.
  std::string launch_times;
};

struct FlowState {
  std::string port;
  /// Its name, or its id if it has no name.
  std::string flow;
  FlowSnapshot counters;
};

struct ReorderState {
  /// Empty: a plan of the whole configuration.
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

/// Read from the counters that the packet threads publish, without disturbing these threads.
struct SessionSnapshot {
  static SessionSnapshot of(const Session& session);

  std::string engine;
  int pid{0};
  /// Time of opening, CLOCK_REALTIME ns; identifies the session together with the pid.
  std::uint64_t opened{0};
  /// Time of the snapshot: CLOCK_REALTIME and CLOCK_MONOTONIC, ns.
  std::uint64_t time{0};
  std::uint64_t steady{0};
  /// At most a second old.
  std::vector<PortState> ports;
  /// Read before the flows, so that the flows have counted every packet that a queue has received.
  std::vector<RxQueueState> rx;
  std::vector<TxQueueState> tx;
  std::vector<FlowState> flows;
  /// Flows that were added at run time, oldest first, then the sum of the counters of removed flows
  /// as "(removed)".
  std::vector<FlowState> added_flows;
  std::vector<ReorderState> reorder;
  std::vector<RegionState> regions;

  /// One JSON object (RFC 8259) on one line.
  [[nodiscard]] std::string json() const;
  /// Flat: `time`, `steady`; for each port the numbers of `port_names`; for each receive queue the
  /// numbers of `rx_names` and the drops in the order of DropReason; for each transmit queue those
  /// of `tx_names` and the drops; for each receive flow those of `flow_names`; for each reorder
  /// plan those of `reorder_names`, plans of the whole configuration last.
  [[nodiscard]] std::vector<std::uint64_t> row() const;
  static std::vector<std::string_view> port_names();
  static std::vector<std::string_view> rx_names();
  static std::vector<std::string_view> tx_names();
  static std::vector<std::string_view> flow_names();
  static std::vector<std::string_view> reorder_names();
  /// Tables in plain text: losses of ports, receive queues, transmit queues, flows, reorder plans,
  /// memory regions.
  [[nodiscard]] std::string table() const;
};

/// Takes a snapshot once per period, for readers that read often and do not need exact values.
/// Serves a Unix socket: each client receives a snapshot of that moment (SessionSnapshot::json) and
/// the end of the stream.
///
/// The socket is <directory>/<pid>.<number> in this user's `directory()`, and is removed with the
/// session. The socket of a killed process refuses connections. If the directory cannot be created,
/// the session works without a socket and logs a warning.
class Housekeeper {
 public:
  static constexpr std::uint64_t PERIOD_NS = 100'000'000;
  /// How often the statistics of network interfaces are read: drivers may take ms for theirs.
  static constexpr std::uint64_t LINK_PERIOD_NS = 1'000'000'000;

  /// `master_core`: core of the thread, if this process may use it; otherwise the thread is not
  /// pinned.
  Housekeeper(const Session& session, int master_core);
  Housekeeper(const Housekeeper&) = delete;
  Housekeeper& operator=(const Housekeeper&) = delete;
  ~Housekeeper() { stop(); }

  /// Idempotent.
  void stop() noexcept;
  /// Take a snapshot now, because the session's flows have changed. Throws std::bad_alloc.
  void renew();
  /// At most a period old, plus the time that the thread waited for a CPU. Any thread.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> latest() const;
  /// See SnapshotHistory::before. Any thread.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> before(std::uint64_t steady) const;

  /// $XDG_RUNTIME_DIR/daqiri, or /tmp/daqiri-<uid>.
  static std::string directory();

 private:
  void listen();
  void run(const std::stop_token& stop) noexcept;
  /// Returns false if the next client must wait for the next period.
  bool answer() noexcept;

  const Session& session_;
  int master_core_;
  /// Path of the socket; empty: there is none.
  std::string path_;
  File socket_;
  Doorbell doorbell_;
  /// Held while a snapshot is taken; locked before `mutex_`.
  std::mutex renewing_;
  mutable std::mutex mutex_;  // for `history_`
  SnapshotHistory history_;
  std::jthread thread_;
};

}  // namespace daqiri

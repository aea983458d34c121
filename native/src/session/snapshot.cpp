#include "session/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "engine/registry.h"
#include "metrics/json_object.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Calls `each` with the counters of a queue, in the order in which they are told.
template <typename State, typename Each>
void for_counters(const State& state, Each each) {
  std::ranges::for_each(counters_of(state.counters), each);
  if constexpr (requires { state.lateness; })
    std::ranges::for_each(counters_of(state.lateness), each);
  std::ranges::for_each(counters_of(state.levels), each);
}

template <typename State>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for_counters(State{}, [&](const Counter& counter) { names.emplace_back(counter.name); });
  return names;
}

template <typename State>
JsonObject json_of(const State& state) {
  JsonObject json;
  json.text("port", state.port);
  json.text("queue", state.queue);
  for_counters(state, [&](const Counter& counter) { json.number(counter.name, counter.value); });
  JsonObject dropped;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    dropped.number(drop_reason_name(static_cast<DropReason>(r)), state.counters.dropped[r]);
  json.json("dropped", dropped.line());
  if constexpr (requires { state.launch_times; }) json.text("launch_times", state.launch_times);
  return json;
}

JsonObject json_of(const RegionState& region) {
  JsonObject json;
  json.text("name", region.name);
  json.number("free", region.free);
  json.number("buffers", region.buffers);
  json.number("buf_size", region.buf_size);
  return json;
}

template <typename Items>
std::string json_list(const Items& items) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? "," : "") + json_of(item).line();
  return text + "]";
}

using Row = std::vector<std::string>;

/// Columns as wide as what they hold: the first to the left, numbers to the right.
std::string table_of(const std::vector<Row>& rows) {
  if (rows.size() < 2) return {};
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      const bool left = i == 0 || i + 1 == row.size();
      line.append(i == 0 ? "" : "  ").append(left ? row[i] + space : space + row[i]);
    }
    text.append(line, 0, line.find_last_not_of(' ') + 1).append("\n");
  }
  return text;
}

std::string reasons(const DropCounts& dropped) {
  std::string text;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
    if (dropped[r] == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(dropped[r]) + " ";
    text += drop_reason_name(static_cast<DropReason>(r));
  }
  return text.empty() ? "none" : text;
}

std::string digits(std::uint64_t number) { return std::to_string(number); }

std::string part(std::uint64_t some, std::uint64_t all) { return digits(some) + "/" + digits(all); }

std::string microseconds(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(ns) / 1e3);
  return text;
}

}  // namespace

SessionSnapshot SessionSnapshot::of(const Session& session) {
  SessionSnapshot snapshot;
  const NetworkConfig& config = session.config();
  snapshot.engine = engine_for(config).traits.name;
  snapshot.pid = getpid();
  snapshot.opened = session.opened();
  snapshot.time = realtime_ns();
  snapshot.steady = monotonic_ns();
  for (std::size_t id = 0; id < session.num_ports(); ++id) {
    const Port& port = session.port(static_cast<int>(id));
    const std::string& name = port.config.name_;
    for (const auto& queue : port.rx)
      snapshot.rx.push_back({name, queue->config().name_, queue->counters(), queue->levels()});
    for (const auto& queue : port.tx) {
      const Histogram& lateness = queue->lateness();
      TxQueueState& state = snapshot.tx.emplace_back();
      state = {name, queue->config().name_,        queue->counters(), queue->levels(),
               {},   port.io->launch_times(*queue)};
      state.lateness.p50 = lateness.quantile(0.5);
      state.lateness.p99 = lateness.quantile(0.99);
      state.lateness.p999 = lateness.quantile(0.999);
      state.lateness.maximum = lateness.maximum();
    }
  }
  for (const MemoryRegionConfig& region : config.mrs_) {
    snapshot.regions.push_back({region.name_,
                                session.memory()->regions.at(region.name_)->available(),
                                region.num_bufs_, region.buf_size_});
  }
  return snapshot;
}

std::string SessionSnapshot::json() const {
  JsonObject json;
  json.text("engine", engine);
  json.number("pid", pid);
  json.number("opened_ns", opened);
  json.number("time_ns", time);
  json.number("steady_ns", steady);
  json.json("rx", json_list(rx));
  json.json("tx", json_list(tx));
  json.json("regions", json_list(regions));
  return json.line();
}

std::vector<std::uint64_t> SessionSnapshot::row() const {
  std::vector<std::uint64_t> row{time, steady};
  const auto add = [&row](const auto& state) {
    for_counters(state, [&row](const Counter& counter) { row.push_back(counter.value); });
    row.insert(row.end(), state.counters.dropped.begin(), state.counters.dropped.end());
  };
  std::ranges::for_each(rx, add);
  std::ranges::for_each(tx, add);
  return row;
}

std::vector<std::string_view> SessionSnapshot::rx_names() { return names_of<RxQueueState>(); }
std::vector<std::string_view> SessionSnapshot::tx_names() { return names_of<TxQueueState>(); }

std::string SessionSnapshot::table() const {
  std::vector<Row> receive{{"receive queue", "received", "bytes", "delivered", "held", "bursts",
                            "truncated", "ring", "free bursts", "dropped"}};
  for (const RxQueueState& s : rx) {
    const RxSnapshot& n = s.counters;
    receive.push_back({s.port + "/" + s.queue, digits(n.received), digits(n.received_bytes),
                       digits(n.delivered), digits(n.held), digits(n.bursts), digits(n.truncated),
                       part(s.levels.ring, s.levels.ring_capacity),
                       part(s.levels.bursts_free, s.levels.bursts), reasons(n.dropped)});
  }
  std::vector<Row> transmit{{"transmit queue", "submitted", "sent", "bytes", "held", "late",
                             "p50 us", "p99 us", "max us", "ring", "free bursts", "dropped"}};
  for (const TxQueueState& s : tx) {
    const TxSnapshot& n = s.counters;
    transmit.push_back(
        {s.port + "/" + s.queue, digits(n.submitted), digits(n.sent), digits(n.sent_bytes),
         digits(n.held), digits(n.late), microseconds(s.lateness.p50), microseconds(s.lateness.p99),
         microseconds(s.lateness.maximum), part(s.levels.ring, s.levels.ring_capacity),
         part(s.levels.bursts_free, s.levels.bursts), reasons(n.dropped)});
  }
  std::vector<Row> memory{{"memory region", "free buffers", "bytes each"}};
  for (const RegionState& s : regions)
    memory.push_back({s.name, part(s.free, s.buffers), digits(s.buf_size)});
  return table_of(receive) + table_of(transmit) + table_of(memory);
}

}  // namespace daqiri

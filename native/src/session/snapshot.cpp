#include "session/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <utility>

#include "engine/registry.h"
#include "metrics/json_object.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

template <typename Items, typename Write>
std::string json_list(const Items& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) text.append(text.size() > 1 ? "," : "").append(write(item).line());
  return text + "]";
}

std::string json_of(const DropCounts& dropped) {
  JsonObject json;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    json.number(drop_reason_name(static_cast<DropReason>(r)), dropped[r]);
  return json.line();
}

template <typename Group>
void add(JsonObject& json, const Group& group) {
  for (const Counter& counter : counters_of(group)) json.number(counter.name, counter.value);
}

template <typename Group>
void add(std::vector<std::uint64_t>& row, const Group& group) {
  for (const Counter& counter : counters_of(group)) row.push_back(counter.value);
}

template <typename Group>
void add(std::vector<std::string_view>& names) {
  const Group group;
  for (const Counter& counter : counters_of(group)) names.emplace_back(counter.name);
}

JsonObject json_of(const RxQueueState& state) {
  JsonObject json;
  json.text("port", state.port);
  json.text("queue", state.queue);
  add(json, state.counters);
  add(json, state.levels);
  json.json("dropped", json_of(state.counters.dropped));
  return json;
}

JsonObject json_of(const TxQueueState& state) {
  JsonObject json;
  json.text("port", state.port);
  json.text("queue", state.queue);
  add(json, state.counters);
  add(json, state.lateness);
  add(json, state.levels);
  json.json("dropped", json_of(state.counters.dropped));
  json.text("launch_times", state.launch_times);
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
    text.append(text.empty() ? "" : ", ").append(std::to_string(dropped[r])).append(" ");
    text.append(drop_reason_name(static_cast<DropReason>(r)));
  }
  return text.empty() ? "none" : text;
}

std::string part(std::uint64_t some, std::uint64_t all) {
  return std::to_string(some) + "/" + std::to_string(all);
}

std::string microseconds(std::uint64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(ns) / 1e3);
  return text.data();
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
      const Histogram& histogram = queue->lateness();
      TxQueueState state{name, queue->config().name_,        queue->counters(), queue->levels(),
                         {},   port.io->launch_times(*queue)};
      state.lateness.p50 = histogram.quantile(0.5);
      state.lateness.p99 = histogram.quantile(0.99);
      state.lateness.p999 = histogram.quantile(0.999);
      state.lateness.maximum = histogram.maximum();
      snapshot.tx.push_back(std::move(state));
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
  json.json("rx", json_list(rx, [](const RxQueueState& s) { return json_of(s); }));
  json.json("tx", json_list(tx, [](const TxQueueState& s) { return json_of(s); }));
  json.json("regions", json_list(regions, [](const RegionState& s) { return json_of(s); }));
  return json.line();
}

std::vector<std::uint64_t> SessionSnapshot::row() const {
  std::vector<std::uint64_t> row{time, steady};
  const auto add_drops = [&](const DropCounts& dropped) {
    row.insert(row.end(), dropped.begin(), dropped.end());
  };
  for (const RxQueueState& state : rx) {
    add(row, state.counters);
    add(row, state.levels);
    add_drops(state.counters.dropped);
  }
  for (const TxQueueState& state : tx) {
    add(row, state.counters);
    add(row, state.lateness);
    add(row, state.levels);
    add_drops(state.counters.dropped);
  }
  return row;
}

std::vector<std::string_view> SessionSnapshot::rx_names() {
  std::vector<std::string_view> names;
  add<RxSnapshot>(names);
  add<QueueLevels>(names);
  return names;
}

std::vector<std::string_view> SessionSnapshot::tx_names() {
  std::vector<std::string_view> names;
  add<TxSnapshot>(names);
  add<Lateness>(names);
  add<QueueLevels>(names);
  return names;
}

std::string SessionSnapshot::table() const {
  std::vector<Row> receive{{"receive queue", "received", "bytes", "delivered", "held", "bursts",
                            "truncated", "ring", "free bursts", "dropped"}};
  for (const RxQueueState& s : rx) {
    receive.push_back(
        {s.port + "/" + s.queue, std::to_string(s.counters.received.value),
         std::to_string(s.counters.received_bytes.value),
         std::to_string(s.counters.delivered.value), std::to_string(s.counters.held.value),
         std::to_string(s.counters.bursts.value), std::to_string(s.counters.truncated.value),
         part(s.levels.ring, s.levels.ring_capacity), part(s.levels.bursts_free, s.levels.bursts),
         reasons(s.counters.dropped)});
  }
  std::vector<Row> transmit{{"transmit queue", "submitted", "sent", "bytes", "held", "late",
                             "p50 us", "p99 us", "max us", "ring", "free bursts", "dropped"}};
  for (const TxQueueState& s : tx) {
    transmit.push_back(
        {s.port + "/" + s.queue, std::to_string(s.counters.submitted.value),
         std::to_string(s.counters.sent.value), std::to_string(s.counters.sent_bytes.value),
         std::to_string(s.counters.held.value), std::to_string(s.counters.late.value),
         microseconds(s.lateness.p50), microseconds(s.lateness.p99),
         microseconds(s.lateness.maximum), part(s.levels.ring, s.levels.ring_capacity),
         part(s.levels.bursts_free, s.levels.bursts), reasons(s.counters.dropped)});
  }
  std::vector<Row> memory{{"memory region", "free buffers", "bytes each"}};
  for (const RegionState& s : regions)
    memory.push_back({s.name, part(s.free, s.buffers), std::to_string(s.buf_size)});
  return table_of(receive) + table_of(transmit) + table_of(memory);
}

}  // namespace daqiri

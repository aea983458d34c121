#include "session/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <utility>

#include "config/names.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// A JSON object that grows member by member.
class Json {
 public:
  Json& add(std::string_view name, std::uint64_t value) { return raw(name, std::to_string(value)); }
  Json& add(std::string_view name, const std::string& value) { return raw(name, quoted(value)); }
  Json& raw(std::string_view name, std::string_view value) {
    text_.append(text_.size() > 1 ? "," : "").append(quoted(name)).append(":").append(value);
    return *this;
  }
  [[nodiscard]] std::string text() const { return text_ + "}"; }

 private:
  static std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        std::array<char, 8> escaped{};
        std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
        out += escaped.data();
      } else {
        out += c;
      }
    }
    return out + '"';
  }

  std::string text_{"{"};
};

template <typename Items, typename Write>
std::string json_list(const Items& items, Write write) {
  std::string text = "[";
  for (const auto& item : items) text.append(text.size() > 1 ? "," : "").append(write(item).text());
  return text + "]";
}

std::string json_of(const DropCounts& dropped) {
  Json json;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    json.add(drop_reason_name(static_cast<DropReason>(r)), dropped[r]);
  return json.text();
}

void add_levels(Json& json, const QueueLevels& levels) {
  json.add("ring", levels.ring)
      .add("ring_capacity", levels.ring_capacity)
      .add("bursts_free", levels.bursts_free)
      .add("bursts_total", levels.bursts);
}

Json json_of(const RxQueueState& state) {
  const RxSnapshot& c = state.counters;
  Json json;
  json.add("port", state.port)
      .add("queue", state.queue)
      .add("received", c.received)
      .add("received_bytes", c.received_bytes)
      .add("delivered", c.delivered)
      .add("held", c.held)
      .add("bursts", c.bursts)
      .add("truncated", c.truncated)
      .add("ring_high_water", c.ring_high_water)
      .raw("dropped", json_of(c.dropped));
  add_levels(json, state.levels);
  return json;
}

Json json_of(const TxQueueState& state) {
  const TxSnapshot& c = state.counters;
  Json json;
  json.add("port", state.port)
      .add("queue", state.queue)
      .add("submitted", c.submitted)
      .add("sent", c.sent)
      .add("sent_bytes", c.sent_bytes)
      .add("held", c.held)
      .add("bursts", c.bursts)
      .add("late", c.late)
      .raw("dropped", json_of(c.dropped))
      .add("lateness_p50", state.lateness_p50)
      .add("lateness_p99", state.lateness_p99)
      .add("lateness_p999", state.lateness_p999)
      .add("lateness_max", state.lateness_max);
  add_levels(json, state.levels);
  return json;
}

Json json_of(const RegionState& region) {
  Json json;
  json.add("name", region.name)
      .add("free", region.free)
      .add("buffers", region.buffers)
      .add("buf_size", region.buf_size);
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
  snapshot.engine = config.common_.loopback_ == LoopbackType::SW
                        ? "loopback"
                        : config::text_of(config::ENGINES, config.common_.engine_type);
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
      snapshot.tx.push_back({name, queue->config().name_, queue->counters(), queue->levels(),
                             lateness.quantile(0.5), lateness.quantile(0.99),
                             lateness.quantile(0.999), lateness.maximum()});
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
  Json json;
  json.add("engine", engine)
      .add("pid", static_cast<std::uint64_t>(pid))
      .add("opened_ns", opened)
      .add("time_ns", time)
      .add("steady_ns", steady)
      .raw("rx", json_list(rx, [](const RxQueueState& s) { return json_of(s); }))
      .raw("tx", json_list(tx, [](const TxQueueState& s) { return json_of(s); }))
      .raw("regions", json_list(regions, [](const RegionState& s) { return json_of(s); }));
  return json.text();
}

std::string SessionSnapshot::table() const {
  std::vector<Row> receive{{"receive queue", "received", "bytes", "delivered", "held", "bursts",
                            "truncated", "ring", "free bursts", "dropped"}};
  for (const RxQueueState& s : rx) {
    receive.push_back({s.port + "/" + s.queue, std::to_string(s.counters.received),
                       std::to_string(s.counters.received_bytes),
                       std::to_string(s.counters.delivered), std::to_string(s.counters.held),
                       std::to_string(s.counters.bursts), std::to_string(s.counters.truncated),
                       part(s.levels.ring, s.levels.ring_capacity),
                       part(s.levels.bursts_free, s.levels.bursts), reasons(s.counters.dropped)});
  }
  std::vector<Row> transmit{{"transmit queue", "submitted", "sent", "bytes", "held", "late",
                             "p50 us", "p99 us", "max us", "ring", "free bursts", "dropped"}};
  for (const TxQueueState& s : tx) {
    transmit.push_back({s.port + "/" + s.queue, std::to_string(s.counters.submitted),
                        std::to_string(s.counters.sent), std::to_string(s.counters.sent_bytes),
                        std::to_string(s.counters.held), std::to_string(s.counters.late),
                        microseconds(s.lateness_p50), microseconds(s.lateness_p99),
                        microseconds(s.lateness_max), part(s.levels.ring, s.levels.ring_capacity),
                        part(s.levels.bursts_free, s.levels.bursts), reasons(s.counters.dropped)});
  }
  std::vector<Row> memory{{"memory region", "free buffers", "bytes each"}};
  for (const RegionState& s : regions)
    memory.push_back({s.name, part(s.free, s.buffers), std::to_string(s.buf_size)});
  return table_of(receive) + table_of(transmit) + table_of(memory);
}

}  // namespace daqiri

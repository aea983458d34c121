#include "session/snapshot.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "engine/registry.h"
#include "metrics/json_object.h"
#include "system/log.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Calls `each` with the counters of a queue, flow or plan, in the order of the output.
template <typename State, typename Each>
void for_counters(const State& state, Each each) {
  std::ranges::for_each(counters_of(state.counters), each);
  if constexpr (requires { state.lateness; })
    std::ranges::for_each(counters_of(state.lateness), each);
  if constexpr (requires { state.levels; }) std::ranges::for_each(counters_of(state.levels), each);
}

template <typename State>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for_counters(State{}, [&](const Counter& counter) { names.emplace_back(counter.name); });
  return names;
}

/// The common fields of a port's parts; `kind`: the kind of part that `name` names.
template <typename State>
JsonObject json_of_part(const State& state, const char* kind, const std::string& name) {
  JsonObject json;
  json.text("port", state.port);
  json.text(kind, name);
  for_counters(state, [&](const Counter& counter) { json.number(counter.name, counter.value); });
  return json;
}

std::string json_numbers(std::span<const std::uint64_t> numbers) {
  std::string text = "[";
  for (const std::uint64_t number : numbers)
    text += (text.size() > 1 ? "," : "") + std::to_string(number);
  return text + "]";
}

template <typename State>
JsonObject json_of(const State& state) {
  JsonObject json = json_of_part(state, "queue", state.queue);
  JsonObject dropped;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    dropped.number(drop_reason_name(static_cast<DropReason>(r)), state.counters.dropped[r]);
  json.json("dropped", dropped.line());
  json.number("id", state.id);
  if constexpr (requires { state.lateness_counts; })
    json.json("lateness_counts", json_numbers(state.lateness_counts));
  if constexpr (requires { state.launch_times; }) json.text("launch_times", state.launch_times);
  if constexpr (requires { state.receive_path; }) json.text("receive_path", state.receive_path);
  return json;
}

JsonObject json_of(const PortState& state) {
  JsonObject json;
  json.text("port", state.port);
  for_counters(state, [&](const Counter& counter) { json.number(counter.name, counter.value); });
  return json;
}

JsonObject json_of(const FlowState& state) { return json_of_part(state, "flow", state.flow); }

JsonObject json_of(const ReorderState& state) { return json_of_part(state, "plan", state.plan); }

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

/// Columns are as wide as their longest text: the first and last are left-aligned, the others
/// right-aligned.
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

constexpr int BACKLOG = 8;
/// A reader that accepts nothing for this long is disconnected.
constexpr timeval PATIENCE{0, 200'000};

/// Throws Error unless the directory exists and only this user can write to it.
void make_private(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    throw file_error("cannot create", directory, errno);
  struct stat found{};
  if (lstat(directory.c_str(), &found) != 0) throw file_error("cannot read", directory, errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022U) != 0) {
    throw Error(Status::GENERIC_FAILURE,
                directory +
                    " is not a directory that only this user can write to; remove it, or set "
                    "XDG_RUNTIME_DIR to your own directory");
  }
}

/// Returns false if the name is in use. Throws Error.
bool bind_to(int socket, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw file_error("cannot bind", path, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno == EADDRINUSE) return false;
  throw file_error("cannot bind", path, errno);
}

}  // namespace

std::string receive_path_of(const Port& port, const RxQueue& queue) {
  std::string path = port.io->receive_path(queue);
  std::vector<int> told;
  for (int s = 0; queue.on_gpu() && s < queue.num_segments(); ++s) {
    const memory::MemoryRegion& region = queue.region(s);
    if (region.config().kind_ != MemoryKind::DEVICE ||
        std::ranges::find(told, region.gpu()) != told.end())
      continue;
    told.push_back(region.gpu());
    path += path.empty() ? "" : ", ";
    path +=
        (region.host_readable() ? "staged to GPU " : "into GPU ") + std::to_string(region.gpu());
  }
  return path;
}

// --- SessionSnapshot

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
    snapshot.ports.push_back({name, port.io->losses(Housekeeper::LINK_PERIOD_NS)});
    for (const auto& queue : port.rx)
      snapshot.rx.push_back({name, queue->config().common_.name_, queue->config().common_.id_,
                             queue->counters(), queue->levels(), receive_path_of(port, *queue)});
    for (const auto& queue : port.tx) {
      const Histogram& lateness = queue->lateness();
      TxQueueState& state = snapshot.tx.emplace_back();
      const CommonQueueConfig& told = queue->config().common_;
      state = {name,
               told.name_,
               told.id_,
               queue->counters(),
               queue->levels(),
               {},
               {},
               port.io->launch_times(*queue)};
      state.lateness.p50 = lateness.quantile(0.5);
      state.lateness.p99 = lateness.quantile(0.99);
      state.lateness.p999 = lateness.quantile(0.999);
      state.lateness.maximum = lateness.maximum();
      // Each bucket is read once, and before the number of all.
      std::uint64_t below = 0;
      std::uint32_t from = 0;
      for (std::size_t i = 0; i < LATENESS_EXPONENTS.size(); ++i) {
        below += lateness.count_between(from, LATENESS_EXPONENTS[i]);
        state.lateness_counts[i] = below;
        from = LATENESS_EXPONENTS[i];
      }
      state.lateness_counts.back() = lateness.count();
    }
    for (const steering::InstalledFlow& flow : port.flows->listed()) {
      const FlowConfig& told = *flow.config;
      (flow.added ? snapshot.added_flows : snapshot.flows)
          .push_back({name, told.name_.empty() ? std::to_string(told.id_) : told.name_,
                      port.flows->counts(flow)});
    }
    if (const auto removed = port.flows->removed())
      snapshot.added_flows.push_back({name, "(removed)", *removed});
    const auto& plans = session.reorder_plans(static_cast<int>(id));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      snapshot.reorder.push_back(
          {name, port.config.rx_.reorder_configs_[i].name_, plans[i].counters()});
    }
  }
  for (const reorder::RunningPlan& plan : session.reorder_plans(Session::NO_PORT))
    snapshot.reorder.push_back({{}, plan.name(), plan.counters()});
  for (const MemoryRegionConfig* region : memory_regions(config)) {
    const auto [free, buffers] = session.memory()->regions.at(region->name_)->levels();
    snapshot.regions.push_back({region->name_, free, buffers, region->buf_size_});
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
  json.json("ports", json_list(ports));
  json.json("rx", json_list(rx));
  json.json("tx", json_list(tx));
  std::vector<FlowState> all = flows;
  all.insert(all.end(), added_flows.begin(), added_flows.end());
  json.json("flows", json_list(all));
  json.json("reorder", json_list(reorder));
  json.json("regions", json_list(regions));
  return json.line();
}

std::vector<std::uint64_t> SessionSnapshot::row() const {
  std::vector<std::uint64_t> row{time, steady};
  const auto add = [&row](const auto& state) {
    for_counters(state, [&row](const Counter& counter) { row.push_back(counter.value); });
    if constexpr (requires { state.counters.dropped; })
      row.insert(row.end(), state.counters.dropped.begin(), state.counters.dropped.end());
  };
  std::ranges::for_each(ports, add);
  std::ranges::for_each(rx, add);
  std::ranges::for_each(tx, add);
  std::ranges::for_each(flows, add);
  std::ranges::for_each(reorder, add);
  return row;
}

std::vector<std::string_view> SessionSnapshot::port_names() { return names_of<PortState>(); }
std::vector<std::string_view> SessionSnapshot::rx_names() { return names_of<RxQueueState>(); }
std::vector<std::string_view> SessionSnapshot::tx_names() { return names_of<TxQueueState>(); }
std::vector<std::string_view> SessionSnapshot::flow_names() { return names_of<FlowState>(); }
std::vector<std::string_view> SessionSnapshot::reorder_names() { return names_of<ReorderState>(); }

std::string SessionSnapshot::table() const {
  std::vector<Row> lost{{"port", "lost before engine", "card", "backlog", "errors", "dropped"}};
  for (const PortState& s : ports) {
    const PortSnapshot& n = s.counters;
    // Where nothing was lost there is nothing to say.
    if (n.lost_card + n.lost_backlog + n.lost_errors + n.lost_dropped == 0) continue;
    lost.push_back({s.port, digits(n.lost_before_engine), digits(n.lost_card),
                    digits(n.lost_backlog), digits(n.lost_errors), digits(n.lost_dropped)});
  }
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
  std::vector<Row> flow{{"flow", "packets", "bytes"}};
  for (const auto* list : {&flows, &added_flows}) {
    for (const FlowState& s : *list)
      flow.push_back({s.port + "/" + s.flow, digits(s.counters.packets), digits(s.counters.bytes)});
  }
  std::vector<Row> plans{{"reorder plan", "packets", "complete", "incomplete", "missing", "lost",
                          "skipped", "untaken", "duplicate", "late", "early", "malformed",
                          "left out", "restarts"}};
  for (const ReorderState& s : reorder) {
    const reorder::ReorderSnapshot& n = s.counters;
    plans.push_back({s.port + (s.port.empty() ? "" : "/") + s.plan, digits(n.packets),
                     digits(n.complete), digits(n.incomplete), digits(n.missing), digits(n.lost),
                     digits(n.skipped), digits(n.untaken), digits(n.duplicate), digits(n.late),
                     digits(n.early), digits(n.malformed), digits(n.left_out), digits(n.restarts)});
  }
  std::vector<Row> memory{{"memory region", "free buffers", "bytes each"}};
  for (const RegionState& s : regions)
    memory.push_back({s.name, part(s.free, s.buffers), digits(s.buf_size)});
  return table_of(lost) + table_of(receive) + table_of(transmit) + table_of(flow) +
         table_of(plans) + table_of(memory);
}

// --- Housekeeper

std::string Housekeeper::directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::string(runtime) + "/daqiri";
  return "/tmp/daqiri-" + std::to_string(geteuid());
}

Housekeeper::Housekeeper(const Session& session, int master_core)
    : session_(session), master_core_(master_core) {
  renew();
  doorbell_.reserve(1);
  try {
    listen();
  } catch (const Error& error) {
    socket_.close();
    path_.clear();
    log(LogLevel::WARN,
        std::string("'daqiri-ophyd stats' cannot show this engine: ") + error.what());
  }
  try {
    thread_ = start_thread(std::bind_front(&Housekeeper::run, this));
  } catch (...) {
    if (socket_.is_open()) unlink(path_.c_str());
    throw;
  }
}

void Housekeeper::listen() {
  static std::atomic<unsigned> next_number{0};
  make_private(directory());
  // A child process that outlives a killed engine would keep the socket open, and clients would
  // wait.
  socket_ = File::private_to_process(
      [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  do {
    path_ = directory() + "/" + std::to_string(getpid()) + "." + std::to_string(next_number++);
    // A name in use was left by a killed process with the same pid, or belongs to a process in
    // another container.
  } while (socket_.is_open() && !bind_to(socket_.fd(), path_));
  if (!socket_.is_open() || ::listen(socket_.fd(), BACKLOG) != 0)
    throw file_error("cannot bind", path_, errno);
}

void Housekeeper::stop() noexcept {
  thread_ = {};
  if (!socket_.is_open()) return;
  unlink(path_.c_str());
  socket_.close();
}

void Housekeeper::run(const std::stop_token& stop) noexcept {
  const std::stop_callback ring(stop, [this] { doorbell_.ring(); });
  const std::string core = std::to_string(master_core_);
  configure_thread(core, "daqiri-counters");
  // Without a socket: -1, which is never readable.
  const int fd = socket_.fd();
  bool answers = true;
  std::uint64_t due = monotonic_ns() + PERIOD_NS;
  for (;;) {
    doorbell_.prepare();
    if (stop.stop_requested()) return doorbell_.cancel();
    const std::uint64_t now = monotonic_ns();
    doorbell_.wait(now < due ? static_cast<std::int64_t>(due - now) : 0,
                   std::span(&fd, answers ? 1 : 0));
    answers = answer();
    if (monotonic_ns() < due) continue;
    try {
      renew();
    } catch (const std::exception& error) {
      log(LogLevel::WARN, std::string("counters could not be copied: ") + error.what());
    }
    due = monotonic_ns() + PERIOD_NS;
  }
}

void Housekeeper::renew() {
  const std::lock_guard one(renewing_);
  auto snapshot = std::make_shared<const SessionSnapshot>(SessionSnapshot::of(session_));
  const std::lock_guard lock(mutex_);
  history_.add(std::move(snapshot));
}

std::shared_ptr<const SessionSnapshot> Housekeeper::latest() const {
  const std::lock_guard lock(mutex_);
  return history_.latest();
}

std::shared_ptr<const SessionSnapshot> Housekeeper::before(std::uint64_t steady) const {
  const std::lock_guard lock(mutex_);
  return history_.before(steady);
}

bool Housekeeper::answer() noexcept {
  const File reader(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  // Without a free file descriptor, the client stays in the queue and the socket readable.
  if (!reader.is_open()) return errno == EAGAIN;
  setsockopt(reader.fd(), SOL_SOCKET, SO_SNDTIMEO, &PATIENCE, sizeof PATIENCE);
  try {
    const std::string text = SessionSnapshot::of(session_).json() + "\n";
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t n = send(reader.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  } catch (const std::exception& error) {
    log(LogLevel::WARN, std::string("counters could not be sent: ") + error.what());
  }
  return true;
}

}  // namespace daqiri

#include "session/session.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "reorder/stage.h"
#include "session/flow_changes.h"
#include "session/snapshot.h"
#include "session/workers.h"
#include "system/log.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Call after the engine was opened.
void require_accurate_send(const Port& port) {
  if (!port.config.tx_.accurate_send_) return;
  for (const auto& queue : port.tx) {
    if (port.io->transmit_traits(*queue).launch_lead > 0) continue;
    throw Error(
        Status::NOT_SUPPORTED,
        "interface '" + port.config.name_ + "': tx.accurate_send is true, and queue '" +
            queue->config().common_.name_ +
            "' keeps its launch times in software; set it to false, or send from a UDP client "
            "whose packets leave through a network interface with fq or etf (`tc qdisc "
            "show`)");
  }
}

/// Call after the engine was opened.
void require_readable(const Port& port) {
  for (const auto& queue : port.rx) {
    if (!queue->has_stage() || queue->host_readable()) continue;
    throw Error(Status::NOT_SUPPORTED,
                "receive queue '" + queue->config().common_.name_ + "' of interface '" +
                    port.config.name_ + "' has reorder configs, and receives into '" +
                    queue->buffers(0).name() +
                    "', which the CPU cannot read; use memory regions of kind 'host', 'huge' or "
                    "'host_pinned'");
  }
}

/// Call after the engine was opened. The times of a plan's packets are compared.
void require_one_clock(const reorder::RunningPlan& plan,
                       const std::vector<std::unique_ptr<Port>>& ports) {
  const Port* first = nullptr;
  for (const int id : plan.ports()) {
    const Port& port = *ports[static_cast<std::size_t>(id)];
    if (first == nullptr) first = &port;
    if (port.io->clock() == first->io->clock()) continue;
    throw Error(Status::NOT_SUPPORTED,
                "reorder config '" + plan.name() + "' has flows of interfaces '" +
                    first->config.name_ + "' and '" + port.config.name_ +
                    "', whose clocks differ; use interfaces of one clock, or a plan for each");
  }
}

/// Checks for cores that queues name and this process may not use. For sockets, whose threads share
/// cores with others anyway, it logs a warning. Otherwise it throws an Error that names all of
/// them.
void check_cores(const NetworkConfig& config) {
  std::string absent;
  const auto check = [&](const InterfaceConfig& interface, const CommonQueueConfig& queue) {
    if (queue.cpu_core_.empty() || queue.cpu_core_ == ANY_CORE || core_available(queue.cpu_core_))
      return;
    absent += (absent.empty() ? "" : ", ") + queue.cpu_core_ + " (queue '" + queue.name_ +
              "' of interface '" + interface.name_ + "')";
  };
  for (const InterfaceConfig& interface : config.ifs_) {
    for (const auto& queue : interface.rx_.queues_) check(interface, queue.common_);
    for (const auto& queue : interface.tx_.queues_) check(interface, queue.common_);
  }
  if (absent.empty()) return;
  std::string available;
  for (const int core : available_cores())
    available += (available.empty() ? "" : ", ") + std::to_string(core);
  const std::string text = "cpu_core that is not available to this process: " + absent +
                           "; it may use " + available +
                           ", or 'any' for a thread that is not pinned";
  if (config.common_.stream_type != StreamType::SOCKET)
    throw Error(Status::INVALID_PARAMETER, text);
  log(LogLevel::WARN, text + ". These threads run without pinning");
}

/// Returns the worker that was made with `parts`; makes it if it does not exist.
template <typename Worker, typename... Parts>
Worker& worker_of(std::vector<std::unique_ptr<Worker>>& workers, const Parts&... parts) {
  for (const auto& worker : workers) {
    if (worker->has(parts...)) return *worker;
  }
  return *workers.emplace_back(std::make_unique<Worker>(parts...));
}

/// Returns the interface and the queue of a key such as "interfaces[1].rx.queues[0].id".
LogOrigin origin_of(const std::string& path, const NetworkConfig& config) {
  LogOrigin origin;
  for (std::size_t i = 0; i < config.ifs_.size(); ++i) {
    const InterfaceConfig& interface = config.ifs_[i];
    const std::string start = "interfaces[" + std::to_string(i) + "]";
    if (!path.starts_with(start)) continue;
    origin.interface = interface.name_;
    const auto look = [&](const auto& queues, const std::string& key) {
      for (std::size_t q = 0; q < queues.size(); ++q) {
        if (path.starts_with(start + key + std::to_string(q) + "]"))
          origin.queue = queues[q].common_.name_;
      }
    };
    look(interface.rx_.queues_, ".rx.queues[");
    look(interface.tx_.queues_, ".tx.queues[");
  }
  return origin;
}

template <typename Queues>
[[noreturn]] void no_queue(const char* kind, int queue, const Port& port, const Queues& queues) {
  std::string ids;
  for (const auto& q : queues) ids += (ids.empty() ? "" : ", ") + std::to_string(q->id());
  throw Error(Status::INVALID_PARAMETER, "port '" + port.config.name_ + "' has no " + kind +
                                             " queue " + std::to_string(queue) + "; it has " +
                                             (ids.empty() ? "none" : ids));
}

}  // namespace

void log_warnings(const ConfigReport& report, const NetworkConfig& config) {
  for (const ConfigProblem& problem : report.problems_) {
    std::string text = problem.path_ + ": " + problem.message_;
    if (problem.line_ > 0)
      text.insert(0, problem.file_ + ":" + std::to_string(problem.line_) + ": ");
    log(LogLevel::WARN, text, origin_of(problem.path_, config));
  }
}

Burst* Rotation::receive() {
  const std::size_t n = queues.size();
  const std::size_t first = next.load(std::memory_order_relaxed);
  const bool all_recorded = std::ranges::all_of(queues, &RxQueue::recorded);
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = (first + k) % n;
    if (queues[i]->recorded() && !all_recorded) continue;
    const auto turn = [&] { next.store(i + 1, std::memory_order_relaxed); };
    try {
      Burst* burst = queues[i]->receive();
      if (burst == nullptr) continue;
      turn();
      return burst;
    } catch (...) {
      // Advance, so that a queue that fails every time does not block the others.
      turn();
      throw;
    }
  }
  return nullptr;
}

Session::Session(NetworkConfig config) : config_(std::move(config)), opened_(realtime_ns()) {}

Session::~Session() { close(); }

std::shared_ptr<Session> Session::open(NetworkConfig config, ConfigReport read) {
  std::shared_ptr<Session> session(new Session(std::move(config)));
  const ConfigReport found = validate_config(session->config_);
  if (!found.ok()) throw Error(Status::INVALID_PARAMETER, found.text());
  std::vector<ConfigProblem>& all = read.problems_;
  // Paths contain the numbers of memory regions in a file, but their names in a struct.
  const auto place = [](std::string_view path) {
    return path.starts_with("memory_regions[") ? path.substr(path.find(']')) : path;
  };
  for (const ConfigProblem& problem : found.problems_) {
    const auto same = [&](const ConfigProblem& each) {
      return place(each.path_) == place(problem.path_) && each.message_ == problem.message_;
    };
    if (std::ranges::none_of(all, same)) all.push_back(problem);
  }
  session->report_ = std::move(read);
  set_log_level(session->config_.log_level_);
  log_warnings(session->report_, session->config_);
  session->build();
  session->start();
  return session;
}

void Session::build() {
  const EngineEntry entry = engine_for(config_);
  refuse(find_refused(config_, entry));
  check_cores(config_);
  // One pool for all transmit queues, with the largest batch size among them.
  int tx_batch = 0;
  std::size_t tx_segments = 1;
  for (const InterfaceConfig& interface : config_.ifs_) {
    for (const auto& queue : interface.tx_.queues_) {
      tx_batch = std::max(tx_batch, burst_size(queue));
      tx_segments = std::max(tx_segments, queue.common_.mrs_.size());
    }
  }
  engine_ = entry.make(config_);
  memory_ = std::make_shared<SessionMemory>();
  memory_->session = weak_from_this();
  allocate_regions();
  memory_->tx_pool = std::make_unique<BurstPool>(tx_batch > 0 ? config_.tx_meta_buffers_ : 0,
                                                 static_cast<std::uint32_t>(std::max(tx_batch, 1)),
                                                 static_cast<int>(tx_segments), true);
  std::vector<RxQueue*> every;
  for (const InterfaceConfig& interface : config_.ifs_) {
    auto port = std::make_unique<Port>();
    port->config = interface;
    port->id = interface.port_id_;
    for (const auto& queue : interface.rx_.queues_) {
      port->rx.push_back(std::make_unique<RxQueue>(
          interface, queue, config_.rx_meta_buffers_, memory_,
          entry.traits.many_sources ? RxQueue::Sources::MANY : RxQueue::Sources::FEW));
    }
    for (const auto& queue : interface.tx_.queues_) {
      port->tx.push_back(
          std::make_unique<TxQueue>(interface, queue, config_.tx_meta_buffers_, memory_));
    }
    port->flows = std::make_unique<steering::FlowTable>(port->config, port->steering);
    std::vector<RxQueue*>& turns = rotations_.emplace_back().queues;
    for (const auto& queue : port->rx) turns.push_back(queue.get());
    every.insert(every.end(), turns.begin(), turns.end());
    ports_.push_back(std::move(port));
  }
  rotations_.emplace_back().queues = std::move(every);
  add_reorder_plans();
  engine_->open(ports_);
  for (const auto& port : ports_) {
    require_accurate_send(*port);
    require_readable(*port);
    port->flows->attach([io = port->io](steering::FlowUpdate& update) { io->install(update); });
    memory_->link_layers.push_back(port->io->link_layer());
    memory_->mac_addresses.push_back(port->io->mac_address());
  }
  for (const reorder::RunningPlan& plan : reorder_.back()) require_one_clock(plan, ports_);
}

void Session::allocate_regions() {
  struct Wanted {
    MemoryRegionConfig* region;
    memory::RegionNeeds needs;
  };
  std::vector<Wanted> all;
  for (const MemoryRegionConfig* each : memory_regions(config_)) {
    MemoryRegionConfig& region = config_.mrs_.at(each->name_);
    all.push_back({&region, engine_->needs(region)});
    // Frames are assembled on the GPU.
    all.back().needs.staged &= holds_packets(config_, region.name_);
  }
  // Last, those for which the engine opens cards: it takes hugepages that regions leave.
  std::stable_partition(all.begin(), all.end(),
                        [](const Wanted& one) { return !one.needs.let_cards_write; });
  for (const Wanted& one : all) {
    auto allocated = memory::MemoryRegion::allocate(*one.region, one.needs);
    engine_->attach(*allocated);
    one.region->adj_size_ = allocated->extent().stride;
    one.region->ttl_size_ = allocated->extent().bytes;
    memory_->regions.emplace(one.region->name_, std::move(allocated));
  }
}

void Session::add_reorder_plans() {
  Stages stages;
  for (const auto& port : ports_) {
    std::deque<reorder::RunningPlan>& plans = reorder_.emplace_back();
    for (const ReorderConfig& config : port->config.rx_.reorder_configs_)
      add_reorder_plan(plans, config, stages);
  }
  std::deque<reorder::RunningPlan>& joint = reorder_.emplace_back();
  for (const ReorderConfig& config : config_.reorder_configs_)
    add_reorder_plan(joint, config, stages);
  for (auto& [queue, stage] : stages) queue->set_stage(std::move(stage));
}

void Session::add_reorder_plan(std::deque<reorder::RunningPlan>& plans, const ReorderConfig& config,
                               Stages& stages) {
  std::vector<RxQueue*> queues;
  for (const FlowId id : config.flow_ids_) {
    for (const auto& port : ports_) {
      const std::vector<FlowConfig>& flows = port->config.rx_.flows_;
      const auto flow = std::ranges::find(flows, id, &FlowConfig::id_);
      if (flow == flows.end()) continue;
      const FlowAction& action = flow->action_;
      for (const std::uint16_t wanted :
           action.ids_.empty() ? std::vector{action.id_} : action.ids_) {
        RxQueue* const queue = port->rx_queue(wanted);
        if (std::ranges::find(queues, queue) == queues.end()) queues.push_back(queue);
      }
    }
  }
  const bool raw = config_.common_.stream_type == StreamType::RAW;
  reorder::RunningPlan& plan =
      plans.emplace_back(config, raw ? reorder::PacketKind::FRAMES : reorder::PacketKind::PAYLOADS,
                         queues, *memory_->regions.at(config.memory_region_), memory_,
                         engine_for(config_).traits.polls_without_pause);
  for (RxQueue* queue : queues) {
    auto& stage = stages[queue];
    if (stage == nullptr) stage = std::make_unique<reorder::ReorderStage>();
    stage->add(plan);
  }
}

void Session::start() {
  const bool never_sleep = engine_for(config_).traits.polls_without_pause;
  for (const auto& port : ports_) {
    Poller* callers = nullptr;
    for (const auto& queue : port->rx) {
      if (queue->config().poll_mode_ == QueuePollMode::INDIRECT) {
        worker_of(pollers_, queue->config().common_.cpu_core_, never_sleep).add(*port->io, *queue);
        continue;
      }
      // Queues whose port receives for all of them together share one poller.
      if (callers == nullptr || !port->io->receive_traits(*queue).together)
        callers = pollers_.emplace_back(std::make_unique<Poller>(never_sleep)).get();
      callers->add(*port->io, *queue);
    }
    for (const auto& queue : port->tx) {
      if (queue->config().poll_mode_ == QueuePollMode::DIRECT) {
        transmitters_.emplace_back(std::make_unique<Transmitter>(port->io->clock()))
            ->add(*port->io, *queue);
        continue;
      }
      worker_of(transmitters_, queue->config().common_.cpu_core_, port->io->clock())
          .add(*port->io, *queue);
    }
  }
  for (const auto& poller : pollers_) poller->start();
  for (const auto& transmitter : transmitters_) transmitter->start();
  flow_changes_ = std::make_unique<FlowChanges>(*this);
  housekeeper_ = std::make_unique<Housekeeper>(*this, config_.common_.master_core_);
}

void Session::close() noexcept {
  const std::lock_guard lock(close_mutex_);
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  if (flow_changes_ != nullptr) flow_changes_->stop();
  if (housekeeper_ != nullptr) housekeeper_->stop();
  // Stop in the direction of the data, so that sent packets can still arrive.
  for (const auto& transmitter : transmitters_) transmitter->begin_stop();
  for (const auto& transmitter : transmitters_) transmitter->stop();
  if (engine_ != nullptr) engine_->finish_sending();
  for (const auto& poller : pollers_) poller->begin_stop();
  for (const auto& poller : pollers_) poller->stop();
  for (auto& plans : reorder_) {
    for (reorder::RunningPlan& plan : plans) plan.stop();
  }
  for (const auto& port : ports_) port->flows->detach();
  if (engine_ != nullptr) engine_->close();
  if (memory_ == nullptr) return;
  for (const auto& [name, region] : memory_->regions) region->retire();
}

NetworkConfig Session::current_config() const {
  NetworkConfig config = config_;
  for (const auto& port : ports_) config.ifs_[port->id].rx_.flows_ = port->flows->configured();
  return config;
}

std::string Session::config_text() const {
  NetworkConfig config = current_config();
  const std::lock_guard lock(text_mutex_);
  if (text_.empty() || text_of_ != config) {
    text_ = config_to_yaml(config);
    text_of_ = std::move(config);
  }
  return text_;
}

void Session::configure_flows(NetworkConfig wanted) {
  flow_changes_->configure(std::move(wanted));
  housekeeper_->renew();
}

Port& Session::port(int id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= ports_.size()) {
    throw Error(Status::INVALID_PARAMETER, "no port " + std::to_string(id) + "; ports are 0 to " +
                                               std::to_string(ports_.size() - 1));
  }
  return *ports_[static_cast<std::size_t>(id)];
}

std::deque<reorder::RunningPlan>& Session::reorder_plans(int port_wanted) {
  return port_wanted == NO_PORT ? reorder_.back() : reorder_[port(port_wanted).id];
}

const std::deque<reorder::RunningPlan>& Session::reorder_plans(int port_wanted) const {
  return port_wanted == NO_PORT ? reorder_.back() : reorder_[port(port_wanted).id];
}

PortSnapshot Session::losses(const std::vector<int>& ports, std::uint64_t max_age) const {
  PortSnapshot sum;
  std::vector<int> seen;
  for (const int id : ports) {
    const PortIo& io = *port(id).io;
    const PortSnapshot one = io.losses(max_age);
    const int interface = io.loss_interface();
    if (interface == 0 || ports.size() == 1) return one;
    if (interface > 0 && std::ranges::find(seen, interface) != seen.end()) continue;
    seen.push_back(interface);
    sum.lost_before_engine.value += one.lost_before_engine;
    sum.lost_card.value += one.lost_card;
    sum.lost_backlog.value += one.lost_backlog;
    sum.lost_errors.value += one.lost_errors;
    sum.lost_dropped.value += one.lost_dropped;
  }
  return sum;
}

RxQueue& Session::rx_queue(int port_wanted, int queue) const {
  const Port& found = port(port_wanted);
  if (RxQueue* rx = found.rx_queue(queue)) return *rx;
  no_queue("receive", queue, found, found.rx);
}

TxQueue& Session::tx_queue(int port_wanted, int queue) const {
  const Port& found = port(port_wanted);
  if (TxQueue* tx = found.tx_queue(queue)) return *tx;
  no_queue("transmit", queue, found, found.tx);
}

Connections& Session::connections() const {
  if (Connections* found = find_connections()) return *found;
  throw Error(Status::NOT_SUPPORTED,
              "connections exist on socket streams only; this session's engine has none");
}

std::shared_ptr<const SessionSnapshot> Session::latest() const {
  if (closed()) return std::make_shared<const SessionSnapshot>(SessionSnapshot::of(*this));
  return housekeeper_->latest();
}

std::shared_ptr<const SessionSnapshot> Session::before(std::uint64_t steady) const {
  return housekeeper_->before(steady);
}

Burst* Session::take_tx_burst() noexcept {
  Burst* burst = memory_->tx_pool->take();
  if (burst == nullptr) return nullptr;
  burst->keep = memory_;
  burst->state.store(BurstState::APPLICATION, std::memory_order_release);
  return burst;
}

}  // namespace daqiri

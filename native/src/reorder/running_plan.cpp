#include "reorder/running_plan.h"

#include <algorithm>
#include <new>
#include <utility>

#include "daqiri/error.h"
#include "reorder/deferred_copies.h"
#include "reorder/workers.h"
#include "system/log.h"
#include "system/text.h"
#include "timing/clock.h"

namespace daqiri::reorder {

namespace {

constexpr int MOST_SPINS = 100;

BurstPool& add_pool(SessionMemory& memory, std::size_t frames) {
  return *memory.rx_pools.emplace_back(
      std::make_unique<BurstPool>(static_cast<std::uint32_t>(frames), 1, 1, false));
}

/// Pollers of several queues do not keep in step. Half of the buffers stay for the receiver.
std::uint32_t usual_window(std::size_t queues, const memory::MemoryRegion& output) {
  constexpr std::uint32_t MOST = 8;
  if (queues == 1) return DEFAULT_WINDOW;
  return std::clamp<std::uint32_t>(output.config().num_bufs_ / 2, DEFAULT_WINDOW, MOST);
}

}  // namespace

RunningPlan::RunningPlan(const ReorderConfig& config, PacketKind kind, std::vector<RxQueue*> queues,
                         memory::MemoryRegion& output, std::shared_ptr<SessionMemory> memory,
                         bool never_sleep)
    : config_(config),
      queues_(std::move(queues)),
      interface_(config.flows_.empty() ? queues_.front()->interface_name() : std::string()),
      output_(output),
      memory_(std::move(memory)),
      pool_(add_pool(*memory_, output.config().num_bufs_)),
      ring_(output.config().num_bufs_),
      bursts_(output.config().num_bufs_),
      closing_(has_copying_pollers() || frees_packets() ? output.config().num_bufs_ : 0),
      line_(closing_.size()),
      feeding_(queues_.size()),
      preview_(output),
      // Threads of modes that are not in use would take the cores of those in use.
      written_(*this, {}, config, kind, never_sleep && config.modes_.empty()) {
  for (const ReorderModeConfig& each : config.modes_)
    modes_.push_back(std::make_unique<Mode>(*this, each.name_, each.plan_, kind, false));
  if (on_gpu()) {
    event_ = written_.mover->event();
    memory_->kept.push_back(event_);
  } else if (has_copying_pollers()) {
    open_copies_.emplace(output.config().num_bufs_);
  }
}

RunningPlan::Mode::Mode(RunningPlan& owner, std::string mode_name, const ReorderConfig& given,
                        PacketKind kind, bool never_sleep)
    : name(std::move(mode_name)),
      config(given),
      plan(config, kind, owner.output_.buf_size(),
           usual_window(owner.queues_.size(), owner.output_)),
      valid(std::make_shared<ValidBits>(owner.output_.config().num_bufs_, plan.units())),
      assembler(plan, owner.output_, *valid, owner) {
  owner.memory_->kept.push_back(valid);
  owner.memory_->kept.push_back(assembler.columns());
  FrameWaiter& waiter = owner;
  if (owner.on_gpu()) {
    mover = make_gpu_mover(plan, config, owner.output_, waiter);
    assembler.fill_with(*mover);
  } else if (owner.frees_packets()) {
    mover = std::make_unique<Workers>(plan, config.cpu_cores_, never_sleep,
                                      owner.output_.config().num_bufs_, waiter);
  }
}

RunningPlan::~RunningPlan() {
  stop();
  discard();
}

bool RunningPlan::has_copying_pollers() const noexcept {
  if (frees_packets()) return false;
  const auto core = [](const RxQueue* queue) { return queue->config().common_.cpu_core_; };
  return std::ranges::any_of(
      queues_, [&](const RxQueue* queue) { return core(queue) != core(queues_.front()); });
}

void RunningPlan::take(std::span<const Packet> packets, std::uint64_t now_ns, bool keep) noexcept {
  bool unknown = false;
  if (open_copies_) {
    // Without the lock: the headers may not be in the cache yet.
    Found found[DeferredCopies::MOST];
    Mode* const located = &mode();
    located->assembler.locate(packets, found);
    // Others hold it for about a microsecond, less than a sleep takes.
    std::unique_lock lock(mutex_, std::try_to_lock);
    for (int i = 0; i < MOST_SPINS && !lock.owns_lock(); ++i) {
      cpu_relax();
      lock.try_lock();
    }
    if (!lock.owns_lock()) lock.lock();
    Mode& used = mode();
    DeferredCopies copies(used.plan, *open_copies_);
    if (&used != located) used.assembler.locate(packets, found);
    used.assembler.take(packets, found, now_ns, copies);
    unknown = is_newly_unknown();
    lock.unlock();
    copies.perform(*this);
  } else {
    const bool moves = !keep || on_gpu();
    // Before the lock, which applications take, too.
    if (Mover* const mover = mode().mover.get(); moves && mover != nullptr) mover->wait_for_room();
    const std::lock_guard lock(mutex_);
    Mode& used = mode();
    used.assembler.take(packets, now_ns, moves ? used.mover.get() : nullptr);
    unknown = is_newly_unknown();
  }
  if (unknown) [[unlikely]]
    tell_unknown();
}

bool RunningPlan::is_newly_unknown() noexcept {
  const bool before = std::exchange(unknown_, mode().assembler.unknown());
  return unknown_ && !before;
}

void RunningPlan::tell_unknown() const noexcept {
  try {
    log(LogLevel::ERROR,
        "reorder plan '" + config_.name_ +
            "': its packets are late, because the instrument may have begun its numbers anew, or "
            "gone on after the last one, and images could be mixed; tell the number of the first "
            "image (first_number), or start the instrument, and open the engine, again");
  } catch (const std::bad_alloc&) {
    // Out of memory for the message.
    return;
  }
}

Mover::Copies RunningPlan::close(std::uint32_t buffer) noexcept {
  if (Mover* const mover = mode().mover.get()) return mover->close(buffer);
  const bool pending = open_copies_ && !open_copies_->close(buffer);
  return pending ? Mover::Copies::PENDING : Mover::Copies::DONE;
}

bool RunningPlan::feeds_on(int port, std::uint16_t queue) const noexcept {
  return std::ranges::any_of(queues_, [port, queue](const RxQueue* each) {
    return each->port_id() == port && each->id() == queue;
  });
}

std::vector<int> RunningPlan::ports() const {
  std::vector<int> ports;
  for (const RxQueue* queue : queues_) {
    if (std::ranges::find(ports, queue->port_id()) == ports.end())
      ports.push_back(queue->port_id());
  }
  return ports;
}

void RunningPlan::close_gate(FlowId flow) noexcept {
  const std::lock_guard lock(mutex_);
  gate_time_ = gate_order_ = 0;
  gate_.store(flow, std::memory_order_release);
}

std::uint32_t RunningPlan::find_gate(const RxBatch& batch) const noexcept {
  const std::uint64_t flow = gate_.load(std::memory_order_acquire);
  std::uint32_t at = flow == NO_GATE ? batch.count : 0;
  while (at < batch.count && batch.flows[at] != flow) ++at;
  return at;
}

void RunningPlan::pass_gate(std::uint64_t time) noexcept {
  const std::lock_guard lock(mutex_);
  // Another poller may have opened the gate.
  if (gate_.load(std::memory_order_relaxed) == NO_GATE) return;
  gate_time_ = time;
  gate_order_ = mode().assembler.begun();
  open_gate();
}

std::uint64_t RunningPlan::expire(std::uint64_t now_ns) noexcept {
  const std::lock_guard lock(mutex_);
  Mode& used = mode();
  const std::uint64_t due = used.assembler.expire(now_ns);
  const std::uint64_t copies = used.mover == nullptr ? 0 : used.mover->flush_due(now_ns);
  return due == 0 || (copies != 0 && copies < due) ? copies : due;
}

void RunningPlan::finish() noexcept {
  const std::lock_guard lock(mutex_);
  if (--feeding_ > 0) return;
  mode().assembler.finish();
  if (mode().mover != nullptr) mode().mover->flush();
  finish_if_done();
}

void RunningPlan::finish_if_done() noexcept {
  if (feeding_ > 0 || num_closing_ > 0) return;
  finished_.store(true, std::memory_order_release);
  frames_.ring();
  for (RxQueue* queue : queues_) queue->ready().ring();
}

void RunningPlan::discard() noexcept {
  const std::lock_guard lock(mutex_);
  mode().assembler.discard();
  throw_away_waiting(lost_);
}

void RunningPlan::stop() noexcept {
  const std::lock_guard lock(kernel_mutex_);
  written_.mover.reset();
  for (const auto& each : modes_) each->mover.reset();
  preview_.stop();
}

void RunningPlan::set_kernel(const FrameKernel* kernel) {
  const std::lock_guard lock(kernel_mutex_);
  if (Mover* const mover = mode().mover.get(); on_gpu() && mover != nullptr)
    return mover->set_kernel(kernel, mutex_);
  if (kernel == nullptr) return;
  const std::string what = "reorder plan '" + config_.name_ + "': kernel '" + kernel->name + "' ";
  if (!on_gpu()) {
    throw Error(Status::NOT_SUPPORTED,
                what + "runs on a GPU, and reorder_type is '" + config_.reorder_type_ +
                    "'; set reorder_type: gpu, or process the frames in the application");
  }
  throw Error(Status::NOT_READY, what + "cannot be set: the engine is closed; open it again");
}

void RunningPlan::set_stream(void* stream) {
  const std::lock_guard lock(kernel_mutex_);
  if (on_gpu() && written_.mover != nullptr) {
    written_.mover->set_stream(stream, mutex_);
    for (const auto& each : modes_) each->mover->set_stream(stream, mutex_);
    return;
  }
  const std::string what = "reorder plan '" + config_.name_ + "': ";
  if (!on_gpu()) {
    throw Error(Status::NOT_SUPPORTED, what + "a CUDA stream is for plans on a GPU, and " +
                                           "reorder_type is '" + config_.reorder_type_ +
                                           "'; set reorder_type: gpu");
  }
  throw Error(Status::NOT_READY,
              what + "its CUDA stream cannot be set: the engine is closed; open it again");
}

void RunningPlan::set_mode(const std::string& name) {
  Mode* wanted = name.empty() ? &written_ : nullptr;
  std::string names;
  for (const auto& each : modes_) {
    if (each->name == name) wanted = each.get();
    names += (names.empty() ? "'" : ", '") + each->name + "'";
  }
  if (wanted == nullptr) {
    throw Error(Status::INVALID_PARAMETER, "reorder plan '" + config_.name_ + "' has no mode " +
                                               quoted(name) + "; accepted are " +
                                               (names.empty() ? "" : names + " and ") +
                                               "'', the plan as it is written");
  }
  const std::lock_guard kept(kernel_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (feeding_ == 0) {
      throw Error(Status::NOT_READY, "the mode of reorder plan '" + config_.name_ +
                                         "' cannot be set: the engine is closed; open it again");
    }
    if (!use(*wanted)) return;
  }
  // A reader may be copying a frame; pollers need not wait for that.
  preview_.forget();
}

bool RunningPlan::use(Mode& wanted) {
  Mode& before = mode();
  if (&wanted == &before) return false;
  if (taken_.load(std::memory_order_relaxed)) {
    throw Error(Status::NOT_READY, "the mode of reorder plan '" + config_.name_ +
                                       "' cannot be set: its frames go to " + taker_ +
                                       "; end that first");
  }
  before.assembler.finish();
  before.assembler.discard();
  if (before.mover != nullptr) before.mover->flush();
  throw_away_waiting(given_up());
  absent_in_others_ += before.assembler.tally().absent();
  absent_in_others_ -= wanted.assembler.tally().absent();
  wanted.assembler.continue_after(before.assembler);
  unknown_ = wanted.assembler.unknown();
  mode_.store(&wanted, std::memory_order_release);
  return true;
}

void RunningPlan::throw_away_waiting(std::uint64_t& count) noexcept {
  for (Burst* burst = nullptr; ring_.pop(burst); ++count) burst->release();
  // After the last frame, a display still gets the one that it asked for.
  if (!finished()) preview_.drop();
  for (; line_length_ > 0; --line_length_, ++count) {
    const std::uint32_t buffer = line_[line_begin_++ % line_.size()];
    Closing::State& state = closing_[buffer].state;
    if (state == Closing::State::WANTED) {
      state = Closing::State::THROWN_AWAY;
    } else {
      state = Closing::State::NONE;
      free(buffer);
    }
  }
}

Burst* RunningPlan::pop() noexcept {
  Burst* burst = nullptr;
  if (!ring_.pop(burst)) return nullptr;
  burst->keep = memory_;
  burst->state.store(BurstState::APPLICATION, std::memory_order_release);
  return burst;
}

void RunningPlan::attach(const std::string& name, bool begins_anew) {
  const std::lock_guard lock(mutex_);
  if (taken_.load(std::memory_order_relaxed)) {
    throw Error(Status::NOT_READY, "frames of reorder plan '" + config_.name_ + "' go to " +
                                       taker_ +
                                       ", and each frame is delivered once; end that first");
  }
  taker_ = name;
  begins_anew_ = begins_anew;
  mode().assembler.end_epochs();
  taken_.store(true, std::memory_order_release);
}

void RunningPlan::detach() noexcept {
  const std::lock_guard lock(mutex_);
  taken_.store(false, std::memory_order_release);
  read_.store(false, std::memory_order_relaxed);
  begins_anew_ = false;
  mode().assembler.end_epochs();
  for (RxQueue* queue : queues_) queue->ready().ring();
}

void RunningPlan::begin_anew() noexcept {
  const std::lock_guard lock(mutex_);
  throw_away_waiting(given_up());
  begins_anew_ = false;
}

RunningPlan::Epoch RunningPlan::begin_epoch(std::uint64_t since,
                                            std::optional<std::uint64_t> first) {
  const std::lock_guard kept(kernel_mutex_);
  const std::lock_guard lock(mutex_);
  Mode& used = mode();
  const std::uint64_t order = used.assembler.begin_epoch(since, monotonic_ns(), first);
  if (used.mover != nullptr) used.mover->flush();
  return {order, used.assembler.tally().absent() + absent_in_others_ + lost_};
}

void RunningPlan::deliver_open() noexcept {
  constexpr std::uint64_t MOST_NS = 1'000'000'000;
  constexpr std::int64_t EACH_NS = 1'000'000;
  const std::uint64_t now = monotonic_ns();
  const std::lock_guard kept(kernel_mutex_);
  std::unique_lock lock(mutex_);
  mode().assembler.finish_idle(now);
  if (mode().mover != nullptr) mode().mover->flush();
  while (line_length_ > 0 && monotonic_ns() < now + MOST_NS) {
    // Before the lock is released, after which a frame may be handed on.
    const WaitQueue::Ticket ticket = frames_.prepare();
    lock.unlock();
    frames_.wait(ticket, EACH_NS);
    lock.lock();
  }
}

ReorderSnapshot RunningPlan::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  ReorderSnapshot now = written_.assembler.tally();
  const auto all = counters_of(now);
  for (const auto& each : modes_) {
    const auto more = counters_of(each->assembler.tally());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += more[i];
  }
  now.lost += lost_;
  now.untaken = untaken_;
  return now;
}

bool RunningPlan::begin(std::uint32_t buffer) noexcept {
  bursts_[buffer] = pool_.take();
  return bursts_[buffer] != nullptr;
}

bool RunningPlan::give_up_oldest() noexcept {
  Burst* burst = nullptr;
  if (!unread() || !ring_.pop(burst)) return false;
  burst->release();
  ++given_up();
  return true;
}

void RunningPlan::take(const Frame& frame) noexcept {
  if (Mover* const mover = mode().mover.get())
    mover->process(frame.buffer, frame.data, frame.info.aggregate_len);
  const Mover::Copies copies = close(frame.buffer);
  if (copies == Mover::Copies::DONE && line_length_ == 0) return hand(frame);
  Closing::State state = Closing::State::READY;
  if (copies == Mover::Copies::FAILED) state = Closing::State::FAILED;
  if (copies == Mover::Copies::PENDING) {
    state = Closing::State::WANTED;
    ++num_closing_;
  }
  closing_[frame.buffer] = {frame, state};
  line_[(line_begin_ + line_length_++) % line_.size()] = frame.buffer;
  hand_ready();
}

void RunningPlan::discard(std::uint32_t buffer) noexcept {
  if (close(buffer) != Mover::Copies::PENDING) return free(buffer);
  closing_[buffer].state = Closing::State::THROWN_AWAY;
  ++num_closing_;
}

void RunningPlan::frame_done(std::uint32_t buffer, bool good) noexcept {
  const std::lock_guard lock(mutex_);
  --num_closing_;
  Closing::State& state = closing_[buffer].state;
  if (state == Closing::State::THROWN_AWAY) {
    state = Closing::State::NONE;
    free(buffer);
  } else {
    // Its place in the line stays until those before it are handed on, and so does its buffer.
    state = good ? Closing::State::READY : Closing::State::FAILED;
  }
  hand_ready();
  finish_if_done();
}

void RunningPlan::hand_ready() noexcept {
  for (; line_length_ > 0; --line_length_, ++line_begin_) {
    const std::uint32_t buffer = line_[line_begin_ % line_.size()];
    Closing& first = closing_[buffer];
    if (first.state == Closing::State::WANTED) return;
    if (std::exchange(first.state, Closing::State::NONE) == Closing::State::READY) {
      hand(first.frame);
    } else {
      ++lost_;
      free(buffer);
    }
  }
}

void RunningPlan::free(std::uint32_t buffer) noexcept {
  pool_.give(bursts_[buffer]);
  output_.give(&buffer, 1);
}

void RunningPlan::hand(const Frame& frame) noexcept {
  Burst* const burst = bursts_[frame.buffer];
  BurstHeaderParams& header = burst->hdr.hdr;
  header.port_id = queues_.front()->port_id();
  header.q_id = queues_.front()->id();
  header.num_pkts = 1;
  header.nbytes = frame.info.aggregate_len;
  header.max_pkt = frame.info.source_packet_count;
  header.max_pkt_size = output_.buf_size();
  header.burst_flags = frame.info.burst_flags;
  burst->owners[0] = &output_;
  burst->buffers[0][0] = frame.buffer;
  burst->pkts[0][0] = frame.data;
  burst->pkt_lens[0][0] = frame.info.aggregate_len;
  burst->flow_ids[0] = 0;
  burst->timestamps[0] = frame.first_time;
  burst->owned = 1;
  burst->event = static_cast<cudaEvent_t>(event_.get());
  burst->valid = frame.valid;
  burst->units = plan().units();
  burst->missing = frame.missing;
  burst->last_time = frame.last_time;
  burst->order = frame.order;
  burst->lost = frame.lost + absent_in_others_ + lost_;
  burst->index = frame.index;
  burst->reorder = frame.info;
  preview_.offer(*burst, unread());
  ring_.push(burst);
  frames_.ring();
  if (taken()) return;
  for (RxQueue* queue : queues_) queue->ready().ring();
}

}  // namespace daqiri::reorder

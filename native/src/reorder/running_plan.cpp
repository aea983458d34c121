#include "reorder/running_plan.h"

#include <algorithm>
#include <new>
#include <utility>

#include "daqiri/error.h"
#include "reorder/deferred_copies.h"
#include "reorder/workers.h"
#include "system/log.h"
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
      output_(output),
      memory_(std::move(memory)),
      plan_(config, kind, output.buf_size(), usual_window(queues_.size(), output)),
      valid_(std::make_shared<ValidBits>(output.config().num_bufs_, plan_.units())),
      pool_(add_pool(*memory_, output.config().num_bufs_)),
      ring_(output.config().num_bufs_),
      bursts_(output.config().num_bufs_),
      assembler_(plan_, output, *valid_, *this),
      closing_(has_copying_pollers() || frees_packets() ? output.config().num_bufs_ : 0),
      line_(closing_.size()),
      feeding_(queues_.size()),
      preview_(output) {
  memory_->kept.push_back(valid_);
  FrameWaiter& waiter = *this;
  if (on_gpu()) {
    mover_ = make_gpu_mover(plan_, config_, output, waiter);
    assembler_.fill_with(*mover_);
    event_ = mover_->event();
    memory_->kept.push_back(event_);
  } else if (frees_packets()) {
    mover_ = std::make_unique<Workers>(plan_, config.cpu_cores_, never_sleep,
                                       output.config().num_bufs_, waiter);
  } else if (has_copying_pollers()) {
    open_copies_.emplace(output.config().num_bufs_);
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
    DeferredCopies copies(plan_, *open_copies_);
    {
      // Others hold it for about a microsecond, less than a sleep takes.
      std::unique_lock lock(mutex_, std::try_to_lock);
      for (int i = 0; i < MOST_SPINS && !lock.owns_lock(); ++i) {
        cpu_relax();
        lock.try_lock();
      }
      if (!lock.owns_lock()) lock.lock();
      assembler_.take(packets, now_ns, &copies);
      unknown = is_newly_unknown();
    }
    copies.perform(*this);
  } else {
    Mover* const mover = keep && !on_gpu() ? nullptr : mover_.get();
    // Before the lock, which applications take, too.
    if (mover != nullptr) mover->wait_for_room();
    const std::lock_guard lock(mutex_);
    assembler_.take(packets, now_ns, mover);
    unknown = is_newly_unknown();
  }
  if (unknown) [[unlikely]]
    tell_unknown();
}

bool RunningPlan::is_newly_unknown() noexcept {
  const bool before = std::exchange(unknown_, assembler_.unknown());
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
  if (mover_ != nullptr) return mover_->close(buffer);
  const bool pending = open_copies_ && !open_copies_->close(buffer);
  return pending ? Mover::Copies::PENDING : Mover::Copies::DONE;
}

bool RunningPlan::feeds_on(std::uint16_t queue) const noexcept {
  return std::ranges::any_of(queues_, [queue](const RxQueue* q) { return q->id() == queue; });
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
  gate_order_ = assembler_.begun();
  open_gate();
}

std::uint64_t RunningPlan::expire(std::uint64_t now_ns) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t due = assembler_.expire(now_ns);
  const std::uint64_t copies = mover_ == nullptr ? 0 : mover_->flush_due(now_ns);
  return due == 0 || (copies != 0 && copies < due) ? copies : due;
}

void RunningPlan::finish() noexcept {
  const std::lock_guard lock(mutex_);
  if (--feeding_ > 0) return;
  assembler_.finish();
  if (mover_ != nullptr) mover_->flush();
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
  assembler_.discard();
  throw_away_waiting(lost_);
}

void RunningPlan::stop() noexcept {
  const std::lock_guard lock(kernel_mutex_);
  mover_.reset();
  preview_.stop();
}

void RunningPlan::set_kernel(const FrameKernel* kernel) {
  const std::lock_guard lock(kernel_mutex_);
  if (on_gpu() && mover_ != nullptr) return mover_->set_kernel(kernel, mutex_);
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
  if (on_gpu() && mover_ != nullptr) return mover_->set_stream(stream, mutex_);
  const std::string what = "reorder plan '" + config_.name_ + "': ";
  if (!on_gpu()) {
    throw Error(Status::NOT_SUPPORTED, what + "a CUDA stream is for plans on a GPU, and " +
                                           "reorder_type is '" + config_.reorder_type_ +
                                           "'; set reorder_type: gpu");
  }
  throw Error(Status::NOT_READY,
              what + "its CUDA stream cannot be set: the engine is closed; open it again");
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
  assembler_.end_epochs();
  taken_.store(true, std::memory_order_release);
}

void RunningPlan::detach() noexcept {
  const std::lock_guard lock(mutex_);
  taken_.store(false, std::memory_order_release);
  read_.store(false, std::memory_order_relaxed);
  begins_anew_ = false;
  assembler_.end_epochs();
  for (RxQueue* queue : queues_) queue->ready().ring();
}

void RunningPlan::begin_anew() noexcept {
  const std::lock_guard lock(mutex_);
  throw_away_waiting(given_up());
  begins_anew_ = false;
}

RunningPlan::Epoch RunningPlan::begin_epoch(std::uint64_t since,
                                            std::optional<std::uint32_t> first) {
  const std::lock_guard kept(kernel_mutex_);
  const std::lock_guard lock(mutex_);
  const std::uint64_t order = assembler_.begin_epoch(since, monotonic_ns(), first);
  if (mover_ != nullptr) mover_->flush();
  return {order, assembler_.tally().absent() + lost_};
}

void RunningPlan::deliver_open() noexcept {
  constexpr std::uint64_t MOST_NS = 1'000'000'000;
  constexpr std::int64_t EACH_NS = 1'000'000;
  const std::uint64_t now = monotonic_ns();
  const std::lock_guard kept(kernel_mutex_);
  std::unique_lock lock(mutex_);
  assembler_.finish_idle(now);
  if (mover_ != nullptr) mover_->flush();
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
  ReorderSnapshot now = assembler_.tally();
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
  if (mover_ != nullptr) mover_->process(frame.buffer, frame.data, frame.info.aggregate_len);
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
  burst->units = plan_.units();
  burst->missing = frame.missing;
  burst->last_time = frame.last_time;
  burst->order = frame.order;
  burst->lost = frame.lost + lost_;
  burst->index = frame.index;
  burst->reorder = frame.info;
  preview_.offer(*burst, unread());
  ring_.push(burst);
  frames_.ring();
  if (taken()) return;
  for (RxQueue* queue : queues_) queue->ready().ring();
}

}  // namespace daqiri::reorder

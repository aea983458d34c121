#include "storage/recorder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "system/thread.h"

namespace daqiri {

namespace {

/// Returns nanoseconds. Throws Error.
std::uint64_t limit_ns(const char* name, double seconds) {
  // Longer than a century is no limit; it would not fit its nanoseconds either.
  if (!(seconds >= 0.0 && seconds < 3e9)) {
    throw Error(Status::INVALID_PARAMETER, std::string(name) + " is " + std::to_string(seconds) +
                                               "; accepted is 0 or more, up to 3e9");
  }
  return static_cast<std::uint64_t>(std::ceil(seconds * 1e9));
}

/// Checks the options and takes the queue. Throws Error.
RxQueue* attached(RxQueue& queue, const RecorderOptions& options) {
  require_target(options.directory, options.prefix);
  limit_ns("roll_seconds", options.roll_seconds);
  limit_ns("max_seconds", options.max_seconds);
  if (options.group &&
      (options.max_packets > 0 || options.max_seconds > 0 || options.roll_packets > 0 ||
       options.roll_bytes > 0 || options.roll_seconds > 0)) {
    throw Error(Status::INVALID_PARAMETER,
                "a recorder of a group has a limit of its own; give limits to the group");
  }
  if (options.group && options.start_flow) {
    throw Error(Status::INVALID_PARAMETER,
                "start_flow is " + std::to_string(*options.start_flow) +
                    " for a recorder of a group, whose queues have no common order; record one "
                    "queue");
  }
  queue.attach_recorder(options.directory + "/" + options.prefix);
  return &queue;
}

}  // namespace

// --- Groups

RecorderGroup::RecorderGroup(const Limits& limits)
    : limits_(limits),
      roll_ns_(limit_ns("roll_seconds", limits.roll_seconds)),
      left_(limits.max_packets),
      remaining_ns_(limit_ns("max_seconds", limits.max_seconds)) {}

void RecorderGroup::begin() {
  const std::lock_guard lock(mutex_);
  start_clock();
}

void RecorderGroup::hold(bool held) {
  const std::lock_guard lock(mutex_);
  if (!held) {
    --holds_;
    return start_clock();
  }
  ++holds_;
  if (deadline() == NEVER) return;
  const std::uint64_t now = monotonic_ns();
  // Not 0: a clock that has run out is over once it goes on.
  remaining_ns_ = deadline() > now ? deadline() - now : 1;
  deadline_ns_.store(NEVER, std::memory_order_relaxed);
}

void RecorderGroup::end_in(double seconds) {
  const std::uint64_t ns = limit_ns("the time to the end", seconds);
  const std::lock_guard lock(mutex_);
  remaining_ns_ = 0;
  deadline_ns_.store(monotonic_ns() + ns, std::memory_order_relaxed);
}

void RecorderGroup::start_clock() {
  if (holds_ > 0) return;
  if (const std::uint64_t ns = std::exchange(remaining_ns_, 0); ns > 0)
    deadline_ns_.store(monotonic_ns() + ns, std::memory_order_relaxed);
}

std::uint32_t RecorderGroup::take(std::uint32_t wanted) noexcept {
  if (limits_.max_packets == 0) return wanted;
  std::uint64_t left = left_.load(std::memory_order_relaxed);
  std::uint32_t taken = 0;
  do {
    taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, left));
  } while (!left_.compare_exchange_weak(left, left - taken, std::memory_order_relaxed));
  return taken;
}

void RecorderGroup::wrote(std::uint64_t packets, std::uint64_t bytes) {
  if (packets == 0) return;
  const std::lock_guard lock(mutex_);
  packets_ += packets;
  bytes_ += bytes;
  if (first_ns_ == 0) first_ns_ = monotonic_ns();
  if ((limits_.roll_packets > 0 && packets_ >= limits_.roll_packets) ||
      (limits_.roll_bytes > 0 && bytes_ >= limits_.roll_bytes))
    roll();
}

void RecorderGroup::poll(std::uint64_t now_ns) {
  if (roll_ns_ == 0) return;
  const std::lock_guard lock(mutex_);
  if (first_ns_ != 0 && now_ns >= first_ns_ + roll_ns_) roll();
}

void RecorderGroup::roll() {
  if (ended_) return;
  packets_ = bytes_ = first_ns_ = 0;
  rolls_.fetch_add(1, std::memory_order_release);
}

std::uint64_t RecorderGroup::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  return rolls();
}

// --- The recorder's thread

void Recorder::run() noexcept {
  configure_thread(std::string(ANY_CORE), "rec:" + queue_.config().common_.name_);
  block_file_size_signal();
  bool limit_reached = false;
  try {
    limit_reached = record();
    if (!alone_) roll_with_group(group_->end());
    files_.finish();
    publish();
  } catch (const std::exception& e) {
    // Only memory can be short here.
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = e.what();
  }
  attached_.reset();
  {
    const std::lock_guard lock(mutex_);
    unreported_ = files_.unreported();
    limit_reached_ = limit_reached;
    running_ = false;
    if (paused_.load()) group_->hold(false);  // the others' time goes on
  }
  answered_.notify_all();
  doorbell_.ring();
}

bool Recorder::record() {
  for (std::uint64_t now = monotonic_ns(); !group_->limit_reached();) {
    const bool over = now >= group_->deadline();
    if (over || stopping_.load()) {
      drain();
      return over || group_->limit_reached();
    }
    answer_roll();
    if (!alone_) roll_with_group(group_->rolls());
    // In this order: what was pushed before the queue closed is seen.
    const bool closed = queue_.closed();
    Burst* burst = queue_.receive();
    if (burst == nullptr) {
      if (closed) return false;
      burst = await();
    }
    if (burst != nullptr) take(*burst);
    now = monotonic_ns();
    if (now >= poll_at_) {
      poll_at_ = files_.poll(now);
      if (!alone_) group_->poll(now);
      publish();
    }
  }
  return true;
}

Burst* Recorder::await() {
  const WaitQueue::Ticket ticket = queue_.ready().prepare();
  const bool asked = stopping_.load() || rolls_asked_.load() != rolls_done_ || queue_.closed();
  Burst* burst = asked ? nullptr : queue_.receive();
  if (asked || burst != nullptr) return burst;
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t until = std::min(poll_at_, group_->deadline());
  queue_.ready().wait(ticket, static_cast<std::int64_t>(until > now ? until - now : 0));
  return nullptr;
}

void Recorder::take(Burst& burst) {
  const auto give_back = [](Burst* b) { b->release(); };
  const std::unique_ptr<Burst, decltype(give_back)> held(&burst, give_back);
  const std::uint32_t n = burst.num_packets();
  if (paused_.load(std::memory_order_relaxed)) {
    files_.leave_out(CaptureLosses::PAUSED, n);
  } else {
    const std::uint32_t first = start_of(burst);
    const std::uint32_t wanted = group_->take(n - first);
    const auto [before, bytes_before, lost, left_out] = files_.counts();
    // First: writing may complete the last file.
    files_.leave_out(CaptureLosses::BEFORE_START, first);
    files_.leave_out(CaptureLosses::AFTER_LIMIT, n - first - wanted);
    files_.write(burst, first, first + wanted);
    const auto [after, bytes_after, lost_after, left_out_after] = files_.counts();
    // Fewer than before when the writer has lost packets of earlier bursts.
    const std::uint64_t written = after > before ? after - before : 0;
    group_->give_back(wanted + before - after);
    if (!alone_)
      group_->wrote(written, bytes_after > bytes_before ? bytes_after - bytes_before : 0);
  }
  publish();
}

/// Returns the index of the first packet that belongs in files.
std::uint32_t Recorder::start_of(const Burst& burst) noexcept {
  if (!awaited_) return 0;
  const FlowId* const end = burst.flow_ids + burst.num_packets();
  const FlowId* const found = std::find(static_cast<const FlowId*>(burst.flow_ids), end, *awaited_);
  if (found != end) awaited_.reset();
  return static_cast<std::uint32_t>(found - burst.flow_ids);
}

void Recorder::drain() {
  // What the queue holds now bounds what is taken, however fast more arrives.
  const std::uint64_t held = queue_.counters().held;
  for (std::uint64_t taken = 0; taken < held && !group_->limit_reached();) {
    Burst* burst = queue_.receive();
    if (burst == nullptr) return;
    taken += burst->num_packets();
    take(*burst);
  }
}

void Recorder::answer_roll() {
  const std::uint64_t asked = rolls_asked_.load();
  if (asked == rolls_done_) return;
  drain();
  files_.complete();
  publish();
  {
    const std::lock_guard lock(mutex_);
    rolls_done_ = asked;
  }
  answered_.notify_all();
}

void Recorder::roll_with_group(std::uint64_t rolls) {
  if (group_rolls_ == rolls) return;
  for (; group_rolls_ < rolls; ++group_rolls_) files_.complete();
  publish();
}

void Recorder::publish() {
  // Written by this thread alone.
  const bool news = files_.any_completed() || files_.failing() != failing_;
  if (news) {
    const std::lock_guard lock(mutex_);
    failing_ = files_.failing();
    for (RecordedFile& file : files_.take_completed()) completed_.push_back(std::move(file));
    if (error_.empty()) error_ = files_.error();
  }
  counts_.publish(files_.counts());
  if (news) doorbell_.ring();
}

// --- Any thread

Recorder::Recorder(std::shared_ptr<Session> session, RxQueue& queue, const RecorderOptions& options)
    : session_(std::move(session)),
      queue_(queue),
      attached_(attached(queue, options), [](RxQueue* q) { q->detach_recorder(); }),
      group_(options.group
                 ? options.group
                 : std::make_shared<RecorderGroup>(RecorderGroup::Limits{
                       .max_packets = options.max_packets, .max_seconds = options.max_seconds})),
      alone_(!options.group),
      files_(options, *session_, queue),
      awaited_(options.start_flow) {
  group_->begin();
  try {
    thread_ = start_thread([this] { run(); });
  } catch (...) {
    files_.discard();
    throw;
  }
}

void Recorder::stop() noexcept {
  stopping_.store(true);
  queue_.ready().ring();
  const std::lock_guard lock(stop_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Recorder::roll() {
  std::unique_lock lock(mutex_);
  if (!running_)
    throw Error(Status::NOT_READY, "the recorder has ended; there is no file to complete");
  const std::uint64_t mine = rolls_asked_.fetch_add(1) + 1;
  queue_.ready().ring();
  answered_.wait(lock, [&] { return rolls_done_ >= mine || !running_; });
  if (failing_) throw Error(Status::GENERIC_FAILURE, error_);
}

void Recorder::set_paused(bool paused) {
  {
    // Who has ended holds nothing; of two calls at once, one is wholly before the other.
    const std::lock_guard lock(mutex_);
    if (!running_ || paused_.exchange(paused) == paused) return;
    group_->hold(paused);
  }
  queue_.ready().ring();
}

void Recorder::end_in(double seconds) {
  group_->end_in(seconds);
  queue_.ready().ring();
}

RecorderSnapshot Recorder::snapshot() const {
  const std::lock_guard lock(mutex_);
  const auto [packets, bytes, lost, left_out] = counts_.read();
  return {packets,  bytes,  completed_.size(), lost,          left_out, running_,
          failing_, error_, unreported_,       limit_reached_};
}

std::vector<RecordedFile> Recorder::files(std::size_t first) const {
  const std::lock_guard lock(mutex_);
  if (first >= completed_.size()) return {};
  return {completed_.begin() + static_cast<std::ptrdiff_t>(first), completed_.end()};
}

}  // namespace daqiri

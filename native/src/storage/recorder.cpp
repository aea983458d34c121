#include "storage/recorder.h"

#include <algorithm>
#include <utility>

#include "system/thread.h"

namespace daqiri {

namespace {

/// Checks the options and takes the queue. Throws Error.
RxQueue* attached(RxQueue& queue, const RecorderOptions& options) {
  require_target(options.directory, options.prefix);
  // Longer than a century is no limit; it would not fit its nanoseconds either.
  if (!(options.roll_seconds >= 0.0 && options.roll_seconds < 3e9)) {
    throw Error(Status::INVALID_PARAMETER, "roll_seconds is " +
                                               std::to_string(options.roll_seconds) +
                                               "; accepted are 0 (no limit) and up to 3e9");
  }
  queue.attach_recorder(options.directory + "/" + options.prefix);
  return &queue;
}

}  // namespace

// --- The recorder's thread

void Recorder::run() noexcept {
  configure_thread(std::string(ANY_CORE), "rec:" + queue_.config().common_.name_);
  block_file_size_signal();
  try {
    record();
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
    running_ = false;
  }
  answered_.notify_all();
  doorbell_.ring();
}

void Recorder::record() {
  while (!limit_reached()) {
    if (stopping_.load()) return drain();
    answer_roll();
    // In this order: what was pushed before the queue closed is seen.
    const bool closed = queue_.closed();
    Burst* burst = queue_.receive();
    if (burst == nullptr) {
      if (closed) return;
      burst = await();
    }
    if (burst != nullptr) take(*burst);
    const std::uint64_t now = monotonic_ns();
    if (now >= poll_at_) {
      poll_at_ = files_.poll(now);
      publish();
    }
  }
}

Burst* Recorder::await() {
  const WaitQueue::Ticket ticket = queue_.ready().prepare();
  const bool asked = stopping_.load() || rolls_asked_.load() != rolls_done_ || queue_.closed();
  Burst* burst = asked ? nullptr : queue_.receive();
  if (asked || burst != nullptr) return burst;
  const std::uint64_t now = monotonic_ns();
  queue_.ready().wait(ticket, static_cast<std::int64_t>(poll_at_ > now ? poll_at_ - now : 0));
  return nullptr;
}

void Recorder::take(Burst& burst) {
  const auto give_back = [](Burst* b) { b->release(); };
  const std::unique_ptr<Burst, decltype(give_back)> held(&burst, give_back);
  const std::uint32_t n = burst.num_packets();
  if (paused_.load(std::memory_order_relaxed)) {
    files_.leave_out(CaptureLosses::PAUSED, n);
  } else {
    std::uint32_t wanted = n;
    if (max_packets_ > 0)
      wanted =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(n, max_packets_ - files_.packets()));
    // First: writing may complete the last file.
    files_.leave_out(CaptureLosses::AFTER_LIMIT, n - wanted);
    files_.write(burst, wanted);
  }
  publish();
}

void Recorder::drain() {
  // What the queue holds now bounds what is taken, however fast more arrives.
  const std::uint64_t held = queue_.counters().held;
  for (std::uint64_t taken = 0; taken < held && !limit_reached();) {
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
      max_packets_(options.max_packets),
      files_(options, *session_, queue) {
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

RecorderSnapshot Recorder::snapshot() const {
  const std::lock_guard lock(mutex_);
  const auto [packets, bytes, lost, left_out] = counts_.read();
  return {packets,  bytes,  completed_.size(), lost, left_out, running_,
          failing_, error_, unreported_};
}

std::vector<RecordedFile> Recorder::files(std::size_t first) const {
  const std::lock_guard lock(mutex_);
  if (first >= completed_.size()) return {};
  return {completed_.begin() + static_cast<std::ptrdiff_t>(first), completed_.end()};
}

}  // namespace daqiri

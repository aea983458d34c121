#include "storage/recorder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "metrics/counters.h"
#include "storage/capture_files.h"
#include "system/log.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

void require_options(const RecorderOptions& options) {
  require_target(options.directory, options.prefix);
  // Longer than a century is no limit; it would not fit its nanoseconds either.
  if (!(options.roll_seconds >= 0.0 && options.roll_seconds < 3e9)) {
    throw Error(Status::INVALID_PARAMETER, "roll_seconds is " +
                                               std::to_string(options.roll_seconds) +
                                               "; accepted are 0 (no limit) and up to 3e9");
  }
}

}  // namespace

struct Recorder::Impl {
  Impl(std::shared_ptr<Session> of, RxQueue& from, const RecorderOptions& chosen)
      : session(std::move(of)),
        queue(from),
        max_packets(chosen.max_packets),
        files(chosen, *session, queue) {}

  void run() noexcept;
  void record();
  void take(Burst& burst);
  void drain();
  void answer_roll();
  Burst* await();
  void publish();
  void end() noexcept;
  [[nodiscard]] bool limit_reached() const noexcept {
    return max_packets > 0 && files.packets() >= max_packets;
  }

  std::shared_ptr<Session> session;
  RxQueue& queue;
  std::uint64_t max_packets;
  // The recorder's thread.
  CaptureFiles files;
  std::uint64_t poll_at{0};
  std::thread thread;

  // Requests.
  std::atomic<bool> stopping{false};
  std::atomic<bool> paused{false};
  std::atomic<std::uint64_t> rolls_asked{0};
  std::mutex stop_mutex;

  // Results.
  CounterGroup<4> counts;
  mutable std::mutex mutex;
  std::condition_variable answered;
  std::uint64_t rolls_done{0};
  std::vector<RecordedFile> completed;
  std::string error;
  bool failing{false};
  bool running{true};
  Doorbell doorbell;
};

// --- The recorder's thread

void Recorder::Impl::run() noexcept {
  configure_thread(std::string(ANY_CORE), "rec:" + queue.config().name_);
  block_file_size_signal();
  try {
    record();
    files.finish();
    publish();
  } catch (const std::exception& e) {
    // Only memory can be short here.
    const std::lock_guard lock(mutex);
    if (error.empty()) error = e.what();
  }
  end();
}

void Recorder::Impl::record() {
  while (!limit_reached()) {
    if (stopping.load()) return drain();
    answer_roll();
    // In this order: what was pushed before the queue closed is seen.
    const bool closed = queue.closed();
    Burst* burst = queue.receive();
    if (burst == nullptr) {
      if (closed) return;
      burst = await();
    }
    if (burst != nullptr) take(*burst);
    const std::uint64_t now = monotonic_ns();
    if (now >= poll_at) {
      poll_at = files.poll(now);
      publish();
    }
  }
}

Burst* Recorder::Impl::await() {
  const WaitQueue::Ticket ticket = queue.ready().prepare();
  const bool asked = stopping.load() || rolls_asked.load() != rolls_done || queue.closed();
  Burst* burst = asked ? nullptr : queue.receive();
  if (asked || burst != nullptr) {
    queue.ready().cancel();
    return burst;
  }
  const std::uint64_t now = monotonic_ns();
  queue.ready().wait(ticket, static_cast<std::int64_t>(poll_at > now ? poll_at - now : 0));
  return nullptr;
}

void Recorder::Impl::take(Burst& burst) {
  const auto give_back = [](Burst* b) { b->release(); };
  const std::unique_ptr<Burst, decltype(give_back)> held(&burst, give_back);
  const std::uint32_t n = burst.num_packets();
  if (paused.load(std::memory_order_relaxed)) {
    files.leave_out(NotWritten::PAUSED, n);
  } else {
    std::uint32_t wanted = n;
    if (max_packets > 0)
      wanted =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(n, max_packets - files.packets()));
    // First: writing may complete the last file.
    files.leave_out(NotWritten::AFTER_LIMIT, n - wanted);
    files.write(burst, wanted);
  }
  publish();
}

void Recorder::Impl::drain() {
  // What the queue holds now bounds what is taken, however fast more arrives.
  const std::uint64_t held = queue.counters().held;
  for (std::uint64_t taken = 0; taken < held && !limit_reached();) {
    Burst* burst = queue.receive();
    if (burst == nullptr) return;
    taken += burst->num_packets();
    take(*burst);
  }
}

void Recorder::Impl::answer_roll() {
  const std::uint64_t asked = rolls_asked.load();
  if (asked == rolls_done) return;
  drain();
  // Limits may just have completed a file for us; an empty one behind it would tell nothing.
  if (!files.take_rolled() || files.has_file()) files.complete();
  publish();
  {
    const std::lock_guard lock(mutex);
    rolls_done = asked;
  }
  answered.notify_all();
}

void Recorder::Impl::publish() {
  // Written by this thread alone.
  const bool news = files.any_completed() || files.failing() != failing;
  if (news) {
    const std::lock_guard lock(mutex);
    failing = files.failing();
    for (RecordedFile& file : files.take_completed()) completed.push_back(std::move(file));
    if (error.empty()) error = files.error();
  }
  counts.publish({files.packets(), files.wire_bytes(), files.lost(), files.left_out()});
  if (news) doorbell.ring();
}

void Recorder::Impl::end() noexcept {
  queue.detach_recorder();
  {
    const std::lock_guard lock(mutex);
    running = false;
  }
  answered.notify_all();
  doorbell.ring();
}

// --- Any thread

Recorder::Recorder(std::shared_ptr<Session> session, RxQueue& queue,
                   const RecorderOptions& options) {
  require_options(options);
  queue.attach_recorder(options.directory + "/" + options.prefix);
  try {
    impl_ = std::make_unique<Impl>(std::move(session), queue, options);
    impl_->files.begin();
    impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
  } catch (...) {
    queue.detach_recorder();
    throw;
  }
}

Recorder::~Recorder() { stop(); }

void Recorder::stop() noexcept {
  impl_->stopping.store(true);
  impl_->queue.ready().ring();
  const std::lock_guard lock(impl_->stop_mutex);
  if (impl_->thread.joinable()) impl_->thread.join();
}

void Recorder::roll() {
  std::unique_lock lock(impl_->mutex);
  if (!impl_->running)
    throw Error(Status::NOT_READY, "the recorder has ended; there is no file to complete");
  const std::uint64_t mine = impl_->rolls_asked.fetch_add(1) + 1;
  impl_->queue.ready().ring();
  impl_->answered.wait(lock, [&] { return impl_->rolls_done >= mine || !impl_->running; });
  if (impl_->failing) throw Error(Status::GENERIC_FAILURE, impl_->error);
}

void Recorder::set_paused(bool paused) noexcept {
  impl_->paused.store(paused, std::memory_order_relaxed);
}

RecorderSnapshot Recorder::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  const auto [packets, bytes, lost, left_out] = impl_->counts.read();
  return {packets,  bytes,          impl_->completed.size(), lost,
          left_out, impl_->running, impl_->failing,          impl_->error};
}

std::vector<RecordedFile> Recorder::files(std::size_t first) const {
  const std::lock_guard lock(impl_->mutex);
  if (first >= impl_->completed.size()) return {};
  return {impl_->completed.begin() + static_cast<std::ptrdiff_t>(first), impl_->completed.end()};
}

std::string Recorder::writer() const { return impl_->files.writer_name(); }

Doorbell& Recorder::doorbell() noexcept { return impl_->doorbell; }

}  // namespace daqiri

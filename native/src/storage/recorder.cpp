#include "storage/recorder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "system/thread.h"

namespace daqiri {

namespace {

std::uint64_t frames_lost(const SourceCounters& counters) {
  const auto* plan = std::get_if<reorder::ReorderSnapshot>(&counters);
  return plan == nullptr ? 0 : plan->absent();
}

}  // namespace

// --- The recorder's thread

void Recorder::run() noexcept {
  configure_thread(std::string(ANY_CORE), "rec:" + source_->name());
  block_file_size_signal();
  bool limit_reached = false;
  try {
    limit_reached = record();
    answer_description();
    if (!alone_) roll_with_group(group_->end());
    files_.finish();
    publish();
  } catch (const std::exception& e) {
    // The only possible error is a lack of memory.
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = e.what();
  }
  source_->detach();
  {
    const std::lock_guard lock(mutex_);
    unreported_ = files_.unreported();
    limit_reached_ = limit_reached;
    running_ = false;
    if (paused_.load()) group_->hold(false);  // the clock of the other recorders continues
  }
  answered_.notify_all();
  doorbell_.ring();
}

bool Recorder::record() {
  for (std::uint64_t now = monotonic_ns(); !group_->limit_reached();) {
    const bool over = now >= group_->deadline();
    if (over || stopping_.load()) {
      source_->end();
      drain();
      return over || group_->limit_reached();
    }
    answer_description();
    answer_refusal();
    answer_roll();
    answer_rewind();
    if (!alone_) roll_with_group(group_->rolls());
    // In this order, so that bursts pushed before the queue closed are received.
    const bool closed = source_->closed();
    Burst* burst = source_->receive();
    if (burst == nullptr) {
      if (closed) return false;
      burst = await();
    }
    if (burst != nullptr) take(*burst);
    now = monotonic_ns();
    if (now >= poll_at_) {
      const CaptureFiles::Counts before = files_.counts();
      poll_at_ = files_.poll(now);
      tell_group(0, before);
      if (acquiring_) note_acquired();
      if (!alone_) group_->poll(now);
      publish();
    }
  }
  return true;
}

Burst* Recorder::await() {
  const WaitQueue::Ticket ticket = source_->ready().prepare();
  const bool asked = stopping_.load() || rolls_asked_.load() != rolls_done_ ||
                     rewinds_asked_.load() != rewinds_done_ ||
                     descriptions_asked_.load() != descriptions_done_ || source_->closed();
  Burst* burst = asked ? nullptr : source_->receive();
  if (asked || burst != nullptr) return burst;
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t until = std::min(poll_at_, group_->deadline());
  source_->ready().wait(ticket, static_cast<std::int64_t>(until > now ? until - now : 0));
  return nullptr;
}

void Recorder::take(Burst& burst) {
  const auto give_back = [](Burst* b) { b->release(); };
  const std::unique_ptr<Burst, decltype(give_back)> held(&burst, give_back);
  const std::uint32_t n = burst.num_packets();
  if (paused_.load(std::memory_order_relaxed)) {
    files_.leave_out(CaptureLosses::PAUSED, n);
    if (held_ && asked_for(burst)) pass_over(burst);
  } else if (held_ && !asked_for(burst)) {
    files_.leave_out(CaptureLosses::HELD, n);
  } else if (const std::uint32_t first = start_of(burst); held_ && first == n) {
    files_.leave_out(CaptureLosses::BEFORE_START, n);
    pass_over(burst);
  } else if (const auto unwanted = held_ ? fill_up_to(burst) : std::nullopt; unwanted) {
    files_.leave_out(*unwanted, n);
  } else {
    const std::uint32_t wanted = group_->take(n - first);
    const CaptureFiles::Counts before = files_.counts();
    // First, because writing may complete the last file.
    files_.leave_out(CaptureLosses::BEFORE_START, first);
    files_.leave_out(CaptureLosses::AFTER_LIMIT, n - first - wanted);
    files_.write(burst, first, first + wanted);
    // Else recordings could end at a limit with records that then cannot be written.
    if (group_->limit_reached()) {
      files_.flush();
    } else if (!alone_ && group_->limits().max_packets > 0) {
      files_.put_held_back();
    }
    tell_group(wanted, before);
    if (acquiring_) note_acquired();
  }
  publish();
}

void Recorder::tell_group(std::uint32_t taken, const CaptureFiles::Counts& before) {
  const CaptureFiles::Counts after = files_.counts();
  // Fewer than before if the writer has lost records of earlier bursts.
  const std::uint64_t written = after.records > before.records ? after.records - before.records : 0;
  group_->give_back(taken + before.records - after.records);
  if (!alone_) group_->wrote(written, after.bytes > before.bytes ? after.bytes - before.bytes : 0);
}

/// Returns the index of the first packet to write to files.
std::uint32_t Recorder::start_of(const Burst& burst) noexcept {
  if (!awaited_) return 0;
  const std::uint32_t first = source_->start_of(burst, *awaited_);
  if (first < burst.num_packets()) awaited_.reset();
  return first;
}

bool Recorder::asked_for(const Burst& frame) {
  if (acquisitions_asked_.load(std::memory_order_acquire) != acquisition_.number) {
    const std::lock_guard lock(mutex_);
    // Not if it was refused meanwhile.
    if (asked_.number != acquisition_.number) {
      acquisition_ = asked_;
      awaited_ = start_flow_;
      acquiring_ = true;
      acquired_before_ = files_.counts().records + files_.counts().gone;
      images_passed_ = 0;
      files_.tell_losses_after(acquisition_.lost);
    }
  }
  return acquiring_ && frame.order >= acquisition_.order;
}

std::uint64_t Recorder::acquired_rows() const noexcept {
  const CaptureFiles::Counts now = files_.counts();
  // Those that are gone were rows, which others may have seen.
  const std::uint64_t rows = now.records + now.gone;
  // Fewer than before if a file was removed.
  return rows > acquired_before_ ? rows - acquired_before_ : 0;
}

void Recorder::pass_over(const Burst& frame) noexcept {
  images_passed_ = frame.index + 1 - std::min(frame.index + 1, acquired_rows());
}

std::optional<CaptureLosses::Reason> Recorder::fill_up_to(const Burst& frame) {
  const std::uint64_t rows = acquired_rows();
  // Others cannot read them yet, or the acquisition would be complete.
  if (acquisition_.frames > 0 && rows >= acquisition_.frames) return CaptureLosses::HELD;
  const std::uint64_t row = frame.index - std::min(frame.index, images_passed_);
  if (row <= rows) return std::nullopt;
  const std::uint64_t absent = row - rows;
  if (acquisition_.frames == 0 && absent > MOST_ABSENT) {
    images_passed_ += absent;
    return std::nullopt;
  }
  const std::uint64_t wanted =
      acquisition_.frames == 0 ? absent : std::min(absent, acquisition_.frames - rows);
  const std::uint32_t taken = group_->take(static_cast<std::uint32_t>(wanted));
  const CaptureFiles::Counts before = files_.counts();
  files_.write_absent(frame, absent, taken);
  tell_group(taken, before);
  note_acquired();
  if (!acquiring_) return CaptureLosses::HELD;
  if (acquired_rows() >= row) return std::nullopt;
  return taken < wanted ? CaptureLosses::AFTER_LIMIT : CaptureLosses::WRITE_ERROR;
}

void Recorder::note_acquired() {
  const auto all_there = [this] { return acquired_rows() >= acquisition_.frames; };
  // Frames count only when other processes can read them.
  if (acquisition_.frames == 0 || !all_there() || !files_.flush() || !all_there()) return;
  acquiring_ = false;
  publish();
  {
    const std::lock_guard lock(mutex_);
    // Frames that are being rewound do not count.
    if (asked_.number != acquisition_.number || rewinds_asked_.load() != rewinds_done_) return;
    acquired_ = acquisition_.frames;
    ++acquisitions_done_;
  }
  doorbell_.ring();
}

void Recorder::end_acquisition() {
  const std::lock_guard lock(mutex_);
  acquisition_ = asked_;
  acquiring_ = false;
}

void Recorder::drain() {
  // Limited to what the queue holds now, so that this ends even if packets keep arriving.
  const std::uint64_t held = source_->held();
  for (std::uint64_t taken = 0; taken < held && !group_->limit_reached();) {
    Burst* burst = source_->receive();
    if (burst == nullptr) return;
    taken += burst->num_packets();
    take(*burst);
  }
}

void Recorder::complete() {
  const CaptureFiles::Counts before = files_.counts();
  files_.complete();
  tell_group(0, before);
}

void Recorder::answer_description() {
  if (descriptions_asked_.load() == descriptions_done_) return;
  RunMetadata metadata;
  std::uint64_t asked = 0;
  {
    const std::lock_guard lock(mutex_);
    metadata = description_;
    asked = descriptions_asked_.load();
  }
  files_.describe(metadata);
  publish();
  {
    const std::lock_guard lock(mutex_);
    descriptions_done_ = asked;
  }
  answered_.notify_all();
}

void Recorder::answer_refusal() {
  if (!refusal_asked_.exchange(false)) return;
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = refusal_;
  }
  files_.refuse(std::move(reason));
  publish();
}

void Recorder::answer_roll() {
  const std::uint64_t asked = rolls_asked_.load();
  if (asked == rolls_done_) return;
  drain();
  complete();
  publish();
  {
    const std::lock_guard lock(mutex_);
    rolls_done_ = asked;
  }
  answered_.notify_all();
}

void Recorder::answer_rewind() {
  const std::uint64_t asked = rewinds_asked_.load();
  if (asked == rewinds_done_) return;
  std::optional<Error> refused;
  // A split keeps the waiting frames, in the next file.
  if (!splits_) end_acquisition();
  drain();  // waiting frames belong to the time before
  try {
    if (splits_) {
      files_.split(rewind_to_);
    } else {
      group_->give_back(files_.rewind(rewind_to_));
    }
  } catch (const Error& e) {
    refused = e;
  }
  publish();
  end_acquisition();
  {
    const std::lock_guard lock(mutex_);
    rewind_refused_ = std::move(refused);
    rewinds_done_ = asked;
  }
  answered_.notify_all();
}

void Recorder::roll_with_group(std::uint64_t rolls) {
  if (group_rolls_ == rolls) return;
  for (; group_rolls_ < rolls; ++group_rolls_) complete();
  publish();
}

void Recorder::publish() {
  // `counts_` is written by this thread only.
  const bool news = files_.any_completed() || files_.failing() != failing_;
  const auto publish_counts = [this] {
    const CaptureFiles::Counts c = files_.counts();
    counts_.publish({c.packets, c.bytes, c.lost, c.left_out, c.frames, c.missing, c.flushed});
  };
  if (!news && files_.path() == path_) return publish_counts();
  {
    const std::lock_guard lock(mutex_);
    path_ = files_.path();
    failing_ = files_.failing();
    for (RecordedFile& file : files_.take_completed()) completed_.push_back(std::move(file));
    if (error_.empty()) error_ = files_.error();
    // Under the lock, so that files and counts are consistent for readers.
    publish_counts();
  }
  if (news) doorbell_.ring();
}

// --- Any thread

Recorder::Recorder(const std::shared_ptr<Session>& session, RxQueue& queue,
                   const RecorderOptions& options)
    : Recorder(session, packets_of(queue, *session, options), options) {}

Recorder::Recorder(const std::shared_ptr<Session>& session, reorder::RunningPlan& plan,
                   const RecorderOptions& options)
    : Recorder(session, frames_of(plan, *session, options), options) {}

Recorder::Recorder(std::shared_ptr<Session> session, std::unique_ptr<RecordingSource> source,
                   const RecorderOptions& options)
    : session_(std::move(session)),
      source_(std::move(source)),
      held_(options.held),
      group_(options.group
                 ? options.group
                 : std::make_shared<RecorderGroup>(RecorderGroup::Limits{
                       .max_packets = options.max_packets, .max_seconds = options.max_seconds})),
      alone_(!options.group),
      files_(options, *session_, *source_),
      start_flow_(options.start_flow),
      awaited_(options.held ? std::nullopt : options.start_flow),
      path_(files_.path()) {
  files_.tell_losses_after(frames_lost(source_->counters()));
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
  source_->ready().ring();
  const std::lock_guard lock(stop_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Recorder::describe(RunMetadata metadata) {
  require_run_metadata(metadata);
  std::unique_lock lock(mutex_);
  if (!running_) return;
  description_ = std::move(metadata);
  const std::uint64_t mine = descriptions_asked_.fetch_add(1) + 1;
  source_->ready().ring();
  answered_.wait(lock, [&] { return descriptions_done_ >= mine || !running_; });
}

void Recorder::refuse(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(reason);
  }
  refusal_asked_.store(true);
}

void Recorder::roll() {
  std::unique_lock lock(mutex_);
  if (!running_)
    throw Error(Status::NOT_READY, "the recorder has ended; there is no file to complete");
  const std::uint64_t mine = rolls_asked_.fetch_add(1) + 1;
  source_->ready().ring();
  answered_.wait(lock, [&] { return rolls_done_ >= mine || !running_; });
  if (failing_) throw Error(Status::GENERIC_FAILURE, error_);
}

void Recorder::set_paused(bool paused) {
  {
    // A recorder that has ended must not hold the group. The lock serializes concurrent calls.
    const std::lock_guard lock(mutex_);
    if (!running_ || paused_.exchange(paused) == paused) return;
    group_->hold(paused);
  }
  source_->ready().ring();
}

std::uint64_t Recorder::acquire(std::uint64_t frames, std::optional<std::uint64_t> first) {
  if (!held_) {
    throw Error(Status::INVALID_PARAMETER,
                "the recorder records all frames; start it with held=True to acquire some");
  }
  std::uint64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!running_)
      throw Error(Status::NOT_READY, "the recorder has ended; it cannot acquire frames");
    const Acquisition previous = asked_;
    // First, so that the recorder's thread waits with the first frame until all is known.
    asked_ = {asked_.number + 1, frames, UINT64_MAX, 0};
    acquisitions_asked_.store(asked_.number, std::memory_order_release);
    try {
      const auto began =
          source_->begin_acquisition(session_->port(source_->port()).io->clock()(), first);
      asked_.order = began.order;
      asked_.lost = lost = began.absent;
    } catch (...) {
      asked_ = previous;
      acquisitions_asked_.store(asked_.number, std::memory_order_release);
      throw;
    }
    acquired_ = 0;
  }
  source_->ready().ring();
  return lost;
}

void Recorder::change(std::uint64_t frames, bool split) {
  if (!held_) {
    throw Error(Status::INVALID_PARAMETER,
                "the recorder records all frames; start it with held=True to rewind it");
  }
  std::unique_lock lock(mutex_);
  if (!running_) throw Error(Status::NOT_READY, "the recorder has ended; it cannot be rewound");
  // One request at a time.
  answered_.wait(lock, [&] { return rewinds_done_ == rewinds_asked_.load() || !running_; });
  rewind_to_ = frames;
  splits_ = split;
  acquired_ = 0;
  const std::uint64_t mine = rewinds_asked_.fetch_add(1) + 1;
  source_->ready().ring();
  answered_.wait(lock, [&] { return rewinds_done_ >= mine || !running_; });
  if (rewinds_done_ < mine)
    throw Error(Status::NOT_READY, "the recorder has ended; it cannot be rewound");
  if (rewind_refused_) throw Error(*rewind_refused_);
}

void Recorder::end_in(double seconds) {
  group_->end_in(seconds);
  source_->ready().ring();
}

RecorderSnapshot Recorder::snapshot() const {
  const std::lock_guard lock(mutex_);
  const auto [packets, bytes, lost, left_out, frames, missing, flushed] = counts_.read();
  return {packets,  bytes,     completed_.size(),  lost,           left_out, running_,
          failing_, error_,    unreported_,        limit_reached_, frames,   missing,
          flushed,  acquired_, acquisitions_done_, path_};
}

std::vector<RecordedFile> Recorder::files(std::size_t first) const {
  const std::lock_guard lock(mutex_);
  if (first >= completed_.size()) return {};
  return {completed_.begin() + static_cast<std::ptrdiff_t>(first), completed_.end()};
}

}  // namespace daqiri

#include "storage/capture_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>

#include "storage/new_file.h"
#include "storage/sidecar.h"
#include "storage/write_backend.h"

namespace daqiri {

namespace {

/// Short packets are held back for at most this long.
constexpr std::uint64_t POLL_NS = 100'000'000;
/// A direct writer holds packets back for at most this long.
constexpr std::uint64_t SYNC_NS = 1'000'000'000;
constexpr std::uint64_t RETRY_NS = 500'000'000;
/// Ages of the port's counters: files may follow each other fast, and drivers take ms for theirs.
constexpr std::uint64_t NOW = 0;
constexpr std::uint64_t RECENT = 20'000'000;
/// Growth of the metadata until a file is complete: digits of its numbers.
constexpr std::size_t METADATA_GROWTH = 2048;

}  // namespace

CaptureFiles::CaptureFiles(const RecorderOptions& options, const Session& session,
                           RecordingSource& source)
    : source_(source),
      session_(session),
      ports_(source.ports()),
      origin_(options, session, source),
      writer_(make_writer()),
      number_(options.first_number),
      roll_size_(options.roll_bytes == 0 ? RecordWriter::NO_LIMIT
                                         : options.roll_bytes + writer_->header_size()),
      roll_ns_(static_cast<std::uint64_t>(options.roll_seconds * 1e9)),
      losses_before_{losses(RECENT)} {
  remove_leftovers(options_.directory);
  begin_next();
  // The writer is known after the file was created, which may reject what its directory accepts.
  origin_.writer = writer_->output_name();
  origin_.cufile_mode = writer_->cufile_mode();
  // Begin after the files exist, so that a recording that fails removes nothing from the source.
  source_.begin();
  losses_before_ = losses(NOW);
}

CaptureFiles::~CaptureFiles() = default;

void CaptureFiles::describe(const RunMetadata& metadata) {
  next_run_ = metadata;
  if (!has_file_ || !names_run(run_)) run_ = metadata;
  const std::uint64_t records = writer_->records();
  const bool failed = writer_->failed();
  writer_->describe(metadata);
  if (has_file_ && writer_->failed() && !failed) note_failure(records);
}

void CaptureFiles::log_about(LogLevel level, const std::string& text) const {
  const bool queue = source_.kind() == std::string_view("queue");
  log(level,
      std::string("recording of ") + (queue ? "queue " : "reorder plan ") + origin_.name + text,
      {source_.interface(), queue ? source_.name() : std::string()});
}

std::unique_ptr<RecordWriter> CaptureFiles::make_writer() const {
  if (options_.writer == WriterKind::CUFILE)
    return source_.make_writer(options_, WriterKind::CUFILE);
  if (options_.writer == WriterKind::AUTO && source_.in_device_memory() &&
      options_.compression == FrameCompression::NONE) {
    try {
      auto writer = source_.make_writer(options_, WriterKind::CUFILE);
      if (writer->cufile_mode() != COMPATIBILITY_MODE) return writer;
      log_about(LogLevel::INFO,
                " copies frames to the CPU, as cuFile would also do: the kernel has no nvidia-fs");
    } catch (const std::exception& e) {
      log_about(LogLevel::WARN,
                std::string(" copies frames to the CPU, without cuFile: ") + e.what());
    }
  }
  std::string why_not;
  const WriterKind kind = possible_writer(options_.writer, options_.directory, why_not);
  if (options_.writer == WriterKind::DIRECT && !why_not.empty())
    log_about(LogLevel::WARN, " is buffered, not direct as requested: " + why_not);
  std::string shortage;
  if (kind == WriterKind::DIRECT) {
    try {
      return source_.make_writer(options_, kind);
    } catch (const std::exception& e) {
      shortage = e.what();
    }
  }
  // If this one lacks memory too, its exception reports it.
  std::unique_ptr<RecordWriter> buffered = source_.make_writer(options_, WriterKind::BUFFERED);
  if (!shortage.empty()) log_about(LogLevel::WARN, " is buffered, not direct: " + shortage);
  return buffered;
}

std::string CaptureFiles::next_path() const {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "_%06llu", static_cast<unsigned long long>(number_));
  return options_.directory + "/" + options_.prefix + digits.data() + writer_->suffix();
}

template <typename Step>
void CaptureFiles::with_free_number(Step&& step) {
  for (;; ++number_) {
    try {
      return step();
    } catch (const Error& error) {
      writer_->discard_prepared();
      next_sidecar_.reset();
      // The first file must not replace or skip an existing one.
      if (error.status() != Status::INVALID_PARAMETER || begun_ns_ == 0) throw;
      log_about(LogLevel::WARN, std::string(" skips a file number: ") + error.what());
    }
  }
}

void CaptureFiles::prepare_number() {
  if (next_sidecar_ != nullptr) return;
  writer_->prepare(next_path());
  next_sidecar_ = std::make_unique<Sidecar>(next_path(),
                                            metadata(losses(RECENT)).json.size() + METADATA_GROWTH);
}

void CaptureFiles::begin_next() {
  with_free_number([this] {
    prepare_number();
    writer_->create(next_path());
  });
  sidecar_ = std::move(next_sidecar_);
  run_ = next_run_;
  begun_ns_ = realtime_ns();
  ++number_;
  has_file_ = true;
  first_written_ns_ = 0;
  sync_at_ = monotonic_ns() + SYNC_NS;
}

bool CaptureFiles::try_begin() {
  try {
    begin_next();
    return true;
  } catch (const Error& e) {
    fail(e.what());
    return false;
  }
}

bool CaptureFiles::ready() {
  if (failing_) return retry_is_due() && recover();
  return has_file_ || try_begin();
}

bool CaptureFiles::recover() {
  const bool empty = has_file_ && writer_->records() == 0;
  const bool same = empty && writer_->retry();
  if (empty && !same) {
    remove_empty();
  } else if (has_file_ && !same) {
    complete_present(false);
  }
  if (!same && (has_file_ || !try_begin())) return false;
  failing_ = false;
  log_about(LogLevel::WARN, " continues in " + writer_->path());
  return true;
}

void CaptureFiles::remove_empty() {
  if (is_gone()) return;
  const std::uint64_t next = number_;
  try {
    with_free_number([this] { prepare_number(); });
  } catch (const Error& e) {
    return fail(e.what());
  }
  writer_->discard_prepared();
  next_sidecar_.reset();
  discard();
  number_ = next - 1;
}

template <typename Write>
std::uint64_t CaptureFiles::write_to_files(std::uint64_t count, Write&& write) {
  std::uint64_t done = 0;
  while (done < count && ready()) {
    if (!writer_->holds_back() && is_gone()) continue;
    const std::uint64_t records = writer_->records();
    std::uint64_t room = std::min<std::uint64_t>(count - done, UINT32_MAX);
    if (options_.roll_packets > 0) room = std::min(room, options_.roll_packets - records);
    done += write(done, static_cast<std::uint32_t>(room));
    if (roll_ns_ > 0 && first_written_ns_ == 0) first_written_ns_ = monotonic_ns();
    if (writer_->failed()) {
      note_failure(records);
    } else if (writer_->size() >= roll_size_ ||
               (options_.roll_packets > 0 && writer_->records() >= options_.roll_packets)) {
      roll();
    }
  }
  return done;
}

void CaptureFiles::write(Burst& burst, std::uint32_t first, std::uint32_t end) {
  if (writer_ != nullptr) writer_->fetch(burst, first, end - first);
  const std::uint64_t done =
      write_to_files(end - first, [&](std::uint64_t before, std::uint32_t room) {
        // Includes what the previous file has lost until now.
        const std::uint64_t lost = burst.lost + not_written_[CaptureLosses::WRITE_ERROR];
        burst.lossy = lost > lost_told_;
        const std::uint32_t written =
            writer_->write(burst, first + static_cast<std::uint32_t>(before), room, roll_size_);
        if (written > 0) lost_told_ = std::max(lost_told_, lost);
        return written;
      });
  leave_out(CaptureLosses::WRITE_ERROR, end - first - done);
}

void CaptureFiles::write_absent(const Burst& next, std::uint64_t before, std::uint64_t count) {
  write_to_files(count, [&](std::uint64_t done, std::uint32_t room) {
    return writer_->write_absent(next, before - done, room, roll_size_);
  });
}

void CaptureFiles::note_failure(std::uint64_t records) {
  const std::uint64_t kept = writer_->records();
  if (kept < records) leave_out(CaptureLosses::WRITE_ERROR, records - kept);
  if (!is_gone()) fail(writer_->error());
}

bool CaptureFiles::put_held_back() {
  if (!has_file_ || writer_->failed()) return true;
  const std::uint64_t records = writer_->records();
  writer_->put_held_back();
  if (!writer_->failed()) return true;
  note_failure(records);
  return false;
}

void CaptureFiles::roll() {
  complete_present(false);
  rolled_ = true;
}

void CaptureFiles::complete() {
  const bool rolled = std::exchange(rolled_, false);
  if (has_file_ || (!rolled && !failing_ && try_begin())) complete_present(false);
}

bool CaptureFiles::complete_present(bool last) {
  if (is_gone()) return false;
  // First: the file may stay the current one for long if there cannot be another.
  if (!put_held_back() && (!last || !has_file_)) return false;
  try {
    if (!last) with_free_number([this] { prepare_number(); });
  } catch (const Error& e) {
    fail(e.what());
    return false;
  }
  const std::uint64_t records = writer_->records();
  const bool failed = writer_->failed();
  writer_->close(options_.durable);
  if (writer_->failed() && !failed) {
    note_failure(records);
    // Packets until writing resumes are lost too, and this file's metadata report them.
    if (!last || !has_file_) return false;
  }
  const CaptureLosses now = losses(last ? NOW : RECENT);
  const CaptureMetadata metadata = this->metadata(now);
  bool told = false;
  try {
    sidecar_->finish(metadata.json, options_.durable);
    told = true;
    if (options_.durable) {
      const File folder(open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!folder.is_open() || fsync(folder.fd()) != 0)
        throw file_error("cannot sync", options_.directory, errno);
    }
  } catch (const Error& e) {
    if (access(writer_->path().c_str(), F_OK) != 0) {
      forget_file(e.what());
      return false;
    }
    fail(e.what());
  }
  const FileTally& tally = writer_->tally();
  completed_.push_back({tally, writer_->path(), told ? metadata.dropped : 0,
                        told ? metadata.left_out : 0, told ? metadata.lost_before_engine : 0});
  before_.packets += tally.packets;
  before_.bytes += tally.bytes;
  before_.frames += tally.frames;
  before_.missing += tally.missing;
  records_before_ += writer_->records();
  has_file_ = false;
  // The next file's metadata report losses that could not be written to this file's metadata.
  if (told) losses_before_ = now;
  return told;
}

bool CaptureFiles::flush() {
  if (!has_file_ || failing_ || is_gone()) return !failing_;
  const std::uint64_t records = writer_->records();
  writer_->sync();
  if (writer_->failed()) note_failure(records);
  return !failing_;
}

std::uint64_t CaptureFiles::require_records(std::uint64_t records) const {
  const std::uint64_t there = has_file_ ? writer_->records() : 0;
  if (records > there) {
    throw Error(Status::INVALID_PARAMETER, "cannot rewind to " + std::to_string(records) +
                                               " frames: the current file has " +
                                               std::to_string(there));
  }
  return there;
}

void CaptureFiles::split(std::uint64_t records) {
  const std::uint64_t there = require_records(records);
  if (failing_ || is_gone()) throw Error(Status::GENERIC_FAILURE, error_);
  // First, so that records that are removed from this file have a file to go to.
  with_free_number([this] { prepare_number(); });
  const std::unique_ptr<TakenRecords> taken = writer_->take_back(records);
  if (taken == nullptr) {
    note_failure(there);
  } else {
    const bool begun = complete_present(false) && try_begin();
    if (begun && writer_->put_back(*taken)) return;
    leave_out(CaptureLosses::WRITE_ERROR, there - records - (begun ? writer_->records() : 0));
    if (begun) fail(writer_->error());
  }
  throw Error(Status::GENERIC_FAILURE, error_);
}

std::uint64_t CaptureFiles::rewind(std::uint64_t records) {
  const std::uint64_t there = require_records(records);
  if (records == there) return 0;
  const bool done = !failing_ && !is_gone() && writer_->rewind(records);
  if (!done) {
    if (!failing_) note_failure(there);
    throw Error(Status::GENERIC_FAILURE, error_);
  }
  leave_out(CaptureLosses::REWOUND, there - records);
  return there - records;
}

void CaptureFiles::finish() {
  if (options_.group && !has_file_ && !failing_) try_begin();
  bool told = has_file_ && complete_present(true);
  // An empty file reports losses that no other file has reported.
  if (!told) {
    const CaptureMetadata rest = metadata(losses(NOW));
    told = rest.dropped + rest.left_out > 0 && try_begin() && complete_present(true);
    if (!told) unreported_ = rest.dropped;
  }
  writer_->discard_prepared();
  next_sidecar_.reset();
  // Free the writer's GPU memory and copy buffers; the object may live longer, to be queried.
  if (!has_file_) writer_.reset();
}

std::uint64_t CaptureFiles::poll(std::uint64_t now_ns) {
  const std::uint64_t next = now_ns + POLL_NS;
  if (failing_ && retry_is_due()) recover();
  if (!has_file_ || failing_) return next;
  const bool rolls = roll_ns_ > 0 && first_written_ns_ != 0;
  if (rolls && now_ns >= first_written_ns_ + roll_ns_) {
    roll();
    return next;
  }
  if (now_ns >= sync_at_) {
    sync_at_ = now_ns + SYNC_NS;
    flush();
  } else if (!is_gone()) {
    put_held_back();
  }
  return rolls ? std::min(next, first_written_ns_ + roll_ns_) : next;
}

void CaptureFiles::fail(const std::string& text) {
  retry_at_ = monotonic_ns() + RETRY_NS;
  if (error_.empty()) error_ = text;
  if (std::exchange(failing_, true)) return;
  const bool resumes = options_.on_error == OnError::RESUME;
  log_about(LogLevel::ERROR, (resumes ? " is interrupted: " : " ends: ") + text);
}

void CaptureFiles::refuse(std::string reason) {
  refusal_ = std::move(reason);
  if (!refusal_.empty()) fail(refusal_);
}

bool CaptureFiles::is_gone() {
  if (writer_->still_there()) return false;
  forget_file(gone_error(writer_->path()));
  return true;
}

void CaptureFiles::discard() noexcept {
  if (!std::exchange(has_file_, false)) return;
  writer_->remove();
  writer_->close(false);
  sidecar_.reset();
}

void CaptureFiles::forget_file(const std::string& text) {
  fail(text);
  leave_out(CaptureLosses::WRITE_ERROR, writer_->records());
  gone_ += std::min(writer_->flushed(), writer_->records());
  discard();
}

}  // namespace daqiri

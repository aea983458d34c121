#include "storage/capture_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "storage/packed_writer.h"
#include "storage/pcap_format.h"
#include "storage/pcap_writer.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::uint64_t POLL_NS = 100'000'000;
/// A direct writer holds packets back for at most so long.
constexpr std::uint64_t SYNC_NS = 1'000'000'000;
constexpr std::uint64_t RETRY_NS = 500'000'000;
/// What the metadata may grow by until a file is complete: digits of its numbers.
constexpr std::size_t METADATA_GROWTH = 2048;

constexpr const char* PART = ".part";

/// Remove the hidden metadata file `part` unless its recorder runs, that is, holds its lock; free
/// what was allocated behind the file that it belongs to.
void remove_leftover(const std::string& part) noexcept {
  const File file(open(part.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found{};
  if (!file.is_open() || fstat(file.fd(), &found) != 0 || !S_ISREG(found.st_mode) ||
      flock(file.fd(), LOCK_EX | LOCK_NB) != 0)
    return;
  const std::size_t name = part.rfind('/') + 2;
  const std::size_t suffix = std::strlen(".json") + std::strlen(PART);
  const std::string path =
      part.substr(0, name - 1) + part.substr(name, part.size() - name - suffix);
  const File data(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  // Locked first: a program that appends may be changing its size.
  if (data.is_open() && flock(data.fd(), LOCK_EX | LOCK_NB) == 0 && fstat(data.fd(), &found) == 0 &&
      S_ISREG(found.st_mode)) {
    [[maybe_unused]] const int same_size = ftruncate(data.fd(), found.st_size);
  }
  unlink(part.c_str());
}

bool intended(DropReason reason) noexcept {
  return reason == DropReason::FILTERED || reason == DropReason::FLUSHED;
}

}  // namespace

// --- Metadata beside a file

Sidecar& Sidecar::operator=(Sidecar&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  path_ = std::move(other.path_);
  part_path_ = std::move(other.part_path_);
  part_ = std::move(other.part_);
  return *this;
}

void Sidecar::begin(const std::string& path, std::size_t size) {
  abandon();
  path_ = path + ".json";
  const std::size_t slash = path_.rfind('/') + 1;
  part_path_ = path_.substr(0, slash) + "." + path_.substr(slash) + PART;
  remove_leftover(part_path_);
  part_ = File::private_to_process(
      [&] { return open(part_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); });
  if (!part_.is_open() && errno == EEXIST)
    refuse_existing(part_path_, "belongs to a recorder that runs");
  if (!part_.is_open()) throw file_error("cannot create", part_path_, errno);
  // Somebody who tidies up may have been quicker.
  struct stat found{};
  if ((flock(part_.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
      (fstat(part_.fd(), &found) == 0 && found.st_nlink == 0)) {
    part_.close();
    return begin(path, size);
  }
  const std::string space(size, ' ');
  const int problem = write_fully(part_.fd(), space.data(), space.size(), 0);
  if (problem != 0) {
    abandon();
    throw file_error("cannot write", part_path_, problem);
  }
}

void Sidecar::finish(const std::string& text, bool durable) {
  int problem = write_fully(part_.fd(), text.data(), text.size(), 0);
  if (problem == 0 && ftruncate(part_.fd(), static_cast<off_t>(text.size())) != 0) problem = errno;
  if (problem == 0 && durable && fdatasync(part_.fd()) != 0) problem = errno;
  const int close_problem = part_.close();
  if (problem == 0) problem = close_problem;
  if (problem == 0 && rename(part_path_.c_str(), path_.c_str()) != 0) problem = errno;
  if (problem == 0) return;
  unlink(part_path_.c_str());
  throw file_error("cannot write", path_, problem);
}

void Sidecar::abandon() noexcept {
  if (!part_.is_open()) return;
  unlink(part_path_.c_str());
  part_.close();
}

void remove_leftovers(const std::string& directory) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory.c_str()), closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with('.') && name.ends_with(std::string(".json") + PART))
      remove_leftover(directory + "/" + std::string(name));
  }
}

// --- Files

CaptureFiles::CaptureFiles(const RecorderOptions& options, const Session& session, RxQueue& queue)
    : options_(options),
      queue_(queue),
      interface_(session.port(queue.port_id()).config.name_),
      link_(session.memory()->link_layers.at(queue.port_id())),
      number_(options_.first_number),
      roll_ns_(static_cast<std::uint64_t>(options_.roll_seconds * 1e9)),
      counters_before_(queue.counters()) {
  origin_.queue = interface_ + "/" + queue.config().name_;
  origin_.link_type = link_->link_type();
  origin_.headers_reconstructed =
      options_.format == CaptureFormat::PCAP && link_->reconstructs_headers();
  origin_.format = options_.format == CaptureFormat::PCAP ? "pcap" : "raw";
  origin_.nanosecond = options_.format == CaptureFormat::RAW || options_.nanosecond;
  origin_.packet_data_offset = options_.packet_data_offset;
  origin_.flows = flows_json(session, queue);
  origin_.host = host_json();
  writer_ = make_writer();
  origin_.writer = writer_->output_name();
}

std::unique_ptr<PacketWriter> CaptureFiles::make_writer() {
  std::string why_not;
  auto output = make_output(options_.writer, options_.directory, why_not);
  if (options_.writer == WriterKind::DIRECT && !why_not.empty()) {
    log(LogLevel::WARN,
        "recording of queue " + origin_.queue + " is buffered, not direct as asked for: " + why_not,
        log_origin());
  }
  if (options_.format == CaptureFormat::RAW)
    return std::make_unique<PackedWriter>(options_.packet_data_offset, std::move(output));
  return std::make_unique<PcapWriter>(PcapFormat{link_->link_type(), options_.nanosecond},
                                      std::move(output));
}

std::string CaptureFiles::next_path() const {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "_%06llu", static_cast<unsigned long long>(number_));
  return options_.directory + "/" + options_.prefix + digits.data() + writer_->suffix();
}

void CaptureFiles::begin() {
  remove_leftovers(options_.directory);
  begin_next();
}

void CaptureFiles::prepare_next() {
  while (!prepared_) {
    try {
      writer_->prepare(next_path());
      next_sidecar_.begin(next_path(), metadata().json().size() + METADATA_GROWTH);
      prepared_ = true;
    } catch (const Error& error) {
      writer_->discard_prepared();
      if (!is_taken(error)) throw;
    }
  }
}

void CaptureFiles::begin_next() {
  for (bool begun = false; !begun;) {
    prepare_next();
    prepared_ = false;
    try {
      writer_->create(next_path());
      begun = true;
    } catch (const Error& error) {
      next_sidecar_.abandon();
      if (!is_taken(error)) throw;
    }
  }
  sidecar_ = std::move(next_sidecar_);
  begun_ns_ = realtime_ns();
  ++number_;
  has_file_ = true;
  first_written_ns_ = 0;
  sync_at_ = monotonic_ns() + SYNC_NS;
}

/// Whether a file has the number that is next, which a recording that has begun leaves out.
bool CaptureFiles::is_taken(const Error& error) {
  if (error.status() != Status::INVALID_PARAMETER || begun_ns_ == 0) return false;
  log(LogLevel::WARN,
      "recording of queue " + origin_.queue + " leaves a number out: " + error.what(),
      log_origin());
  ++number_;
  return true;
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
  const bool same = has_file_ && writer_->tally().packets == 0 && writer_->retry();
  if (has_file_ && !same) complete_present(false);
  if (!same && (has_file_ || !try_begin())) return false;
  failing_ = false;
  log(LogLevel::WARN, "recording of queue " + origin_.queue + " goes on in " + writer_->path(),
      log_origin());
  return true;
}

std::uint64_t CaptureFiles::size_limit() const noexcept {
  if (options_.roll_bytes == 0) return PacketWriter::NO_LIMIT;
  const bool pcap = options_.format == CaptureFormat::PCAP;
  return options_.roll_bytes + (pcap ? sizeof(pcap::FileHeader) : 0);
}

bool CaptureFiles::is_full() const noexcept {
  return (options_.roll_packets > 0 && writer_->tally().packets >= options_.roll_packets) ||
         writer_->size() >= size_limit();
}

void CaptureFiles::write(const Burst& burst, std::uint32_t count) {
  std::uint32_t done = 0;
  while (done < count && ready()) {
    const std::uint64_t packets = writer_->tally().packets;
    std::uint64_t room = count - done;
    if (options_.roll_packets > 0) room = std::min(room, options_.roll_packets - packets);
    done += writer_->write(burst, *link_, done, static_cast<std::uint32_t>(room), size_limit());
    if (roll_ns_ > 0 && first_written_ns_ == 0) first_written_ns_ = monotonic_ns();
    if (writer_->failed()) {
      note_failure(packets);
    } else if (is_full()) {
      complete_present(false);
      rolled_ = true;
    }
  }
  lose(count - done);
}

void CaptureFiles::note_failure(std::uint64_t packets) {
  const std::uint64_t kept = writer_->tally().packets;
  if (kept < packets) lose(packets - kept);
  fail(writer_->error());
}

CaptureMetadata CaptureFiles::metadata() const {
  CaptureMetadata metadata{origin_,          writer_->tally(), {}, {}, begun_ns_, realtime_ns(),
                           counters_before_, queue_.counters()};
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
    const auto reason = static_cast<DropReason>(r);
    (intended(reason) ? metadata.left_out : metadata.lost)
        .emplace_back(drop_reason_name(reason),
                      metadata.end.dropped[r] - metadata.begin.dropped[r]);
  }
  metadata.lost.emplace_back("write_error", not_written_[0]);
  metadata.left_out.emplace_back("paused", not_written_[1]);
  metadata.left_out.emplace_back("after_limit", not_written_[2]);
  return metadata;
}

void CaptureFiles::complete() {
  if (has_file_ || (!failing_ && try_begin())) complete_present(false);
}

void CaptureFiles::complete_present(bool last) {
  if (!writer_->still_there())
    return forget_file(writer_->path() + " was removed while it was being written");
  try {
    if (!last) prepare_next();
  } catch (const Error& e) {
    return fail(e.what());
  }
  const std::uint64_t packets = writer_->tally().packets;
  const bool failed = writer_->failed();
  writer_->close(options_.durable);
  if (writer_->failed() && !failed) {
    note_failure(packets);
    // What comes until it goes on is lost, too, and is told by this file.
    if (!last) return;
  }
  const CaptureMetadata metadata = this->metadata();
  bool told = false;
  try {
    sidecar_.finish(metadata.json(), options_.durable);
    told = true;
    if (options_.durable) sync_directory();
  } catch (const Error& e) {
    if (access(writer_->path().c_str(), F_OK) != 0) return forget_file(e.what());
    fail(e.what());
  }
  const FileTally& tally = metadata.tally;
  completed_.push_back({writer_->path(), tally.packets, tally.wire_bytes, tally.first_ns,
                        tally.last_ns, told ? total(metadata.lost) : 0,
                        told ? total(metadata.left_out) : 0});
  before_.packets += tally.packets;
  before_.wire_bytes += tally.wire_bytes;
  has_file_ = false;
  // Losses that this file's metadata could not tell are told by the next one's.
  if (!told) return;
  not_written_ = {};
  counters_before_ = metadata.end;
}

void CaptureFiles::sync_directory() {
  const File directory(open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open() || fsync(directory.fd()) != 0)
    throw file_error("cannot sync", options_.directory, errno);
}

void CaptureFiles::finish() {
  // Losses since the last file are told by an empty one.
  if (!has_file_) {
    const CaptureMetadata rest = metadata();
    if (total(rest.lost) + total(rest.left_out) > 0) try_begin();
  }
  if (has_file_) complete_present(true);
  writer_->discard_prepared();
  next_sidecar_.abandon();
}

std::uint64_t CaptureFiles::poll(std::uint64_t now_ns) {
  std::uint64_t next = now_ns + POLL_NS;
  if (failing_ && retry_is_due()) recover();
  if (!has_file_ || failing_) return next;
  if (roll_ns_ > 0 && first_written_ns_ != 0) {
    const std::uint64_t due = first_written_ns_ + roll_ns_;
    if (now_ns >= due) {
      complete_present(false);
      rolled_ = true;
      return next;
    }
    next = std::min(next, due);
  }
  if (!writer_->still_there()) {
    forget_file(writer_->path() + " was removed while it was being written");
  } else if (now_ns >= sync_at_) {
    sync_at_ = now_ns + SYNC_NS;
    const std::uint64_t packets = writer_->tally().packets;
    writer_->sync();
    if (writer_->failed()) note_failure(packets);
  }
  return next;
}

void CaptureFiles::leave_out(NotWritten reason, std::uint64_t packets) noexcept {
  not_written_[static_cast<std::size_t>(reason)] += packets;
  left_out_ += packets;
}

void CaptureFiles::lose(std::uint64_t packets) noexcept {
  not_written_[static_cast<std::size_t>(NotWritten::WRITE_ERROR)] += packets;
  lost_ += packets;
}

void CaptureFiles::fail(const std::string& text) {
  retry_at_ = monotonic_ns() + RETRY_NS;
  if (error_.empty()) error_ = text;
  if (std::exchange(failing_, true)) return;
  const bool resumes = options_.on_error == OnError::RESUME;
  log(LogLevel::ERROR,
      "recording of queue " + origin_.queue + (resumes ? " is interrupted: " : " ends: ") + text,
      log_origin());
}

void CaptureFiles::forget_file(const std::string& text) {
  fail(text);
  lose(writer_->tally().packets);
  has_file_ = false;
  writer_->remove();
  writer_->close();
  sidecar_.abandon();
}

}  // namespace daqiri

// The files of one recording, one after the other.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "storage/recorder.h"

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

/// Tidies up what recorders that were killed have left in `directory`: their hidden files, and the
/// disk blocks behind the files that these belong to. What those hold stays as it is.
void remove_leftovers(const std::string& directory) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory.c_str()), closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with('.') && name.ends_with(std::string(".json") + PART))
      remove_leftover(directory + "/" + std::string(name));
  }
}

}  // namespace

// --- Metadata beside a file

/// The metadata file beside a recorded file. It is written in one piece when the recorded file is
/// complete; disk space for it is taken when that is prepared, so that a full disk does not cost
/// the metadata. Until then it is hidden and locked: `.NAME.json.part`. It goes away with its owner
/// unless it is finished.
class Sidecar {
 public:
  /// Take space for `size` bytes beside the file `path`. Throws Error: INVALID_PARAMETER when
  /// another recorder has that file, GENERIC_FAILURE with path and errno.
  Sidecar(const std::string& path, std::size_t size) : path_(path + ".json") {
    const std::size_t slash = path_.rfind('/') + 1;
    part_path_ = path_.substr(0, slash) + "." + path_.substr(slash) + PART;
    while (!part_.is_open()) create();
    const std::string space(size, ' ');
    const int problem = write_fully(part_.fd(), space.data(), space.size(), 0);
    if (problem == 0) return;
    unlink(part_path_.c_str());
    throw file_error("cannot write", part_path_, problem);
  }
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;
  ~Sidecar() {
    if (part_.is_open()) unlink(part_path_.c_str());
  }

  /// <path>.json is there, whole, or Error is thrown and it is not; `durable`: once the disk has
  /// it.
  void finish(const std::string& text, bool durable) {
    int problem = write_fully(part_.fd(), text.data(), text.size(), 0);
    if (problem == 0 && ftruncate(part_.fd(), static_cast<off_t>(text.size())) != 0)
      problem = errno;
    if (problem == 0 && durable && fdatasync(part_.fd()) != 0) problem = errno;
    const int close_problem = part_.close();
    if (problem == 0) problem = close_problem;
    if (problem == 0 && rename(part_path_.c_str(), path_.c_str()) != 0) problem = errno;
    if (problem == 0) return;
    unlink(part_path_.c_str());
    throw file_error("cannot write", path_, problem);
  }

 private:
  void create() {
    remove_leftover(part_path_);
    part_ = File::private_to_process(
        [&] { return open(part_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); });
    if (!part_.is_open() && errno == EEXIST)
      refuse_existing(part_path_, "belongs to a recorder that runs, or is no regular file");
    if (!part_.is_open()) throw file_error("cannot create", part_path_, errno);
    // Somebody who tidies up may have been quicker.
    struct stat found{};
    if ((flock(part_.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
        (fstat(part_.fd(), &found) == 0 && found.st_nlink == 0))
      part_.close();
  }

  std::string path_;
  std::string part_path_;
  File part_;
};

// --- Files

CaptureFiles::CaptureFiles(const RecorderOptions& options, const Session& session, RxQueue& queue)
    : queue_(queue),
      origin_(options, session, queue),
      writer_(make_writer()),
      number_(options.first_number),
      roll_size_(options.roll_bytes == 0 ? PacketWriter::NO_LIMIT
                                         : options.roll_bytes + writer_.header_size()),
      roll_ns_(static_cast<std::uint64_t>(options.roll_seconds * 1e9)),
      losses_before_{queue.counters(), {}} {
  origin_.writer = writer_.output_name();
  remove_leftovers(options_.directory);
  begin_next();
}

CaptureFiles::~CaptureFiles() = default;

void CaptureFiles::log_about(LogLevel level, const std::string& text) const {
  log(level, "recording of queue " + origin_.queue + text,
      {queue_.interface_name(), queue_.config().common_.name_});
}

PacketWriter CaptureFiles::make_writer() const {
  std::string why_not;
  auto output = make_output(options_.writer, options_.directory, why_not);
  if (options_.writer == WriterKind::DIRECT && !why_not.empty())
    log_about(LogLevel::WARN, " is buffered, not direct as asked for: " + why_not);
  if (options_.format == CaptureFormat::RAW)
    return PacketWriter(RawFormat{options_.packet_data_offset}, std::move(output));
  return PacketWriter(pcap::Format{origin_.link->link_type(), options_.nanosecond},
                      std::move(output));
}

std::string CaptureFiles::next_path() const {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "_%06llu", static_cast<unsigned long long>(number_));
  return options_.directory + "/" + options_.prefix + digits.data() + writer_.suffix();
}

template <typename Step>
void CaptureFiles::with_free_number(Step&& step) {
  for (;; ++number_) {
    try {
      return step();
    } catch (const Error& error) {
      writer_.discard_prepared();
      next_sidecar_.reset();
      // The first file may not be in the way of one that exists.
      if (error.status() != Status::INVALID_PARAMETER || begun_ns_ == 0) throw;
      log_about(LogLevel::WARN, std::string(" leaves a number out: ") + error.what());
    }
  }
}

void CaptureFiles::prepare_number() {
  if (next_sidecar_ != nullptr) return;
  writer_.prepare(next_path());
  next_sidecar_ =
      std::make_unique<Sidecar>(next_path(), metadata(losses()).json.size() + METADATA_GROWTH);
}

void CaptureFiles::begin_next() {
  with_free_number([this] {
    prepare_number();
    writer_.create(next_path());
  });
  sidecar_ = std::move(next_sidecar_);
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
  const bool same = has_file_ && writer_.tally().packets == 0 && writer_.retry();
  if (has_file_ && !same) complete_present(false);
  if (!same && (has_file_ || !try_begin())) return false;
  failing_ = false;
  log_about(LogLevel::WARN, " goes on in " + writer_.path());
  return true;
}

void CaptureFiles::write(const Burst& burst, std::uint32_t first, std::uint32_t end) {
  std::uint32_t done = first;
  while (done < end && ready()) {
    if (is_gone()) continue;
    const std::uint64_t packets = writer_.tally().packets;
    std::uint64_t room = end - done;
    if (options_.roll_packets > 0) room = std::min(room, options_.roll_packets - packets);
    done += writer_.write(burst, *origin_.link, done, static_cast<std::uint32_t>(room), roll_size_);
    if (roll_ns_ > 0 && first_written_ns_ == 0) first_written_ns_ = monotonic_ns();
    if (writer_.failed()) {
      note_failure(packets);
    } else if (writer_.size() >= roll_size_ ||
               (options_.roll_packets > 0 && writer_.tally().packets >= options_.roll_packets)) {
      roll();
    }
  }
  leave_out(CaptureLosses::WRITE_ERROR, end - done);
}

void CaptureFiles::note_failure(std::uint64_t packets) {
  const std::uint64_t kept = writer_.tally().packets;
  if (kept < packets) leave_out(CaptureLosses::WRITE_ERROR, packets - kept);
  fail(writer_.error());
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
  try {
    if (!last) with_free_number([this] { prepare_number(); });
  } catch (const Error& e) {
    fail(e.what());
    return false;
  }
  const std::uint64_t packets = writer_.tally().packets;
  const bool failed = writer_.failed();
  writer_.close(options_.durable);
  if (writer_.failed() && !failed) {
    note_failure(packets);
    // What comes until it goes on is lost, too, and is told by this file.
    if (!last) return false;
  }
  const CaptureLosses now = losses();
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
    if (access(writer_.path().c_str(), F_OK) != 0) {
      forget_file(e.what());
      return false;
    }
    fail(e.what());
  }
  const FileTally& tally = writer_.tally();
  completed_.push_back(
      {tally, writer_.path(), told ? metadata.dropped : 0, told ? metadata.left_out : 0});
  before_.packets += tally.packets;
  before_.bytes += tally.bytes;
  has_file_ = false;
  // Losses that this file's metadata could not tell are told by the next one's.
  if (told) losses_before_ = now;
  return told;
}

void CaptureFiles::finish() {
  if (options_.group && !has_file_ && !failing_) try_begin();
  bool told = has_file_ && complete_present(true);
  // What no file has told is told by an empty one.
  if (!told) {
    const CaptureMetadata rest = metadata(losses());
    told = rest.dropped + rest.left_out > 0 && try_begin() && complete_present(true);
    if (!told) unreported_ = rest.dropped;
  }
  writer_.discard_prepared();
  next_sidecar_.reset();
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
  if (!is_gone() && now_ns >= sync_at_) {
    sync_at_ = now_ns + SYNC_NS;
    const std::uint64_t packets = writer_.tally().packets;
    writer_.sync();
    if (writer_.failed()) note_failure(packets);
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

bool CaptureFiles::is_gone() {
  if (writer_.still_there()) return false;
  forget_file(writer_.path() + " was removed or cut while it was being written");
  return true;
}

void CaptureFiles::discard() noexcept {
  if (!std::exchange(has_file_, false)) return;
  writer_.remove();
  writer_.close();
  sidecar_.reset();
}

void CaptureFiles::forget_file(const std::string& text) {
  fail(text);
  leave_out(CaptureLosses::WRITE_ERROR, writer_.tally().packets);
  discard();
}

}  // namespace daqiri

#include "storage/capture_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "storage/packed_writer.h"
#include "storage/pcap_format.h"
#include "storage/pcap_writer.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::uint64_t LOOK_AFTER_NS = 100'000'000;
/// A direct writer holds packets back for at most so long.
constexpr std::uint64_t SETTLE_NS = 1'000'000'000;
constexpr std::uint64_t RETRY_NS = 500'000'000;
/// What the metadata may grow by until a file is complete: digits of its numbers.
constexpr std::size_t METADATA_GROWTH = 2048;

bool intended(DropReason reason) noexcept {
  return reason == DropReason::FILTERED || reason == DropReason::FLUSHED;
}

}  // namespace

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
    return std::make_unique<PackedWriter>(options_.packet_data_offset, std::move(output), &guard_);
  return std::make_unique<PcapWriter>(PcapFormat{link_->link_type(), options_.nanosecond},
                                      std::move(output), &guard_);
}

void CaptureFiles::guard() noexcept {
  const int problem = guard_.start();
  if (problem == 0) return;
  log(LogLevel::WARN,
      "recording of queue " + origin_.queue +
          ": a kill of the process may leave a torn record in the file that is "
          "being written, since " +
          file_problem("no task could be started to guard", options_.directory, problem),
      log_origin());
}

void CaptureFiles::begin() {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "_%06llu", static_cast<unsigned long long>(number_));
  const std::string path =
      options_.directory + "/" + options_.prefix + digits.data() + writer_->suffix();
  writer_->create(path);
  begun_ns_ = realtime_ns();
  try {
    sidecar_.begin(path, metadata().json().size() + METADATA_GROWTH);
  } catch (...) {
    writer_->close();
    writer_->remove();
    throw;
  }
  ++number_;
  has_file_ = true;
  first_written_ns_ = 0;
  settle_at_ = monotonic_ns() + SETTLE_NS;
}

bool CaptureFiles::try_begin() {
  try {
    begin();
  } catch (const Error& e) {
    fail(e.what());
    return false;
  }
  if (std::exchange(failing_, false)) {
    log(LogLevel::WARN, "recording of queue " + origin_.queue + " goes on in " + writer_->path(),
        log_origin());
  }
  return true;
}

bool CaptureFiles::may_write() const noexcept {
  return !failing_ || (options_.on_error == OnError::RESUME && monotonic_ns() >= retry_at_);
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
  while (done < count && may_write()) {
    if (!has_file_ && !try_begin()) break;
    const std::uint64_t packets = writer_->tally().packets;
    std::uint64_t room = count - done;
    if (options_.roll_packets > 0) room = std::min(room, options_.roll_packets - packets);
    done += writer_->write(burst, *link_, done, static_cast<std::uint32_t>(room), size_limit());
    if (roll_ns_ > 0 && first_written_ns_ == 0) first_written_ns_ = monotonic_ns();
    if (writer_->failed()) {
      writing_failed(packets);
    } else if (is_full()) {
      complete();
      rolled_ = true;
    }
  }
  lose(count - done);
}

void CaptureFiles::writing_failed(std::uint64_t packets) {
  writer_->close();
  const std::uint64_t kept = writer_->tally().packets;
  if (kept < packets) lose(packets - kept);
  fail(writer_->error());
  if (options_.on_error == OnError::STOP) return;
  if (kept > 0) return complete();
  writer_->remove();
  sidecar_.abandon();
  has_file_ = false;
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
  if (!has_file_ && (failing_ || !try_begin())) return;
  if (!writer_->still_there())
    return forget_file(writer_->path() + " was removed while it was being written");
  const std::uint64_t packets = writer_->tally().packets;
  writer_->close(options_.durable);
  const CaptureMetadata metadata = [&] {
    const std::uint64_t kept = writer_->tally().packets;
    if (kept < packets) lose(packets - kept);
    return this->metadata();
  }();
  if (writer_->failed()) fail(writer_->error());
  try {
    sidecar_.finish(metadata.json(), options_.durable);
    if (options_.durable) sync_directory();
  } catch (const Error& e) {
    if (access(writer_->path().c_str(), F_OK) != 0) return forget_file(e.what());
    fail(e.what());
  }
  const FileTally& tally = metadata.tally;
  completed_.push_back({writer_->path(), tally.packets, tally.wire_bytes, tally.first_ns,
                        tally.last_ns, total(metadata.lost), total(metadata.left_out)});
  before_.packets += tally.packets;
  before_.wire_bytes += tally.wire_bytes;
  has_file_ = false;
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
  if (has_file_) return complete();
  const CaptureMetadata rest = metadata();
  if (!failing_ && total(rest.lost) + total(rest.left_out) > 0) complete();
}

std::uint64_t CaptureFiles::tend(std::uint64_t now_ns) {
  std::uint64_t next = now_ns + LOOK_AFTER_NS;
  if (failing_ && !has_file_ && may_write()) try_begin();
  if (!has_file_ || failing_) return next;
  if (roll_ns_ > 0 && first_written_ns_ != 0) {
    const std::uint64_t due = first_written_ns_ + roll_ns_;
    if (now_ns >= due) {
      complete();
      rolled_ = true;
      return next;
    }
    next = std::min(next, due);
  }
  if (!writer_->still_there()) {
    forget_file(writer_->path() + " was removed while it was being written");
  } else if (now_ns >= settle_at_) {
    settle_at_ = now_ns + SETTLE_NS;
    const std::uint64_t packets = writer_->tally().packets;
    writer_->settle();
    if (writer_->failed()) writing_failed(packets);
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
  writer_->close();
  writer_->remove();
  sidecar_.abandon();
}

}  // namespace daqiri

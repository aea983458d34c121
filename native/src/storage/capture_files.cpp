#include "storage/capture_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "metrics/log.h"
#include "storage/pcap_format.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::array<std::string_view, NUM_LOST_BY> LOST_BY_NAMES{"write_error", "paused",
                                                                  "after_limit"};
constexpr std::uint64_t LOOK_AFTER_NS = 100'000'000;

std::string file_name(const RecorderOptions& options, std::uint64_t number) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "_%06llu.pcap",
                static_cast<unsigned long long>(number));
  return options.directory + "/" + options.prefix + digits.data();
}

}  // namespace

CaptureFiles::CaptureFiles(const RecorderOptions& options, RxQueue& queue, std::string queue_name,
                           std::shared_ptr<const LinkLayer> link)
    : options_(options),
      queue_(queue),
      queue_name_(std::move(queue_name)),
      link_(std::move(link)),
      format_{link_->link_type(), options_.nanosecond},
      number_(options_.first_number),
      roll_ns_(static_cast<std::uint64_t>(options_.roll_seconds * 1e9)),
      queue_drops_before_(queue.counters().dropped) {}

void CaptureFiles::guard() noexcept {
  const int problem = guard_.start();
  if (problem == 0) return;
  log(LogLevel::WARN, "recording of queue " + queue_name_ +
                          ": a kill of the process may tear the last record of the file, since " +
                          file_problem("no guard could be started for", options_.prefix, problem));
}

void CaptureFiles::begin() {
  const std::string path = file_name(options_, number_);
  writer_.open(path, format_, PcapWriter::Existing::REFUSE);
  try {
    sidecar_.begin(path);
  } catch (...) {
    writer_.close();
    unlink(path.c_str());
    throw;
  }
  ++number_;
  has_file_ = true;
  first_written_ns_ = 0;
}

bool CaptureFiles::is_full() const noexcept {
  return (options_.roll_packets > 0 && writer_.tally().packets >= options_.roll_packets) ||
         (options_.roll_bytes > 0 &&
          writer_.bytes_written() - sizeof(pcap::FileHeader) >= options_.roll_bytes);
}

std::uint32_t CaptureFiles::write(const Burst& burst, std::uint32_t count) {
  const std::uint64_t size_limit = options_.roll_bytes > 0
                                       ? sizeof(pcap::FileHeader) + options_.roll_bytes
                                       : PcapWriter::NO_LIMIT;
  std::uint32_t done = 0;
  while (done < count && !failed()) {
    if (!has_file_) {
      try {
        begin();
      } catch (const Error& e) {
        fail(e.what());
        break;
      }
    }
    std::uint64_t room = count - done;
    if (options_.roll_packets > 0)
      room = std::min(room, options_.roll_packets - writer_.tally().packets);
    done += writer_.write(burst, *link_, done, static_cast<std::uint32_t>(room), size_limit);
    if (roll_ns_ > 0 && first_written_ns_ == 0) first_written_ns_ = monotonic_ns();
    if (writer_.failed()) {
      writer_.close();
      fail(writer_.error());
    } else if (is_full()) {
      complete();
      rolled_ = true;
    }
  }
  return done;
}

CaptureMetadata CaptureFiles::metadata() const {
  CaptureMetadata metadata{
      writer_.tally(), format_, link_->reconstructs_headers(), queue_name_, {}};
  const DropCounts now = queue_.counters().dropped;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
    metadata.dropped_by_reason.emplace_back(drop_reason_name(static_cast<DropReason>(r)),
                                            now[r] - queue_drops_before_[r]);
  }
  for (std::size_t r = 0; r < NUM_LOST_BY; ++r)
    metadata.dropped_by_reason.emplace_back(LOST_BY_NAMES[r], lost_by_[r]);
  return metadata;
}

void CaptureFiles::complete() {
  if (!has_file_) {
    if (failed()) return;
    try {
      begin();
    } catch (const Error& e) {
      return fail(e.what());
    }
  }
  if (!writer_.still_there())
    return forget_file(writer_.path() + " was removed while it was being written");
  writer_.close();
  if (writer_.failed()) fail(writer_.error());
  const CaptureMetadata metadata = this->metadata();
  try {
    sidecar_.finish(metadata);
  } catch (const Error& e) {
    if (access(writer_.path().c_str(), F_OK) != 0) return forget_file(e.what());
    fail(e.what());
  }
  const PcapTally& tally = metadata.tally;
  completed_.push_back({writer_.path(), tally.packets, tally.wire_bytes, tally.first_ns,
                        tally.last_ns, metadata.dropped()});
  before_.packets += tally.packets;
  before_.wire_bytes += tally.wire_bytes;
  has_file_ = false;
  lost_by_ = {};
  std::size_t r = 0;
  for (std::uint64_t& seen : queue_drops_before_) seen += metadata.dropped_by_reason[r++].second;
}

void CaptureFiles::finish() {
  // Losses since the last file are told by an empty one.
  if (has_file_ || (!failed() && metadata().dropped() > 0)) complete();
}

std::uint64_t CaptureFiles::tend(std::uint64_t now_ns) {
  std::uint64_t next = now_ns + LOOK_AFTER_NS;
  if (!has_file_ || failed()) return next;
  if (roll_ns_ > 0 && first_written_ns_ != 0) {
    const std::uint64_t due = first_written_ns_ + roll_ns_;
    if (now_ns >= due) {
      complete();
      rolled_ = true;
      return next;
    }
    next = std::min(next, due);
  }
  if (!writer_.still_there())
    forget_file(writer_.path() + " was removed while it was being written");
  return next;
}

void CaptureFiles::lose(LostBy reason, std::uint64_t packets) noexcept {
  lost_by_[static_cast<std::size_t>(reason)] += packets;
  lost_ += packets;
}

void CaptureFiles::fail(const std::string& text) {
  if (failed()) return;
  error_ = text;
  log(LogLevel::ERROR, "recording of queue " + queue_name_ + " ends: " + text);
}

void CaptureFiles::forget_file(const std::string& text) {
  fail(text);
  lose(LostBy::WRITE_ERROR, writer_.tally().packets);
  has_file_ = false;
  writer_.close();
  sidecar_.abandon();
}

}  // namespace daqiri

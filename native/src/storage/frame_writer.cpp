#include "storage/frame_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "timing/clock.h"

namespace daqiri {

// --- Rows

namespace {

constexpr std::size_t index_of(FrameColumn column) noexcept {
  return static_cast<std::size_t>(column);
}

}  // namespace

FrameRows::FrameRows(const FrameForm& form) : numbers_(form.numbers) {
  constexpr std::size_t MOST = 4096;
  constexpr std::size_t MOST_BYTES = std::size_t{16} << 20U;
  std::size_t row = 0;
  for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
    widths_[c] = width_of(static_cast<FrameColumn>(c), form);
    row += widths_[c];
  }
  most_ = std::clamp<std::size_t>(MOST_BYTES / row, 1, MOST);
  for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) columns_[c].reserve(most_ * widths_[c]);
}

template <typename Value>
void FrameRows::push(FrameColumn column, Value value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  std::vector<std::byte>& to = columns_[index_of(column)];
  to.insert(to.end(), bytes, bytes + sizeof value);
}

void FrameRows::add(const Burst& frame) {
  const std::uint64_t time = frame.timestamps[0] != 0 ? frame.timestamps[0] : realtime_ns();
  latest_ = time;
  push(FrameColumn::BATCH, static_cast<std::uint32_t>(frame.reorder.batch_id));
  push(FrameColumn::TIMESTAMP, time);
  push(FrameColumn::LAST_TIMESTAMP, frame.last_time != 0 ? frame.last_time : time);
  push(FrameColumn::PACKETS, frame.reorder.source_packet_count);
  push(FrameColumn::MISSING, frame.missing);
  push(FrameColumn::TIMED_OUT, static_cast<std::uint8_t>((frame.reorder.burst_flags &
                                                          DAQIRI_BURST_FLAG_REORDER_TIMEOUT) != 0));
  push(FrameColumn::LOSSY, static_cast<std::uint8_t>(frame.lossy));
  const auto* valid = reinterpret_cast<const std::byte*>(frame.valid);
  std::vector<std::byte>& bits = columns_[index_of(FrameColumn::VALID)];
  bits.insert(bits.end(), valid, valid + widths_[index_of(FrameColumn::VALID)]);
  ++count_;
}

void FrameRows::add_absent(const Burst& next, std::uint64_t before) {
  std::uint64_t time = next.timestamps[0] != 0 ? next.timestamps[0] : realtime_ns();
  // The first one of an acquisition has no previous row.
  if (latest_ != 0 && latest_ < time && before < next.index) {
    const auto step = static_cast<double>(time - latest_) / static_cast<double>(before + 1);
    time = latest_ + static_cast<std::uint64_t>(step);
  }
  latest_ = time;
  const std::uint64_t number = next.reorder.batch_id + numbers_ - before % numbers_;
  push(FrameColumn::BATCH, static_cast<std::uint32_t>(number % numbers_));
  push(FrameColumn::TIMESTAMP, time);
  push(FrameColumn::LAST_TIMESTAMP, time);
  push(FrameColumn::PACKETS, std::uint32_t{0});
  push(FrameColumn::MISSING, next.units);
  push(FrameColumn::TIMED_OUT, std::uint8_t{0});
  push(FrameColumn::LOSSY, std::uint8_t{1});
  std::vector<std::byte>& bits = columns_[index_of(FrameColumn::VALID)];
  bits.resize(bits.size() + widths_[index_of(FrameColumn::VALID)]);
  ++count_;
}

void FrameRows::add(const std::array<const std::byte*, NUM_FRAME_COLUMNS>& row) {
  for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c)
    columns_[c].insert(columns_[c].end(), row[c], row[c] + widths_[c]);
  ++count_;
}

void FrameRows::remove(std::size_t n) {
  for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
    const auto first = columns_[c].begin();
    columns_[c].erase(first, first + static_cast<std::ptrdiff_t>(n * widths_[c]));
  }
  count_ -= n;
}

template <typename Value>
Value FrameRows::at(FrameColumn column, std::size_t row) const noexcept {
  Value value;
  std::memcpy(&value, columns_[index_of(column)].data() + row * sizeof value, sizeof value);
  return value;
}

FileTally FrameRows::tally(FileTally before, std::size_t first, std::size_t end,
                           std::uint32_t bytes) const noexcept {
  for (std::size_t row = first; row < end; ++row) {
    if (before.t_first_ns < 0) before.t_first_ns = at<std::int64_t>(FrameColumn::TIMESTAMP, row);
    before.t_last_ns = at<std::int64_t>(FrameColumn::LAST_TIMESTAMP, row);
    before.packets += at<std::uint32_t>(FrameColumn::PACKETS, row);
    before.missing += at<std::uint32_t>(FrameColumn::MISSING, row);
    before.bytes += bytes;
    before.size += bytes;
    ++before.frames;
  }
  return before;
}

// --- Files

template <typename Step>
void FrameWriter::attempt(Step&& step) noexcept {
  if (!file_.is_open() || failed()) return;
  hdf5::enter();
  try {
    step();
    return;
  } catch (const std::exception& e) {
    error_ = e.what();
  }
  try {
    cut();
  } catch (const std::exception& e) {
    error_ += std::string("; then the file could not be repaired: ") + e.what();
  }
  rows_.clear();
  tally_ = flushed_;
}

void FrameWriter::note_flushed(std::uint64_t frames) {
  const auto rows = static_cast<std::size_t>(frames - flushed_.frames);
  flushed_ = rows_.tally(flushed_, 0, rows, form_.bytes);
  rows_.remove(rows);
}

void FrameWriter::create(const std::string& path) {
  close(false);
  try {
    if (next_ == nullptr || next_->path() != path) prepare(path);
    next_->appear();
    file_ = next_->take();
    path_ = path;
    rows_.clear();
    tally_ = flushed_ = {};
    error_.clear();
    begin();
  } catch (...) {
    if (file_.is_open()) {
      remove();
      file_.close();
    }
    discard_prepared();
    throw;
  }
  next_.reset();
}

std::uint32_t FrameWriter::write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                                 std::uint64_t size_limit) noexcept {
  const std::uint64_t before = tally_.frames;
  attempt([&] {
    for (std::uint32_t i = first; i < first + count && tally_.size < size_limit; ++i) {
      // Only the recorder has the burst, so its packet pointer may change. Its buffer, and the
      // mirror's part for that buffer, stay in use until it is released.
      if (mirror_) burst.pkts[0][0] = mirror_->copy(burst.buffers[0][0], form_.bytes);
      put(burst);
      rows_.add(burst);
      tally_ = rows_.tally(tally_, rows_.count() - 1, rows_.count(), form_.bytes);
      if (rows_.full()) flush();
    }
  });
  return tally_.frames > before ? static_cast<std::uint32_t>(tally_.frames - before) : 0;
}

std::uint32_t FrameWriter::write_absent(const Burst& next, std::uint64_t before,
                                        std::uint32_t count, std::uint64_t size_limit) noexcept {
  const std::uint64_t frames = tally_.frames;
  attempt([&] {
    for (std::uint64_t done = 0; done < count && tally_.size < size_limit;) {
      const std::uint64_t room = (size_limit - tally_.size - 1) / form_.bytes + 1;
      const std::uint64_t n =
          std::min<std::uint64_t>({count - done, rows_.most() - rows_.count(), room});
      put_absent(n);
      const std::size_t rows = rows_.count();
      for (std::uint64_t i = 0; i < n; ++i) rows_.add_absent(next, before - done - i);
      tally_ = rows_.tally(tally_, rows, rows_.count(), form_.bytes);
      if (rows_.full()) flush();
      done += n;
    }
  });
  return tally_.frames > frames ? static_cast<std::uint32_t>(tally_.frames - frames) : 0;
}

void FrameWriter::sync() noexcept {
  attempt([this] {
    if (rows_.count() > 0) flush();
  });
}

bool FrameWriter::rewind(std::uint64_t records) noexcept {
  sync();
  if (records == flushed_.frames) return !failed();
  attempt([&] {
    const std::uint64_t n = flushed_.frames - records;
    std::vector<std::uint32_t> packets(n);
    std::vector<std::uint32_t> missing(n);
    read_column(FrameColumn::PACKETS, records, n, packets.data());
    read_column(FrameColumn::MISSING, records, n, missing.data());
    FileTally tally = flushed_;
    if (records == 0) {
      tally = {};
    } else {
      read_column(FrameColumn::LAST_TIMESTAMP, records - 1, 1, &tally.t_last_ns);
      tally.packets -= std::accumulate(packets.begin(), packets.end(), std::uint64_t{0});
      tally.missing -= std::accumulate(missing.begin(), missing.end(), std::uint64_t{0});
      tally.frames = records;
      tally.bytes = tally.size = records * form_.bytes;
    }
    // First, so that a failure from here on leaves a file with these frames.
    tally_ = flushed_ = tally;
    shorten(records);
  });
  return !failed();
}

namespace {

struct TakenFrames final : TakenRecords {
  std::vector<std::vector<std::byte>> frames;
  std::array<std::vector<std::byte>, NUM_FRAME_COLUMNS> columns;
};

}  // namespace

std::unique_ptr<TakenRecords> FrameWriter::take_back(std::uint64_t records) noexcept {
  sync();
  std::unique_ptr<TakenFrames> taken;
  attempt([&] {
    taken = std::make_unique<TakenFrames>();
    const std::uint64_t n = flushed_.frames - records;
    for (std::uint64_t i = 0; i < n; ++i) taken->frames.push_back(read_stored(records + i));
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
      taken->columns[c].resize(n * rows_.width(c));
      read_column(static_cast<FrameColumn>(c), records, n, taken->columns[c].data());
    }
  });
  if (failed() || !rewind(records)) return nullptr;
  return taken;
}

bool FrameWriter::put_back(TakenRecords& records) noexcept {
  auto& taken = static_cast<TakenFrames&>(records);
  attempt([&] {
    for (std::size_t i = 0; i < taken.frames.size(); ++i) {
      std::array<const std::byte*, NUM_FRAME_COLUMNS> row{};
      for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c)
        row[c] = taken.columns[c].data() + i * rows_.width(c);
      put_stored(taken.frames[i]);
      rows_.add(row);
      tally_ = rows_.tally(tally_, rows_.count() - 1, rows_.count(), form_.bytes);
      if (rows_.full()) flush();
    }
  });
  sync();
  return !failed();
}

void FrameWriter::close(bool durable) noexcept {
  if (!file_.is_open()) return;
  sync();
  attempt([&] {
    end();
    if (durable && fdatasync(file_.fd()) != 0) throw file_error("cannot write", path_, errno);
  });
  // Before the descriptor is closed: a child that was cloned without fork(3) shares the lock.
  flock(file_.fd(), LOCK_UN);
  const int problem = file_.close();
  if (problem != 0 && !failed()) error_ = file_problem("cannot close", path_, problem);
}

bool FrameWriter::still_there() const noexcept {
  if (!file_.is_open()) return access(path_.c_str(), F_OK) == 0;
  return file_has(file_, least_size_);
}

}  // namespace daqiri

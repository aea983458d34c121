#include "storage/frame_writer.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace daqiri {

FrameWriter::FrameWriter(FrameForm form, std::unique_ptr<FrameCompressor> compressor,
                         std::unique_ptr<WriteBackend> backend)
    : form_(std::move(form)),
      rows_(form_),
      direct_(backend ? std::make_unique<DirectWrites>(form_.bytes, std::move(backend)) : nullptr),
      reduced_(form_.reductions.size(), std::numeric_limits<double>::quiet_NaN()),
      compressor_(std::move(compressor)) {}

template <typename Step>
void FrameWriter::attempt(Step&& step) noexcept {
  if (!open_ || failed()) return;
  hdf5::enter();
  try {
    step();
    return;
  } catch (const std::exception& e) {
    error_ = e.what();
  }
  if (compressor_) compressor_->clear();
  try {
    note_flushed(open_->salvage(rows_, flushed_.frames));
  } catch (const std::exception& e) {
    error_ += std::string("; then the file could not be repaired: ") + e.what();
  }
  rows_.clear();
  tally_ = flushed_;
}

// --- Files

void FrameWriter::prepare(const std::string& path) {
  discard_prepared();
  const BitshuffleLz4* const filter = compressor_ ? &compressor_->filter() : nullptr;
  prepared_ =
      std::make_unique<FrameFile>(path, form_, metadata_, filter, rows_.most(), direct_.get());
}

void FrameWriter::describe(const RunMetadata& metadata) noexcept {
  if (metadata == metadata_) return;
  metadata_ = metadata;
  attempt([&] { open_->describe(metadata); });
  if (!prepared_) return;
  try {
    const std::string path = prepared_->path();
    prepare(path);
  } catch (const std::exception&) {
    // `create` tries again, and reports the problem.
    prepared_.reset();
  }
}

void FrameWriter::create(const std::string& path) {
  close(false);
  try {
    if (prepared_ == nullptr || prepared_->path() != path) prepare(path);
    open_ = std::move(prepared_);
    path_ = path;
    rows_.clear();
    tally_ = flushed_ = {};
    error_.clear();
    open_->begin();
    own_ = open_->identity();
  } catch (...) {
    // Without a new one, it would be the file before.
    if (open_) remove_file(open_->identity(), path);
    open_.reset();
    throw;
  }
}

void FrameWriter::close(bool durable) noexcept {
  if (!open_) return;
  sync();
  attempt([&] { open_->end(durable); });
  const int problem = open_->close();
  if (problem != 0 && !failed()) error_ = file_problem("cannot close", path_, problem);
  open_.reset();
}

void FrameWriter::remove() noexcept { remove_file(own_, path_); }

bool FrameWriter::still_there() const noexcept {
  return open_ ? open_->still_there() : access(path_.c_str(), F_OK) == 0;
}

// --- Frames

void FrameWriter::put(const Burst& frame) {
  // The burst is held, not changed.
  auto& held = const_cast<Burst&>(frame);
  if (!compressor_) return open_->store(frame.pkts[0][0], form_.bytes, &held);
  while (compressor_->full() || (!compressor_->empty() && compressor_->ready())) store_compressed();
  compressor_->put(held);
}

void FrameWriter::store_compressed() {
  const std::span<const std::byte> chunk = compressor_->front();
  if (chunk.empty()) throw Error(Status::GENERIC_FAILURE, "no memory to compress a frame");
  open_->store(chunk.data(), chunk.size(), nullptr);
  compressor_->pop();
}

void FrameWriter::store_all_compressed() {
  while (compressor_ && !compressor_->empty()) store_compressed();
}

void FrameWriter::flush() {
  store_all_compressed();
  note_flushed(open_->publish(rows_, flushed_.frames));
}

void FrameWriter::note_flushed(std::uint64_t frames) {
  const auto rows = static_cast<std::size_t>(frames - flushed_.frames);
  flushed_ = rows_.tally(flushed_, 0, rows, form_.bytes);
  rows_.remove(rows);
}

void FrameWriter::count_row() {
  tally_ = rows_.tally(tally_, rows_.count() - 1, rows_.count(), form_.bytes);
  if (rows_.full()) flush();
}

std::uint32_t FrameWriter::write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                                 std::uint64_t size_limit) noexcept {
  const std::uint64_t before = tally_.frames;
  attempt([&] {
    for (std::uint32_t i = first; i < first + count && tally_.size < size_limit; ++i) {
      // In the memory of the frame, before its address becomes that of a copy.
      if (reduce_) reduce_(burst, reduced_);
      // Others that hold the burst do not read `pkts`. Its buffer, and the mirror's part for that
      // buffer, stay in use until it is released.
      if (mirror_) burst.pkts[0][0] = mirror_->copy(burst.buffers[0][0], form_.bytes);
      put(burst);
      rows_.add(burst, reduced_);
      count_row();
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
      store_all_compressed();
      open_->skip(n);
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
    open_->read_column(FrameColumn::PACKETS, records, n, packets.data());
    open_->read_column(FrameColumn::MISSING, records, n, missing.data());
    FileTally tally = flushed_;
    if (records == 0) {
      tally = {};
    } else {
      open_->read_column(FrameColumn::LAST_TIMESTAMP, records - 1, 1, &tally.t_last_ns);
      tally.packets -= std::accumulate(packets.begin(), packets.end(), std::uint64_t{0});
      tally.missing -= std::accumulate(missing.begin(), missing.end(), std::uint64_t{0});
      tally.frames = records;
      tally.bytes = tally.size = records * form_.bytes;
    }
    // First, so that a failure from here on leaves a file with these frames.
    tally_ = flushed_ = tally;
    open_->shorten(records);
  });
  return !failed();
}

namespace {

struct TakenFrames final : TakenRecords {
  std::vector<std::vector<std::byte>> frames;
  std::vector<std::vector<std::byte>> columns;
};

}  // namespace

std::unique_ptr<TakenRecords> FrameWriter::take_back(std::uint64_t records) noexcept {
  sync();
  std::unique_ptr<TakenFrames> taken;
  attempt([&] {
    taken = std::make_unique<TakenFrames>();
    const std::uint64_t n = flushed_.frames - records;
    for (std::uint64_t i = 0; i < n; ++i) taken->frames.push_back(open_->read_stored(records + i));
    taken->columns.resize(rows_.columns());
    for (std::size_t c = 0; c < rows_.columns(); ++c) {
      taken->columns[c].resize(n * rows_.width(c));
      open_->read_column(c, records, n, taken->columns[c].data());
    }
  });
  if (failed() || !rewind(records)) return nullptr;
  return taken;
}

bool FrameWriter::put_back(TakenRecords& records) noexcept {
  auto& taken = static_cast<TakenFrames&>(records);
  attempt([&] {
    std::vector<const std::byte*> row(rows_.columns());
    for (std::size_t i = 0; i < taken.frames.size(); ++i) {
      for (std::size_t c = 0; c < row.size(); ++c)
        row[c] = taken.columns[c].data() + i * rows_.width(c);
      const std::vector<std::byte>& frame = taken.frames[i];
      if (frame.empty()) {
        open_->skip(1);
      } else {
        open_->store(frame.data(), frame.size(), nullptr);
      }
      rows_.add(row);
      count_row();
    }
  });
  sync();
  return !failed();
}

}  // namespace daqiri

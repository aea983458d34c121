#include "storage/frame_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::size_t index_of(FrameColumn column) noexcept {
  return static_cast<std::size_t>(column);
}

std::uint64_t arrival_of(const Burst& frame) noexcept {
  return frame.timestamps[0] != 0 ? frame.timestamps[0] : realtime_ns();
}

}  // namespace

FrameRows::FrameRows(const FrameForm& form)
    : widths_(form.columns()),
      columns_(form.columns()),
      plan_columns_(form.plan_columns.size()),
      batch_mask_(form.batch_mask),
      batch_step_(form.batch_step) {
  constexpr std::size_t MOST = 4096;
  constexpr std::size_t MOST_BYTES = std::size_t{16} << 20U;
  std::size_t row = 0;
  for (std::size_t c = 0; c < columns(); ++c) {
    widths_[c] = width_of(c, form);
    row += widths_[c];
  }
  most_ = std::clamp<std::size_t>(MOST_BYTES / std::max<std::size_t>(row, 1), 1, MOST);
  for (std::size_t c = 0; c < columns(); ++c) columns_[c].reserve(most_ * widths_[c]);
}

void FrameRows::push(const Row& row, const std::uint64_t* valid, const std::uint64_t* columns,
                     std::span<const double> reduced) {
  const auto append_to = [this](std::size_t column, auto value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    std::vector<std::byte>& to = columns_[column];
    to.insert(to.end(), bytes, bytes + sizeof value);
  };
  const auto append = [&](FrameColumn column, auto value) { append_to(index_of(column), value); };
  append(FrameColumn::BATCH, row.number);
  append(FrameColumn::TIMESTAMP, row.time);
  append(FrameColumn::LAST_TIMESTAMP, row.last_time);
  append(FrameColumn::PACKETS, row.packets);
  append(FrameColumn::MISSING, row.missing);
  append(FrameColumn::TIMED_OUT, static_cast<std::uint8_t>(row.timed_out));
  append(FrameColumn::LOSSY, static_cast<std::uint8_t>(row.lossy));
  std::vector<std::byte>& bits = columns_[index_of(FrameColumn::VALID)];
  const auto* bytes = reinterpret_cast<const std::byte*>(valid);
  const std::size_t width = widths_[index_of(FrameColumn::VALID)];
  if (valid != nullptr) {
    bits.insert(bits.end(), bytes, bytes + width);
  } else {
    bits.resize(bits.size() + width);
  }
  const std::size_t reductions = NUM_FRAME_COLUMNS + plan_columns_;
  const auto* of_plan = reinterpret_cast<const std::byte*>(columns);
  for (std::size_t c = NUM_FRAME_COLUMNS; c < reductions; ++c) {
    std::vector<std::byte>& numbers = columns_[c];
    if (of_plan == nullptr) {
      numbers.resize(numbers.size() + widths_[c]);
      continue;
    }
    numbers.insert(numbers.end(), of_plan, of_plan + widths_[c]);
    of_plan += widths_[c];
  }
  for (std::size_t c = reductions; c < this->columns(); ++c) {
    append_to(c,
              reduced.empty() ? std::numeric_limits<double>::quiet_NaN() : reduced[c - reductions]);
  }
  latest_ = row.time;
  ++count_;
}

void FrameRows::add(const Burst& frame, std::span<const double> reduced) {
  const std::uint64_t time = arrival_of(frame);
  push({.number = frame.reorder.batch_id,
        .time = time,
        .last_time = frame.last_time != 0 ? frame.last_time : time,
        .packets = frame.reorder.source_packet_count,
        .missing = frame.missing,
        .timed_out = (frame.reorder.burst_flags & DAQIRI_BURST_FLAG_REORDER_TIMEOUT) != 0,
        .lossy = frame.lossy},
       frame.valid, frame.reorder.columns, reduced);
}

void FrameRows::add_absent(const Burst& next, std::uint64_t before) {
  std::uint64_t time = arrival_of(next);
  // The first one of an acquisition has no previous row.
  if (latest_ != 0 && latest_ < time && before < next.index) {
    const auto step = static_cast<double>(time - latest_) / static_cast<double>(before + 1);
    time = latest_ + static_cast<std::uint64_t>(step);
  }
  push({.number = (next.reorder.batch_id - before * batch_step_) & batch_mask_,
        .time = time,
        .last_time = time,
        .packets = 0,
        .missing = next.units,
        .timed_out = false,
        .lossy = true},
       nullptr, nullptr, {});
}

void FrameRows::add(std::span<const std::byte* const> row) {
  for (std::size_t c = 0; c < columns(); ++c)
    columns_[c].insert(columns_[c].end(), row[c], row[c] + widths_[c]);
  ++count_;
}

void FrameRows::remove(std::size_t n) {
  for (std::size_t c = 0; c < columns(); ++c) {
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

std::uint64_t FrameRows::first_time() const noexcept {
  return at<std::uint64_t>(FrameColumn::TIMESTAMP, 0);
}

std::uint64_t FrameRows::last_time(std::size_t row) const noexcept {
  return at<std::uint64_t>(FrameColumn::LAST_TIMESTAMP, row);
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

}  // namespace daqiri

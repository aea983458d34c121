/// Rows with information about frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "burst/burst.h"
#include "storage/file_output.h"
#include "storage/frame_layout.h"

namespace daqiri {

/// Rows with information about frames, stored by column until they are written to the file.
class FrameRows {
 public:
  explicit FrameRows(const FrameForm& form);

  /// Add the row of the frame in a burst, with its reductions.
  void add(const Burst& frame, std::span<const double> reduced);
  /// Add a row for a frame of which no packet came, `before` frames before `next`. Its arrival is
  /// evenly between those of the previous row and of `next`.
  void add_absent(const Burst& next, std::uint64_t before);
  /// Add a row that was read from another file; `row`: its value in each column.
  void add(std::span<const std::byte* const> row);
  /// Remove the first `n` rows, which are in the file.
  void remove(std::size_t n);
  void clear() noexcept { remove(count_); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Whether there are enough rows to write them.
  [[nodiscard]] bool full() const noexcept { return count_ >= most_; }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  [[nodiscard]] const std::byte* column(std::size_t column) const noexcept {
    return columns_[column].data();
  }
  /// Arrival of the first row, ns; there must be one.
  [[nodiscard]] std::uint64_t first_time() const noexcept;
  /// Arrival of the last packet of a row, ns.
  [[nodiscard]] std::uint64_t last_time(std::size_t row) const noexcept;
  [[nodiscard]] std::size_t columns() const noexcept { return widths_.size(); }
  [[nodiscard]] std::uint32_t width(std::size_t column) const noexcept { return widths_[column]; }
  /// `before` plus frames [first, end) of `bytes` each.
  [[nodiscard]] FileTally tally(FileTally before, std::size_t first, std::size_t end,
                                std::uint32_t bytes) const noexcept;

 private:
  /// The columns of fixed width.
  struct Row {
    std::uint64_t number;
    std::uint64_t time;
    std::uint64_t last_time;
    std::uint32_t packets;
    std::uint32_t missing;
    bool timed_out;
    bool lossy;
  };
  /// `valid`: null: no bit is set. `columns`: of the plan; null: 0. `reduced`: empty: NaN.
  void push(const Row& row, const std::uint64_t* valid, const std::uint64_t* columns,
            std::span<const double> reduced);
  template <typename Value>
  [[nodiscard]] Value at(FrameColumn column, std::size_t row) const noexcept;

  std::vector<std::uint32_t> widths_;
  std::vector<std::vector<std::byte>> columns_;
  std::size_t plan_columns_;
  /// See FrameForm.
  std::uint64_t batch_mask_;
  std::uint64_t batch_step_;
  /// Arrival of the latest row, ns; 0: there was none.
  std::uint64_t latest_{0};
  std::size_t count_{0};
  std::size_t most_;
};

}  // namespace daqiri

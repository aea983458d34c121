/// Where the pixels of modules are in an image.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "daqiri/reorder.h"

namespace daqiri::reorder {

/// Pixels of a batch in the order in which they are sent: module after module, each tile after
/// tile, each row after row; and their places in the image.
class ModuleLayout {
 public:
  /// No modules: pixels are in the image as they are sent.
  ModuleLayout() = default;
  /// For a validated frame.
  explicit ModuleLayout(const ReorderFrameConfig& frame);

  /// A rectangle of a module: rows that are sent one after the other.
  struct Rectangle {
    /// Its first pixel, counted from the first one asked for; and how far its rows are apart.
    std::uint64_t from;
    std::uint64_t from_next_row;
    /// The first pixel's place in the image, and how far the next ones are behind it.
    std::int64_t to;
    std::int64_t to_next_row;
    std::int64_t to_next_column;
    std::uint64_t rows;
    std::uint64_t columns;
  };

  [[nodiscard]] bool none() const noexcept { return modules_.empty(); }
  /// Pixels of a batch, and of the image.
  [[nodiscard]] std::uint64_t sent() const noexcept { return modules_.size() * module_; }
  [[nodiscard]] std::uint64_t pixels() const noexcept { return pixels_; }
  /// Pixels of the image that are of no module, and between chips.
  [[nodiscard]] std::span<const Rectangle> gaps() const noexcept { return gaps_; }

  /// Calls `each(rectangle)` for the parts of pixels [first, first + count) of a batch.
  template <typename Each>
  void for_rectangles(std::uint64_t first, std::uint64_t count, Each each) const {
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t in_module = (first + done) % module_;
      const std::uint64_t tile = in_module / tile_.pixels();
      const std::uint64_t row = in_module % tile_.pixels() / tile_.columns;
      const std::uint64_t column = in_module % tile_.columns;
      // Whole rows of the tile, or a part of one.
      const std::uint64_t left = count - done;
      const bool whole = column == 0 && left >= tile_.columns;
      const std::uint64_t columns = whole ? tile_.columns : std::min(left, tile_.columns - column);
      const std::uint64_t rows = whole ? std::min(left / columns, tile_.rows - row) : 1;
      for_chips(modules_[(first + done) / module_],
                {.row = tile / tiles_across_ * tile_.rows + row,
                 .column = tile % tiles_across_ * tile_.columns + column,
                 .rows = rows,
                 .columns = columns},
                done, each);
      done += rows * columns;
    }
  }

 private:
  struct Size {
    std::uint64_t rows{1};
    std::uint64_t columns{1};
    [[nodiscard]] std::uint64_t pixels() const noexcept { return rows * columns; }
  };
  struct Module {
    std::int64_t to;
    std::int64_t to_next_row;
    std::int64_t to_next_column;
  };
  struct Part {
    std::uint64_t row;
    std::uint64_t column;
    std::uint64_t rows;
    std::uint64_t columns;
  };

  template <typename Each>
  void for_chips(const Module& module, const Part& part, std::uint64_t from, Each each) const {
    for (std::uint64_t row = part.row; row < part.row + part.rows;) {
      const std::uint64_t rows =
          std::min(part.row + part.rows, (row / chip_.rows + 1) * chip_.rows) - row;
      for (std::uint64_t column = part.column; column < part.column + part.columns;) {
        const std::uint64_t columns =
            std::min(part.column + part.columns, (column / chip_.columns + 1) * chip_.columns) -
            column;
        Rectangle made{
            .from = from + (row - part.row) * part.columns + (column - part.column),
            .from_next_row = part.columns,
            .to =
                module.to +
                static_cast<std::int64_t>(row + row / chip_.rows * gap_rows_) * module.to_next_row +
                static_cast<std::int64_t>(column + column / chip_.columns * gap_columns_) *
                    module.to_next_column,
            .to_next_row = module.to_next_row,
            .to_next_column = module.to_next_column,
            .rows = rows,
            .columns = columns};
        if (made.columns == made.from_next_row && made.to_next_column == 1 &&
            made.to_next_row == static_cast<std::int64_t>(made.columns)) {
          made.columns *= made.rows;
          made.rows = 1;
        }
        each(made);
        column += columns;
      }
      row += rows;
    }
  }

  void find_gaps(Size image);

  std::vector<Module> modules_;
  std::uint64_t module_{0};
  std::uint64_t pixels_{0};
  Size tile_;
  std::uint64_t tiles_across_{1};
  Size chip_;
  std::uint64_t gap_rows_{0};
  std::uint64_t gap_columns_{0};
  std::vector<Rectangle> gaps_;
};

/// Bytes of an element of a plan's frames.
[[nodiscard]] std::uint32_t element_bytes_of(const ReorderConfig& config) noexcept;
/// Rows and columns of a module in the image, with its gaps.
[[nodiscard]] std::array<std::uint64_t, 2> extent_of(
    const ReorderModulesConfig& modules, const ReorderPositionConfig& position) noexcept;

}  // namespace daqiri::reorder

#include "reorder/module_layout.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <utility>

#include "reorder/pixel_types.h"

namespace daqiri::reorder {

std::uint32_t element_bytes_of(const ReorderConfig& config) noexcept {
  // numpy's type names end with the number of bits.
  const std::string& dtype = config.frame_.dtype_;
  const char* const digits =
      dtype.data() + std::min(dtype.find_first_of("0123456789"), dtype.size());
  std::uint32_t bits = 0;
  std::from_chars(digits, dtype.data() + dtype.size(), bits);
  return std::max(bits != 0 ? bits : bits_of(config.data_types_.output_type_), 8U) / 8;
}

std::array<std::uint64_t, 2> extent_of(const ReorderModulesConfig& modules,
                                       const ReorderPositionConfig& position) noexcept {
  std::array<std::uint64_t, 2> extent{modules.shape_[0], modules.shape_[1]};
  for (std::size_t i = 0; i < 2 && !modules.chip_gap_.empty(); ++i)
    extent[i] += (extent[i] / modules.chip_[i] - 1) * modules.chip_gap_[i];
  if (position.rotate_ % 180 != 0) std::swap(extent[0], extent[1]);
  return extent;
}

ModuleLayout::ModuleLayout(const ReorderFrameConfig& frame) {
  const ReorderModulesConfig& config = frame.modules_;
  if (config.shape_.empty()) return;
  const Size image{frame.shape_[0], frame.shape_[1]};
  const auto size_of = [&](const std::vector<std::uint32_t>& given) {
    const auto& found = given.empty() ? config.shape_ : given;
    return Size{found[0], found[1]};
  };
  pixels_ = image.pixels();
  module_ = size_of({}).pixels();
  tile_ = size_of(config.tile_);
  tiles_across_ = config.shape_[1] / tile_.columns;
  chip_ = size_of(config.chip_);
  if (!config.chip_gap_.empty()) {
    gap_rows_ = config.chip_gap_[0];
    gap_columns_ = config.chip_gap_[1];
  }
  const auto extent = extent_of(config, {});
  const auto rows = static_cast<std::int64_t>(extent[0]);
  const auto columns = static_cast<std::int64_t>(extent[1]);
  for (const ReorderPositionConfig& position : config.positions_) {
    const auto place = [&](std::int64_t row, std::int64_t column) {
      const ReorderFlip flip = position.flip_;
      if (flip == ReorderFlip::ROWS || flip == ReorderFlip::BOTH) row = rows - 1 - row;
      if (flip == ReorderFlip::COLUMNS || flip == ReorderFlip::BOTH) column = columns - 1 - column;
      std::pair<std::int64_t, std::int64_t> at{row, column};
      if (position.rotate_ == 90) at = {columns - 1 - column, row};
      if (position.rotate_ == 180) at = {rows - 1 - row, columns - 1 - column};
      if (position.rotate_ == 270) at = {column, rows - 1 - row};
      return (position.origin_[0] + at.first) * static_cast<std::int64_t>(image.columns) +
             position.origin_[1] + at.second;
    };
    const std::int64_t first = place(0, 0);
    modules_.push_back({first, place(1, 0) - first, place(0, 1) - first});
  }
  if (sent() < pixels_) find_gaps(image);
}

void ModuleLayout::find_gaps(Size image) {
  std::vector<bool> filled(pixels_);
  for_rectangles(0, sent(), [&](const Rectangle& each) {
    for (std::uint64_t row = 0; row < each.rows; ++row) {
      for (std::uint64_t column = 0; column < each.columns; ++column)
        filled[static_cast<std::size_t>(
            each.to + static_cast<std::int64_t>(row) * each.to_next_row +
            static_cast<std::int64_t>(column) * each.to_next_column)] = true;
    }
  });
  // Of the row before: those that go on.
  std::vector<std::size_t> above;
  std::vector<std::size_t> here;
  for (std::uint64_t row = 0; row < image.rows; ++row) {
    here.clear();
    for (std::uint64_t column = 0; column < image.columns;) {
      const std::uint64_t first = column;
      const std::uint64_t at = row * image.columns;
      while (column < image.columns && !filled[at + column]) ++column;
      if (column == first) {
        ++column;
        continue;
      }
      const auto on = std::ranges::find_if(above, [&](std::size_t i) {
        return gaps_[i].columns == column - first &&
               static_cast<std::uint64_t>(gaps_[i].to) % image.columns == first;
      });
      here.push_back(on != above.end() ? *on : gaps_.size());
      if (on != above.end())
        ++gaps_[*on].rows;
      else
        gaps_.push_back({.from = 0,
                         .from_next_row = 0,
                         .to = static_cast<std::int64_t>(at + first),
                         .to_next_row = static_cast<std::int64_t>(image.columns),
                         .to_next_column = 1,
                         .rows = 1,
                         .columns = column - first});
    }
    above.swap(here);
  }
}

}  // namespace daqiri::reorder

// Rules for images of modules.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/rules.h"
#include "reorder/module_layout.h"
#include "reorder/pixel_types.h"

namespace daqiri::config {

namespace {

bool is_pair(const std::vector<std::uint32_t>& values, const Place& at, bool optional) {
  if (values.size() == 2 || (optional && values.empty())) return true;
  at.error("found ", values.size(), " numbers; accepts two, of rows and of columns");
  return false;
}

std::string text_of(const std::vector<std::uint32_t>& pair) {
  return concat("[", pair[0], ", ", pair[1], "]");
}

/// Checks the shape of a module, or of its tiles or chips. `group`: pixels that have whole bytes
/// only together.
bool check_parts(const std::vector<std::uint32_t>& parts, const std::vector<std::uint32_t>& whole,
                 std::uint32_t group, const Place& at) {
  if (whole[0] % parts[0] != 0 || whole[1] % parts[1] != 0)
    at.error("found ", text_of(parts), "; accepts rows and columns that divide ", text_of(whole),
             ", the shape of a module");
  else if (parts[1] % group != 0)
    at.error("found ", parts[1], " columns; accepts a multiple of ", group,
             ", the pixels that have whole bytes in packets");
  return !at.bad();
}

void check_position(const ReorderPositionConfig& position, const ReorderFrameConfig& frame,
                    const Place& at) {
  if (at["origin"].bad() || at["rotate"].bad() || !is_pair(position.origin_, at["origin"], false))
    return;
  const auto extent = reorder::extent_of(frame.modules_, position);
  const std::string told = concat("found ", text_of(position.origin_), " for a module of ",
                                  extent[0], " x ", extent[1], " pixels");
  const auto end = [&](std::size_t axis) { return position.origin_[axis] + extent[axis]; };
  if (end(0) > frame.shape_[0] || end(1) > frame.shape_[1]) {
    at["origin"].error(told, ", beyond the image of ", frame.shape_[0], " x ", frame.shape_[1],
                       "; accepts modules within the image");
    return;
  }
  for (const ReorderPositionConfig& other : frame.modules_.positions_) {
    if (&other == &position) return;
    if (other.origin_.size() != 2) continue;
    const auto its = reorder::extent_of(frame.modules_, other);
    const auto apart = [&](std::size_t axis) {
      return end(axis) <= other.origin_[axis] ||
             other.origin_[axis] + its[axis] <= position.origin_[axis];
    };
    if (apart(0) || apart(1)) continue;
    at["origin"].error(told, ", which overlaps the one at ", text_of(other.origin_),
                       "; accepts modules apart from each other");
    return;
  }
}

}  // namespace

bool check_modules(const ReorderConfig& plan, const Place& place) {
  const ReorderFrameConfig& frame = plan.frame_;
  const ReorderModulesConfig& modules = frame.modules_;
  const Place at = place["modules"];
  if (at.bad() || place["shape"].bad()) return false;
  if (modules.shape_.empty()) return true;
  if (frame.shape_.size() != 2) {
    place["shape"].error("found ", frame.shape_.size(),
                         " numbers and modules; accepts two, rows and columns of the image");
    return false;
  }
  const std::pair<std::string_view, const std::vector<std::uint32_t>*> pairs[] = {
      {"shape", &modules.shape_},
      {"tile", &modules.tile_},
      {"chip", &modules.chip_},
      {"chip_gap", &modules.chip_gap_}};
  const ReorderDataType output = plan.data_types_.output_type_;
  const std::uint32_t bits = reorder::bits_of(output);
  if (!place["dtype"].bad() && output != ReorderDataType::SAME &&
      reorder::element_bytes_of(plan) * 8 != std::max(bits, 8U)) {
    place["dtype"].error("found elements of ", reorder::element_bytes_of(plan),
                         " bytes, output_type: ", reorder_data_type_to_string(output),
                         ", and modules, whose elements are placed one by one; accepts a dtype of ",
                         "the size of output_type");
    return false;
  }
  const std::uint32_t group = reorder::group_elements(plan.data_types_.input_type_);
  for (const auto& [key, values] : pairs) {
    const Place here = at[key];
    if (here.bad() || !is_pair(*values, here, key != "shape")) return false;
    const bool parts = key != "chip_gap" && !values->empty();
    if (parts && !check_parts(*values, modules.shape_, group, here)) return false;
  }
  if (modules.chip_.empty() != modules.chip_gap_.empty()) {
    const bool chip = modules.chip_gap_.empty();
    at[chip ? "chip" : "chip_gap"].error(
        "found without ", chip ? "chip_gap" : "chip",
        "; accepts both: rows and columns of a chip, and those between chips");
    return false;
  }
  const Place list = at["positions"];
  if (!list.bad() && modules.positions_.empty())
    list.error("found an empty list; accepts a position for each module");
  for (const auto& [position, each] : placed(modules.positions_, list))
    check_position(position, frame, each);
  return !at.bad() && !list.bad();
}

}  // namespace daqiri::config

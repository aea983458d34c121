/// Numbers from packets' headers that go with their frame.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daqiri/reorder.h"
#include "reorder/field.h"

namespace daqiri::reorder {

/// The columns of a plan.
class Columns {
 public:
  Columns() = default;
  /// `slots`: packets of a frame.
  Columns(const std::vector<ReorderColumnConfig>& configs, std::uint32_t slots);

  /// Numbers of a frame, those of the first column first.
  [[nodiscard]] std::size_t numbers() const noexcept { return numbers_; }
  /// Whether a field counts from the UDP payload.
  [[nodiscard]] bool of_payload() const noexcept {
    return std::ranges::any_of(columns_, [](const Column& c) { return c.field.of_payload(); });
  }
  /// Whether a packet contains all fields; its UDP payload is [begin, end).
  [[nodiscard]] bool are_in(std::uint32_t length, std::uint32_t begin,
                            std::uint32_t end) const noexcept {
    for (const Column& each : columns_) {
      if (each.field.end(begin) > (each.field.of_payload() ? end : length)) return false;
    }
    return true;
  }
  /// Take the numbers of a packet that contains them. `udp_at`: begin of its UDP payload. `slot`:
  /// its position in the frame. `first`: of the frame's packets that came, it has the lowest.
  /// `numbers`: of the frame; 0 before its first packet.
  void take(const std::uint8_t* packet, std::uint32_t udp_at, std::uint32_t slot, bool first,
            std::uint64_t* numbers) const noexcept {
    for (const Column& each : columns_) {
      if (each.from == ReorderColumnSource::FIRST) {
        if (first) numbers[each.at] = each.field.read(packet, udp_at);
      } else if (each.from == ReorderColumnSource::SUM) {
        numbers[each.at] += each.field.read(packet, udp_at);
      } else {
        numbers[each.at + slot] = each.field.read(packet, udp_at);
      }
    }
  }

 private:
  struct Column {
    Field field;
    ReorderColumnSource from;
    /// Place of its first number.
    std::size_t at;
  };
  std::vector<Column> columns_;
  std::size_t numbers_{0};
};

/// The columns of the frames in a region's buffers. Must live as long as any frame is in use.
class ColumnNumbers {
 public:
  /// `each`: numbers of a frame.
  ColumnNumbers(std::size_t buffers, std::size_t each)
      : each_(each), numbers_(std::make_unique<std::uint64_t[]>(buffers * each)) {}
  [[nodiscard]] std::size_t each() const noexcept { return each_; }
  /// Null: there are no columns.
  [[nodiscard]] std::uint64_t* of(std::uint32_t buffer) const noexcept {
    return each_ == 0 ? nullptr : numbers_.get() + buffer * each_;
  }

 private:
  std::size_t each_;
  std::unique_ptr<std::uint64_t[]> numbers_;
};

}  // namespace daqiri::reorder

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
  explicit Columns(const std::vector<ReorderColumnConfig>& configs);

  [[nodiscard]] std::size_t size() const noexcept { return columns_.size(); }
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
  /// Take the numbers of a packet that contains them. `udp_at`: begin of its UDP payload. `first`:
  /// of the frame's packets that came, it has the lowest position.
  void take(const std::uint8_t* packet, std::uint32_t udp_at, bool first,
            std::uint64_t* numbers) const noexcept {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Column& each = columns_[i];
      if (each.sums) {
        numbers[i] += each.field.read(packet, udp_at);
      } else if (first) {
        numbers[i] = each.field.read(packet, udp_at);
      }
    }
  }

 private:
  struct Column {
    Field field;
    bool sums;
  };
  std::vector<Column> columns_;
};

/// The columns of the frames in a region's buffers. Must live as long as any frame is in use.
class ColumnNumbers {
 public:
  ColumnNumbers(std::size_t buffers, std::size_t columns)
      : columns_(columns), numbers_(std::make_unique<std::uint64_t[]>(buffers * columns)) {}
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  /// Null: there are no columns.
  [[nodiscard]] std::uint64_t* of(std::uint32_t buffer) const noexcept {
    return columns_ == 0 ? nullptr : numbers_.get() + buffer * columns_;
  }

 private:
  std::size_t columns_;
  std::unique_ptr<std::uint64_t[]> numbers_;
};

}  // namespace daqiri::reorder

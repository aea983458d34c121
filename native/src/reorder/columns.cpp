#include "reorder/columns.h"

namespace daqiri::reorder {

Columns::Columns(const std::vector<ReorderColumnConfig>& configs, std::uint32_t slots) {
  columns_.reserve(configs.size());
  for (const ReorderColumnConfig& each : configs) {
    columns_.push_back({Field(each.field_), each.from_, numbers_});
    numbers_ += each.from_ == ReorderColumnSource::PACKETS ? slots : 1;
  }
}

}  // namespace daqiri::reorder

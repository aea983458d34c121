#include "reorder/columns.h"

namespace daqiri::reorder {

Columns::Columns(const std::vector<ReorderColumnConfig>& configs) {
  columns_.reserve(configs.size());
  for (const ReorderColumnConfig& each : configs)
    columns_.push_back({Field(each.field_), each.from_ == ReorderColumnSource::SUM});
}

}  // namespace daqiri::reorder

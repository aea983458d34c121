#include "storage/record_batch.h"

namespace daqiri {

FileTally RecordBatch::tally_at(std::uint64_t bytes) const noexcept {
  FileTally tally = before_;
  for (std::size_t r = 0; r < num_records_ && marks_[r].end <= bytes; ++r) {
    const Mark& mark = marks_[r];
    tally.size = before_.size + mark.end;
    tally.wire_bytes += mark.wire_length;
    tally.last_ns = static_cast<std::int64_t>(mark.time);
    if (tally.first_ns < 0) tally.first_ns = tally.last_ns;
    ++tally.packets;
  }
  return tally;
}

}  // namespace daqiri

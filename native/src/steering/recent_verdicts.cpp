#include "steering/recent_verdicts.h"

namespace daqiri::steering {

const Verdict& RecentVerdicts::remember(const Program& program, const std::uint8_t* frame,
                                        std::uint32_t captured, std::uint32_t length) noexcept {
  Verdict* verdict = &other_;
  if (captured >= fewest_ && Fields::decide(frame)) {
    const Fields fields = Fields::of(frame);
    Entry& entry = entries_[fields.place()];
    entry.fields = fields;
    verdict = &entry.verdict;
  }
  return *verdict = program.classify(PacketView::of_beginning(frame, captured, length));
}

void RecentVerdicts::forget(const Program& program) noexcept {
  entries_.fill({});
  serial_ = program.serial();
  fewest_ = program.matches_headers_only() ? HEADERS_SIZE : NEVER;
}

}  // namespace daqiri::steering

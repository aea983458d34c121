#include "net/link_statistics.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "net/interfaces.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

std::uint64_t increase(std::uint64_t before, std::uint64_t now) noexcept {
  return now > before ? now - before : 0;
}

}  // namespace

std::uint64_t LossTally::Explained::of(std::uint64_t dropped, std::uint64_t fresh,
                                       std::uint64_t late) noexcept {
  const std::uint64_t all = fresh + early_;
  const std::uint64_t found = std::min(dropped, all);
  early_ = std::min(late, all - found);
  return found;
}

void LossTally::add(const std::map<int, LinkCounters>& now, std::uint64_t backlog_drops,
                    const ReceivedFrames& received) noexcept {
  std::uint64_t dropped = 0;
  for (const auto& [index, counters] : now) {
    const auto known = before_.find(index);
    if (known == before_.end()) continue;
    const LinkCounters& before = known->second;
    const std::uint64_t by_kernel = increase(before.card, counters.card);
    const bool asked = before.driver && counters.driver;
    const std::uint64_t by_driver = asked ? increase(*before.driver, *counters.driver) : 0;
    const std::uint64_t card = std::max(by_kernel, by_driver);
    losses_.lost_card += card;
    // Some drivers include overflows in rx_errors, although it is for bad frames.
    const std::uint64_t errors = increase(before.errors, counters.errors);
    losses_.lost_errors +=
        std::max(increase(before.damaged, counters.damaged), increase(by_kernel, errors));
    // Drivers add to rx_dropped what the card dropped (mlx5, sfc), unless it is in
    // rx_missed_errors.
    dropped += increase(card - by_kernel, increase(before.dropped, counters.dropped));
  }
  for (const auto& [index, counters] : now) before_.insert_or_assign(index, counters);
  // First: the backlog's drops may be those of other interfaces.
  const std::uint64_t explained = by_received_.of(dropped, received.frames, received.late);
  const std::uint64_t fresh = increase(backlog_before_, backlog_drops);
  backlog_before_ = backlog_drops;
  const std::uint64_t backlog = by_backlog_.of(dropped - explained, fresh, fresh);
  losses_.lost_backlog += backlog;
  losses_.lost_dropped += dropped - backlog;
  if (!received.and_others) dropped_for_sure_ += dropped - explained - backlog;
}

LinkStatistics::LinkStatistics(const std::string& port, Traffic traffic,
                               FindInterface find_interface)
    : traffic_(traffic), find_interface_(std::move(find_interface)) {
  try {
    reader_ = std::make_unique<LinkReader>();
    if (traffic == Traffic::EVERY_FRAME)
      unknown_protocols_.emplace(find_interface_(reader_->netlink()));
    // First: what the backlog drops between the two readings must not be missing in this one.
    tally_.add({}, backlog_drops(*reader_));
    read(*reader_);
  } catch (const std::exception& error) {
    reader_.reset();
    log(LogLevel::WARN,
        "interface '" + port +
            "': losses before the engine are not counted, because the kernel's " +
            "statistics cannot be read: " + error.what(),
        {.interface = port, .queue = {}});
  }
}

void LinkStatistics::read(LinkReader& reader) {
  interface_ = find_interface_(reader.netlink());
  ReceivedFrames received;
  std::map<int, LinkCounters> found;
  if (unknown_protocols_) {
    found = read_every_frame(reader, *unknown_protocols_, received);
  } else if (interface_ >= 0) {
    found = reader.read(interface_);
  }
  for (auto& [each, counters] : found) reader.read_driver(each, counters);
  tally_.add(found, backlog_drops(reader), received);
  read_at_ = monotonic_ns();
}

std::map<int, LinkCounters> LinkStatistics::read_every_frame(LinkReader& reader,
                                                             UnknownProtocols& unknown,
                                                             ReceivedFrames& received) {
  static const auto cores = static_cast<std::uint64_t>(get_nprocs_conf());
  const std::uint64_t earlier = unknown.fresh();
  std::map<int, LinkCounters> found = reader.read(interface_);
  const std::uint64_t later = unknown.fresh();
  // Each core may be at work on one that was counted already.
  received = {.frames = earlier + later, .late = later + cores};
  // It may come back, with drops of others.
  if (!unknown.has_interface()) found.clear();
  for (const auto& [each, counters] : found) {
    if (std::exchange(dropped_before_, counters.dropped) == counters.dropped) continue;
    const bool now = has_other_takers(reader.netlink(), interface_);
    received.and_others = std::exchange(other_takers_, now) || now;
  }
  return found;
}

std::uint64_t LinkStatistics::backlog_drops(LinkReader& reader) const {
  return traffic_ == Traffic::IN_DRIVER ? 0 : reader.backlog_drops();
}

PortSnapshot LinkStatistics::losses(std::uint64_t max_age) noexcept {
  const std::lock_guard lock(mutex_);
  if (reader_ != nullptr && monotonic_ns() - read_at_ >= max_age) {
    try {
      read(*reader_);
    } catch (const std::exception&) {
      // The increase is in the next reading that succeeds. Not every caller should wait for it.
      read_at_ = monotonic_ns();
    }
  }
  PortSnapshot losses = tally_.losses();
  if (traffic_ == Traffic::REPEATED) return losses;
  losses.lost_before_engine = losses.lost_card + losses.lost_backlog + losses.lost_errors;
  if (traffic_ == Traffic::EVERY_FRAME) losses.lost_before_engine += tally_.dropped_for_sure();
  return losses;
}

int LinkStatistics::interface() noexcept {
  const std::lock_guard lock(mutex_);
  return interface_;
}

void LinkStatistics::stop() noexcept {
  static_cast<void>(losses(0));
  const std::lock_guard lock(mutex_);
  reader_.reset();
  unknown_protocols_.reset();
}

}  // namespace daqiri

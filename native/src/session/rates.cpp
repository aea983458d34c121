#include "session/rates.h"

#include <algorithm>
#include <utility>

#include "session/session.h"
#include "session/snapshot.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Of a shorter time, a rate says nothing.
constexpr std::uint64_t LEAST_NS = 10'000'000;

/// `counts`: (packets, bytes) of the part in a state, and now. `is_it`: whether a state is of the
/// part.
template <typename States, typename IsIt, typename Counts>
Rates rates_since(const Session& session, States states, IsIt is_it, Counts counts,
                  std::pair<std::uint64_t, std::uint64_t> now) {
  if (session.closed()) return {};
  const std::uint64_t now_ns = monotonic_ns();
  const auto past = session.before(now_ns - SnapshotHistory::KEPT_NS);
  if (now_ns < past->steady + LEAST_NS) return {};
  const auto& all = (*past).*states;
  const auto found = std::ranges::find_if(all, is_it);
  if (found == all.end()) return {};
  const auto [packets, bytes] = counts(found->counters);
  const double seconds = static_cast<double>(now_ns - past->steady) / 1e9;
  return {static_cast<double>(now.first - packets) / seconds,
          static_cast<double>(now.second - bytes) / seconds};
}

std::pair<std::uint64_t, std::uint64_t> received(const RxSnapshot& counters) {
  return {counters.received, counters.received_bytes};
}

std::pair<std::uint64_t, std::uint64_t> sent(const TxSnapshot& counters) {
  return {counters.sent, counters.sent_bytes};
}

std::pair<std::uint64_t, std::uint64_t> made(const reorder::ReorderSnapshot& counters) {
  return {counters.complete + counters.incomplete, 0};
}

}  // namespace

void SnapshotHistory::add(std::shared_ptr<const SessionSnapshot> snapshot) {
  const std::uint64_t now = snapshot->steady;
  kept_.push_back(std::move(snapshot));
  while (kept_.size() > 1 && kept_[1]->steady + KEPT_NS <= now) kept_.pop_front();
}

std::shared_ptr<const SessionSnapshot> SnapshotHistory::before(
    std::uint64_t steady) const noexcept {
  if (kept_.empty()) return nullptr;
  const auto later = std::ranges::find_if(
      kept_, [steady](const auto& snapshot) { return snapshot->steady > steady; });
  return later == kept_.begin() ? *later : *std::prev(later);
}

Rates rates_of(const Session& session, const RxQueue& queue) {
  const auto is_it = [&](const RxQueueState& state) {
    return state.queue == queue.config().common_.name_ && state.port == queue.interface_name();
  };
  return rates_since(session, &SessionSnapshot::rx, is_it, received, received(queue.counters()));
}

Rates rates_of(const Session& session, const TxQueue& queue) {
  const auto is_it = [&](const TxQueueState& state) {
    return state.queue == queue.config().common_.name_ && state.port == queue.interface_name();
  };
  return rates_since(session, &SessionSnapshot::tx, is_it, sent, sent(queue.counters()));
}

double frame_rate_of(const Session& session, const reorder::RunningPlan& plan) {
  const auto is_it = [&](const ReorderState& state) {
    return state.plan == plan.name() && state.port == plan.interface_name();
  };
  return rates_since(session, &SessionSnapshot::reorder, is_it, made, made(plan.counters()))
      .packets;
}

}  // namespace daqiri

// Any packets, compared with a slow and simple model.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "assembler_bench.h"

using namespace daqiri;
using namespace daqiri::reorder;
using namespace daqiri::test;

namespace {

/// The rules as a simple model with lists and maps.
class Model {
 public:
  Model(std::uint32_t slots_of, std::uint64_t mask, std::uint32_t window, bool timed)
      : slots_(slots_of), mask_(mask), window_(window), timed_(timed) {}

  /// `arrival`: of the packet, by the clock of the port; `now` if it has none.
  void take(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
            std::uint64_t now, std::uint64_t arrival) {
    if (slot >= slots_) return void(++malformed);
    if (arrival < since_ && now < epoch_until_) return wait(raw, slot, arrival);
    std::uint64_t* fate = put(raw, slot, value, size, now, arrival);
    const bool back = !acquiring_ || is_far_back(raw) || is_complete_frame(raw);
    if ((fate == &duplicate || (fate == &late && back)) && arrival >= active_ + PAUSE_NS) {
      finish();
      begin(raw);
      ++restarts;
      fate = put(raw, slot, value, size, now, arrival);
    }
    if (fate != &placed) latest_.reset();
    ++*fate;
  }
  void begin_epoch(std::uint64_t since, std::uint64_t now) {
    since_ = since;
    if (now >= epoch_until_ || undoubted_ > window_) before_.clear();
    for (const auto& each : before_) absorb(each.first);
    came_.clear();
    after_gap_.clear();
    rested_ = false;
    undoubted_ = 0;
    const bool runs = now < active_ns_ + IDLE_NS;
    for (auto batch = held_.rbegin(); batch != held_.rend(); ++batch) {
      if (runs || batch->slots.size() < slots_) add_before(*batch);
    }
    for (auto batch = past_.rbegin(); batch != past_.rend(); ++batch) {
      if (runs && *batch) add_before(**batch);
    }
    finish();
    latest_.reset();
    begun_ = false;
    acquiring_ = true;
    epoch_until_ = now + BACKLOG_NS;
    index_ = passed_ = 0;
  }
  void finish() {
    while (!held_.empty()) end_first();
  }

  std::uint64_t placed{0}, duplicate{0}, late{0}, early{0}, malformed{0}, restarts{0}, skipped{0};
  std::vector<Seen> frames;
  std::vector<std::uint64_t> indices;

 private:
  struct Batch {
    std::uint32_t raw;
    bool doubtful{false};
    /// Whether all that lacked before the acquisition have come.
    bool rest{false};
    bool anew{false};
    std::uint64_t first_arrival{0};
    std::map<std::uint32_t, std::pair<std::uint8_t, std::uint32_t>> slots{};
  };
  [[nodiscard]] std::uint64_t ahead(std::uint64_t raw, std::uint64_t of) const {
    return (raw - of) & mask_;
  }
  [[nodiscard]] bool is_after(std::uint64_t raw, std::uint64_t other) const {
    const std::uint64_t steps = ahead(raw, other);
    return steps != 0 && steps <= (mask_ + 1) / 2;
  }
  [[nodiscard]] bool is_far_back(std::uint32_t raw) const {
    return !is_after(raw, newest_) && ahead(newest_, raw) >= window_;
  }
  [[nodiscard]] bool is_full() const { return held_.size() == window_; }
  static std::set<std::uint32_t> there(const Batch& batch) {
    std::set<std::uint32_t> all;
    for (const auto& [slot, what] : batch.slots) all.insert(slot);
    return all;
  }
  [[nodiscard]] bool is_complete_frame(std::uint32_t raw) const {
    const auto is = [raw](const Batch& batch) { return batch.raw == raw; };
    if (std::ranges::any_of(held_, is)) return false;
    for (auto batch = past_.rbegin(); batch != past_.rend(); ++batch)
      if (*batch && is(**batch)) return (*batch)->slots.size() == slots_;
    return false;
  }
  [[nodiscard]] std::list<Batch>::iterator find(std::uint32_t raw) {
    return std::ranges::find(held_, raw, &Batch::raw);
  }

  /// A packet that arrived before the acquisition.
  void wait(std::uint32_t raw, std::uint32_t slot, std::uint64_t arrival) {
    ++early;
    latest_.reset();
    active_ = std::max(active_, arrival);
    if (!make_place(raw)) return;
    before_[raw].insert(slot);
    const auto batch = find(raw);
    if (batch == held_.end() || batch->anew || batch->slots.size() == slots_) return;
    if (!batch->doubtful) {
      batch->doubtful = true;
      came_[raw] = there(*batch);
      after_gap_[raw] = true;
    }
    after_gap_[raw] = after_gap_[raw] && batch->first_arrival >= arrival + GAP_NS;
    batch->rest = has_all(raw);
    if (is_new(raw) && !make_new(*batch)) return void(retract(batch));
    deliver();
  }
  /// Returns false if all others are later.
  bool make_place(std::uint32_t raw) {
    if (before_.contains(raw) || before_.size() < 2 * window_) return true;
    const auto age = [&](const auto& each) -> std::uint64_t {
      const bool later = is_after(each.first, raw) || find(each.first) != held_.end();
      return later ? 0 : ahead(raw, each.first);
    };
    const auto oldest = std::ranges::max_element(before_, {}, age);
    if (age(*oldest) == 0) return false;
    came_.erase(oldest->first);
    before_.erase(oldest);
    return true;
  }
  void add_before(const Batch& batch) {
    if (!before_.contains(batch.raw) && make_place(batch.raw)) before_[batch.raw] = there(batch);
  }
  /// All that came was the rest of a frame from before.
  void absorb(std::uint32_t raw) {
    before_[raw].merge(came_[raw]);
    came_[raw].clear();
    after_gap_[raw] = false;
  }
  /// Whether all packets of a frame came, before the acquisition and since.
  [[nodiscard]] bool has_all(std::uint32_t raw) const {
    std::set<std::uint32_t> all = before_.at(raw);
    all.merge(std::set(came_.at(raw)));
    return all.size() == slots_;
  }
  /// Returns what the packet counts as.
  std::uint64_t* put(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
                     std::uint64_t now, std::uint64_t arrival) {
    // A gap within a frame is not seen.
    const bool gap = arrival >= active_ + GAP_NS;
    if (latest_ != raw && begun_ && now < epoch_until_ && is_stale(raw) && !are_new(raw, slot))
      return &early;
    if (!begun_) begin(raw);
    if (latest_ != raw && gap) {
      rested_ = true;
      for (auto each = held_.end(); each != held_.begin();)
        if (--each; each->doubtful && each->rest) each = retract(each);
    }
    auto batch = batch_of(raw, now, arrival);
    if (batch != held_.end() && batch->doubtful && !weigh(*batch, slot, gap)) {
      retract(batch);
      batch = batch_of(raw, now, arrival);
      if (batch != held_.end()) batch->anew = !batch->doubtful;
      if (batch != held_.end() && batch->doubtful) weigh(*batch, slot, gap);
    }
    if (batch == held_.end()) return &late;
    if (!batch->slots.empty() && batch->slots.begin()->second.second != size) return &malformed;
    if (!batch->slots.try_emplace(slot, value, size).second) return &duplicate;
    if (batch->slots.size() == 1) batch->first_arrival = arrival;
    active_ = arrival;
    active_ns_ = now;
    latest_.reset();
    if (batch->slots.size() < slots_) {
      if (!batch->doubtful) latest_ = raw;
    } else {
      deliver();
    }
    return &placed;
  }
  /// Returns the end if a packet with this number is late.
  std::list<Batch>::iterator batch_of(std::uint32_t raw, std::uint64_t now, std::uint64_t arrival) {
    if (const auto known = find(raw); known != held_.end())
      return known->slots.size() < slots_ ? known : held_.end();
    if ((!held_.empty() || anchored_) && !is_after(raw, newest_)) {
      const bool before_all = !held_.empty() && !is_after(raw, held_.front().raw);
      if (fresh_ && is_far_back(raw) && (before_all || held_.empty())) {
        while (!held_.empty()) retract(held_.begin());
        begin(raw);
      } else if ((anchored_ && !is_after(raw, last_)) || (before_all && is_full())) {
        return held_.end();
      }
    }
    while (is_full()) end_first();
    while (!held_.empty() && is_after(raw, newest_) && !is_after(raw, held_.front().raw))
      end_first();
    auto later = held_.end();
    while (later != held_.begin() && is_after(std::prev(later)->raw, raw)) --later;
    if (later == held_.end()) newest_ = raw;
    active_ = arrival;
    active_ns_ = now;
    const bool doubtful = undoubted_ <= window_ && before_.contains(raw);
    if (!doubtful) ++undoubted_;
    const auto batch = held_.insert(later, {raw, doubtful});
    while (past_.size() > window_ - held_.size()) past_.pop_front();
    deliver();
    return batch;
  }
  [[nodiscard]] bool is_stale(std::uint32_t raw) const {
    const bool past = anchored_        ? !is_after(raw, last_)
                      : !held_.empty() ? is_after(held_.front().raw, raw)
                                       : is_after(newest_, raw);
    return (past || is_after(raw, newest_ + 1)) && before_.contains(raw);
  }
  [[nodiscard]] std::size_t again(std::uint32_t raw) {
    return static_cast<std::size_t>(std::ranges::count_if(
        came_[raw], [&](auto slot) { return before_.at(raw).contains(slot); }));
  }
  /// Whether the packets that came since the acquisition began are of a new frame.
  [[nodiscard]] bool are_new(std::uint32_t raw, std::uint32_t slot) {
    came_[raw].insert(slot);
    return is_new(raw);
  }
  [[nodiscard]] bool is_new(std::uint32_t raw) {
    const std::size_t before = before_.at(raw).size();
    return came_[raw].size() == slots_ ||
           again(raw) > std::max(before / 4, before == 1 ? 0UL : 1UL);
  }
  /// Whether the packets of a doubtful frame remain.
  bool weigh(Batch& batch, std::uint32_t slot, bool gap) {
    const std::uint32_t raw = batch.raw;
    if (came_[raw].empty()) {
      after_gap_[raw] = rested_;
    } else if (gap && again(raw) == 0 && (!after_gap_[raw] || batch.rest)) {
      absorb(raw);
      return false;
    }
    if (!are_new(raw, slot)) {
      batch.rest = has_all(raw);
      return true;
    }
    if (!make_new(batch)) return false;
    deliver();
    return true;
  }
  /// Returns false if it may have packets from before.
  bool make_new(Batch& batch) {
    const bool mixed = came_[batch.raw].size() > again(batch.raw) && !after_gap_[batch.raw];
    before_.erase(batch.raw);
    came_.erase(batch.raw);
    batch.doubtful = batch.rest = false;
    batch.anew = true;
    return !mixed;
  }
  void begin(std::uint32_t raw) {
    begun_ = fresh_ = true;
    anchored_ = false;
    newest_ = raw;
    passed_ = 0;
    past_.clear();
  }
  std::list<Batch>::iterator retract(std::list<Batch>::iterator batch) {
    if (latest_ == batch->raw) latest_.reset();
    if (batch->rest) absorb(batch->raw);
    placed -= batch->slots.size();
    early += batch->slots.size();
    if (batch == held_.begin()) past_.emplace_back();
    return held_.erase(batch);
  }
  /// Numbers before the first one that is held of which no packet came.
  [[nodiscard]] std::uint64_t absent() const {
    return anchored_ ? ahead(held_.front().raw, last_) - 1 : 0;
  }
  void deliver() {
    while (!held_.empty() && has_ended(held_.front()) && (is_full() || absent() == 0)) end_first();
  }
  [[nodiscard]] bool has_ended(const Batch& batch) const {
    return batch.doubtful ? batch.rest : batch.slots.size() == slots_;
  }
  void end_first() {
    const auto batch = held_.begin();
    if (batch->doubtful && batch->slots.size() < slots_) return void(retract(batch));
    if (latest_ == batch->raw) latest_.reset();
    passed_ += absent();
    last_ = batch->raw;
    Seen frame{batch->raw, {},
               {},         static_cast<std::uint32_t>(batch->slots.size()),
               false,      timed_ ? batch->first_arrival : 0};
    const std::uint32_t size = batch->slots.begin()->second.second;
    for (std::uint32_t slot = 0; slot < slots_; ++slot) {
      const auto found = batch->slots.find(slot);
      frame.valid.push_back(found != batch->slots.end());
      frame.bytes.insert(frame.bytes.end(), size,
                         found != batch->slots.end() ? found->second.first : 0);
    }
    frames.push_back(std::move(frame));
    indices.push_back(index_ + passed_);
    index_ = indices.back() + 1;
    skipped += std::exchange(passed_, 0);
    anchored_ = true;
    fresh_ = false;
    past_.emplace_back(*batch);
    held_.erase(batch);
  }

  std::uint32_t slots_;
  std::uint64_t mask_;
  std::size_t window_;
  /// Whether packets have a time of arrival.
  bool timed_;
  /// In the order of their numbers.
  std::list<Batch> held_;
  /// Delivered, the latest last; null: forgotten.
  std::deque<std::optional<Batch>> past_;
  std::map<std::uint32_t, std::set<std::uint32_t>> before_;
  std::map<std::uint32_t, std::set<std::uint32_t>> came_;
  std::map<std::uint32_t, bool> after_gap_;
  bool rested_{false};
  /// Number of the frame of the latest packet, if it was placed.
  std::optional<std::uint32_t> latest_;
  std::uint64_t since_{0};
  std::uint64_t epoch_until_{0};
  bool acquiring_{false};
  bool anchored_{false};
  bool begun_{false};
  bool fresh_{false};
  std::uint64_t newest_{0};
  std::uint64_t last_{0};
  std::uint64_t passed_{0};
  std::uint64_t index_{0};
  std::uint64_t active_{0};
  std::uint64_t active_ns_{0};
  std::size_t undoubted_{0};
};

}  // namespace

TEST_CASE("any sequence of packets does what the rules say", "[reorder]") {
  constexpr std::size_t MOST_TOGETHER = 16;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    ReorderConfig config = by_packet_number(1 + below(70), below(2) == 0 ? 8 : 16);
    config.window_ = 1 + below(below(2) == 0 ? 3 : 64);
    // Use the storage of small frames and of large frames.
    Bench bench(config, 80, 4096, seed % 2 == 0 ? 0 : std::uint64_t{1} << 40U);
    std::uint32_t batch = below(65536);
    std::uint64_t sent = 0;
    // One by one, or several in a call.
    const std::size_t most = seed % 4 < 2 ? 1 : 2 + below(MOST_TOGETHER - 1);
    std::vector<std::vector<std::uint8_t>> together;
    // Some have waited before the engine when an acquisition begins.
    const bool timed = most == 1 && below(2) == 0;
    Model model(bench.plan.units(), bench.plan.batch_mask(), bench.plan.window(), timed);
    std::uint64_t since = 0;
    // An arrival of 0 is none.
    bench.now += 1;
    for (int frame = 0; frame < 40; ++frame) {
      ++batch;
      if (below(15) == 0) batch = below(65536);
      if (below(4) == 0) bench.now += PAUSE_NS - below(2);
      if (below(3) == 0) bench.now += GAP_NS - below(2);
      if (below(12) == 0) {
        since = timed ? bench.now : 0;
        bench.assembler->begin_epoch(since, bench.now, std::nullopt);
        model.begin_epoch(since, bench.now);
      }
      for (std::uint32_t i = 0; i < bench.plan.units() + below(3); ++i) {
        if (below(20) == 0) continue;
        const std::uint32_t number = batch - below(below(2) == 0 ? 1 : 4);
        const auto raw = static_cast<std::uint32_t>(number & bench.plan.batch_mask());
        const std::uint32_t slot = below(10) == 0 ? below(bench.plan.units() + 2) : i;
        const auto value = static_cast<std::uint8_t>(1 + below(255));
        const std::uint32_t size = below(50) == 0 ? 3 : 4;
        const bool waits = since != 0 && bench.now < since + PAUSE_NS && below(4) == 0;
        const std::uint64_t arrival = waits ? since - 1 : bench.now;
        if (most == 1) {
          bench.send_at(timed ? arrival : 0, raw, slot, value, size);
        } else {
          together.push_back(bench.packet(raw, slot, value, size));
          if (together.size() == most) bench.send_together(together);
        }
        model.take(raw, slot, value, size, bench.now, arrival);
        ++sent;
      }
      bench.send_together(together);
    }
    bench.assembler->finish();
    model.finish();
    const ReorderSnapshot& tally = bench.assembler->tally();
    INFO("seed " << seed);
    CHECK(tally.packets == sent);
    CHECK(tally.placed == model.placed);
    CHECK(tally.duplicate == model.duplicate);
    CHECK(tally.late == model.late);
    CHECK(tally.early == model.early);
    CHECK(tally.malformed == model.malformed);
    CHECK(tally.skipped == model.skipped);
    CHECK(tally.restarts == model.restarts);
    REQUIRE(bench.frames.size() == model.frames.size());
    CHECK(bench.frames == model.frames);
    CHECK(bench.indices == model.indices);
    CHECK(bench.balanced());
    CHECK(bench.failed == 0);
    CHECK(bench.region->available() == 80);
  }
}

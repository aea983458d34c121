// Any packets, compared with a slow and simple model.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
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

/// The rules as a simple model with maps.
class Model {
 public:
  Model(std::uint32_t slots_of, std::uint64_t numbers, std::uint32_t window)
      : slots_(slots_of), numbers_(static_cast<std::int64_t>(numbers)), window_(window) {}

  void take(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
            std::uint64_t now) {
    if (slot >= slots_) return void(++malformed);
    std::uint64_t* fate = put(raw, slot, value, size, now);
    const auto delivered = delivered_.find(number_of(raw));
    const bool back = !acquiring_ || number_of(raw) <= newest_ - window_ ||
                      (delivered != delivered_.end() && delivered->first > newest_ - window_ &&
                       delivered->second.size() == slots_);
    if ((fate == &duplicate || (fate == &late && back)) && now - active_ >= PAUSE_NS) {
      finish();
      begin(raw);
      ++restarts;
      fate = put(raw, slot, value, size, now);
    }
    if (fate != &placed) latest_.reset();
    ++*fate;
  }
  void begin_epoch(std::uint64_t now) {
    before_.clear();
    came_.clear();
    after_gap_.clear();
    rested_ = false;
    begun_in_epoch_ = 0;
    for (const auto& [number, batch] : open_) {
      auto& there = before_[raw_of(number)];
      for (const auto& [slot, what] : batch) there.insert(slot);
    }
    const bool runs = now < active_ + IDLE_NS;
    for (const auto& [number, frame] : closed_) {
      const std::set<std::uint32_t> there = slots_in(frame);
      if (runs || there.size() < slots_) before_[raw_of(number)] = there;
    }
    for (const auto& [number, there] : delivered_) {
      if (runs && number > newest_ - window_) before_[raw_of(number)] = there;
    }
    finish();
    latest_.reset();
    begun_ = false;
    acquiring_ = true;
    epoch_at_ = now;
    index_ = passed_ = 0;
  }
  void finish() {
    while (begun_ && next_ <= newest_) end_next();
  }

  std::uint64_t placed{0}, duplicate{0}, late{0}, early{0}, malformed{0}, restarts{0}, skipped{0};
  std::vector<Seen> frames;
  std::vector<std::uint64_t> indices;

 private:
  [[nodiscard]] std::uint32_t raw_of(std::int64_t number) const {
    return static_cast<std::uint32_t>((number % numbers_ + numbers_) % numbers_);
  }
  [[nodiscard]] std::int64_t number_of(std::uint32_t raw) const {
    std::int64_t step = (raw - newest_) % numbers_;
    if (step < 0) step += numbers_;
    return newest_ + (step > numbers_ / 2 ? step - numbers_ : step);
  }
  /// Returns what the packet counts as.
  std::uint64_t* put(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
                     std::uint64_t now) {
    return put(raw, slot, value, size, now, now >= active_ + GAP_NS);
  }
  std::uint64_t* put(std::uint32_t raw, std::uint32_t slot, std::uint8_t value, std::uint32_t size,
                     std::uint64_t now, bool gap) {
    if (!begun_) begin(raw);
    std::int64_t number = number_of(raw);
    if ((number < next_ || number > newest_ + 1) && now - epoch_at_ < BACKLOG_NS &&
        before_.contains(raw) && !are_new(raw, slot))
      return &early;
    // A gap within a frame is not seen.
    if (latest_ != raw) rested_ = rested_ || gap;
    if (number < next_ && !fresh_) return &late;
    if (number < next_ && number <= newest_ - window_) {
      while (!open_.empty()) retract(open_.begin()->first);
      for (const auto& [n, frame] : closed_) {
        placed -= frame.packets;
        early += frame.packets;
      }
      closed_.clear();
      begin(raw);
      number = newest_;
    }
    next_ = std::min(next_, number);
    if (number > newest_) {
      while (next_ <= number - window_ && next_ <= newest_) end_next();
      while (is_no_first() && next_ <= newest_) ++next_;
      if (next_ > newest_ && !anchored_) next_ = number;
      newest_ = number;
      while (next_ <= newest_ - window_) end_next();
      deliver();
    }
    if (closed_.contains(number)) return &late;
    if (!open_.contains(number)) {
      active_ = now;
      if (begun_in_epoch_++ < window_ && before_.contains(raw)) doubtful_.insert(number);
    }
    open_.try_emplace(number);
    if (doubtful_.contains(number) && !weigh(number, slot, gap)) {
      retract(number);
      return put(raw, slot, value, size, now, gap);
    }
    auto& batch = open_[number];
    if (!batch.empty() && batch.begin()->second.second != size) return &malformed;
    if (batch.contains(slot)) return &duplicate;
    batch[slot] = {value, size};
    active_ = now;
    latest_.reset();
    if (!doubtful_.contains(number)) latest_ = raw;
    if (batch.size() == slots_) {
      latest_.reset();
      close(number);
      deliver();
    }
    return &placed;
  }
  static std::set<std::uint32_t> slots_in(const Seen& frame) {
    std::set<std::uint32_t> there;
    for (std::uint32_t slot = 0; slot < frame.valid.size(); ++slot)
      if (frame.valid[slot]) there.insert(slot);
    return there;
  }
  [[nodiscard]] std::size_t again(std::uint32_t raw) {
    return static_cast<std::size_t>(std::ranges::count_if(
        came_[raw], [&](auto slot) { return before_.at(raw).contains(slot); }));
  }
  /// Whether the packets that came since the acquisition began are of a new frame.
  [[nodiscard]] bool are_new(std::uint32_t raw, std::uint32_t slot) {
    came_[raw].insert(slot);
    const std::size_t before = before_.at(raw).size();
    return came_[raw].size() == slots_ ||
           again(raw) > std::max(before / 4, before == 1 ? 0UL : 1UL);
  }
  /// Whether the packets of a doubtful frame remain.
  [[nodiscard]] bool weigh(std::int64_t number, std::uint32_t slot, bool gap) {
    const std::uint32_t raw = raw_of(number);
    if (came_[raw].empty()) {
      after_gap_[raw] = rested_;
    } else if (gap && again(raw) == 0 && !after_gap_[raw]) {
      before_[raw].merge(came_[raw]);
      came_[raw].clear();
      return false;
    }
    if (!are_new(raw, slot)) return true;
    const bool mixed = came_[raw].size() > again(raw) && !after_gap_[raw];
    before_.erase(raw);
    doubtful_.erase(number);
    if (mixed) return false;
    deliver();
    return true;
  }
  void begin(std::uint32_t raw) {
    begun_ = fresh_ = true;
    anchored_ = false;
    newest_ = next_ = raw;
    passed_ = 0;
    delivered_.clear();
  }
  void retract(std::int64_t number) {
    if (latest_ == raw_of(number)) latest_.reset();
    placed -= open_[number].size();
    early += open_[number].size();
    open_.erase(number);
    doubtful_.erase(number);
  }
  void deliver() {
    while (next_ <= newest_ &&
           (closed_.contains(next_) || is_rest(next_) || (is_no_first() && next_ < newest_))) {
      if (next_ == newest_ && open_.contains(next_)) return retract(next_);
      end_next();
    }
  }
  [[nodiscard]] bool is_no_first() const {
    return !anchored_ && !open_.contains(next_) && !closed_.contains(next_);
  }
  /// Whether a frame from before the acquisition has all its packets now.
  [[nodiscard]] bool is_rest(std::int64_t number) const {
    if (!doubtful_.contains(number)) return false;
    std::set<std::uint32_t> all = before_.at(raw_of(number));
    all.merge(std::set(came_.at(raw_of(number))));
    return all.size() == slots_;
  }
  void end_next() {
    if (open_.contains(next_)) close(next_);
    if (const auto found = closed_.find(next_); found == closed_.end()) {
      if (anchored_) ++passed_;
    } else {
      delivered_[next_] = slots_in(found->second);
      frames.push_back(std::move(found->second));
      closed_.erase(found);
      indices.push_back(index_ + passed_);
      index_ = indices.back() + 1;
      skipped += std::exchange(passed_, 0);
      fresh_ = false;
      anchored_ = true;
    }
    ++next_;
  }
  void close(std::int64_t number) {
    const auto& batch = open_.at(number);
    if (doubtful_.contains(number) && batch.size() < slots_) return retract(number);
    doubtful_.erase(number);
    const std::uint32_t size = batch.begin()->second.second;
    Seen frame{raw_of(number), {}, {}, static_cast<std::uint32_t>(batch.size()), false, 0};
    for (std::uint32_t slot = 0; slot < slots_; ++slot) {
      const auto found = batch.find(slot);
      frame.valid.push_back(found != batch.end());
      frame.bytes.insert(frame.bytes.end(), size, found != batch.end() ? found->second.first : 0);
    }
    if (latest_ == raw_of(number)) latest_.reset();
    closed_.emplace(number, std::move(frame));
    open_.erase(number);
  }

  std::uint32_t slots_;
  std::int64_t numbers_;
  std::int64_t window_;
  std::map<std::int64_t, std::map<std::uint32_t, std::pair<std::uint8_t, std::uint32_t>>> open_;
  std::map<std::int64_t, Seen> closed_;
  std::map<std::uint32_t, std::set<std::uint32_t>> before_;
  std::map<std::uint32_t, std::set<std::uint32_t>> came_;
  std::set<std::int64_t> doubtful_;
  std::map<std::uint32_t, bool> after_gap_;
  bool rested_{false};
  /// Number of the frame of the latest packet, if it was placed.
  std::optional<std::uint32_t> latest_;
  std::map<std::int64_t, std::set<std::uint32_t>> delivered_;
  std::uint64_t epoch_at_{0};
  bool acquiring_{false};
  bool anchored_{false};
  bool begun_{false};
  bool fresh_{false};
  std::int64_t newest_{0};
  std::int64_t next_{0};
  std::uint64_t passed_{0};
  std::uint64_t index_{0};
  std::uint64_t active_{0};
  std::int64_t begun_in_epoch_{0};
};

}  // namespace

TEST_CASE("any sequence of packets does what the rules say", "[reorder]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    ReorderConfig config = by_packet_number(1 + below(70), below(2) == 0 ? 8 : 16);
    config.window_ = 1 + below(below(2) == 0 ? 3 : 64);
    // Use the storage of small frames and of large frames.
    Bench bench(config, 80, 4096, seed % 2 == 0 ? 0 : std::uint64_t{1} << 40U);
    Model model(bench.plan.units(), bench.plan.batch_numbers(), bench.plan.window());
    std::uint32_t batch = below(65536);
    std::uint64_t sent = 0;
    for (int frame = 0; frame < 40; ++frame) {
      ++batch;
      if (below(15) == 0) batch = below(65536);
      if (below(4) == 0) bench.now += PAUSE_NS - below(2);
      if (below(3) == 0) bench.now += GAP_NS - below(2);
      if (below(12) == 0) {
        bench.assembler->begin_epoch(0, bench.now, std::nullopt);
        model.begin_epoch(bench.now);
      }
      for (std::uint32_t i = 0; i < bench.plan.units() + below(3); ++i) {
        if (below(20) == 0) continue;
        const std::uint32_t number = batch - below(below(2) == 0 ? 1 : 4);
        const auto raw = static_cast<std::uint32_t>(number % bench.plan.batch_numbers());
        const std::uint32_t slot = below(10) == 0 ? below(bench.plan.units() + 2) : i;
        const auto value = static_cast<std::uint8_t>(1 + below(255));
        const std::uint32_t size = below(50) == 0 ? 3 : 4;
        bench.send(raw, slot, value, size);
        model.take(raw, slot, value, size, bench.now);
        ++sent;
      }
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
    CHECK(bench.region->available() == 80);
  }
}

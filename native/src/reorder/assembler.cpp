#include "reorder/assembler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "reorder/deferred_copies.h"

namespace daqiri::reorder {

namespace {

constexpr std::uint32_t WORD = 64;
constexpr std::uint64_t NEVER = UINT64_MAX;

/// Calls `each(word, mask)` for the words that hold bits [first, first + n).
template <typename Each>
void for_words(std::uint32_t first, std::uint32_t n, Each each) noexcept {
  while (n > 0) {
    const std::uint32_t bit = first % WORD;
    const std::uint32_t here = std::min(n, WORD - bit);
    const std::uint64_t ones = here == WORD ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1;
    each(first / WORD, ones << bit);
    first += here;
    n -= here;
  }
}

}  // namespace

Assembler::Assembler(const Plan& plan, memory::MemoryRegion& output, const ValidBits& valid,
                     FrameSink& sink)
    : plan_(plan),
      output_(output),
      valid_(valid),
      columns_(
          std::make_shared<ColumnNumbers>(output.config().num_bufs_, plan.columns().numbers())),
      sink_(sink),
      // Where the length is known, the configuration was checked with it.
      most_output_(plan.by_bytes() || plan.payload_bytes() != 0
                       ? UINT64_MAX
                       : output.buf_size() / std::max(plan.units(), 1U)),
      batches_(plan.window()),
      delivered_units_(batches_.size() * valid.words()) {
  if (plan.splits())
    split_ = std::make_unique<std::byte[]>(output.config().num_bufs_ * plan.units() * MOST_GROUP);
}

Assembler::Whole Assembler::keep_split(const Batch& batch, const Place& where,
                                       const std::byte* payload) noexcept {
  const std::uint32_t group = plan_.groups().bytes();
  const std::uint32_t before = plan_.split_before(where.slot);
  Whole whole{payload, where.payload_bytes, plan_.begin_of(where.slot, batch.slot_bytes)};
  if (before != 0) {
    const std::uint32_t rest = group - before;
    std::copy_n(payload, rest, split_group(batch, where.slot) + before);
    whole.from += rest;
    whole.bytes -= rest;
    whole.to += plan_.groups().output_bytes();
  }
  // The last packet of a part of the batch ends with a whole group.
  if (const std::uint32_t begun = whole.bytes % group; begun != 0) {
    whole.bytes -= begun;
    std::copy_n(whole.from + whole.bytes, begun, split_group(batch, where.slot + 1));
  }
  return whole;
}

void Assembler::join_split(const Batch& batch) noexcept {
  const auto is_there = [&](std::uint32_t slot) {
    return (batch.valid[slot / WORD] >> slot % WORD & 1U) != 0;
  };
  for (std::uint32_t slot = 1; slot < plan_.units(); ++slot) {
    if (plan_.split_before(slot) == 0 || !is_there(slot - 1) || !is_there(slot)) continue;
    plan_.place(batch.data, plan_.begin_of(slot, batch.slot_bytes), split_group(batch, slot),
                plan_.groups().bytes());
  }
  plan_.settle();
}

[[gnu::always_inline]] inline void Assembler::read_columns(Batch& batch, const Place& where,
                                                           const Packet& packet) noexcept {
  if (batch.columns == nullptr) return;
  const bool first = batch.packets == 0 || where.slot < batch.lowest;
  if (first) batch.lowest = where.slot;
  plan_.columns().take(packet.data, where.udp_at, where.slot, first, batch.columns);
}

[[gnu::always_inline]] inline void Assembler::add(Batch& batch, std::uint32_t packets,
                                                  std::uint32_t units) noexcept {
  batch.packets += packets;
  batch.units += units;
  if (batch.units != plan_.units()) return;
  close(batch, End::COMPLETE);
  deliver();
}

[[gnu::always_inline]] inline Assembler::Fate Assembler::place(Batch& batch, const Place& where,
                                                               const Packet& packet) noexcept {
  std::uint32_t units = 1;
  std::uint64_t to = 0;
  Claim claim = Claim::FREE;
  if (plan_.by_bytes()) {
    units = where.payload_bytes / plan_.unit_bytes();
    to = plan_.output_bytes(where.slot);
    claim = this->claim(batch.valid, where.slot / plan_.unit_bytes(), units);
  } else {
    if (batch.packets == 0) {
      // All have the plan's length, if it has one.
      batch.payload_bytes =
          plan_.payload_bytes() != 0 ? plan_.payload_bytes() : where.payload_bytes;
      batch.slot_bytes =
          static_cast<std::uint32_t>(plan_.groups().output_within(batch.payload_bytes));
    } else if (plan_.payload_bytes() == 0 && batch.payload_bytes != where.payload_bytes) {
      return Fate::MALFORMED;
    }
    to = plan_.begin_of(where.slot, batch.slot_bytes);
    std::uint64_t& word = batch.valid[where.slot / WORD];
    const std::uint64_t bit = std::uint64_t{1} << where.slot % WORD;
    if ((word & bit) != 0) claim = Claim::TAKEN;
    word |= bit;
  }
  if (claim != Claim::FREE) {
    // A packet that overlaps others only in part is malformed.
    return claim == Claim::TAKEN ? Fate::DUPLICATE : Fate::MALFORMED;
  }
  read_columns(batch, where, packet);
  const auto* const payload = reinterpret_cast<const std::byte*>(packet.data) + where.payload_at;
  Whole whole{payload, where.payload_bytes, to};
  if (plan_.splits()) [[unlikely]]
    whole = keep_split(batch, where, payload);
  if (copier_ == nullptr) {
    plan_.place(batch.data, whole.to, whole.from, whole.bytes);
  } else {
    copies_[num_copies_] = {batch.data,  whole.from,   static_cast<std::uint32_t>(whole.to),
                            whole.bytes, batch.buffer, packet.buffer,
                            packet.owner};
    if (++num_copies_ == Copier::CHUNK) settle();
  }
  if (batch.packets == 0) batch.first_time = packet.time;
  batch.last_time = packet.time;
  add(batch, 1, units);
  return Fate::PLACED;
}

[[gnu::always_inline]] inline bool Assembler::take(const Packet& packet, Located located,
                                                   Place where, std::uint64_t now_ns) noexcept {
  if (located == Located::LEFT_OUT) {
    count(Fate::LEFT_OUT);
    return false;
  }
  bool good = located == Located::IN_BATCH;
  if (good && plan_.divides()) {
    if (!divide(where, packet, now_ns)) {
      count(Fate::LATE);
      return false;
    }
    good = plan_.cut(where);
  }
  good = good && (plan_.by_bytes() || (where.slot < plan_.units() &&
                                       plan_.output_bytes(where.payload_bytes) <= most_output_));
  if (!good) {
    count(Fate::MALFORMED);
    return false;
  }
  if (packet.time < since_ && packet.time != 0 && now_ns < since_until_ns_) [[unlikely]] {
    note_waited(where, packet.time);
    count(Fate::EARLY);
    return false;
  }
  Batch* const batch = latest_;
  const Fate fate = batch != nullptr && batch->raw == where.batch
                        ? place(*batch, where, packet)
                        : place_in_other(where, packet, now_ns);
  return fate == Fate::PLACED || begins_anew(fate, where, packet, now_ns);
}

Assembler::Fate Assembler::place_in_other(const Place& where, const Packet& packet,
                                          std::uint64_t now_ns) noexcept {
  leave_latest();
  if (begun_ && now_ns < since_until_ns_ && is_stale(where)) return Fate::EARLY;
  if (!begun_) begin(where.batch);
  if (first_ && fresh_ && where.batch != *first_ && !is_after(where.batch, *first_))
    return Fate::EARLY;
  const bool after_silence = silence_before(packet, now_ns, GAP_NS);
  rested_ = rested_ || after_silence;
  if (after_silence) retract_rests();
  Batch* batch = batch_of(where.batch, packet, now_ns);
  if (batch != nullptr && batch->doubtful && !weigh(*batch, where, after_silence)) {
    retract_at(place_of(*batch));
    batch = batch_of(where.batch, packet, now_ns);
    if (batch != nullptr) batch->anew = !batch->doubtful;
    if (batch != nullptr && batch->doubtful) weigh(*batch, where, after_silence);
  }
  if (batch == nullptr) return Fate::LATE;
  if (batch->data == nullptr) return Fate::NO_BUFFER;
  const Fate fate = place(*batch, where, packet);
  if (fate != Fate::PLACED) return fate;
  active_ = packet.time;
  if (!batch->doubtful && batch->state == Batch::State::OPEN) latest_ = batch;
  return fate;
}

bool Assembler::begins_anew(Fate fate, const Place& where, const Packet& packet,
                            std::uint64_t now_ns) noexcept {
  leave_latest();
  const auto is_back = [&] {
    // In an acquisition, a late packet may be of an image that was recorded without it.
    const Batch* const there = find(where.batch);
    return !acquiring_ || is_far_back(where.batch) ||
           (there != nullptr && there->state == Batch::State::DELIVERED &&
            there->units == plan_.units());
  };
  const auto unwanted = [&] {
    return fate == Fate::DUPLICATE ||
           ((fate == Fate::LATE || fate == Fate::NO_BUFFER) && is_back());
  };
  if (silence_before(packet, now_ns, PAUSE_NS) && unwanted()) {
    finish();
    first_.reset();
    forget();
    tally_.restarts += 1;
    fate = place_in_other(where, packet, now_ns);
  }
  if (fate == Fate::NO_BUFFER) {
    active_ = packet.time;
    active_ns_ = now_ns;
  }
  count(fate);
  return fate == Fate::PLACED;
}

/// The headers of packets may not be in the cache yet.
[[gnu::always_inline]] inline void fetch_ahead_of(std::size_t i, std::span<const Packet> packets) {
  constexpr std::size_t AHEAD = 4;
  if (i + AHEAD < packets.size()) __builtin_prefetch(packets[i + AHEAD].data);
}

void Assembler::locate(std::span<const Packet> packets, Found* found) const noexcept {
  for (std::size_t i = 0; i < packets.size(); ++i) {
    fetch_ahead_of(i, packets);
    const Packet& packet = packets[i];
    found[i].located = plan_.locate(packet.data, packet.length, packet.flow, found[i].place);
    found[i].run = 1;
  }
  // Not of numbers that others have to count first.
  if (plan_.by_bytes() || plan_.divides() || plan_.splits()) return;
  const auto follows = [this](const Place& next, const Place& before) {
    return next.batch == before.batch && next.slot == before.slot + 1 &&
           (plan_.payload_bytes() != 0 || next.payload_bytes == before.payload_bytes);
  };
  for (std::size_t i = packets.size(); i-- > 1;) {
    Found& before = found[i - 1];
    const Found& next = found[i];
    if (before.located == Located::IN_BATCH && next.located == Located::IN_BATCH &&
        follows(next.place, before.place))
      before.run = next.run + 1;
  }
}

bool Assembler::place_run(std::span<const Packet> packets, const Found* found,
                          std::uint64_t now_ns) noexcept {
  Batch* const batch = latest_;
  const Place& first = found->place;
  const auto n = static_cast<std::uint32_t>(packets.size());
  if (batch == nullptr || batch->raw != first.batch || now_ns < since_until_ns_ ||
      (plan_.payload_bytes() == 0 && batch->payload_bytes != first.payload_bytes) ||
      std::uint64_t{first.slot} + n > plan_.units() ||
      claim(batch->valid, first.slot, n) != Claim::FREE)
    return false;
  if (batch->columns != nullptr) {
    for (std::uint32_t i = 0; i < n; ++i) read_columns(*batch, found[i].place, packets[i]);
  }
  deferred_->move_run({batch->data, batch->buffer, batch->slot_bytes, packets.data(), found, n});
  batch->last_time = packets.back().time;
  add(*batch, n, n);
  return true;
}

void Assembler::take(std::span<const Packet> packets, std::uint64_t now_ns,
                     Copier* copier) noexcept {
  take_all(packets, copier, now_ns, [&](std::size_t i) {
    fetch_ahead_of(i, packets);
    const Packet& packet = packets[i];
    Place where{};
    const Located located = plan_.locate(packet.data, packet.length, packet.flow, where);
    return take(packet, located, where, now_ns) ? 1U : 0U;
  });
}

void Assembler::take(std::span<const Packet> packets, const Found* found, std::uint64_t now_ns,
                     DeferredCopies& copies) noexcept {
  deferred_ = &copies;
  take_all(packets, &copies, now_ns, [&](std::size_t i) {
    const std::uint32_t run = found[i].run;
    if (run > 1 && place_run(packets.subspan(i, run), found + i, now_ns)) return run;
    return take(packets[i], found[i].located, found[i].place, now_ns) ? 1U : 0U;
  });
  deferred_ = nullptr;
}

template <typename Take>
void Assembler::take_all(std::span<const Packet> packets, Copier* copier, std::uint64_t now_ns,
                         Take take) noexcept {
  copier_ = copier;
  if (copier_ != nullptr) copies_ = copier_->transfers();
  tally_.packets += packets.size();
  placed_ = 0;
  for (std::size_t i = 0; i < packets.size();) {
    const std::uint32_t placed = take(i);
    placed_ += placed;
    if (placed == 0 && copier_ != nullptr && packets[i].owner != nullptr)
      packets[i].owner->give(&packets[i].buffer, 1);
    i += std::max(placed, 1U);
  }
  settle();
  copier_ = nullptr;
  tally_.placed += placed_;
  if (placed_ > 0) active_ns_ = now_ns;
}

Assembler::Batch* Assembler::find(std::uint64_t raw) noexcept {
  for (std::size_t back = 1; back <= batches_.size(); ++back) {
    Batch& batch = at(end_ + batches_.size() - back);
    if (batch.raw == raw && batch.state != Batch::State::EMPTY) return &batch;
  }
  return nullptr;
}

Assembler::Batch* Assembler::held_with(std::uint64_t raw) noexcept {
  for (std::uint64_t place = end_; place-- > next_;)
    if (at(place).raw == raw) return &at(place);
  return nullptr;
}

Assembler::Batch* Assembler::batch_of(std::uint64_t raw, const Packet& packet,
                                      std::uint64_t now_ns) noexcept {
  if (Batch* const batch = held_with(raw); batch != nullptr)
    return batch->state == Batch::State::CLOSED ? nullptr : batch;
  const bool is_known = held() > 0 || anchored_;
  if (is_known && !is_after(raw, newest_)) {
    const bool before_all = held() > 0 && !is_after(raw, at(next_).raw);
    if (fresh_ && is_far_back(raw) && (before_all || held() == 0)) {
      for (; held() > 0; ++next_) retract(at(next_));
      gap_ = passed_ = 0;
      begin(raw);
      return batch_of(raw, packet, now_ns);
    }
    if ((anchored_ && !is_after(raw, last_)) || (before_all && full())) {
      Batch* const there = find(raw);
      return there != nullptr && there->state == Batch::State::LOST ? there : nullptr;
    }
  }
  while (full()) end_next();
  // Of numbers more than half of all apart, the order is not known.
  while (held() > 0 && is_after(raw, newest_) && !is_after(raw, at(next_).raw)) end_next();
  std::uint64_t place = end_;
  while (place > next_ && is_after(at(place - 1).raw, raw)) --place;
  return &open_at(place, raw, packet, now_ns);
}

Assembler::Batch& Assembler::open_at(std::uint64_t place, std::uint64_t raw, const Packet& packet,
                                     std::uint64_t now_ns) noexcept {
  for (std::uint64_t to = end_++; to > place; --to) at(to) = at(to - 1);
  if (place + 1 == end_) newest_ = raw;
  Batch& batch = at(place);
  open(batch, raw, packet, now_ns);
  deliver();
  return batch;
}

std::optional<std::uint64_t> Assembler::continued(std::uint64_t sequence,
                                                  bool paused) const noexcept {
  const std::uint64_t open = batches_.size() * plan_.divisor();
  const std::uint64_t newest = newest_ * plan_.divisor();
  if (begun_ && !paused) {
    const Step on = nearest(newest, sequence);
    if (on.size < LOST_NUMBERS + 2 * open) return on.number;
    // Late, or behind a large loss that is not at the end of the numbers.
    if (!fresh_) return newest - newest % plan_.sequence_numbers() + sequence;
  }
  if (first_ && (!begun_ || fresh_)) return nearest(*first_ * plan_.divisor(), sequence).number;
  // Numbers of an instrument that began anew would pass those of one that goes on.
  if (unknown_) return std::nullopt;
  if (!begun_ && !before_) return sequence;
  const Step on = nearest(begun_ && (paused || !before_) ? newest : *before_, sequence);
  if (on.number == sequence) return sequence;
  const std::uint64_t few = open + std::uint64_t{2} * plan_.divisor() + FEW_NUMBERS;
  const bool goes_on = (on.size < few && sequence >= FEW_NUMBERS) ||
                       (on.size < MANY_NUMBERS && sequence >= MANY_NUMBERS);
  if (goes_on) return on.number;
  const bool begins = sequence < MANY_NUMBERS && on.size >= MANY_NUMBERS;
  return begins ? std::optional<std::uint64_t>(sequence) : std::nullopt;
}

Assembler::Step Assembler::nearest(std::uint64_t before, std::uint64_t sequence) const noexcept {
  const std::uint64_t numbers = plan_.sequence_numbers();
  Step best{before - before % numbers + sequence, 0};
  best.size = best.number > before ? best.number - before : before - best.number;
  if (best.size <= numbers / 2) return best;
  if (best.number < before) return {best.number + numbers, numbers - best.size};
  return best.number < numbers ? best : Step{best.number - numbers, numbers - best.size};
}

bool Assembler::divide(Place& where, const Packet& packet, std::uint64_t now_ns) noexcept {
  if (latest_ != nullptr) active_ = latest_->last_time;
  const std::optional<std::uint64_t> number =
      continued(where.batch, silence_before(packet, now_ns, PAUSE_NS));
  unknown_ = unknown_ || !number;
  if (number) plan_.divide(*number, where);
  return number.has_value();
}

std::uint32_t Assembler::claim_beside(std::uint64_t* units, const std::uint64_t* others,
                                      const Place& place, std::uint32_t& both) noexcept {
  const std::uint32_t first = plan_.by_bytes() ? place.slot / plan_.unit_bytes() : place.slot;
  const std::uint32_t number = plan_.by_bytes() ? place.payload_bytes / plan_.unit_bytes() : 1;
  if (claim(units, first, number) != Claim::FREE) return 0;
  bool again = false;
  for_words(first, number, [&](std::uint32_t word, std::uint64_t mask) {
    again = again || (others[word] & mask) != 0;
  });
  if (again) both += number;
  return number;
}

Assembler::Begun* Assembler::begun_with(std::uint64_t raw) noexcept {
  const auto found = std::ranges::find(begun_before_, raw, &Begun::raw);
  return found != begun_before_.end() ? &*found : nullptr;
}

Assembler::Begun* Assembler::add_begun(std::uint64_t raw) noexcept {
  if (begun_before_.size() == 2 * batches_.size()) {
    // Of the oldest one, no packet comes any more; those of held batches are weighed.
    Begun* oldest = nullptr;
    std::uint64_t most = 0;
    for (Begun& each : begun_before_) {
      const std::uint64_t age = is_after(each.raw, raw) ? 0 : ahead(raw, each.raw);
      if (age <= most || held_with(each.raw) != nullptr) continue;
      most = age;
      oldest = &each;
    }
    if (oldest == nullptr) return nullptr;
    remove_begun(*oldest);
  }
  Begun& begun = begun_before_.emplace_back(Begun{.raw = raw});
  std::fill_n(units_of(begun), 2 * valid_.words(), std::uint64_t{0});
  return &begun;
}

void Assembler::absorb(Begun& begun) noexcept {
  std::uint64_t* const came = came_units_of(begun);
  for (std::size_t i = 0; i < valid_.words(); ++i) units_of(begun)[i] |= came[i];
  std::fill_n(came, valid_.words(), std::uint64_t{0});
  begun.units += begun.came - begun.again;
  begun.came = begun.again = 0;
  begun.after_gap = false;
}

void Assembler::remove_begun(Begun& begun) noexcept {
  Begun& last = begun_before_.back();
  if (&begun != &last) {
    std::copy_n(units_of(last), 2 * valid_.words(), units_of(begun));
    begun = last;
  }
  begun_before_.pop_back();
}

void Assembler::note_waited(const Place& place, std::uint64_t time) noexcept {
  leave_latest();
  active_ = std::max(active_, time);
  Begun* begun = begun_with(place.batch);
  if (begun == nullptr) begun = add_begun(place.batch);
  if (begun == nullptr) return;
  begun->units += claim_beside(units_of(*begun), came_units_of(*begun), place, begun->again);
  Batch* const batch = held_with(place.batch);
  if (batch == nullptr || batch->state == Batch::State::CLOSED || batch->anew) return;
  if (!batch->doubtful) {
    // Another poller's packets came first.
    batch->doubtful = true;
    begun->after_gap = true;
    if (batch->valid != nullptr) note_came(*begun, *batch);
  }
  begun->after_gap = begun->after_gap && batch->first_time >= time + GAP_NS;
  batch->rest = is_all(*begun);
  if (is_new(*begun) && !make_new(*batch, *begun)) return retract_at(place_of(*batch));
  deliver();
}

void Assembler::note_came(Begun& begun, const Batch& batch) noexcept {
  std::copy_n(batch.valid, valid_.words(), came_units_of(begun));
  begun.came = batch.units;
  begun.again = 0;
  for (std::size_t i = 0; i < valid_.words(); ++i) {
    begun.again +=
        static_cast<std::uint32_t>(std::popcount(units_of(begun)[i] & came_units_of(begun)[i]));
  }
}

bool Assembler::are_new(Begun& begun, const Place& place) noexcept {
  const std::uint32_t units =
      claim_beside(came_units_of(begun), units_of(begun), place, begun.again);
  begun.came += units;
  return is_new(begun);
}

bool Assembler::is_new(const Begun& begun) const noexcept {
  constexpr std::uint32_t FEW = 4;
  return begun.came == plan_.units() ||
         begun.again > std::max(begun.units / FEW, begun.units == 1 ? 0U : 1U);
}

bool Assembler::is_stale(const Place& place) noexcept {
  const std::uint64_t raw = place.batch;
  const bool past = anchored_    ? !is_after(raw, last_)
                    : held() > 0 ? is_after(at(next_).raw, raw)
                                 : is_after(newest_, raw);
  if (!past && !is_after(raw, newest_ + plan_.batch_step())) return false;
  Begun* const begun = begun_with(place.batch);
  return begun != nullptr && !are_new(*begun, place);
}

bool Assembler::weigh(Batch& batch, const Place& place, bool after_silence) noexcept {
  Begun& begun = *begun_with(batch.raw);
  if (begun.came == 0) {
    begun.after_gap = rested_;
  } else if (after_silence && begun.again == 0 && (!begun.after_gap || batch.rest)) {
    // What came until now was the rest of the old one.
    absorb(begun);
    return false;
  }
  if (!are_new(begun, place)) {
    batch.rest = is_all(begun);
    return true;
  }
  if (!make_new(batch, begun)) return false;
  deliver();
  return true;
}

bool Assembler::make_new(Batch& batch, Begun& begun) noexcept {
  const bool mixed = begun.came > begun.again && !begun.after_gap;
  batch.doubtful = batch.rest = false;
  batch.anew = true;
  remove_begun(begun);
  return !mixed;
}

void Assembler::retract_rests() noexcept {
  for (std::uint64_t place = end_; place-- > next_;)
    if (at(place).rest) retract_at(place);
}

void Assembler::begin(std::uint64_t raw) noexcept {
  begun_ = fresh_ = true;
  anchored_ = first_.has_value();
  // No frame came after these.
  gap_ -= std::exchange(passed_, 0);
  for (Batch& batch : batches_) batch.state = Batch::State::EMPTY;
  next_ = end_;
  newest_ = first_.value_or(raw);
  last_ = newest_ - std::max<std::uint64_t>(plan_.batch_step(), 1);
}

void Assembler::retract(Batch& batch) noexcept {
  if (latest_ == &batch) leave_latest();
  if (batch.data != nullptr) {
    settle();
    tally_.placed -= batch.packets;
    tally_.early += batch.packets;
    sink_.discard(batch.buffer);
  }
  // Now only duplicates of its packets may come.
  if (batch.rest) absorb(*begun_with(batch.raw));
  batch = {};
}

void Assembler::retract_at(std::uint64_t place) noexcept {
  retract(at(place));
  if (place == next_) {
    ++next_;
    return;
  }
  leave_latest();
  for (; place + 1 < end_; ++place) at(place) = at(place + 1);
  at(--end_) = {};
}

void Assembler::open(Batch& batch, std::uint64_t raw, const Packet& packet,
                     std::uint64_t now_ns) noexcept {
  batch = {};
  batch.state = Batch::State::OPEN;
  batch.raw = raw;
  batch.begun_ns = now_ns;
  active_ = batch.last_time = packet.time;
  active_ns_ = now_ns;
  batch.order = begun_batches_++;
  // Behind more new ones than are open at once, it is a new one, too, whatever its number.
  if (undoubted_batches_ <= batches_.size()) {
    batch.doubtful = begun_with(raw) != nullptr;
    undoubted_batches_ += batch.doubtful ? 0 : 1;
  }
  if (!take_buffer(batch)) {
    batch.state = Batch::State::LOST;
    tally_.lost += 1;
    return;
  }
  batch.data = static_cast<std::byte*>(output_.address(batch.buffer));
  batch.valid = valid_.of(batch.buffer);
  std::fill_n(batch.valid, valid_.words(), std::uint64_t{0});
  batch.columns = columns_->of(batch.buffer);
  if (batch.columns != nullptr) std::fill_n(batch.columns, columns_->each(), std::uint64_t{0});
}

bool Assembler::take_buffer(Batch& batch) noexcept {
  do {
    if (output_.take(&batch.buffer, 1) == 0) continue;
    if (sink_.begin(batch.buffer)) return true;
    output_.give(&batch.buffer, 1);
  } while (sink_.give_up_oldest());
  return false;
}

Assembler::Claim Assembler::claim(std::uint64_t* valid, std::uint32_t first,
                                  std::uint32_t units) noexcept {
  bool any = false;
  bool all = true;
  for_words(first, units, [&](std::uint32_t word, std::uint64_t mask) {
    const std::uint64_t there = valid[word] & mask;
    any = any || there != 0;
    all = all && there == mask;
  });
  if (any) return all ? Claim::TAKEN : Claim::OVERLAPS;
  for_words(first, units, [&](std::uint32_t word, std::uint64_t mask) { valid[word] |= mask; });
  return Claim::FREE;
}

void Assembler::settle() noexcept {
  if (copier_ == nullptr) return plan_.settle();
  copier_->move({copies_, num_copies_});
  copies_ = copier_->transfers();
  num_copies_ = 0;
}

void Assembler::fill(const Batch& batch, bool lacks) const noexcept {
  const Filling filling{batch.data, batch.valid, batch.slot_bytes, lacks};
  if (fills_ == nullptr) {
    if (deferred_ == nullptr || !deferred_->fill_later(batch.buffer, filling)) plan_.fill(filling);
    return;
  }
  plan_.for_missing(filling, [&](std::uint64_t begin, std::uint64_t bytes) {
    fills_->fill(batch.buffer, batch.data, begin, bytes);
  });
  fills_->fill_gaps(batch.buffer, batch.data);
}

void Assembler::close(Batch& batch, End end) noexcept {
  settle();
  batch.state = Batch::State::CLOSED;
  batch.end = end;
  if (latest_ == &batch) leave_latest();
}

void Assembler::leave_latest() noexcept {
  if (latest_ != nullptr) active_ = std::exchange(latest_, nullptr)->last_time;
}

std::uint64_t Assembler::absent_before_next() const noexcept {
  if (!anchored_ || plan_.batch_step() == 0) return 0;
  const std::uint64_t steps = ahead(at(next_).raw, last_) / plan_.batch_step();
  return steps > 0 ? steps - 1 : 0;
}

bool Assembler::may_end_next() const noexcept {
  const Batch& batch = at(next_);
  if (!batch.ended()) return false;
  if (full()) return true;
  if (absent_before_next() > 0) return false;
  if (!fresh_ || batch.state != Batch::State::LOST) return true;
  // An earlier one may still come, until a frame is delivered.
  for (std::uint64_t place = next_ + 1; place < end_; ++place)
    if (at(place).state == Batch::State::CLOSED) return true;
  return false;
}

void Assembler::deliver() noexcept {
  while (held() > 0 && may_end_next()) end_next();
}

void Assembler::end_next() noexcept {
  Batch& batch = at(next_);
  if ((batch.state == Batch::State::OPEN && batch.doubtful) ||
      (batch.state == Batch::State::LOST && batch.doubtful && !anchored_))
    return retract_at(next_);
  if (batch.state == Batch::State::OPEN) close(batch, End::WINDOW);
  const std::uint64_t absent = absent_before_next();
  passed_ += absent;
  gap_ += absent;
  last_ = batch.raw;
  ++next_;
  if (batch.state != Batch::State::LOST) return hand(batch);
  // Its other packets still come; nothing would change if they were of one from before.
  batch.doubtful = batch.rest = false;
  anchored_ = true;
  ++gap_;
}

void Assembler::hand(Batch& batch) noexcept {
  batch.state = Batch::State::DELIVERED;
  anchored_ = true;
  Frame frame{};
  frame.missing = plan_.units() - batch.units;
  // Whoever had the buffer may have written in the gaps.
  if (frame.missing > 0 || !plan_.layout().gaps().empty()) fill(batch, frame.missing > 0);
  if (plan_.splits()) join_split(batch);
  const std::uint64_t bytes =
      !plan_.layout().none() ? plan_.frame_bytes()
      : plan_.by_bytes()     ? plan_.output_bytes(std::uint64_t{plan_.units()} * plan_.unit_bytes())
                             : plan_.begin_of(plan_.units(), batch.slot_bytes);
  frame.buffer = batch.buffer;
  frame.data = batch.data;
  frame.valid = batch.valid;
  frame.first_time = batch.first_time;
  frame.last_time = batch.last_time;
  frame.order = batch.order;
  frame.index = index_ + std::exchange(gap_, 0);
  index_ = frame.index + 1;
  frame.info.batch_id = batch.raw;
  frame.info.source_packet_count = batch.packets;
  frame.info.packets_per_batch = plan_.by_bytes() ? 0 : plan_.units();
  frame.info.payload_len = batch.slot_bytes;
  frame.info.aggregate_len = static_cast<std::uint32_t>(bytes);
  frame.info.burst_flags = DAQIRI_BURST_FLAG_REORDERED;
  frame.info.columns = batch.columns;
  frame.info.num_column_values = static_cast<std::uint32_t>(columns_->each());
  if (frame.missing > 0) {
    const auto slot = static_cast<std::size_t>(&batch - batches_.data());
    std::copy_n(batch.valid, valid_.words(), delivered_units_.data() + slot * valid_.words());
  }
  if (batch.end == End::TIMEOUT) frame.info.burst_flags |= DAQIRI_BURST_FLAG_REORDER_TIMEOUT;
  if (frame.missing == 0) {
    tally_.complete += 1;
  } else {
    tally_.incomplete += 1;
    tally_.missing += frame.missing;
  }
  tally_.skipped += std::exchange(passed_, 0);
  frame.lost = tally_.absent();
  for (std::uint64_t later = next_; later < end_; ++later)
    frame.lost -= at(later).state == Batch::State::LOST ? 1 : 0;
  fresh_ = false;
  sink_.take(frame);
}

std::uint64_t Assembler::expire(std::uint64_t now_ns) noexcept {
  if (plan_.timeout_ns() == 0 || !begun_) return 0;
  const auto due_of = [this](std::uint64_t place) {
    return at(place).begun_ns + plan_.timeout_ns();
  };
  for (std::uint64_t place = next_; place < end_;) {
    Batch& batch = at(place);
    const bool due = batch.state == Batch::State::OPEN && due_of(place) <= now_ns;
    if (due && batch.doubtful) {
      retract_at(place);
      place = std::max(place, next_);
      continue;
    }
    if (due) close(batch, End::TIMEOUT);
    ++place;
  }
  deliver();
  // Absent numbers are awaited as long as the one behind them.
  while (held() > 0 && at(next_).state != Batch::State::OPEN && due_of(next_) <= now_ns) {
    end_next();
    deliver();
  }
  std::uint64_t due = held() > 0 ? due_of(next_) : NEVER;
  for (std::uint64_t place = next_; place < end_; ++place) {
    if (at(place).state == Batch::State::OPEN) due = std::min(due, due_of(place));
  }
  return due == NEVER ? 0 : due;
}

void Assembler::finish() noexcept {
  while (held() > 0) end_next();
}

void Assembler::finish_idle(std::uint64_t now_ns) noexcept {
  const std::uint64_t kept = now_ns >= active_ns_ + IDLE_NS ? 0 : 1;
  while (held() > kept) end_next();
  deliver();
}

std::uint64_t Assembler::begin_epoch(std::uint64_t since, std::uint64_t now_ns,
                                     std::optional<std::uint64_t> first) {
  // Of the open batches, and of as many whose packets wait.
  begun_before_.reserve(2 * batches_.size());
  if (begun_units_ == nullptr) {
    begun_units_ =
        std::make_unique_for_overwrite<std::uint64_t[]>(4 * batches_.size() * valid_.words());
  }
  // What was from before the last acquisition is from before this one.
  if (now_ns >= since_until_ns_ || undoubted_batches_ > batches_.size()) begun_before_.clear();
  for (Begun& each : begun_before_) absorb(each);
  const bool runs = now_ns < active_ns_ + IDLE_NS;
  for (std::size_t back = 1; back <= batches_.size(); ++back) {
    const std::size_t slot = (end_ + batches_.size() - back) % batches_.size();
    const Batch& batch = batches_[slot];
    const bool whole = batch.units == plan_.units();
    const bool delivered = batch.state == Batch::State::DELIVERED;
    if (batch.state == Batch::State::EMPTY || ((delivered || whole) && !runs)) continue;
    // Of a number that came twice, the latest batch counts.
    if (begun_with(batch.raw) != nullptr) continue;
    Begun* const added = add_begun(batch.raw);
    if (added == nullptr) continue;
    Begun& begun = *added;
    begun.units = batch.units;
    if (batch.state == Batch::State::LOST) continue;
    if (whole) {
      std::fill_n(units_of(begun), valid_.words(), ~std::uint64_t{0});
    } else {
      const std::uint64_t* const units =
          delivered ? delivered_units_.data() + slot * valid_.words() : batch.valid;
      std::copy_n(units, valid_.words(), units_of(begun));
    }
  }
  finish();
  forget();
  acquiring_ = true;
  rested_ = false;
  passed_ = gap_ = index_ = 0;
  first_ = first;
  unknown_ = unknown_ && !first;
  undoubted_batches_ = 0;
  since_ = since;
  since_until_ns_ = now_ns + BACKLOG_NS;
  return begun_batches_;
}

void Assembler::discard() noexcept {
  for (Batch& batch : batches_) {
    const bool here = batch.state == Batch::State::OPEN || batch.state == Batch::State::CLOSED;
    if (here && batch.data != nullptr) {
      sink_.discard(batch.buffer);
      tally_.lost += 1;
      ++gap_;
    }
    batch.state = Batch::State::EMPTY;
  }
  next_ = end_;
  leave_latest();
  forget();
}

void Assembler::continue_after(const Assembler& other) noexcept {
  before_ = other.before_;
  unknown_ = other.unknown_;
}

void Assembler::forget() noexcept {
  if (begun_ && plan_.divides()) before_ = newest_ * plan_.divisor();
  begun_ = false;
}

void Assembler::count(Fate fate) noexcept {
  switch (fate) {
    case Fate::PLACED:
      return;  // see take
    case Fate::DUPLICATE:
      tally_.duplicate += 1;
      return;
    case Fate::LATE:
      tally_.late += 1;
      return;
    case Fate::EARLY:
      tally_.early += 1;
      return;
    case Fate::MALFORMED:
      tally_.malformed += 1;
      return;
    case Fate::LEFT_OUT:
      tally_.left_out += 1;
      return;
    case Fate::NO_BUFFER:
      tally_.no_buffer += 1;
      return;
  }
}

}  // namespace daqiri::reorder

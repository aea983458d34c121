#include "reorder/assembler.h"

#include <algorithm>
#include <bit>
#include <utility>

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

/// Calls `each(first, n)` for every run of zeros among `bits` bits.
template <typename Each>
void for_gaps(const std::uint64_t* words, std::uint32_t bits, Each each) noexcept {
  std::uint32_t at = 0;
  const auto next = [&](bool value) {
    while (at < bits) {
      std::uint64_t word = words[at / WORD];
      if (!value) word = ~word;
      word >>= at % WORD;
      if (word != 0) {
        at = std::min(bits, at + static_cast<std::uint32_t>(std::countr_zero(word)));
        return;
      }
      at = (at / WORD + 1) * WORD;
    }
    at = bits;
  };
  for (;;) {
    next(false);
    if (at >= bits) return;
    const std::uint32_t first = at;
    next(true);
    each(first, at - first);
  }
}

}  // namespace

Assembler::Assembler(const Plan& plan, memory::MemoryRegion& output, const ValidBits& valid,
                     FrameSink& sink)
    : plan_(plan),
      output_(output),
      valid_(valid),
      sink_(sink),
      most_output_(plan.by_bytes() ? UINT64_MAX : output.buf_size() / std::max(plan.units(), 1U)),
      batches_(plan.window()),
      delivered_units_(batches_.size() * valid.words()) {}

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
      batch.payload_bytes = where.payload_bytes;
      batch.slot_bytes = static_cast<std::uint32_t>(plan_.output_bytes(where.payload_bytes));
    } else if (batch.payload_bytes != where.payload_bytes) {
      return Fate::MALFORMED;
    }
    to = std::uint64_t{where.slot} * batch.slot_bytes;
    std::uint64_t& word = batch.valid[where.slot / WORD];
    const std::uint64_t bit = std::uint64_t{1} << where.slot % WORD;
    if ((word & bit) != 0) claim = Claim::TAKEN;
    word |= bit;
  }
  if (claim != Claim::FREE) {
    // A packet that overlaps others only in part is malformed.
    return claim == Claim::TAKEN ? Fate::DUPLICATE : Fate::MALFORMED;
  }
  const auto* const from = reinterpret_cast<const std::byte*>(packet.data) + where.payload_at;
  if (copier_ == nullptr) {
    plan_.move(batch.data + to, from, where.payload_bytes);
  } else {
    copies_[num_copies_] = {batch.data + to, from,         where.payload_bytes,
                            batch.buffer,    packet.owner, packet.buffer};
    if (++num_copies_ == CHUNK) settle();
  }
  if (batch.packets == 0) batch.first_time = packet.time;
  batch.last_time = packet.time;
  batch.packets += 1;
  batch.units += units;
  if (batch.units == plan_.units()) {
    close(batch, End::COMPLETE);
    deliver();
  }
  return Fate::PLACED;
}

[[gnu::always_inline]] inline bool Assembler::take(const Packet& packet,
                                                   std::uint64_t now_ns) noexcept {
  Place where{};
  bool good = plan_.locate(packet.data, packet.length, packet.flow, where);
  if (good && plan_.divides() && !divide(where, packet, now_ns)) {
    count(Fate::LATE);
    return false;
  }
  good = good && (plan_.by_bytes() || (where.slot < plan_.units() &&
                                       plan_.output_bytes(where.payload_bytes) <= most_output_));
  if (!good) {
    count(Fate::MALFORMED);
    return false;
  }
  if (packet.time < since_ && packet.time != 0 && now_ns < since_until_ns_) [[unlikely]] {
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
  if (first_ && fresh_ && unwrapped(where.batch) < *first_ + plan_.batch_numbers())
    return Fate::EARLY;
  const bool after_silence = silence_before(packet, now_ns, GAP_NS);
  rested_ = rested_ || after_silence;
  Batch* batch = batch_of(where.batch, packet, now_ns);
  if (batch != nullptr && batch->doubtful && !weigh(*batch, where, after_silence)) {
    retract(*batch);
    batch = batch_of(where.batch, packet, now_ns);
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
    const std::uint64_t number = unwrapped(where.batch);
    const Batch& there = at(number);
    return !acquiring_ || number + batches_.size() <= newest_ ||
           (there.state == Batch::State::DELIVERED && there.raw == where.batch &&
            there.units == plan_.units());
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

void Assembler::take(std::span<const Packet> packets, std::uint64_t now_ns,
                     Copier* copier) noexcept {
  constexpr std::size_t AHEAD = 4;
  copier_ = copier;
  tally_.packets += packets.size();
  placed_ = 0;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    if (i + AHEAD < packets.size()) __builtin_prefetch(packets[i + AHEAD].data);
    if (take(packets[i], now_ns)) {
      ++placed_;
    } else if (copier_ != nullptr && packets[i].owner != nullptr) {
      packets[i].owner->give(&packets[i].buffer, 1);
    }
  }
  settle();
  copier_ = nullptr;
  tally_.placed += placed_;
  if (placed_ > 0) active_ns_ = now_ns;
}

Assembler::Batch* Assembler::batch_of(std::uint32_t raw, const Packet& packet,
                                      std::uint64_t now_ns) noexcept {
  std::uint64_t number = unwrapped(raw);
  if (number < next_) {
    const bool beyond = number + batches_.size() <= newest_;
    if (!beyond && at(number).state == Batch::State::LOST) return &at(number);
    if (!fresh_ || (passed_ > 0 && !beyond)) return nullptr;
    if (beyond) {
      for (Batch& batch : batches_) retract(batch);
      gap_ = passed_ = 0;
      begin(raw);
      number = unwrapped(raw);
    }
    // Those that are lost will be passed again.
    for (std::uint64_t passed = number; passed < next_; ++passed)
      gap_ -= at(passed).state == Batch::State::LOST ? 1 : 0;
    next_ = std::min(next_, number);
  }
  if (number > newest_) advance(number);
  Batch& batch = at(number);
  if (batch.state == Batch::State::CLOSED) return nullptr;
  if (batch.state == Batch::State::EMPTY) open(batch, raw, packet, now_ns);
  return &batch;
}

std::uint64_t Assembler::unwrapped(std::uint32_t raw) const noexcept {
  const std::uint64_t numbers = plan_.batch_numbers();
  const std::uint64_t ahead = (raw + numbers - newest_ % numbers) % numbers;
  return newest_ + ahead - (ahead > numbers / 2 ? numbers : 0);
}

std::uint64_t Assembler::newest_sequence() const noexcept {
  const std::uint64_t numbers = plan_.batch_numbers();
  return (std::max(newest_, numbers) - numbers) * plan_.divisor();
}

std::optional<std::uint64_t> Assembler::continued(std::uint32_t sequence,
                                                  bool paused) const noexcept {
  const std::uint64_t open = batches_.size() * plan_.divisor();
  const std::uint64_t newest = newest_sequence();
  if (begun_ && !paused) {
    const Step on = nearest(newest, sequence);
    if (on.size < LOST_NUMBERS + 2 * open) return on.number;
    // Late, or behind a large loss that is not at the end of the numbers.
    if (!fresh_) return newest / NUMBERS * NUMBERS + sequence;
  }
  if (first_ && (!begun_ || fresh_))
    return nearest(std::uint64_t{*first_} * plan_.divisor(), sequence).number;
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

Assembler::Step Assembler::nearest(std::uint64_t before, std::uint32_t sequence) noexcept {
  Step best{before / NUMBERS * NUMBERS + sequence, 0};
  best.size = best.number > before ? best.number - before : before - best.number;
  if (best.size <= NUMBERS / 2) return best;
  if (best.number < before) return {best.number + NUMBERS, NUMBERS - best.size};
  return best.number < NUMBERS ? best : Step{best.number - NUMBERS, NUMBERS - best.size};
}

bool Assembler::divide(Place& where, const Packet& packet, std::uint64_t now_ns) noexcept {
  if (latest_ != nullptr) active_ = latest_->last_time;
  const std::optional<std::uint64_t> number =
      continued(where.batch, silence_before(packet, now_ns, PAUSE_NS));
  unknown_ = unknown_ || !number;
  if (number) plan_.divide(*number, where);
  return number.has_value();
}

bool Assembler::are_new(Begun& begun, const Place& place) noexcept {
  constexpr std::uint32_t FEW = 4;
  const std::uint32_t first = plan_.by_bytes() ? place.slot / plan_.unit_bytes() : place.slot;
  const std::uint32_t units = plan_.by_bytes() ? place.payload_bytes / plan_.unit_bytes() : 1;
  std::uint64_t* const before = units_of(begun);
  if (claim(before + valid_.words(), first, units) == Claim::FREE) {
    bool again = false;
    for_words(first, units, [&](std::uint32_t word, std::uint64_t mask) {
      again = again || (before[word] & mask) != 0;
    });
    begun.came += units;
    if (again) begun.again += units;
  }
  return begun.came == plan_.units() ||
         begun.again > std::max(begun.units / FEW, begun.units == 1 ? 0U : 1U);
}

bool Assembler::is_stale(const Place& place) noexcept {
  const std::uint64_t number = unwrapped(place.batch);
  if (number >= next_ && number <= newest_ + 1) return false;
  const auto found = std::ranges::find(begun_before_, place.batch, &Begun::raw);
  return found != begun_before_.end() && !are_new(*found, place);
}

bool Assembler::weigh(Batch& batch, const Place& place, bool after_silence) noexcept {
  const auto found = std::ranges::find(begun_before_, batch.raw, &Begun::raw);
  Begun& begun = *found;
  if (begun.came == 0) {
    begun.after_gap = rested_;
  } else if (after_silence && begun.again == 0 && !begun.after_gap) {
    // What came until now was the rest of the old one.
    std::uint64_t* const before = units_of(begun);
    for (std::size_t i = 0; i < valid_.words(); ++i) before[i] |= before[i + valid_.words()];
    std::fill_n(before + valid_.words(), valid_.words(), std::uint64_t{0});
    begun.units += begun.came;
    begun.came = 0;
    return false;
  }
  if (!are_new(begun, place)) {
    batch.rest = begun.units + begun.came - begun.again == plan_.units();
    return true;
  }
  const bool mixed = begun.came > begun.again && !begun.after_gap;
  batch.doubtful = batch.rest = false;
  begun_before_.erase(found);
  if (mixed) return false;
  deliver();
  return true;
}

void Assembler::begin(std::uint32_t raw) noexcept {
  begun_ = fresh_ = true;
  anchored_ = first_.has_value();
  // No frame came after these.
  gap_ -= std::exchange(passed_, 0);
  for (Batch& batch : batches_) batch.state = Batch::State::EMPTY;
  // An offset, so that earlier batches have numbers too.
  next_ = newest_ = first_.value_or(raw) + plan_.batch_numbers();
}

void Assembler::retract(Batch& batch) noexcept {
  if (latest_ == &batch) leave_latest();
  if (batch.state == Batch::State::EMPTY) return;
  if (batch.data != nullptr) {
    settle();
    tally_.placed -= batch.packets;
    tally_.early += batch.packets;
    sink_.discard(batch.buffer);
  }
  batch = {};
}

void Assembler::advance(std::uint64_t newest) noexcept {
  const std::uint64_t oldest = newest + 1 - batches_.size();
  while (next_ < oldest && next_ <= newest_) end_next();
  while (is_no_first() && next_ <= newest_) ++next_;
  if (next_ > newest_ && !anchored_) next_ = newest;
  if (next_ < oldest) {
    passed_ += oldest - next_;
    gap_ += oldest - next_;
    next_ = oldest;
  }
  for (std::uint64_t number = std::max(newest_ + 1, oldest); number <= newest; ++number)
    at(number).state = Batch::State::EMPTY;
  newest_ = newest;
  deliver();
}

void Assembler::open(Batch& batch, std::uint32_t raw, const Packet& packet,
                     std::uint64_t now_ns) noexcept {
  batch = {};
  batch.state = Batch::State::OPEN;
  batch.raw = raw;
  batch.begun_ns = now_ns;
  active_ = batch.last_time = packet.time;
  active_ns_ = now_ns;
  batch.order = begun_batches_++;
  // Later, their numbers are those of other batches.
  batch.doubtful = batch.order - epoch_order_ < batches_.size() &&
                   std::ranges::find(begun_before_, raw, &Begun::raw) != begun_before_.end();
  if (!take_buffer(batch)) {
    batch.state = Batch::State::LOST;
    tally_.lost += 1;
    return deliver();
  }
  batch.data = static_cast<std::byte*>(output_.address(batch.buffer));
  batch.valid = valid_.of(batch.buffer);
  std::fill_n(batch.valid, valid_.words(), std::uint64_t{0});
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
  num_copies_ = 0;
}

void Assembler::fill(const Batch& batch) const noexcept {
  const std::uint64_t each =
      plan_.by_bytes() ? plan_.output_bytes(plan_.unit_bytes()) : batch.slot_bytes;
  for_gaps(batch.valid, plan_.units(), [&](std::uint32_t first, std::uint32_t n) {
    if (fills_ != nullptr) return fills_->fill(batch.buffer, batch.data + first * each, n * each);
    plan_.fill(batch.data + first * each, n * each);
  });
}

void Assembler::close(Batch& batch, End end) noexcept {
  settle();
  if (batch.doubtful && end != End::COMPLETE) return retract(batch);
  batch.state = Batch::State::CLOSED;
  batch.end = end;
  if (latest_ == &batch) leave_latest();
}

void Assembler::leave_latest() noexcept {
  if (latest_ != nullptr) active_ = std::exchange(latest_, nullptr)->last_time;
}

void Assembler::deliver() noexcept {
  while (next_ <= newest_ && (at(next_).ended() || (is_no_first() && next_ < newest_))) {
    // The batch with this number may still come.
    if (Batch& batch = at(next_); next_ == newest_ && batch.rest && batch.data != nullptr)
      return retract(batch);
    end_next();
  }
}

void Assembler::end_next() noexcept {
  Batch& batch = at(next_++);
  // It may be retracted.
  if (batch.state == Batch::State::OPEN) close(batch, End::WINDOW);
  switch (batch.state) {
    case Batch::State::OPEN:
    case Batch::State::CLOSED:
      hand(batch);
      return;
    case Batch::State::LOST:
      if (batch.doubtful && !anchored_) return retract(batch);
      // Its other packets still come.
      anchored_ = true;
      ++gap_;
      return;
    case Batch::State::DELIVERED:
    case Batch::State::EMPTY:
      if (!anchored_) return;
      ++passed_;
      ++gap_;
  }
}

void Assembler::hand(Batch& batch) noexcept {
  batch.state = Batch::State::DELIVERED;
  anchored_ = true;
  Frame frame{};
  frame.missing = plan_.units() - batch.units;
  if (frame.missing > 0) fill(batch);
  const std::uint64_t bytes =
      plan_.by_bytes() ? plan_.output_bytes(std::uint64_t{plan_.units()} * plan_.unit_bytes())
                       : std::uint64_t{plan_.units()} * batch.slot_bytes;
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
  for (std::uint64_t later = next_; later <= newest_; ++later)
    frame.lost -= at(later).state == Batch::State::LOST ? 1 : 0;
  fresh_ = false;
  sink_.take(frame);
}

std::uint64_t Assembler::expire(std::uint64_t now_ns) noexcept {
  if (plan_.timeout_ns() == 0 || !begun_) return 0;
  // One of which no packet came is due with the next one of which some did.
  const auto due_of = [this](std::uint64_t number) {
    while (at(number).state == Batch::State::EMPTY && number < newest_) ++number;
    const Batch& seen = at(number);
    return seen.state == Batch::State::EMPTY ? NEVER : seen.begun_ns + plan_.timeout_ns();
  };
  for (std::uint64_t number = next_; number <= newest_; ++number) {
    if (Batch& batch = at(number); batch.state == Batch::State::OPEN && due_of(number) <= now_ns)
      close(batch, End::TIMEOUT);
  }
  while (next_ <= newest_ && at(next_).state != Batch::State::OPEN &&
         (at(next_).ended() || (is_no_first() && next_ < newest_) || due_of(next_) <= now_ns))
    end_next();
  std::uint64_t due = next_ <= newest_ ? due_of(next_) : NEVER;
  for (std::uint64_t number = next_; number <= newest_; ++number) {
    if (at(number).state == Batch::State::OPEN) due = std::min(due, due_of(number));
  }
  return due == NEVER ? 0 : due;
}

void Assembler::finish() noexcept {
  while (begun_ && next_ <= newest_) end_next();
}

void Assembler::finish_idle(std::uint64_t now_ns) noexcept {
  const std::uint64_t end = now_ns >= active_ns_ + IDLE_NS ? newest_ + 1 : newest_;
  while (begun_ && next_ < end) end_next();
  deliver();
}

std::uint64_t Assembler::begin_epoch(std::uint64_t since, std::uint64_t now_ns,
                                     std::optional<std::uint32_t> first) {
  begun_units_.reserve(2 * batches_.size() * valid_.words());
  begun_before_.reserve(batches_.size());
  begun_before_.clear();
  begun_units_.clear();
  const bool runs = now_ns < active_ns_ + IDLE_NS;
  for (std::size_t slot = 0; slot < batches_.size(); ++slot) {
    const Batch& batch = batches_[slot];
    const bool whole = batch.units == plan_.units();
    const bool delivered = batch.state == Batch::State::DELIVERED;
    if (batch.state == Batch::State::EMPTY || ((delivered || whole) && !runs)) continue;
    const std::size_t at = begun_units_.size();
    begun_before_.push_back({.raw = batch.raw, .units = batch.units, .units_at = at});
    begun_units_.resize(at + 2 * valid_.words());
    if (batch.state == Batch::State::LOST) continue;
    if (whole) {
      std::fill_n(begun_units_.data() + at, valid_.words(), ~std::uint64_t{0});
    } else {
      const std::uint64_t* const units =
          delivered ? delivered_units_.data() + slot * valid_.words() : batch.valid;
      std::copy_n(units, valid_.words(), begun_units_.data() + at);
    }
  }
  finish();
  forget();
  acquiring_ = true;
  rested_ = false;
  passed_ = gap_ = index_ = 0;
  first_ = first;
  unknown_ = unknown_ && !first;
  since_ = since;
  since_until_ns_ = now_ns + BACKLOG_NS;
  return epoch_order_ = begun_batches_;
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
  leave_latest();
  forget();
}

void Assembler::forget() noexcept {
  if (begun_ && plan_.divides()) before_ = newest_sequence();
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
    case Fate::NO_BUFFER:
      tally_.no_buffer += 1;
      return;
  }
}

}  // namespace daqiri::reorder

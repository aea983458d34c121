#include "reorder/assembler.h"

#include <algorithm>
#include <bit>

namespace daqiri::reorder {

namespace {

constexpr std::uint32_t WORD = 64;

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
      batches_(plan.window()) {}

[[gnu::always_inline]] inline bool Assembler::place(Batch& batch, const Place& where,
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
      tally_.malformed += 1;
      return false;
    }
    to = std::uint64_t{where.slot} * batch.slot_bytes;
    std::uint64_t& word = batch.valid[where.slot / WORD];
    const std::uint64_t bit = std::uint64_t{1} << where.slot % WORD;
    if ((word & bit) != 0) claim = Claim::TAKEN;
    word |= bit;
  }
  if (claim != Claim::FREE) {
    // A packet that overlaps others only in part is malformed.
    (claim == Claim::TAKEN ? tally_.duplicate : tally_.malformed) += 1;
    return false;
  }
  const auto* const from = reinterpret_cast<const std::byte*>(packet.data) + where.payload_at;
  if (mover_ == nullptr) {
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
  tally_.placed += 1;
  if (batch.units == plan_.units()) close(batch, End::COMPLETE);
  return true;
}

[[gnu::always_inline]] inline bool Assembler::take(const Packet& packet,
                                                   std::uint64_t now_ns) noexcept {
  Place where{};
  const bool good = plan_.locate(packet.data, packet.length, packet.flow, where) &&
                    (plan_.by_bytes() || (where.slot < plan_.units() &&
                                          plan_.output_bytes(where.payload_bytes) <= most_output_));
  if (!good) {
    tally_.malformed += 1;
    return false;
  }
  Batch* batch = latest_;
  if (batch == nullptr || !batch->open || batch->raw != where.batch) {
    const std::uint32_t units =
        plan_.by_bytes() ? where.payload_bytes / plan_.unit_bytes() : std::uint32_t{1};
    batch = batch_of(where.batch, units, now_ns);
    if (batch == nullptr) {
      tally_.late += 1;
      return false;
    }
  }
  late_units_ = 0;
  latest_ = batch;
  if (batch->data == nullptr) {
    tally_.no_buffer += 1;
    return false;
  }
  return place(*batch, where, packet);
}

void Assembler::take(std::span<const Packet> packets, std::uint64_t now_ns, Mover* mover) noexcept {
  constexpr std::size_t AHEAD = 4;
  mover_ = mover;
  tally_.packets += packets.size();
  for (std::size_t i = 0; i < packets.size(); ++i) {
    if (i + AHEAD < packets.size()) __builtin_prefetch(packets[i + AHEAD].data);
    if (!take(packets[i], now_ns) && mover_ != nullptr && packets[i].owner != nullptr)
      packets[i].owner->give(&packets[i].buffer, 1);
  }
  settle();
  mover_ = nullptr;
}

Assembler::Batch* Assembler::batch_of(std::uint32_t raw, std::uint32_t units,
                                      std::uint64_t now_ns) noexcept {
  if (!begun_) begin(raw);
  const std::uint64_t numbers = plan_.batch_numbers();
  const std::uint64_t ahead = (raw + numbers - newest_ % numbers) % numbers;
  std::uint64_t number = newest_ + ahead;
  if (ahead > numbers / 2) number -= numbers;
  // If there is only one batch number, the next batch begins where this one ended.
  if (numbers == 1 && at(number).used && !at(number).open) ++number;
  const bool out_of_window = number + batches_.size() <= newest_;
  const bool closed = !out_of_window && number <= newest_ && at(number).number == number &&
                      at(number).used && !at(number).open;
  if (out_of_window || closed) {
    late_units_ += units;
    if (late_units_ < std::uint64_t{plan_.units()} * batches_.size()) return nullptr;
    finish();
    begin(raw);
    tally_.restarts += 1;
    number = newest_;
  }
  if (number > newest_) advance(number);
  Batch& batch = at(number);
  if (!batch.open) open(batch, number, raw, now_ns);
  return &batch;
}

void Assembler::begin(std::uint32_t raw) noexcept {
  for (Batch& batch : batches_) batch.used = false;
  begun_ = true;
  late_units_ = 0;
  // An offset, so that earlier batches have numbers too.
  newest_ = raw + plan_.batch_numbers();
}

void Assembler::advance(std::uint64_t newest) noexcept {
  const std::uint64_t window = batches_.size();
  const std::uint64_t oldest = newest_ + 1 - std::min(window, newest_ + 1);
  const std::uint64_t end = std::min(newest_, newest - window);
  for (std::uint64_t number = oldest; number <= end; ++number) {
    if (Batch& batch = at(number); batch.open) close(batch, End::WINDOW);
  }
  newest_ = newest;
}

void Assembler::open(Batch& batch, std::uint64_t number, std::uint32_t raw,
                     std::uint64_t now_ns) noexcept {
  batch = {};
  batch.number = number;
  batch.raw = raw;
  batch.open = true;
  batch.used = true;
  batch.begun_ns = now_ns;
  batch.order = begun_batches_++;
  ++num_open_;
  if (output_.take(&batch.buffer, 1) == 0) return count_lost(1);
  if (!sink_.begin(batch.buffer)) {
    output_.give(&batch.buffer, 1);
    return count_lost(1);
  }
  batch.data = static_cast<std::byte*>(output_.address(batch.buffer));
  batch.valid = valid_.of(batch.buffer);
  std::fill_n(batch.valid, valid_.words(), std::uint64_t{0});
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
  if (mover_ == nullptr) return plan_.settle();
  mover_->move({copies_, num_copies_});
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
  batch.open = false;
  --num_open_;
  if (latest_ == &batch) latest_ = nullptr;
  if (batch.data == nullptr) return;
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
  frame.info.batch_id = batch.raw;
  frame.info.source_packet_count = batch.packets;
  frame.info.packets_per_batch = plan_.by_bytes() ? 0 : plan_.units();
  frame.info.payload_len = batch.slot_bytes;
  frame.info.aggregate_len = static_cast<std::uint32_t>(bytes);
  frame.info.burst_flags = DAQIRI_BURST_FLAG_REORDERED;
  if (end == End::TIMEOUT) frame.info.burst_flags |= DAQIRI_BURST_FLAG_REORDER_TIMEOUT;
  if (frame.missing == 0) {
    tally_.complete += 1;
  } else {
    tally_.incomplete += 1;
    tally_.missing += frame.missing;
  }
  sink_.take(frame);
}

std::uint64_t Assembler::expire(std::uint64_t now_ns) noexcept {
  if (plan_.timeout_ns() == 0 || num_open_ == 0) return 0;
  std::uint64_t next = 0;
  const std::uint64_t window = batches_.size();
  for (std::uint64_t number = newest_ + 1 - window; number <= newest_; ++number) {
    Batch& batch = at(number);
    if (!batch.open) continue;
    const std::uint64_t due = batch.begun_ns + plan_.timeout_ns();
    if (due <= now_ns) {
      close(batch, End::TIMEOUT);
    } else if (next == 0 || due < next) {
      next = due;
    }
  }
  return next;
}

void Assembler::finish() noexcept {
  for (std::uint64_t number = newest_ + 1 - batches_.size(); num_open_ > 0; ++number) {
    if (Batch& batch = at(number); batch.open) close(batch, End::WINDOW);
  }
}

void Assembler::discard() noexcept {
  for (Batch& batch : batches_) {
    if (batch.open && batch.data != nullptr) {
      sink_.discard(batch.buffer);
      count_lost(1);
    }
    batch = {};
  }
  latest_ = nullptr;
  num_open_ = 0;
  begun_ = false;
}

}  // namespace daqiri::reorder

#include "steering/steering.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace daqiri::steering {

void Steering::publish(std::shared_ptr<const Program> program) {
  const std::lock_guard one(publishing_);
  {
    const std::lock_guard lock(mutex_);
    for (FlowTally& tally : tallies_) tally.grow(program->num_positions());
    // The parameter now holds the previous program, which is destroyed after this call.
    program_.swap(program);
    current_.store(program_.get(), std::memory_order_seq_cst);
  }
  wait_for_passes();
}

void Steering::grow(const Program& program) {
  const std::lock_guard lock(mutex_);
  for (FlowTally& tally : tallies_) tally.grow(program.num_positions());
}

void Steering::wait_for_passes() const {
  constexpr std::chrono::microseconds PAUSE{20};
  const std::lock_guard lock(readers_mutex_);
  for (const Reader* reader : readers_) {
    const std::uint64_t pass = reader->passes_.load(std::memory_order_seq_cst);
    if ((pass & 1U) == 0) continue;
    while (reader->passes_.load(std::memory_order_acquire) == pass)
      std::this_thread::sleep_for(PAUSE);
  }
}

std::shared_ptr<const Program> Steering::program() const {
  const std::lock_guard lock(mutex_);
  return program_;
}

FlowTally& Steering::add_tally() const {
  const std::lock_guard lock(mutex_);
  return tallies_.emplace_back(program_->num_positions());
}

FlowSnapshot Steering::counts(std::size_t position) const {
  const std::lock_guard lock(mutex_);
  FlowSnapshot counts;
  for (const FlowTally& tally : tallies_) {
    const auto [packets, bytes] = tally.read(position);
    counts.packets += packets;
    counts.bytes += bytes;
  }
  return counts;
}

Steering::Reader::Reader(const Steering& steering) : steering_(steering) {
  const std::lock_guard lock(steering.readers_mutex_);
  steering.readers_.push_back(this);
}

Steering::Reader::~Reader() {
  const std::lock_guard lock(steering_.readers_mutex_);
  std::erase(steering_.readers_, this);
}

}  // namespace daqiri::steering

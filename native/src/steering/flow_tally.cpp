#include "steering/flow_tally.h"

namespace daqiri::steering {

void FlowTally::grow(std::size_t num_positions) {
  while (owned_.size() * AT_ONCE < num_positions) {
    Chunk* chunk = owned_.emplace_back(std::make_unique<Chunk>()).get();
    chunks_[owned_.size() - 1].store(chunk, std::memory_order_release);
  }
}

}  // namespace daqiri::steering

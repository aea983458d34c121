/// What a configuration asks for and cannot have, found before anything is opened.
#pragma once

#include <cstdint>

#include "daqiri/config.h"
#include "engine/traits.h"

namespace daqiri {

/// Throws Error NOT_SUPPORTED for what the engine cannot do: it names the interface, the item, the
/// value and what to do. `config` is validated.
void refuse_unsupported(const NetworkConfig& config, const EngineTraits& traits);

/// Bytes of main memory of this machine.
std::uint64_t machine_memory() noexcept;

/// Throws Error NO_FREE_PACKET_BUFFERS or NO_FREE_BURST_BUFFERS when memory regions and bursts need
/// more than `memory` bytes: it names the keys and their values.
void refuse_oversized(const NetworkConfig& config, std::uint64_t memory = machine_memory());

}  // namespace daqiri

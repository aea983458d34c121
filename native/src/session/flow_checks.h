/// Checks whether flows can be added to a port.
#pragma once

#include <span>

#include "daqiri/config.h"
#include "engine/traits.h"
#include "io/io_engine.h"
#include "steering/flow_table.h"

namespace daqiri {

/// Validates flows as if they were the only ones in the configuration of their port; they get all
/// that validation derives. Each that is wrong, or that the engine does not have, is refused and
/// says why.
void check_additions(const NetworkConfig& config, const EngineTraits& traits, const Port& port,
                     std::span<steering::Addition> additions);

}  // namespace daqiri

/// Selects how the frames of an interface are received: AF_PACKET or AF_XDP.
#pragma once

#include <cstdint>
#include <memory>

#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "io/io_engine.h"

namespace daqiri::packet {

/// A ring of about `bytes` as the configuration of the port asks for it (rx.receive_path); the log
/// says what it is, and why where there was a choice. `patience_ms`: ReceiveRing. Throws Error.
std::shared_ptr<FrameRing> open_receive_path(const Port& port, const NetworkInterface& interface,
                                             std::uint64_t bytes, std::uint32_t patience_ms);

}  // namespace daqiri::packet

/// Selects how the frames of an interface are received: AF_PACKET or AF_XDP.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "io/io_engine.h"

namespace daqiri::packet {

/// A poller that reads a ring.
struct Reader {
  /// Its first queue.
  RxQueue* first;
  std::uint64_t ring_bytes;

  /// Whether it is the poller of the queue. Queues without a thread are read together.
  [[nodiscard]] bool polls(const RxQueue& queue) const {
    return queue.config().poll_mode_ == QueuePollMode::DIRECT ||
           queue.config().common_.cpu_core_ == first->config().common_.cpu_core_;
  }
};

/// Opens rings as configured for the port (rx.receive_path), for the first readers: with AF_PACKET
/// one for each, among which the kernel distributes frames by their queues; with AF_XDP at most as
/// many as the card has queues. Logs the path, and the reason if there was a choice. `patience_ms`:
/// see ReceiveRing. Throws Error.
std::vector<std::shared_ptr<FrameRing>> open_receive_path(const Port& port,
                                                          const NetworkInterface& interface,
                                                          const std::vector<Reader>& readers,
                                                          std::uint32_t patience_ms);

}  // namespace daqiri::packet

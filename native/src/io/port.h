/// A port: one configured interface with its queues.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "io/rx_queue.h"
#include "io/tx_queue.h"
#include "steering/classifier.h"

namespace daqiri {

class PortIo;

struct Port {
  InterfaceConfig config;
  std::uint16_t id{0};
  std::vector<std::unique_ptr<RxQueue>> rx;
  std::vector<std::unique_ptr<TxQueue>> tx;
  /// The flows; can be replaced while the port runs.
  steering::Steering steering;
  /// Set by IoEngine::open, which keeps it.
  PortIo* io{nullptr};

  /// By queue id; null when there is none.
  [[nodiscard]] RxQueue* rx_queue(int queue) const noexcept { return find(rx, queue); }
  [[nodiscard]] TxQueue* tx_queue(int queue) const noexcept { return find(tx, queue); }

 private:
  template <typename Queue>
  static Queue* find(const std::vector<std::unique_ptr<Queue>>& queues, int wanted) noexcept {
    const auto it = std::find_if(queues.begin(), queues.end(),
                                 [=](const auto& queue) { return queue->id() == wanted; });
    return it == queues.end() ? nullptr : it->get();
  }
};

}  // namespace daqiri

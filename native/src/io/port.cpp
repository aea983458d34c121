#include "io/port.h"

#include <algorithm>

namespace daqiri {

RxQueue* Port::rx_queue(int id_wanted) const noexcept {
  const auto it =
      std::find_if(rx.begin(), rx.end(), [&](const auto& q) { return q->id() == id_wanted; });
  return it == rx.end() ? nullptr : it->get();
}

TxQueue* Port::tx_queue(int id_wanted) const noexcept {
  const auto it =
      std::find_if(tx.begin(), tx.end(), [&](const auto& q) { return q->id() == id_wanted; });
  return it == tx.end() ? nullptr : it->get();
}

}  // namespace daqiri

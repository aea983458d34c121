/// Packets in a GPU's memory, as arrays there.
#pragma once

#include <memory>

#include "burst.h"
#include "device_array.h"

namespace daqiri::python {

// Of segments whose packets are on a GPU.

/// Wait until the packets are there, without the interpreter lock. Throws Error GENERIC_FAILURE.
void wait_for_packets(const Burst& burst, int segment);

/// Keeps the burst for kernels that are given addresses. Throws Error GENERIC_FAILURE.
[[nodiscard]] py::capsule base_for_kernels(const ReceivedBurst& burst, int segment);

/// Packet `index`.
[[nodiscard]] DeviceArray packet_on_device(const ReceivedBurst& burst, int segment,
                                           std::size_t index);

/// The packets in rows on the GPU, with zeros behind each: in `out`, which has
/// `__cuda_array_interface__`, or in an array of their own. Throws Error.
[[nodiscard]] py::object gather_on_device(const ReceivedBurst& burst, int segment,
                                          const py::object& out);

}  // namespace daqiri::python

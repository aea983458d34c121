/// Packets in GPU memory, as arrays on the GPU.
#pragma once

#include <memory>

#include "burst.h"
#include "device_array.h"

namespace daqiri::python {

// These functions are for segments whose packets are on a GPU.

/// Waits until the packets are on the GPU, without the interpreter lock. Throws Error
/// GENERIC_FAILURE.
void wait_for_packets(const Burst& burst, int segment);

/// Keeps the burst alive for kernels that receive addresses. Throws Error GENERIC_FAILURE.
[[nodiscard]] py::capsule base_for_kernels(const ReceivedBurst& burst, int segment);

[[nodiscard]] DeviceArray packet_on_device(const ReceivedBurst& burst, int segment,
                                           std::size_t index);

/// Copies the packets into rows on the GPU, each padded with zeros: into `out`, which has
/// `__cuda_array_interface__`, or into a new array. Throws Error.
[[nodiscard]] py::object gather_on_device(const ReceivedBurst& burst, int segment,
                                          const py::object& out);

}  // namespace daqiri::python

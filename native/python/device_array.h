/// Frames in GPU memory, for array libraries that work on the GPU.
#pragma once

#include <pybind11/numpy.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "burst.h"
#include "dlpack.h"

namespace daqiri::python {

/// Owns the memory of an array: a burst whose packets are on a GPU, or a separate allocation. Any
/// thread may drop its reference, with or without the interpreter lock; no interpreter is needed.
class DeviceHold {
 public:
  DeviceHold(std::shared_ptr<const void> held, int gpu) noexcept
      : held_(std::move(held)), gpu_(gpu) {}
  DeviceHold(const DeviceHold&) = delete;
  DeviceHold& operator=(const DeviceHold&) = delete;
  /// Kernels that received the address may still be running: waits for the GPU before the buffers
  /// are returned.
  ~DeviceHold();

  /// Call when the address is handed out.
  void note_export() noexcept { exported_.store(true, std::memory_order_relaxed); }
  /// Returns when everything launched with the address has finished or can no longer run. Only
  /// waits after note_export(). Call without the interpreter lock.
  void wait_for_kernels() const noexcept;
  [[nodiscard]] int gpu() const noexcept { return gpu_; }

 private:
  std::shared_ptr<const void> held_;
  int gpu_;
  std::atomic<bool> exported_{false};
};

/// A C-contiguous frame in GPU memory. Immutable; safe to use from any thread.
class DeviceArray {
 public:
  using Shape = std::vector<py::ssize_t>;
  /// Device of DLPack: (type, number).
  using Device = std::pair<int, int>;

  /// Packet 0 of a burst on a GPU. One -1 in `shape` is computed from the size of the packet.
  /// Throws Error INVALID_PARAMETER if the packet has another size, or if the burst is released or
  /// not on a GPU.
  DeviceArray(const ReceivedBurst& burst, Shape shape, py::dtype dtype);
  /// Bytes at `data`, in memory that `hold` keeps alive; `owner` belongs to that memory and copies
  /// it to the host.
  DeviceArray(std::shared_ptr<DeviceHold> hold, const memory::BufferOwner& owner, void* data,
              Shape shape);

  [[nodiscard]] py::tuple shape() const { return py::cast(shape_); }
  [[nodiscard]] const py::dtype& dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t nbytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uintptr_t address() const noexcept;
  [[nodiscard]] int gpu() const noexcept { return hold_->gpu(); }

  [[nodiscard]] py::dict cuda_array_interface() const;
  [[nodiscard]] Device dlpack_device() const noexcept;
  /// Throws buffer_error if a copy would be needed or DLPack does not have the type.
  [[nodiscard]] py::capsule dlpack(std::optional<std::int64_t> stream,
                                   std::optional<std::pair<int, int>> max_version,
                                   std::optional<Device> device, std::optional<bool> copy) const;
  /// Copies the frame to the CPU. Throws Error: GENERIC_FAILURE if the GPU has failed,
  /// NOT_SUPPORTED in a forked child.
  [[nodiscard]] py::array get() const;
  [[nodiscard]] std::string repr() const;

 private:
  template <typename Managed>
  [[nodiscard]] py::capsule export_as() const;

  std::shared_ptr<DeviceHold> hold_;
  const memory::BufferOwner* owner_;
  void* data_;
  std::size_t bytes_;
  Shape shape_;
  py::dtype dtype_;
  dlpack::DataType type_{};
};

}  // namespace daqiri::python

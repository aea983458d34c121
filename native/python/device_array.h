/// Frames in a GPU's memory, for the libraries that work there.
#pragma once

#include <pybind11/numpy.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "burst.h"
#include "dlpack.h"

namespace daqiri::python {

/// Keeps what an array lies in: a burst whose packets a GPU has, or memory of its own. Any thread
/// may let go of it, with or without the interpreter lock, and needs no interpreter.
class DeviceHold {
 public:
  DeviceHold(std::shared_ptr<const void> held, int gpu) noexcept
      : held_(std::move(held)), gpu_(gpu) {}
  DeviceHold(const DeviceHold&) = delete;
  DeviceHold& operator=(const DeviceHold&) = delete;
  /// Kernels that were given the address may run still: waits for the GPU before the buffers go
  /// back.
  ~DeviceHold();

  /// The address leaves our hands.
  void note_export() noexcept { exported_.store(true, std::memory_order_relaxed); }
  /// What was launched with the address is done then, or never will be. Takes time only after
  /// note_export; without the interpreter lock.
  void wait_for_kernels() const noexcept;
  [[nodiscard]] int gpu() const noexcept { return gpu_; }
  /// CUDA does not work in a child made by fork(2).
  [[nodiscard]] bool forked() const noexcept { return getpid() != process_; }

 private:
  std::shared_ptr<const void> held_;
  int gpu_;
  pid_t process_{getpid()};
  std::atomic<bool> exported_{false};
};

/// A frame where it lies, C-contiguous. Immutable; any thread.
class DeviceArray {
 public:
  using Shape = std::vector<py::ssize_t>;
  /// Of DLPack: (type, number).
  using Device = std::pair<int, int>;

  /// Packet 0 of a burst that a GPU has; one -1 in `shape`: as many as there are. Throws Error
  /// INVALID_PARAMETER if the packet has another size, or the burst is released or not on a GPU.
  DeviceArray(const ReceivedBurst& burst, Shape shape, py::dtype dtype);
  /// Bytes at `data`, in what `hold` keeps, and with it `owner`, who copies them to the host.
  DeviceArray(std::shared_ptr<DeviceHold> hold, const memory::BufferOwner& owner, void* data,
              Shape shape);

  [[nodiscard]] py::tuple shape() const { return py::cast(shape_); }
  [[nodiscard]] const py::dtype& dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t nbytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uintptr_t address() const noexcept;
  [[nodiscard]] int gpu() const noexcept { return hold_->gpu(); }

  [[nodiscard]] py::dict cuda_array_interface() const;
  [[nodiscard]] Device dlpack_device() const noexcept;
  /// Throws buffer_error for what would need a copy, or has no type in DLPack.
  [[nodiscard]] py::capsule dlpack(std::optional<std::int64_t> stream,
                                   std::optional<std::pair<int, int>> max_version,
                                   std::optional<Device> device, std::optional<bool> copy) const;
  /// Copied to the CPU. Throws Error: GENERIC_FAILURE when the GPU does not work any more,
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

#include "device_packets.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/driver.h"
#include "daqiri/error.h"
#include "gil.h"
#include "memory/buffers.h"

namespace daqiri::python {

namespace {

memory::DeviceCopies& copies_of(const Burst& burst, int segment) noexcept {
  return *burst.owners[segment]->device_copies();
}

std::shared_ptr<DeviceHold> hold_of(const ReceivedBurst& burst, const Burst& held, int segment) {
  return burst.device_hold(segment, copies_of(held, segment).gpu());
}

/// GPU memory of a single array.
class DeviceBlock final : public memory::BufferOwner {
 public:
  /// Throws Error NO_FREE_PACKET_BUFFERS.
  DeviceBlock(std::size_t size, int gpu) : BufferOwner(WHAT, 0, memory::Place::DEVICE, gpu) {
    const cuda::Context context(WHAT, gpu);
    const cuda::Driver& driver = context.driver();
    if (const cuda::Result result = driver.call().allocate(base_.out(context), size); result != 0) {
      throw Error(Status::NO_FREE_PACKET_BUFFERS, "gather: GPU " + std::to_string(gpu) +
                                                      " cannot allocate " + std::to_string(size) +
                                                      " bytes (" + driver.text_of(result) +
                                                      "); gather into an existing array (out)");
    }
  }

  [[nodiscard]] std::uint64_t base() const noexcept { return base_.get(); }
  void give(const std::uint32_t*, std::uint32_t) noexcept override {}
  [[nodiscard]] bool copy_to_host(const void* data, void* to,
                                  std::size_t bytes) const noexcept override {
    bool copied = false;
    cuda::with_context(gpu(), [&](const cuda::Functions& call) {
      void* stream = nullptr;
      if (call.make_stream(&stream, cuda::STREAM_FLAGS) != 0) return;
      copied = call.copy_to_host(to, reinterpret_cast<std::uintptr_t>(data), bytes, stream) == 0 &&
               call.wait_for_stream(stream) == 0;
      call.destroy_stream(stream);
    });
    return copied;
  }

 private:
  static constexpr const char* WHAT = "an array of gathered packets";

  cuda::DeviceAllocation base_;
};

/// An array of another library on a GPU, by its `__cuda_array_interface__`.
struct OutArray {
  std::vector<std::size_t> shape;
  std::string type;
  std::uint64_t base{0};
  bool read_only{false};
  bool contiguous{true};
  /// Stream to wait for; 0: none.
  std::uintptr_t stream{0};

  explicit OutArray(const py::dict& interface)
      : shape(interface["shape"].cast<std::vector<std::size_t>>()),
        type(interface["typestr"].cast<std::string>()) {
    std::tie(base, read_only) = interface["data"].cast<std::pair<std::uint64_t, bool>>();
    const auto given = [&](const char* key) {
      return interface.contains(key) && !interface[key].is_none();
    };
    contiguous = !given("strides");
    if (given("stream")) stream = interface["stream"].cast<std::uintptr_t>();
  }
};

/// Address and length of rows.
struct Rows {
  std::uint64_t base;
  std::size_t width;
};

/// Why `out` cannot take `count` rows of at least `longest` bytes on that GPU; empty if it can.
std::string problem_of(const OutArray& out, std::size_t count, std::size_t longest, int gpu) {
  if (out.shape.size() != 2 || out.shape[0] != count || out.shape[1] < longest ||
      out.type != "|u1" || out.read_only || !out.contiguous) {
    return std::string(out.read_only ? "read-only " : "") + out.type + " of shape " +
           py::str(py::tuple(py::cast(out.shape))).cast<std::string>() +
           (out.contiguous ? "" : ", with strides");
  }
  if (count * out.shape[1] == 0) return {};
  /// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL. CUDA reports it for host memory only if that is
  /// registered.
  constexpr int ORDINAL = 9;
  const cuda::Context context("gather", gpu);
  int found = -1;
  if (context.driver().call().pointer_attribute(&found, ORDINAL, out.base) != 0)
    return "not in GPU memory";
  return found == gpu ? std::string() : "on GPU " + std::to_string(found);
}

/// Checks `out` and waits for its stream. Throws Error if it is not such an array.
Rows rows_of(const py::object& out, std::size_t count, std::size_t longest, int gpu) {
  std::string problem = py::repr(py::type::of(out)).cast<std::string>();
  try {
    if (py::hasattr(out, "__cuda_array_interface__")) {
      const OutArray array(out.attr("__cuda_array_interface__").cast<py::dict>());
      problem = problem_of(array, count, longest, gpu);
      if (problem.empty()) {
        const GilRelease unlocked;
        const cuda::Context context("gather", gpu);
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle
        if (array.stream != 0)
          context.driver().call().wait_for_stream(reinterpret_cast<void*>(array.stream));
        return {array.base, array.shape[1]};
      }
    }
  } catch (const py::cast_error&) {
    problem += " with an invalid __cuda_array_interface__";
  } catch (const py::error_already_set&) {
    problem += " with an invalid __cuda_array_interface__";
  }
  throw Error(Status::INVALID_PARAMETER,
              "out is " + problem + "; gather needs C-contiguous, writable uint8 of shape (" +
                  std::to_string(count) + ", " + std::to_string(longest) +
                  "), or a longer last axis, on GPU " + std::to_string(gpu) +
                  ", which has the packets");
}

}  // namespace

void wait_for_packets(const Burst& burst, int segment) {
  const GilRelease unlocked;
  copies_of(burst, segment).wait_for(burst.event);
}

py::capsule base_for_kernels(const ReceivedBurst& burst, int segment) {
  auto hold = hold_of(burst, *burst.share(), segment);
  hold->note_export();
  return owning_capsule(std::move(hold));
}

DeviceArray packet_on_device(const ReceivedBurst& burst, int segment, std::size_t index) {
  const ReceivedBurst::Share held = burst.share();
  return {hold_of(burst, *held, segment),
          *held->owners[segment],
          held->pkts[segment][index],
          {static_cast<py::ssize_t>(held->pkt_lens[segment][index])}};
}

py::object gather_on_device(const ReceivedBurst& burst, int segment, const py::object& out) {
  const ReceivedBurst::Share held = burst.share();
  memory::DeviceCopies& copies = copies_of(*held, segment);
  const std::uint32_t n = held->num_packets();
  const std::uint32_t* const lengths = held->pkt_lens[segment];
  const std::size_t longest = n == 0 ? 0 : *std::max_element(lengths, lengths + n);
  const auto gather = [&](const Rows& rows) {
    const auto hold = hold_of(burst, *held, segment);
    const GilRelease unlocked;
    hold->wait_for_kernels();
    copies.gather({held->pkts[segment], lengths, n}, rows.base, rows.width);
  };
  if (!out.is_none()) {
    gather(rows_of(out, n, longest, copies.gpu()));
    return out;
  }
  const auto block =
      std::make_shared<const DeviceBlock>(std::max<std::size_t>(n * longest, 1), copies.gpu());
  gather({block->base(), longest});
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the GPU
  auto* const base = reinterpret_cast<void*>(block->base());
  return py::cast(DeviceArray(std::make_shared<DeviceHold>(block, copies.gpu()), *block, base,
                              {static_cast<py::ssize_t>(n), static_cast<py::ssize_t>(longest)}));
}

}  // namespace daqiri::python

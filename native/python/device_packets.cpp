#include "device_packets.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cuda/driver.h"
#include "daqiri/error.h"
#include "gil.h"
#include "memory/buffers.h"

namespace daqiri::python {

namespace {

memory::DeviceCopies& copies_of(const Burst& burst, int segment) noexcept {
  return *burst.owners[segment]->device_copies();
}

/// Memory of a GPU that is an array's alone.
class DeviceBlock final : public memory::BufferOwner {
 public:
  /// Throws Error NO_FREE_PACKET_BUFFERS.
  DeviceBlock(std::size_t size, int gpu) : BufferOwner(WHAT, 0, false), gpu_(gpu) {
    const cuda::Context context(WHAT, gpu_);
    const cuda::Driver& driver = context.driver();
    if (const cuda::Result result = driver.call().allocate(&base_, size); result != 0) {
      throw Error(Status::NO_FREE_PACKET_BUFFERS,
                  "gather: GPU " + std::to_string(gpu_) + " cannot allocate " +
                      std::to_string(size) + " bytes (" + driver.text_of(result) +
                      "); gather into an array that you have (out)");
    }
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  ~DeviceBlock() override {
    // A forked child has no CUDA.
    if (getpid() == process_) with_gpu([this](const cuda::Functions& call) { call.free(base_); });
  }

  [[nodiscard]] std::uint64_t base() const noexcept { return base_; }
  void give(const std::uint32_t*, std::uint32_t) noexcept override {}
  [[nodiscard]] bool copy_to_host(const void* data, void* to,
                                  std::size_t bytes) const noexcept override {
    bool copied = false;
    with_gpu([&](const cuda::Functions& call) {
      void* stream = nullptr;
      if (call.make_stream(&stream, cuda::STREAM_FLAGS) != 0) return;
      copied = call.copy_to_host(to, reinterpret_cast<std::uintptr_t>(data), bytes, stream) == 0 &&
               call.wait_for_stream(stream) == 0;
      call.destroy_stream(stream);
    });
    return copied;
  }

 private:
  static constexpr const char* WHAT = "gathered packets";

  template <typename Use>
  void with_gpu(Use use) const noexcept {
    try {
      const cuda::Context context(WHAT, gpu_);
      use(context.driver().call());
    } catch (const std::exception&) {
      // The GPU is gone, and its memory with it.
      return;
    }
  }

  int gpu_;
  pid_t process_{getpid()};
  std::uint64_t base_{0};
};

/// Of an array that somebody else has on the GPU.
struct Rows {
  std::uint64_t base;
  std::size_t width;
};

/// Throws Error unless `out` is an array for `count` rows of at least `longest` bytes.
Rows rows_of(const py::object& out, std::size_t count, std::size_t longest) {
  const std::string wanted = "; gather needs C-contiguous, writable uint8 of shape (" +
                             std::to_string(count) + ", " + std::to_string(longest) +
                             "), or a longer last axis, on the GPU that has the packets";
  if (!py::hasattr(out, "__cuda_array_interface__")) {
    throw Error(Status::INVALID_PARAMETER,
                "out is " + py::repr(py::type::of(out)).cast<std::string>() + wanted);
  }
  const py::dict interface = out.attr("__cuda_array_interface__");
  const auto shape = interface["shape"].cast<std::vector<std::size_t>>();
  const auto type = interface["typestr"].cast<std::string>();
  const auto [base, read_only] = interface["data"].cast<std::pair<std::uint64_t, bool>>();
  const bool contiguous = !interface.contains("strides") || interface["strides"].is_none();
  if (shape.size() != 2 || shape[0] != count || shape[1] < longest || type != "|u1" || read_only ||
      !contiguous) {
    throw Error(Status::INVALID_PARAMETER, "out is " + std::string(read_only ? "read-only " : "") +
                                               type + " of shape " +
                                               py::str(interface["shape"]).cast<std::string>() +
                                               (contiguous ? "" : ", with strides") + wanted);
  }
  return {base, shape[1]};
}

}  // namespace

void wait_for_packets(const Burst& burst, int segment) {
  const GilRelease unlocked;
  copies_of(burst, segment).wait_for(burst.event);
}

DeviceArray packet_on_device(const ReceivedBurst& burst, int segment, std::size_t index) {
  const ReceivedBurst::Share held = burst.share();
  wait_for_packets(*held, segment);
  auto hold = std::make_shared<DeviceHold>(std::shared_ptr<const void>(burst.hold()),
                                           copies_of(*held, segment).gpu());
  return {std::move(hold),
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
    const GilRelease unlocked;
    copies.gather({held->pkts[segment], lengths, n}, rows.base, rows.width);
  };
  if (!out.is_none()) {
    gather(rows_of(out, n, longest));
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

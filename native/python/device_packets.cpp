#include "device_packets.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cuda/driver.h"
#include "daqiri/error.h"
#include "gil.h"
#include "io/session_memory.h"

namespace daqiri::python {

namespace {

memory::DeviceCopies& copies_of(const Burst& burst, int segment) noexcept {
  return *burst.owners[segment]->device_copies();
}

/// Memory of a GPU, and the session whose packets are copied there.
struct DeviceBlock {
  DeviceBlock(std::size_t size, int on, std::shared_ptr<SessionMemory> memory)
      : keep(std::move(memory)), gpu(on) {
    const cuda::Context context(WHAT, gpu);
    const cuda::Driver& driver = context.driver();
    if (const cuda::Result result = driver.call().allocate(&base, size); result != 0) {
      throw Error(Status::NO_FREE_PACKET_BUFFERS,
                  "gather: GPU " + std::to_string(gpu) + " cannot allocate " +
                      std::to_string(size) + " bytes (" + driver.text_of(result) +
                      "); gather into an array that you have (out)");
    }
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  ~DeviceBlock() {
    // A forked child has no CUDA.
    if (getpid() != process) return;
    try {
      const cuda::Context context(WHAT, gpu);
      context.driver().call().free(base);
    } catch (const Error&) {
      // The GPU is gone, and its memory with it.
      return;
    }
  }

  static constexpr const char* WHAT = "gathered packets";
  std::shared_ptr<SessionMemory> keep;
  int gpu;
  pid_t process{getpid()};
  std::uint64_t base{0};
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
  const auto block = std::make_shared<const DeviceBlock>(std::max<std::size_t>(n * longest, 1),
                                                         copies.gpu(), held->keep);
  gather({block->base, longest});
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the GPU
  auto* const base = reinterpret_cast<void*>(block->base);
  return py::cast(DeviceArray(std::make_shared<DeviceHold>(block, copies.gpu()),
                              *held->owners[segment], base,
                              {static_cast<py::ssize_t>(n), static_cast<py::ssize_t>(longest)}));
}

}  // namespace daqiri::python

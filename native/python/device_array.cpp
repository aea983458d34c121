#include "device_array.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "bindings.h"
#include "cuda/driver.h"
#include "daqiri/error.h"
#include "gil.h"
#include "memory/region.h"

namespace daqiri::python {

namespace {

/// Whether this thread has the interpreter lock; false while the interpreter ends.
bool has_interpreter_lock() noexcept {
  return Py_IsInitialized() != 0 && PyGILState_GetThisThreadState() != nullptr &&
         PyGILState_Check() != 0;
}

const memory::MemoryRegion* region_on_gpu(const Burst& burst) noexcept {
  if (burst.unreadable_segment() != 0) return nullptr;
  return burst.owners[0]->region();
}

/// kDLInt, kDLUInt, kDLFloat.
dlpack::DataType dlpack_type(const py::dtype& dtype) {
  static constexpr std::string_view KINDS = "iuf";
  const auto code = KINDS.find(dtype.kind());
  if (code == std::string_view::npos) {
    throw Error(Status::INVALID_PARAMETER,
                "dtype is " + py::str(dtype).cast<std::string>() + "; accepts integers and floats");
  }
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * dtype.itemsize()), 1};
}

std::string text(const DeviceArray::Device& device) {
  return "(" + std::to_string(device.first) + ", " + std::to_string(device.second) + ")";
}

/// The context of a managed tensor until its consumer deletes it.
template <typename Managed>
struct Exported {
  std::shared_ptr<DeviceHold> hold;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  Managed managed{};

  static void free(Managed* managed) noexcept {
    const std::unique_ptr<Exported> freed(static_cast<Exported*>(managed->context));
  }
  /// A consumed capsule has another name; its consumer frees it.
  static void free_untaken(PyObject* capsule) noexcept {
    if (PyCapsule_IsValid(capsule, Managed::NAME) == 0) return;
    free(static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::NAME)));
  }
};

}  // namespace

void DeviceHold::wait_for_kernels() const noexcept {
  if (!exported_.load(std::memory_order_relaxed)) return;
  // If the GPU has failed, nothing reads the memory.
  cuda::with_context(gpu_, [](const cuda::Functions& call) { call.synchronize(); });
}

DeviceHold::~DeviceHold() {
  if (!exported_.load(std::memory_order_relaxed)) return;
  std::optional<GilRelease> unlocked;
  if (has_interpreter_lock()) unlocked.emplace();
  wait_for_kernels();
}

DeviceArray::DeviceArray(const ReceivedBurst& burst, Shape shape, py::dtype dtype)
    : shape_(std::move(shape)), dtype_(std::move(dtype)) {
  const ReceivedBurst::Share held = burst.share();
  const memory::MemoryRegion* const region = region_on_gpu(*held);
  if (region == nullptr || region->device_copies() != nullptr || held->num_packets() == 0)
    throw Error(Status::INVALID_PARAMETER, "the burst is not a frame on a GPU; use view()");
  owner_ = region;
  data_ = held->pkts[0][0];
  bytes_ = held->pkt_lens[0][0];
  type_ = dlpack_type(dtype_);
  std::size_t known = static_cast<std::size_t>(dtype_.itemsize());
  for (const py::ssize_t n : shape_) known *= n == -1 ? 1 : static_cast<std::size_t>(n);
  const auto open = std::ranges::find(shape_, -1);
  if (open != shape_.end()) *open = known == 0 ? 0 : static_cast<py::ssize_t>(bytes_ / known);
  if (known == 0 || (open == shape_.end() ? known != bytes_ : bytes_ % known != 0)) {
    throw Error(Status::INVALID_PARAMETER, "the frame has " + std::to_string(bytes_) +
                                               " bytes, which do not fit " +
                                               py::str(dtype_).cast<std::string>() + " of shape " +
                                               py::str(this->shape()).cast<std::string>());
  }
  hold_ = burst.device_hold(0, region->gpu());
}

DeviceArray::DeviceArray(std::shared_ptr<DeviceHold> hold, const memory::BufferOwner& owner,
                         void* data, Shape shape)
    : hold_(std::move(hold)),
      owner_(&owner),
      data_(data),
      bytes_(1),
      shape_(std::move(shape)),
      dtype_(py::dtype::of<std::uint8_t>()),
      type_(dlpack_type(dtype_)) {
  for (const py::ssize_t n : shape_) bytes_ *= static_cast<std::size_t>(n);
}

std::uintptr_t DeviceArray::address() const noexcept {
  hold_->note_export();
  return reinterpret_cast<std::uintptr_t>(data_);
}

py::dict DeviceArray::cuda_array_interface() const {
  using namespace py::literals;
  // Not marked read-only although the engine owns the data: some libraries reject read-only arrays.
  // No stream is given, as the data is complete.
  return py::dict("shape"_a = shape(), "typestr"_a = dtype_.attr("str"),
                  "data"_a = py::make_tuple(address(), false), "version"_a = 3,
                  "strides"_a = py::none(), "stream"_a = py::none());
}

DeviceArray::Device DeviceArray::dlpack_device() const noexcept { return {dlpack::CUDA, gpu()}; }

py::capsule DeviceArray::dlpack(std::optional<std::int64_t> stream,
                                std::optional<std::pair<int, int>> max_version,
                                std::optional<Device> device, std::optional<bool> copy) const {
  // The array is complete, so any stream may use it.
  if (stream && (*stream == 0 || *stream < -1)) {
    throw py::value_error("stream is " + std::to_string(*stream) +
                          "; accepts None, -1 (no stream), 1 (default stream), 2 (that of the "
                          "thread), or a stream's handle");
  }
  if (device && *device != dlpack_device()) {
    throw py::buffer_error("dl_device is " + text(*device) + ", but the array is on " +
                           text(dlpack_device()) + " (CUDA, GPU " + std::to_string(gpu()) +
                           "); import it there and copy it, or use get() for a numpy array");
  }
  if (copy.value_or(false)) {
    throw py::buffer_error(
        "copy is True, but arrays are exported without a copy; copy the imported array, e.g. "
        "torch.from_dlpack(frame).clone()");
  }
  return max_version && max_version->first >= 1 ? export_as<dlpack::VersionedTensor>()
                                                : export_as<dlpack::ManagedTensor>();
}

template <typename Managed>
py::capsule DeviceArray::export_as() const {
  using Out = Exported<Managed>;
  auto out = std::make_unique<Out>();
  out->hold = hold_;
  out->shape.assign(shape_.begin(), shape_.end());
  out->strides.resize(shape_.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape_.size(); d-- > 0; stride *= out->shape[d]) out->strides[d] = stride;
  Managed& managed = out->managed;
  if constexpr (requires { managed.version; }) managed.version = {1, 0};
  managed.context = out.get();
  managed.deleter = &Out::free;
  managed.tensor = {
      .data = data_,
      .device = {dlpack::CUDA, gpu()},
      .ndim = static_cast<std::int32_t>(shape_.size()),
      .dtype = type_,
      .shape = out->shape.data(),
      .strides = out->strides.data(),
      .byte_offset = 0,
  };
  py::capsule capsule(&managed, Managed::NAME, &Out::free_untaken);
  static_cast<void>(out.release());
  hold_->note_export();
  return capsule;
}

py::array DeviceArray::get() const {
  if (cuda::Driver::forked()) {
    throw Error(
        Status::NOT_SUPPORTED,
        "the array was received before a fork, and CUDA does not work in the child; copy "
        "it with get() before the fork, or start processes with multiprocessing's \"spawn\"");
  }
  py::array copy(dtype_, shape_);
  bool copied = false;
  {
    void* const to = copy.mutable_data();
    const GilRelease unlocked;
    hold_->wait_for_kernels();
    copied = owner_->copy_to_host(data_, to, bytes_);
  }
  if (!copied) {
    throw Error(Status::GENERIC_FAILURE, "the array cannot be copied: GPU " +
                                             std::to_string(gpu()) +
                                             " has failed; start the program again");
  }
  return copy;
}

std::string DeviceArray::repr() const {
  return "<DeviceArray: " + py::str(dtype_).cast<std::string>() + " " +
         py::str(shape()).cast<std::string>() + ", GPU " + std::to_string(gpu()) + ">";
}

namespace {

[[noreturn]] void refuse_on_cpu(const std::string& why) {
  throw py::type_error("the array is in GPU memory, " + why +
                       "; use .get() for a numpy array, or cupy.asarray to work on the GPU");
}

[[noreturn]] void refuse_comparison() { refuse_on_cpu("and cannot be compared there"); }

std::uintptr_t id_of(const py::object& object) noexcept {
  return reinterpret_cast<std::uintptr_t>(object.ptr());
}

}  // namespace

void bind_device_array(py::module_& m) {
  py::class_<DeviceArray>(m, "DeviceArray", R"(A frame, packet or packets in GPU memory.

``cupy.asarray(array)``, ``torch.from_dlpack(array)`` and other libraries that support
``__cuda_array_interface__`` or DLPack use it in place, without a copy. Their arrays keep the
engine's buffer in use, in any thread, also after the engine is closed. When the last of them is
dropped, and the address was ever read, the engine waits for the GPU before it reuses the buffer:
kernels that were launched may still read it.

The data is complete, for any stream. It is writable, because some libraries reject read-only data.

Attributes
----------
shape : tuple of int
    Shape; C-contiguous.
dtype : dtype
    NumPy type.
nbytes : int
    Bytes.
address : int
    Address, for your own kernels. Keep the array while they are being launched.
gpu : int
    CUDA index of its GPU in this process.
)")
      .def_property_readonly("shape", &DeviceArray::shape)
      .def_property_readonly("dtype", &DeviceArray::dtype)
      .def_property_readonly("nbytes", &DeviceArray::nbytes)
      .def_property_readonly("address", &DeviceArray::address)
      .def_property_readonly("gpu", &DeviceArray::gpu)
      .def_property_readonly("__cuda_array_interface__", &DeviceArray::cuda_array_interface)
      .def("__dlpack_device__", &DeviceArray::dlpack_device)
      .def("__dlpack__", &DeviceArray::dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none())
      .def("get", &DeviceArray::get, R"(Return a copy in CPU memory.

If an address of the burst was read, or another library has an array of it, the call waits for the
GPU first, and the copy has the data that its kernels have written. The call releases the
interpreter lock.

Returns
-------
ndarray
    Array of the same shape and dtype.

Raises
------
GenericFailureError
    If the GPU no longer works.
NotSupportedError
    In a process that was forked after the array was received.
)")
      .def(
          "__array__",
          [](const DeviceArray&, const py::object&, const py::object&) -> py::array {
            refuse_on_cpu("and numpy would copy it implicitly");
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      // Without these, Python would compare identities.
      .def("__eq__", [](const DeviceArray&, const py::object&) -> bool { refuse_comparison(); })
      .def("__ne__", [](const DeviceArray&, const py::object&) -> bool { refuse_comparison(); })
      .def("__bool__", [](const DeviceArray&) -> bool { refuse_comparison(); })
      .def("__hash__", [](const py::object& self) { return py::hash(py::int_(id_of(self))); })
      .def("__repr__", &DeviceArray::repr);
}

}  // namespace daqiri::python

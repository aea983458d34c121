// The documented functions on reordered bursts, RDMA and S3, for Python.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "api/call.h"
#include "bindings.h"
#include "burst/burst.h"
#include "burst_params.h"
#include "device_packets.h"

namespace daqiri::python {

namespace {

// --- Reordered bursts

/// Outlives the burst.
struct KeptBurstInfo : ReorderBurstInfo {
  std::vector<std::uint64_t> numbers;
};

py::tuple reorder_info(BurstHandle* handle) {
  KeptBurstInfo info;
  const Status status = [&] {
    const BurstHandle::Use use(handle);
    const Status found = get_reorder_burst_info(use.get(), &info);
    info.numbers.assign(info.columns, info.columns + info.num_column_values);
    info.columns = nullptr;
    return found;
  }();
  return py::make_tuple(status_object(status), info);
}

py::object set_stream(const std::string& interface, const std::string& reorder,
                      std::uintptr_t stream) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python gives the address as an integer
  return status_object(
      set_reorder_cuda_stream(interface, reorder, reinterpret_cast<cudaStream_t>(stream)));
}

py::object wait_for_event(BurstHandle* handle) {
  const BurstHandle::Use use(handle);
  constexpr const char* CALL = "synchronize_burst_event";
  const api::Held burst(CALL, use.get());
  if (!burst) return status_object(burst.status());
  // Frames are complete; packets may still be copied to a GPU.
  return status_object(api::guarded(CALL, [&] {
    for (int s = 0; s < burst->hdr.hdr.num_segs && s < MAX_NUM_SEGS; ++s) {
      if (burst->is_on_device(s)) wait_for_packets(*burst, s);
    }
  }));
}

// --- S3

[[noreturn]] void fail_with(Status status) {
  throw std::runtime_error(std::string(last_error()) + " (" + std::string(status_name(status)) +
                           ")");
}

/// An upload in progress. destroy() or the destructor ends it.
class S3Write {
 public:
  explicit S3Write(S3WriteHandle* handle) : handle_(handle) {}
  S3Write(const S3Write&) = delete;
  S3Write& operator=(const S3Write&) = delete;
  ~S3Write() { destroy(); }

  [[nodiscard]] py::tuple poll() const {
    S3WriteStatus done;
    const Status status = daqiri_s3_write_poll(handle_, &done);
    return py::make_tuple(status_object(status), done);
  }
  [[nodiscard]] S3WriteStatus wait() const {
    S3WriteStatus done;
    Status status{};
    {
      const GilRelease unlocked;
      status = daqiri_s3_write_wait(handle_, &done);
    }
    if (status != Status::SUCCESS) fail_with(status);
    return done;
  }
  Status destroy() {
    if (handle_ == nullptr) return Status::SUCCESS;
    const GilRelease unlocked;
    return daqiri_s3_write_destroy(std::exchange(handle_, nullptr));
  }

 private:
  S3WriteHandle* handle_;
};

class S3Client {
 public:
  explicit S3Client(const S3WriterConfig& config) {
    Status status{};
    {
      // It may ask services for credentials.
      const GilRelease unlocked;
      status = daqiri_s3_writer_create(config, &writer_);
    }
    if (status != Status::SUCCESS) fail_with(status);
  }
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;
  ~S3Client() { destroy(); }

  using Start = Status (*)(S3Writer*, BurstParams*, const std::string&, std::uint64_t,
                           S3WriteHandle**);
  template <Start start>
  std::unique_ptr<S3Write> begin(BurstHandle* handle, const std::string& name,
                                 std::uint64_t offset) {
    S3WriteHandle* write = nullptr;
    Status status{};
    {
      const BurstHandle::Use use(handle);
      const GilRelease unlocked;
      status = start(writer_, use.get(), name, offset, &write);
    }
    if (status != Status::SUCCESS) fail_with(status);
    return std::make_unique<S3Write>(write);
  }
  template <Start start>
  S3WriteStatus perform(BurstHandle* handle, const std::string& name, std::uint64_t offset) {
    return begin<start>(handle, name, offset)->wait();
  }
  Status destroy() {
    if (writer_ == nullptr) return Status::SUCCESS;
    const GilRelease unlocked;
    return daqiri_s3_writer_destroy(std::exchange(writer_, nullptr));
  }

 private:
  S3Writer* writer_{nullptr};
};

void bind_s3(py::module_& m) {
  py::class_<S3WriterConfig>(m, "S3WriterConfig", "Destination of objects, and limits of uploads.")
      .def(py::init<>())
      .def_readwrite("bucket", &S3WriterConfig::bucket)
      .def_readwrite("region", &S3WriterConfig::region)
      .def_readwrite("endpoint_override", &S3WriterConfig::endpoint_override)
      .def_readwrite("path_style", &S3WriterConfig::path_style)
      .def_readwrite("aws_sdk_already_initialized", &S3WriterConfig::aws_sdk_already_initialized)
      .def_readwrite("max_inflight_uploads", &S3WriterConfig::max_inflight_uploads)
      .def_readwrite("max_staged_bytes", &S3WriterConfig::max_staged_bytes);
  py::class_<S3WriteStatus>(m, "S3WriteStatus", "Progress of a write; final when it is done.")
      .def(py::init<>())
      .def_readwrite("completed_objects", &S3WriteStatus::completed_objects)
      .def_readwrite("failed_objects", &S3WriteStatus::failed_objects)
      .def_readwrite("bytes_uploaded", &S3WriteStatus::bytes_uploaded);
  py::class_<S3Write>(m, "S3WriteHandle", "A write in the background.")
      .def("poll", &S3Write::poll, "Return the status and the progress.")
      .def("wait", &S3Write::wait, "Wait for the end; raises RuntimeError if it failed.")
      .def("destroy", [](S3Write& write) { return status_object(write.destroy()); });
  py::class_<S3Client>(m, "S3Writer",
                       "A client for one bucket; raises RuntimeError if it cannot be created.")
      .def(py::init<const S3WriterConfig&>(), py::arg("config"))
      .def("write_raw_objects_async", &S3Client::begin<&daqiri_write_raw_to_s3_objects_async>,
           py::arg("burst"), py::arg("object_prefix"), py::arg("packet_data_offset") = 0,
           "Begin to upload each packet; raises RuntimeError if that fails.")
      .def("write_raw_objects", &S3Client::perform<&daqiri_write_raw_to_s3_objects_async>,
           py::arg("burst"), py::arg("object_prefix"), py::arg("packet_data_offset") = 0,
           "Upload each packet; raises RuntimeError if that fails.")
      .def(
          "write_burst_object_async", &S3Client::begin<&daqiri_write_burst_to_s3_object_async>,
          py::arg("burst"), py::arg("object_name"), py::arg("packet_data_offset") = 0,
          "Begin to upload all packets as one object, and their index; raises RuntimeError if that "
          "fails.")
      .def("write_burst_object", &S3Client::perform<&daqiri_write_burst_to_s3_object_async>,
           py::arg("burst"), py::arg("object_name"), py::arg("packet_data_offset") = 0,
           "Upload all packets as one object, and their index; raises RuntimeError if that fails.")
      .def("destroy", [](S3Client& client) { return status_object(client.destroy()); });
}

void bind_reordered(py::module_& m) {
  py::class_<KeptBurstInfo>(m, "ReorderBurstInfo", "Properties of an aggregate of packets.")
      .def(py::init<>())
      .def_readwrite("batch_id", &ReorderBurstInfo::batch_id)
      .def_readwrite("source_packet_count", &ReorderBurstInfo::source_packet_count)
      .def_readwrite("packets_per_batch", &ReorderBurstInfo::packets_per_batch)
      .def_readwrite("payload_len", &ReorderBurstInfo::payload_len)
      .def_readwrite("aggregate_len", &ReorderBurstInfo::aggregate_len)
      .def_readwrite("burst_flags", &ReorderBurstInfo::burst_flags)
      .def_readwrite("columns", &KeptBurstInfo::numbers);
  m.def("get_reorder_burst_info", &reorder_info, py::arg("burst"),
        "Return the status and the properties of an aggregate.");
  m.def("set_reorder_cuda_stream", &set_stream, py::arg("interface_name"), py::arg("reorder_name"),
        py::arg("stream") = 0, "Set the CUDA stream of a reorder plan.");
  m.def("synchronize_burst_event", &wait_for_event, py::arg("burst"),
        "Wait for the burst's CUDA event, if it has one.");
}

void bind_rdma(py::module_& m) {
  m.def(
      "rdma_set_header",
      [](BurstHandle* handle, int op_code, std::uintptr_t connection, bool is_server, int num,
         std::uint64_t wr_id, const std::string& region) {
        return on_burst(&rdma_set_header)(handle, static_cast<RDMAOpCode>(op_code), connection,
                                          is_server, num, wr_id, region);
      },
      py::arg("burst"), py::arg("op_code"), py::arg("conn_id"), py::arg("is_server"),
      py::arg("num_pkts"), py::arg("wr_id"), py::arg("local_mr_name"),
      "Set the operation and the connection of a burst.");
  m.def(
      "rdma_get_opcode",
      [](BurstHandle* handle) { return static_cast<int>(on_burst(&rdma_get_opcode)(handle)); },
      py::arg("burst"), "Number of the operation of a burst.");
}

}  // namespace

void bind_other_calls(py::module_& m) {
  bind_rdma(m);
  bind_reordered(m);
  bind_s3(m);
}

}  // namespace daqiri::python

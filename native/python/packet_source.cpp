#include "packet_source.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "daqiri/error.h"

namespace daqiri::python {

namespace {

[[noreturn]] void invalid(const std::string& text) {
  throw Error(Status::INVALID_PARAMETER, "send: " + text);
}

}  // namespace

PacketSource::PacketSource(const py::array& data, const py::object& offsets,
                           const py::object& lengths, const py::object& launch_times)
    : base_(static_cast<const std::uint8_t*>(data.data())) {
  held_.push_back(data);
  if (data.ndim() == 2) {
    size_ = static_cast<std::size_t>(data.shape(0));
    width_ = static_cast<std::size_t>(data.shape(1));
    stride_ = data.strides(0);
  } else {
    size_ = static_cast<std::size_t>(py::len(offsets));
    width_ = static_cast<std::size_t>(data.shape(0));
    offsets_ = column("offsets", offsets);
  }
  lengths_ = column("lengths", lengths);
  launch_times_ = column("launch_times", launch_times);
}

PacketSource::PacketSource(const py::sequence& packets, const py::object& launch_times)
    : size_(packets.size()) {
  buffers_.reserve(size_);
  try {
    for (std::size_t i = 0; i < size_; ++i) {
      const py::object packet = packets[i];
      Py_buffer view{};
      if (PyObject_GetBuffer(packet.ptr(), &view, PyBUF_ND) != 0) {
        PyErr_Clear();
        invalid("packets[" + std::to_string(i) + "] is " +
                py::repr(py::type::of(packet)).cast<std::string>() +
                "; a packet is bytes or a C-contiguous uint8 array");
      }
      buffers_.push_back(view);
      if (view.itemsize != 1) {
        invalid("packets[" + std::to_string(i) + "] has items of " + std::to_string(view.itemsize) +
                " bytes; a packet is bytes or a C-contiguous uint8 array");
      }
    }
    launch_times_ = column("launch_times", launch_times);
  } catch (...) {
    for (Py_buffer& view : buffers_) PyBuffer_Release(&view);
    throw;
  }
}

PacketSource::~PacketSource() {
  for (Py_buffer& view : buffers_) PyBuffer_Release(&view);
}

const std::int64_t* PacketSource::column(const char* name, const py::object& array) {
  if (array.is_none()) return nullptr;
  const auto values = py::reinterpret_borrow<py::array_t<std::int64_t>>(array);
  if (static_cast<std::size_t>(values.size()) != size_) {
    invalid(std::string(name) + " has " + std::to_string(values.size()) + " entries for " +
            std::to_string(size_) + " packets");
  }
  held_.push_back(array);
  return values.data();
}

PacketSource::Packet PacketSource::operator[](std::size_t i) const noexcept {
  const std::uint64_t launch =
      launch_times_ == nullptr ? 0 : static_cast<std::uint64_t>(launch_times_[i]);
  if (!buffers_.empty()) {
    const Py_buffer& view = buffers_[i];
    return {static_cast<const std::uint8_t*>(view.buf), static_cast<std::size_t>(view.len), launch};
  }
  const std::ptrdiff_t at =
      offsets_ == nullptr ? static_cast<std::ptrdiff_t>(i) * stride_ : offsets_[i];
  return {base_ + at, lengths_ == nullptr ? width_ : static_cast<std::size_t>(lengths_[i]), launch};
}

void PacketSource::check(std::size_t longest, const std::string& queue) const {
  const auto limit = static_cast<std::int64_t>(width_);
  for (std::size_t i = 0; i < size_; ++i) {
    if (lengths_ != nullptr) {
      const std::int64_t offset = offsets_ == nullptr ? 0 : offsets_[i];
      const std::int64_t length = lengths_[i];
      if (offset < 0 || length < 0 || offset > limit || length > limit - offset) {
        invalid("packet " + std::to_string(i) + " is " + std::to_string(length) +
                " bytes at offset " + std::to_string(offset) +
                (offsets_ == nullptr ? " of a row of " : " of data of ") + std::to_string(limit) +
                " bytes");
      }
    }
    const std::size_t length = (*this)[i].length;
    if (length > longest) {
      invalid("packet " + std::to_string(i) + " has " + std::to_string(length) +
              " bytes; transmit queue '" + queue + "' accepts up to " + std::to_string(longest) +
              " (buf_size of its memory regions, max_payload_size of a socket)");
    }
    if (launch_times_ != nullptr && launch_times_[i] < 0) {
      invalid("launch_times[" + std::to_string(i) + "] is " + std::to_string(launch_times_[i]) +
              "; give ns on the port's clock (port.now()), or 0 to send immediately");
    }
  }
}

Sender::Sender(TxQueue& queue, const PacketSource& packets, std::size_t longest,
               std::uintptr_t connection)
    : queue_(queue), packets_(packets), connection_(connection), chunk_(queue.batch_size()) {
  for (int s = 0; s < queue.num_segments(); ++s) {
    chunk_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(chunk_, queue.region(s).config().num_bufs_));
  }
  packets.check(longest, queue.config().common_.name_);
}

void Sender::fill(Burst& burst) const noexcept {
  const int segments = queue_.num_segments();
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < burst.num_packets(); ++i) {
    const PacketSource::Packet packet = packets_[submitted_ + i];
    const std::uint8_t* from = packet.data;
    std::size_t rest = packet.length;
    for (int s = 0; s < segments; ++s) {
      const std::size_t n = std::min<std::size_t>(rest, queue_.region(s).buf_size());
      if (n > 0) std::memcpy(burst.pkts[s][i], from, n);
      burst.pkt_lens[s][i] = static_cast<std::uint32_t>(n);
      from += n;
      rest -= n;
    }
    burst.timestamps[i] = packet.launch;
    bytes += packet.length;
  }
  burst.hdr.hdr.nbytes = bytes;
  burst.connection_id = connection_;
}

Status Sender::refuse(Status status, const std::string& what, const char* why) {
  reason_ = "transmit queue '" + queue_.config().common_.name_ + "' " + what + " after " +
            std::to_string(submitted_) + " of " + std::to_string(packets_.size()) + " packets";
  if (why != nullptr) reason_.append(": ").append(why);
  return status;
}

std::optional<Status> Sender::step(Deadline& deadline, const Deadline& end) {
  // This queue is not notified when other queues free buffers.
  constexpr std::int64_t NAP_NS = 5'000'000;
  const std::uint64_t until = monotonic_ns() + Deadline::SLICE_NS;
  while (submitted_ < packets_.size()) {
    const auto n =
        static_cast<std::uint32_t>(std::min<std::size_t>(chunk_, packets_.size() - submitted_));
    if (const char* why = queue_.unreachable(connection_); why != nullptr)
      return refuse(Status::CONNECT_FAILURE, "rejected connection " + std::to_string(connection_),
                    why);
    Burst* burst = nullptr;
    Status status = queue_.allocate(n, &burst);
    if (status == Status::SUCCESS) {
      fill(*burst);
      status = queue_.send(burst);
      // A rejected burst is released here, except with NO_SPACE_AVAILABLE, where send() does it.
      if (status != Status::SUCCESS && status != Status::NO_SPACE_AVAILABLE) burst->release();
    }
    const bool full = status == Status::NO_FREE_BURST_BUFFERS ||
                      status == Status::NO_FREE_PACKET_BUFFERS ||
                      status == Status::NO_SPACE_AVAILABLE;
    if (status == Status::SUCCESS) {
      submitted_ += n;
      deadline.restart();
    } else if (!full) {
      return refuse(status, status == Status::NOT_READY ? "is closed" : "rejected the burst");
    } else {
      if (deadline.passed()) return status;
      // Returns early so that signal handlers can run.
      if (!queue_.wait_free(end.slice(deadline.slice(NAP_NS)))) return std::nullopt;
    }
    if (end.passed()) return Status::SUCCESS;
    if (monotonic_ns() >= until && submitted_ < packets_.size()) return std::nullopt;
  }
  return Status::SUCCESS;
}

}  // namespace daqiri::python

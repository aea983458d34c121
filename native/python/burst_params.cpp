#include "burst_params.h"

#include <memory>

#include "api/call.h"
#include "bindings.h"
#include "burst/burst.h"
#include "daqiri/error.h"
#include "lifecycle.h"

namespace daqiri::python {

namespace {

/// Stands for a burst that was freed, so that the functions of daqiri.h report the correct error.
BurstParams* freed_burst() noexcept {
  static auto* burst = std::make_unique<Burst>().release();
  return burst;
}

/// `burst.hdr` and `burst.hdr.hdr`. They show the header of a burst; objects created by the user
/// have their own values.
struct BurstCounts {
  py::object burst;
  BurstHeaderParams own;

  [[nodiscard]] BurstHeaderParams read() const {
    if (!burst) return own;
    const BurstHandle::Use use(burst.cast<BurstHandle*>());
    const api::Held held("burst.hdr", use.get());
    if (!held) throw Error(held.status(), last_error());
    return held->hdr.hdr;
  }

  void set_num_packets(std::size_t num) {
    if (!burst) {
      own.num_pkts = num;
      return;
    }
    const auto set = on_burst(&daqiri::set_num_packets);
    set(burst.cast<BurstHandle*>(), static_cast<std::int64_t>(num));
    if (read().num_pkts != num) throw Error(Status::INVALID_PARAMETER, last_error());
  }
};

struct BurstLevel {
  BurstCounts fields;
};

template <typename Member>
void field(py::class_<BurstCounts>& header, const char* name, Member BurstHeaderParams::* at) {
  header.def_property(
      name, [at](const BurstCounts& fields) { return fields.read().*at; },
      [at, name](BurstCounts& fields, Member value) {
        if (fields.burst) {
          throw py::attribute_error(std::string(name) +
                                    " of a burst is read-only; set_header sets port, queue, number "
                                    "of packets and segments");
        }
        fields.own.*at = value;
      });
}

}  // namespace

BurstHandle::~BurstHandle() {
  // In a forked child, the burst belongs to the parent.
  if (burst_ != nullptr && burst_ != freed_burst() && born_ == fork_count())
    free_all_packets_and_burst_rx(burst_);
}

std::uint64_t BurstHandle::fork_count() noexcept { return fork_generation(); }

BurstHandle::Use::Use(BurstHandle* handle) : handle_(handle) {
  if (handle == nullptr) return;
  if (handle->born_ != fork_count()) {
    handle_ = nullptr;
    throw Error(Status::NOT_READY,
                "the burst is of the process that this one was forked from; receive, send and free "
                "it there (multiprocessing: start method 'spawn')");
  }
  if (handle->mutex_.try_lock()) return;
  const GilRelease unlocked;
  handle->mutex_.lock();
}

BurstParams* BurstHandle::Use::take() const noexcept {
  if (handle_ == nullptr || handle_->burst_ == nullptr) return nullptr;
  return std::exchange(handle_->burst_, freed_burst());
}

void bind_burst_params(py::module_& m) {
  py::class_<BurstCounts> fields(m, "BurstHeaderParams", "Counts of a burst, `burst.hdr.hdr`.");
  fields.def(py::init<>());
  fields.def_property(
      "num_pkts", [](const BurstCounts& header) { return header.read().num_pkts; },
      &BurstCounts::set_num_packets);
  field(fields, "port_id", &BurstHeaderParams::port_id);
  field(fields, "q_id", &BurstHeaderParams::q_id);
  field(fields, "num_segs", &BurstHeaderParams::num_segs);
  field(fields, "nbytes", &BurstHeaderParams::nbytes);
  field(fields, "first_pkt_addr", &BurstHeaderParams::first_pkt_addr);
  field(fields, "max_pkt", &BurstHeaderParams::max_pkt);
  field(fields, "max_pkt_size", &BurstHeaderParams::max_pkt_size);
  field(fields, "gpu_pkt0_idx", &BurstHeaderParams::gpu_pkt0_idx);
  field(fields, "gpu_pkt0_addr", &BurstHeaderParams::gpu_pkt0_addr);
  field(fields, "burst_flags", &BurstHeaderParams::burst_flags);

  py::class_<BurstLevel>(m, "BurstHeader", "The level between a burst and its counts, `burst.hdr`.")
      .def(py::init<>())
      .def_property(
          "hdr", [](BurstLevel& header) -> BurstCounts& { return header.fields; },
          [](BurstLevel& header, const BurstCounts& value) { header.fields = value; });

  py::class_<BurstHandle>(m, "BurstParams", R"doc(A burst, for the functions of this module.

Created by `get_rx_burst` and `create_tx_burst_params`. A burst that was freed or sent is empty:
functions return a status other than SUCCESS, or 0.)doc")
      .def(py::init<>())
      .def_property_readonly("hdr", [](const py::object& burst) { return BurstLevel{{burst, {}}}; })
      .def_property("connection_id", on_burst(&get_connection_id), on_burst(&set_connection_id));
}

}  // namespace daqiri::python

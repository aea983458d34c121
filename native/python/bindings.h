/// The parts of the extension module.
#pragma once

#include <pybind11/pybind11.h>

namespace daqiri::python {

void bind_errors(pybind11::module_& m);
void bind_config(pybind11::module_& m);
void bind_flow_config(pybind11::module_& m);
void bind_session(pybind11::module_& m);
void bind_frames(pybind11::module_& m);
void bind_queues(pybind11::module_& m);
void bind_device_array(pybind11::module_& m);
void bind_burst(pybind11::module_& m);
void bind_recorder(pybind11::module_& m);
void bind_pcap(pybind11::module_& m);
void bind_frame_files(pybind11::module_& m);
void bind_packet_columns(pybind11::module_& m);
void bind_host_needs(pybind11::module_& m);

// The documented functions, for daqiri_ophyd.compat.
void bind_burst_params(pybind11::module_& m);
void bind_engine_calls(pybind11::module_& m);
void bind_packet_calls(pybind11::module_& m);
void bind_transmit_calls(pybind11::module_& m);
void bind_flow_calls(pybind11::module_& m);
void bind_other_calls(pybind11::module_& m);

}  // namespace daqiri::python

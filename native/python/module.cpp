// The extension module daqiri_ophyd._native. Users import daqiri_ophyd.engine or
// daqiri_ophyd.compat.
#include <string>

#include "bindings.h"
#include "daqiri/version.h"
#include "system/library.h"

// State shared between threads is atomic or guarded by a mutex.
PYBIND11_MODULE(_native, m, pybind11::mod_gil_not_used()) {
  // A program that has loaded a library of this name, and then Python, shares it with us.
  if (std::string(daqiri::library_version()) != DAQIRI_VERSION)
    throw pybind11::import_error("daqiri_ophyd is version " DAQIRI_VERSION
                                 ", and this process uses version " +
                                 std::string(daqiri::library_version()) + " of libdaqiri, from " +
                                 daqiri::library_path() + "; install the same version of both");
  m.doc() = "The packet engine. Private: import daqiri_ophyd.engine or daqiri_ophyd.compat.";
  using namespace daqiri::python;
  bind_errors(m);
  bind_config(m);
  bind_flow_config(m);
  bind_device_array(m);
  bind_burst(m);
  bind_frames(m);
  bind_queues(m);
  bind_recorder(m);
  bind_session(m);
  bind_pcap(m);
  bind_frame_files(m);
  bind_packet_columns(m);
  bind_host_needs(m);
  bind_burst_params(m);
  bind_engine_calls(m);
  bind_packet_calls(m);
  bind_transmit_calls(m);
  bind_flow_calls(m);
  bind_other_calls(m);
  m.def("version", [] { return std::string(DAQIRI_VERSION); });
}

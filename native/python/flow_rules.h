/// Flows that are changed while an engine runs.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "lifecycle.h"

namespace daqiri::python {

void bind_session_flows(pybind11::class_<OpenSession, std::shared_ptr<OpenSession>>& bound);

}  // namespace daqiri::python

/// Connections of socket streams.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "lifecycle.h"

namespace daqiri::python {

void bind_connections(pybind11::class_<OpenSession, std::shared_ptr<OpenSession>>& session);

}  // namespace daqiri::python

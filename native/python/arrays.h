/// numpy arrays that view engine memory, and arrays that packets are copied into.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace daqiri::python {

namespace py = pybind11;

/// A read-only array of `n` elements at `data`. `base` keeps the memory alive.
template <typename T>
py::array read_only_view(const T* data, std::size_t n, py::handle base) {
  // The constructor of pybind11 allocates twice, for shape and strides.
  const auto& numpy = py::detail::npy_api::get();
  auto shape = static_cast<Py_intptr_t>(n);
  auto array = py::reinterpret_steal<py::object>(
      numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, py::dtype::of<T>().release().ptr(), 1,
                                  &shape, nullptr, const_cast<T*>(data), 0, nullptr));
  if (!array || numpy.PyArray_SetBaseObject_(array.ptr(), base.inc_ref().ptr()) != 0)
    throw py::error_already_set();
  return py::reinterpret_steal<py::array>(array.release());
}

/// A capsule that owns and later deletes `value`.
template <typename T>
py::capsule owning_capsule(T value) {
  auto held = std::make_unique<T>(std::move(value));
  py::capsule capsule(held.get(), [](void* p) { delete static_cast<T*>(p); });
  static_cast<void>(held.release());
  return capsule;
}

/// A read-only array that takes ownership of a vector or another flat container, without a copy.
/// `As` must have the same size as the elements.
template <typename As, typename Vector>
py::array take_vector(Vector values) {
  static_assert(sizeof(As) == sizeof(*values.data()));
  const std::size_t n = values.size();
  const py::capsule base = owning_capsule(std::move(values));
  const auto* data = static_cast<const Vector*>(base.get_pointer())->data();
  return read_only_view(reinterpret_cast<const As*>(data), n, base);
}

/// The array that packets are written to: `out` after a check (its last axis may be longer), or a
/// new array of this shape.
py::array_t<std::uint8_t> gather_target(const py::object& out,
                                        const std::vector<std::size_t>& shape);

}  // namespace daqiri::python

/// Configuration structs as Python classes with read-only attributes.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/formats.h"

namespace daqiri::python {

namespace py = pybind11;

/// A class with read-only attributes, `==` and a repr that lists them.
template <typename T>
class Struct {
 public:
  Struct(py::module_& m, const char* name, const char* doc) : class_(m, name, doc) {
    class_.def("__eq__", [](const T& a, const T& b) { return a == b; }, py::is_operator());
    class_.attr("__hash__") = py::none();
  }

  /// A member without conversion; vectors become tuples.
  template <typename Member>
  Struct& member(const char* name, Member T::* at) {
    return value(name, [at](const T& of) { return of.*at; });
  }
  /// An enumeration, shown as the word in the configuration file.
  template <typename Enum>
  Struct& word(const char* name, Enum T::* at, config::Names names) {
    return value(name, [at, names](const T& of) { return config::text_of(names, of.*at); });
  }
  /// The value that `get` returns.
  template <typename Get>
  Struct& value(const char* name, Get get) {
    class_.def_property_readonly(name, [get](const T& of) { return as_python(get(of)); });
    names_.emplace_back(name);
    return *this;
  }

  /// Call last: it defines repr from the members above.
  py::class_<T>& finish() {
    class_.def("__repr__", [names = names_](const py::object& self) {
      std::string text = py::type::of(self).attr("__name__").template cast<std::string>() + "(";
      for (std::size_t i = 0; i < names.size(); ++i) {
        text += (i == 0 ? "" : ", ") + names[i] + "=" +
                py::repr(self.attr(names[i].c_str())).template cast<std::string>();
      }
      return text + ")";
    });
    return class_;
  }

 private:
  template <typename V>
  static py::object as_python(const std::vector<V>& values) {
    py::tuple items(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) items[i] = py::cast(values[i]);
    return items;
  }
  static py::object as_python(py::object value) { return value; }
  template <typename V>
  static py::object as_python(V value) {
    return py::cast(std::move(value));
  }

  py::class_<T> class_;
  std::vector<std::string> names_;
};

/// None if the configuration does not have the key.
template <typename V>
py::object optional_value(bool given, const V& value) {
  return given ? py::cast(value) : py::none();
}

/// None if the text is empty.
inline py::object given_text(const std::string& text) {
  return optional_value(!text.empty(), text);
}

}  // namespace daqiri::python

/// The bytes of any Python object that has some.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

namespace daqiri::python {

/// While it exists, the object cannot move or shrink them. Needs the interpreter lock at both ends.
class BufferBytes {
 public:
  /// Throws BufferError where they are not in one piece.
  explicit BufferBytes(const pybind11::handle& of) {
    if (PyObject_GetBuffer(of.ptr(), &view_, PyBUF_SIMPLE) != 0)
      throw pybind11::error_already_set();
  }
  BufferBytes(const BufferBytes&) = delete;
  BufferBytes& operator=(const BufferBytes&) = delete;
  ~BufferBytes() { PyBuffer_Release(&view_); }

  [[nodiscard]] const std::uint8_t* data() const noexcept {
    return static_cast<const std::uint8_t*>(view_.buf);
  }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

}  // namespace daqiri::python

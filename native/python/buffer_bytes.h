/// The bytes of a Python object that supports the buffer protocol.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

namespace daqiri::python {

/// Prevents the object from moving or shrinking its bytes. Construct and destroy it with the
/// interpreter lock held.
class BufferBytes {
 public:
  /// Throws BufferError if the bytes are not contiguous.
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

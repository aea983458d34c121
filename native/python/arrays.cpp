#include "arrays.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "daqiri/error.h"
#include "gil.h"

namespace daqiri::python {

std::size_t PacketTable::length(std::size_t packet) const noexcept {
  std::size_t sum = 0;
  for (std::size_t p = 0; p < pieces; ++p) sum += table[packet * pieces + p].length;
  return sum;
}

std::size_t PacketTable::longest() const noexcept {
  std::size_t most = 0;
  for (std::size_t i = 0; i < packets; ++i) most = std::max(most, length(i));
  return most;
}

std::size_t PacketTable::total() const noexcept {
  std::size_t sum = 0;
  for (const Piece& piece : table) sum += piece.length;
  return sum;
}

namespace {

std::uint8_t* append(std::uint8_t* to, const PacketTable& packets, std::size_t packet) noexcept {
  for (std::size_t p = 0; p < packets.pieces; ++p) {
    const PacketTable::Piece& piece = packets.table[packet * packets.pieces + p];
    if (piece.length == 0) continue;
    std::memcpy(to, piece.data, piece.length);
    to += piece.length;
  }
  return to;
}

}  // namespace

py::array_t<std::uint8_t> gather_target(const py::object& out,
                                        const std::vector<std::size_t>& shape) {
  if (out.is_none()) return py::array_t<std::uint8_t>(shape);
  const auto text = [](const auto& sizes, std::size_t n) {
    std::string joined;
    for (std::size_t i = 0; i < n; ++i) joined += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
    return "(" + joined + (n == 1 ? ",)" : ")");
  };
  const std::string wanted = "; gather needs C-contiguous, writable uint8 of shape " +
                             text(shape, shape.size()) + ", or a longer last axis";
  if (!py::isinstance<py::array>(out)) {
    throw Error(Status::INVALID_PARAMETER,
                "out is " + py::repr(py::type::of(out)).cast<std::string>() + wanted);
  }
  const auto array = py::reinterpret_borrow<py::array>(out);
  const auto ndim = static_cast<std::size_t>(array.ndim());
  bool fits = ndim == shape.size() && array.dtype().is(py::dtype::of<std::uint8_t>()) &&
              array.writeable() && (array.flags() & py::array::c_style) != 0;
  for (std::size_t d = 0; fits && d < ndim; ++d) {
    const auto have = static_cast<std::size_t>(array.shape()[d]);
    fits = d + 1 == ndim ? have >= shape[d] : have == shape[d];
  }
  if (!fits) {
    throw Error(Status::INVALID_PARAMETER, "out is " +
                                               std::string(array.writeable() ? "" : "read-only ") +
                                               py::str(array.dtype()).cast<std::string>() +
                                               " of shape " + text(array.shape(), ndim) + wanted);
  }
  return py::reinterpret_borrow<py::array_t<std::uint8_t>>(out);
}

py::array gather_rows(const PacketTable& packets, const py::object& out) {
  auto rows = gather_target(out, {packets.packets, packets.longest()});
  auto* base = rows.mutable_data();
  const auto width = static_cast<std::size_t>(rows.shape(1));
  const GilRelease unlocked;
  for (std::size_t i = 0; i < packets.packets; ++i) {
    std::uint8_t* row = base + i * width;
    const std::uint8_t* end = append(row, packets, i);
    const auto used = static_cast<std::size_t>(end - row);
    if (used < width) std::memset(row + used, 0, width - used);
  }
  return rows;
}

py::tuple gather_flat(const PacketTable& packets, const py::object& out) {
  const std::size_t total = packets.total();
  auto data = gather_target(out, {total});
  py::array_t<std::int64_t> offsets(static_cast<py::ssize_t>(packets.packets + 1));
  {
    std::uint8_t* const begin = data.mutable_data();
    std::int64_t* at = offsets.mutable_data();
    const GilRelease unlocked;
    std::uint8_t* to = begin;
    for (std::size_t i = 0; i < packets.packets; ++i) {
      at[i] = to - begin;
      to = append(to, packets, i);
    }
    at[packets.packets] = to - begin;
  }
  return py::make_tuple(data[py::slice(0, static_cast<py::ssize_t>(total), 1)], offsets);
}

}  // namespace daqiri::python

// Header fields of many packets as columns.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "daqiri/error.h"
#include "gil.h"
#include "net/headers.h"

namespace daqiri::python {

namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
using Offsets = py::array_t<std::int64_t, py::array::c_style>;
using Lengths = py::array_t<std::uint32_t, py::array::c_style>;

/// Packets parsed per block before their fields are stored in columns; both stay in the cache.
constexpr std::size_t BLOCK = 1024;

struct Block {
  std::array<PacketFields, BLOCK> fields;
  const std::int64_t* offsets;
  std::size_t packets;
};

struct Column {
  const char* name;
  py::array (*make)(std::size_t packets);
  /// Writes the elements from `first` on.
  void (*store)(const Block& block, void* column, std::size_t first);
};

template <auto FIELD>
struct Of {
  using T = std::remove_reference_t<decltype(std::declval<PacketFields>().*FIELD)>;
  static py::array make(std::size_t packets) {
    if constexpr (std::is_integral_v<T>) {
      return py::array_t<T>(static_cast<py::ssize_t>(packets));
    } else {
      return py::array_t<typename T::value_type>({packets, std::tuple_size_v<T>});
    }
  }
  static void store(const Block& block, void* column, std::size_t first) {
    T* to = static_cast<T*>(column) + first;
    for (std::size_t i = 0; i < block.packets; ++i) to[i] = block.fields[i].*FIELD;
  }
};

template <auto FIELD>
constexpr Column column(const char* name) {
  return {name, Of<FIELD>::make, Of<FIELD>::store};
}

py::array make_offsets(std::size_t packets) {
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(packets));
}
void store_offsets(const Block& block, void* column, std::size_t first) {
  auto* to = static_cast<std::int64_t*>(column) + first;
  for (std::size_t i = 0; i < block.packets; ++i)
    to[i] = block.offsets[i] + block.fields[i].payload_at;
}

constexpr std::array COLUMNS{
    column<&PacketFields::eth_src>("eth_src"),
    column<&PacketFields::eth_dst>("eth_dst"),
    column<&PacketFields::eth_type>("eth_type"),
    column<&PacketFields::vlan>("vlan"),
    column<&PacketFields::ip_version>("ip_version"),
    column<&PacketFields::ip_protocol>("ip_protocol"),
    column<&PacketFields::ip_ttl>("ip_ttl"),
    column<&PacketFields::ip_length>("ip_length"),
    column<&PacketFields::ipv4_src>("ipv4_src"),
    column<&PacketFields::ipv4_dst>("ipv4_dst"),
    column<&PacketFields::ipv6_src>("ipv6_src"),
    column<&PacketFields::ipv6_dst>("ipv6_dst"),
    column<&PacketFields::transport>("transport"),
    column<&PacketFields::src_port>("src_port"),
    column<&PacketFields::dst_port>("dst_port"),
    column<&PacketFields::udp_length>("udp_length"),
    column<&PacketFields::tcp_seq>("tcp_seq"),
    column<&PacketFields::tcp_flags>("tcp_flags"),
    Column{"payload_offset", make_offsets, store_offsets},
    column<&PacketFields::payload_length>("payload_length"),
};

const Column& column_named(const std::string& name) {
  const auto* found =
      std::find_if(COLUMNS.begin(), COLUMNS.end(), [&](const Column& c) { return c.name == name; });
  if (found != COLUMNS.end()) return *found;
  std::string known;
  for (const Column& c : COLUMNS) known += std::string(known.empty() ? "" : ", ") + c.name;
  throw Error(Status::INVALID_PARAMETER, "there is no column '" + name + "'; there are " + known);
}

/// `names` selects columns; empty for all.
py::dict packet_columns(const Bytes& data, std::uint32_t link_type, const Offsets& offsets,
                        const Lengths& lengths, const std::vector<std::string>& names) {
  if (!has_fields(link_type)) {
    throw Error(Status::INVALID_PARAMETER,
                "headers of link type " + std::to_string(link_type) +
                    " are not parsed; accepted are 1 (Ethernet), 101, 228 and 229 (IP), 113 "
                    "and 276 (Linux cooked)");
  }
  std::vector<const Column*> wanted;
  wanted.reserve(COLUMNS.size() + names.size());
  for (const std::string& name : names) wanted.push_back(&column_named(name));
  if (names.empty())
    for (const Column& c : COLUMNS) wanted.push_back(&c);

  const auto packets = static_cast<std::size_t>(offsets.size());
  py::dict columns;
  std::vector<void*> targets;
  targets.reserve(wanted.size());
  for (const Column* c : wanted) {
    py::array made = c->make(packets);
    targets.push_back(made.mutable_data());
    columns[c->name] = made;
  }
  std::size_t first = 0;
  Block block{};
  run_steps([&] {
    block.packets = std::min(BLOCK, packets - first);
    block.offsets = offsets.data() + first;
    for (std::size_t i = 0; i < block.packets; ++i) {
      block.fields[i] =
          parse_packet(data.data() + block.offsets[i], lengths.data()[first + i], link_type);
    }
    for (std::size_t c = 0; c < wanted.size(); ++c) wanted[c]->store(block, targets[c], first);
    first += block.packets;
    return first < packets;
  });
  return columns;
}

}  // namespace

void bind_packet_columns(py::module_& m) {
  m.def("packet_columns", &packet_columns, py::arg("data").noconvert(), py::arg("link_type"),
        py::arg("offsets").noconvert(), py::arg("lengths").noconvert(), py::arg("names"));
}

}  // namespace daqiri::python

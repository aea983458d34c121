/// The structs of DLPack (dlpack.h 1.0), a public binary interface for sharing memory between array
/// libraries.
#pragma once

#include <cstdint>

namespace daqiri::python::dlpack {

/// kDLCPU and kDLCUDA.
inline constexpr std::int32_t CPU = 1;
inline constexpr std::int32_t CUDA = 2;

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  /// In elements.
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// For consumers older than DLPack 1.0.
struct ManagedTensor {
  static constexpr const char* NAME = "dltensor";

  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct VersionedTensor {
  static constexpr const char* NAME = "dltensor_versioned";

  Version version;
  void* context;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};

static_assert(sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64 && sizeof(VersionedTensor) == 80);

}  // namespace daqiri::python::dlpack

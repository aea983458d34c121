#include "cuda/kernel.h"

#include <algorithm>
#include <cstddef>

#include "cuda/kernel_source.h"
#include "reorder/convert.h"
#include "reorder/module_layout.h"

namespace daqiri::cuda {

namespace {

/// OUTPUT in the source: bits of floats (17 for bf16), bytes of integers.
std::uint32_t output_of(ReorderDataType type) noexcept {
  switch (type) {
    case ReorderDataType::FP16:
      return 16;
    case ReorderDataType::BF16:
      return 17;
    case ReorderDataType::FP32:
      return 32;
    case ReorderDataType::FP64:
      return 64;
    default:
      return reorder::bits_of(type) / 8;
  }
}

/// Whether elements keep their bits, at most in another order.
bool keep_bits(const ReorderDataTypesConfig& types) noexcept {
  return reorder::bits_of(types.input_type_) == reorder::bits_of(types.output_type_) &&
         reorder::is_float(types.input_type_) == reorder::is_float(types.output_type_);
}

/// Whether elements are copied unchanged, as bytes.
bool stay(const ReorderDataTypesConfig& types) noexcept {
  return keep_bits(types) && (reorder::bits_of(types.input_type_) <= 8 ||
                              types.endianness_ != ReorderEndianness::NETWORK);
}

}  // namespace

Geometry Geometry::of(const ReorderDataTypesConfig& types, std::uint32_t payload) noexcept {
  // Measured on an H100 with payloads of 1024 and 8192 bytes: `gpu.py --sweep` of the benchmarks.
  constexpr std::uint32_t LONG = 4096;
  if (payload == 0) return {.threads = 64, .packets = 2, .in_flight = 1};
  if (payload >= LONG) return {.threads = 128, .packets = 2, .in_flight = 8};
  if (stay(types)) return {.threads = 32, .packets = 8, .in_flight = 2};
  return {.threads = 64, .packets = 4, .in_flight = 2};
}

std::string kernel_of(const ReorderConfig& config, const Geometry& geometry) {
  const ReorderDataTypesConfig& types = config.data_types_;
  const bool same = stay(types);
  const bool integers = keep_bits(types);
  const bool is_float = !integers && reorder::is_float(types.input_type_);
  const bool is_signed = !integers && !is_float && !reorder::is_unsigned(types.input_type_);
  const bool msb_first = reorder::is_packed(types.input_type_)
                             ? types.packing_ == ReorderPacking::MSB
                             : types.endianness_ == ReorderEndianness::NETWORK;
  const std::uint32_t bytes = std::max(reorder::bits_of(types.output_type_) / 8, 1U);
  std::byte fill[8]{};
  static_cast<void>(reorder::encode(config.fill_, types.output_type_, fill));
  // The element, repeated to 8 bytes.
  std::uint64_t value = 0;
  for (std::uint32_t i = 8; i-- > 0;)
    value = value << 8U | std::to_integer<std::uint64_t>(fill[i % bytes]);
  std::string source;
  const auto define = [&](const char* name, const std::string& text) {
    source.append("#define ").append(name).append(" ").append(text).append("\n");
  };
  define("SAME", same ? "1" : "0");
  define("INPUT_BITS", std::to_string(same ? 8 : reorder::bits_of(types.input_type_)));
  define("INPUT_SIGNED", is_signed ? "1" : "0");
  define("INPUT_FLOAT", is_float ? "1" : "0");
  define("MSB_FIRST", msb_first ? "1" : "0");
  define("OUTPUT", std::to_string(same ? 1 : integers ? bytes : output_of(types.output_type_)));
  define("OUTPUT_BYTES", std::to_string(same ? 1 : bytes));
  define("FILL", std::to_string(value) + "ull");
  define("FILL_BYTES", std::to_string(bytes));
  // Elements of modules may be apart.
  define("MODULES", config.frame_.modules_.shape_.empty() ? "0" : "1");
  define("ELEMENT_BYTES", std::to_string(same ? reorder::element_bytes_of(config) : bytes));
  define("THREADS", std::to_string(geometry.threads));
  define("PACKETS", std::to_string(geometry.packets));
  define("IN_FLIGHT", std::to_string(geometry.in_flight));
  return source + KERNEL_SOURCE;
}

Kernel::Kernel(const Context& context, const ReorderConfig& config, const std::string& what,
               const Geometry& geometry)
    : geometry_(geometry), module_(context, kernel_of(config, geometry), "place", what) {}

Result Kernel::launch(const Functions& call, const Copy* copies, std::size_t count,
                      void* stream) const noexcept {
  auto address = reinterpret_cast<std::uintptr_t>(copies);
  auto number = static_cast<unsigned>(count);
  void* arguments[] = {&address, &number};
  const unsigned blocks = (number + geometry_.packets - 1) / geometry_.packets;
  return call.launch(module_.function(), blocks, 1, 1, geometry_.threads * geometry_.packets, 1, 1,
                     0, stream, static_cast<void**>(arguments), nullptr);
}

Result PinnedLaunch::make(const Context& context, std::size_t more) noexcept {
  const Functions& call = context.driver().call();
  const Result result =
      call.allocate_host(memory.out(context), sizeof(Copy) * MOST_COPIES + more, HOST_FLAGS);
  return result == 0 ? call.make_event(event.out(context), EVENT_FLAGS) : result;
}

}  // namespace daqiri::cuda

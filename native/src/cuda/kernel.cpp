#include "cuda/kernel.h"

#include <algorithm>
#include <cstddef>

#include "reorder/convert.h"

namespace daqiri::cuda {

namespace {

/// Results are those of reorder/convert.cpp, bit for bit.
constexpr const char* SOURCE = R"(
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Copy {
  u64 to;
  u64 from;
  u64 bytes;
};

__device__ void fill(u8* to, u64 bytes) {
  for (u64 i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = (u8)(FILL >> 8 * (i % OUTPUT_BYTES));
}

#if INPUT_BITS == 0

// Whole words are loaded, and shifted to where the output's words begin.
__device__ void move(u8* to, const u8* from, u64 bytes) {
  const u64 before = (16 - (u64)to % 16) % 16;
  const u64 head = before < bytes ? before : bytes;
  for (u64 i = threadIdx.x; i < head; i += blockDim.x) to[i] = from[i];
  to += head;
  from += head;
  bytes -= head;
  const u32 shift = 8 * (u32)((u64)from % 4);
  const u32* words = (const u32*)(from - (u64)from % 4);
  for (u64 i = threadIdx.x; i < bytes / 16; i += blockDim.x) {
    const u32* in = words + 4 * i;
    const u32 last = shift == 0 ? 0 : in[4];
    uint4 out;
    out.x = __funnelshift_r(in[0], in[1], shift);
    out.y = __funnelshift_r(in[1], in[2], shift);
    out.z = __funnelshift_r(in[2], in[3], shift);
    out.w = __funnelshift_r(in[3], last, shift);
    ((uint4*)to)[i] = out;
  }
  for (u64 i = bytes / 16 * 16 + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

#else

#if INPUT_SIGNED
typedef int Value;
#else
typedef u32 Value;
#endif

__device__ Value load(const u8* from, u64 i) {
#if INPUT_BITS == 4
  // The high nibble first.
  return (int)((u32)from[i / 2] << (i % 2 == 0 ? 24 : 28)) >> 28;
#else
  u32 bits = 0;
  for (int b = 0; b < INPUT_BITS / 8; ++b) {
    const u32 byte = from[i * (INPUT_BITS / 8) + b];
    bits |= byte << (NETWORK ? INPUT_BITS - 8 - 8 * b : 8 * b);
  }
  return (Value)(bits << (32 - INPUT_BITS)) >> (32 - INPUT_BITS);
#endif
}

#if OUTPUT == 16
typedef u16 Element;
// What a float does not hold exactly is beyond the largest number.
__device__ Element convert(Value value) {
  u16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"((float)value));
  return half;
}
#elif OUTPUT == 17
typedef u16 Element;
// To a float first, rounded to odd: so the result is rounded once.
__device__ Element convert(Value value) {
#if INPUT_SIGNED
  const float cut = __int2float_rz(value);
#else
  const float cut = __uint2float_rz(value);
#endif
  u32 bits = __float_as_uint(cut);
  if ((long long)cut != (long long)value) bits |= 1;
  return (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
#elif OUTPUT == 32
typedef float Element;
__device__ Element convert(Value value) { return (float)value; }
#elif OUTPUT == 64
typedef double Element;
__device__ Element convert(Value value) { return (double)value; }
#elif OUTPUT == 1
typedef u8 Element;
__device__ Element convert(Value value) { return (u8)value; }
#elif OUTPUT == 2
typedef u16 Element;
__device__ Element convert(Value value) { return (u16)value; }
#else
typedef u32 Element;
__device__ Element convert(Value value) { return (u32)value; }
#endif


// Of one thread at once: whole words of input, and 16 bytes or more of output.
#define ELEMENTS (16 / OUTPUT_BYTES > 32 / INPUT_BITS ? 16 / OUTPUT_BYTES : 32 / INPUT_BITS)
#define WORDS (ELEMENTS * INPUT_BITS / 32)

__device__ Value element(const u32* words, int i) {
#if INPUT_BITS == 32
  return (Value)(NETWORK ? __byte_perm(words[i], 0, 0x0123) : words[i]);
#elif INPUT_BITS == 16
  const u32 word = NETWORK ? __byte_perm(words[i / 2], 0, 0x2301) : words[i / 2];
  return (Value)(word << (i % 2 == 0 ? 16 : 0)) >> 16;
#elif INPUT_BITS == 8
  return (Value)(words[i / 4] << (24 - 8 * (i % 4))) >> 24;
#else
  // The high nibble first.
  return (Value)(words[i / 8] << (24 - 8 * (i % 8 / 2) + 4 * (i % 2))) >> 28;
#endif
}

__device__ void move(u8* to, const u8* from, u64 bytes) {
  const u64 elements = bytes * 8 / INPUT_BITS;
  u64 done = 0;
  if ((u64)to % 16 == 0) {
    const u32 shift = 8 * (u32)((u64)from % 4);
    const u32* in = (const u32*)(from - (u64)from % 4);
    done = elements / ELEMENTS;
    for (u64 i = threadIdx.x; i < done; i += blockDim.x) {
      u32 words[WORDS];
      u32 low = in[i * WORDS];
#pragma unroll
      for (int w = 0; w < WORDS; ++w) {
        const u32 high = w + 1 < WORDS || shift != 0 ? in[i * WORDS + w + 1] : 0;
        words[w] = __funnelshift_r(low, high, shift);
        low = high;
      }
      union {
        Element elements[ELEMENTS];
        uint4 whole[ELEMENTS * OUTPUT_BYTES / 16];
      } out;
#pragma unroll
      for (int e = 0; e < ELEMENTS; ++e) out.elements[e] = convert(element(words, e));
#pragma unroll
      for (int w = 0; w < ELEMENTS * OUTPUT_BYTES / 16; ++w)
        ((uint4*)to)[i * (ELEMENTS * OUTPUT_BYTES / 16) + w] = out.whole[w];
    }
    done *= ELEMENTS;
  }
  for (u64 i = done + threadIdx.x; i < elements; i += blockDim.x)
    ((Element*)to)[i] = convert(load(from, i));
}

#endif

extern "C" __global__ void place(const Copy* copies) {
  const Copy copy = copies[blockIdx.x];
  if (copy.from == 0) return fill((u8*)copy.to, copy.bytes);
  move((u8*)copy.to, (const u8*)copy.from, copy.bytes);
}
)";

bool is_signed(ReorderDataType type) noexcept {
  return type == ReorderDataType::INT4 || type == ReorderDataType::INT8 ||
         type == ReorderDataType::INT16 || type == ReorderDataType::INT32;
}

/// OUTPUT of the source: bits of floats (of bf16: 17), bytes of integers.
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

}  // namespace

std::string kernel_of(const ReorderConfig& config) {
  const ReorderDataTypesConfig& types = config.data_types_;
  std::byte fill[8]{};
  static_cast<void>(reorder::encode(config.fill_, types.output_type_, fill));
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8U | std::to_integer<std::uint64_t>(fill[i]);
  std::string source;
  const auto define = [&](const char* name, const std::string& text) {
    source.append("#define ").append(name).append(" ").append(text).append("\n");
  };
  const std::uint32_t bits = reorder::bits_of(types.input_type_);
  define("INPUT_BITS", std::to_string(bits));
  define("INPUT_SIGNED", is_signed(types.input_type_) ? "1" : "0");
  define("NETWORK", types.endianness_ == ReorderEndianness::NETWORK ? "1" : "0");
  define("OUTPUT", std::to_string(output_of(types.output_type_)));
  define("FILL", std::to_string(value) + "ull");
  const std::uint32_t output_bits = bits == 0 ? 8 : reorder::bits_of(types.output_type_);
  define("OUTPUT_BYTES", std::to_string(std::max(output_bits / 8, 1U)));
  return source + SOURCE;
}

}  // namespace daqiri::cuda

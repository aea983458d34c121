/// CUDA C++ source of the kernel. Constants that differ between plans are defined before it
/// (kernel.cpp).
#pragma once

namespace daqiri::cuda {

/// Results are bit-identical to those of reorder/convert.cpp.
///
/// A packet's threads produce 16 bytes of output at a time, a *piece*, which one store writes. The
/// input of a piece is loaded in aligned units, wherever it begins; if it does not begin with a
/// unit, one more is loaded, and all are shifted. Each loaded unit contains a byte of the payload,
/// so nothing outside the packet's buffer is read: the ends of the buffer are aligned, too.
inline constexpr const char* KERNEL_SOURCE = R"(
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Copy {
  u64 to;
  u64 from;
  u64 bytes;
  long long step;
};

// Number of elements before the output is aligned to 16 bytes.
__device__ u64 ahead(const u8* to, int bytes, u64 elements) {
  const u64 wanted = (16 - (u64)to % 16) % 16 / bytes;
  return wanted < elements ? wanted : elements;
}

__device__ void fill(u8* to, u64 bytes, u32 thread) {
  const u64 before = ahead(to, FILL_BYTES, bytes / FILL_BYTES) * FILL_BYTES;
  const u64 pieces = (bytes - before) / 16;
  const uint4 whole = {(u32)FILL, (u32)(FILL >> 32), (u32)FILL, (u32)(FILL >> 32)};
  for (u64 i = thread; i < pieces; i += THREADS) __stcs((uint4*)(to + before) + i, whole);
  for (u64 i = thread; i < before; i += THREADS) to[i] = (u8)(FILL >> 8 * (i % 8));
  for (u64 i = before + 16 * pieces + thread; i < bytes; i += THREADS)
    to[i] = (u8)(FILL >> 8 * ((i - before) % 8));
}

// An integer, or the bits of a floating-point number, which are not signed.
#if INPUT_BITS == 64
typedef u64 Bits;
#define VALUE_BITS 64
#if INPUT_SIGNED
typedef long long Value;
#else
typedef u64 Value;
#endif
#else
typedef u32 Bits;
#define VALUE_BITS 32
#if INPUT_SIGNED
typedef int Value;
#else
typedef u32 Value;
#endif
#endif

// Loads an element at any address, from the bytes that have bits of it. MSB_FIRST: the order of
// packed elements, and of bytes.
__device__ Value load(const u8* from, u64 i) {
  const u64 first = i * INPUT_BITS;
  const u32 before = (u32)(first % 8);
  const int bytes = (before + INPUT_BITS + 7) / 8;
  Bits bits = 0;
  for (int b = 0; b < bytes; ++b) {
    const Bits byte = from[first / 8 + b];
    bits = MSB_FIRST ? bits << 8 | byte : bits | byte << 8 * b;
  }
  bits >>= MSB_FIRST ? 8 * bytes - before - INPUT_BITS : before;
  return (Value)(bits << (VALUE_BITS - INPUT_BITS)) >> (VALUE_BITS - INPUT_BITS);
}

#if INPUT_FLOAT
// Makes the bits that a CPU makes: a NaN keeps its sign and its fraction, and is quiet.
__device__ float single_of(Value bits) {
#if INPUT_BITS == 16
  const u32 magnitude = (u32)bits & 0x7FFF;
  const u32 sign = ((u32)bits & 0x8000) << 16;
  if (magnitude >= 0x7C00)
    return __uint_as_float(sign | 0x7F800000 | magnitude << 13 | (magnitude > 0x7C00 ? 0x400000 : 0));
  const u32 shifted = (magnitude << 13) + (112 << 23);
  const float small = __uint_as_float(shifted + (1 << 23)) - 6.103515625e-05f;  // 2^-14
  return __uint_as_float(sign | (magnitude < 0x400 ? __float_as_uint(small) : shifted));
#else
  return __uint_as_float((u32)bits);
#endif
}
__device__ double double_of(Value bits) {
  const float single = single_of(bits);
  const u32 of_single = __float_as_uint(single);
  const u32 fraction = of_single & 0x7FFFFF;
  union {
    u64 bits;
    double value;
  } out;
  out.value = single;
  if ((of_single >> 23 & 0xFF) == 0xFF)
    out.bits = (u64)(of_single >> 31) << 63 | 0x7FFull << 52 | (u64)fraction << 29 |
               (u64)(fraction != 0) << 51;
  return out.value;
}
#elif INPUT_BITS <= 16
// An exact conversion by an addition: GPUs convert at a quarter of its rate. 2^23 + 2^15 has these
// bits.
__device__ float exact(Value value) {
  return __uint_as_float(0x4B008000 + (u32)value) - 8421376.0f;
}
#else
__device__ float exact(Value value) { return (float)value; }
#endif

#if INPUT_FLOAT && OUTPUT == 32
typedef float Element;
__device__ Element convert(Value value) { return single_of(value); }
#elif INPUT_FLOAT
typedef double Element;
__device__ Element convert(Value value) { return double_of(value); }
#elif OUTPUT == 16
typedef u16 Element;
// Integers that a float cannot hold exactly exceed the largest number of fp16.
__device__ Element convert(Value value) {
  u16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(exact(value)));
  return half;
}
#elif OUTPUT == 17
typedef u16 Element;
// Rounds to odd in a float first, so that the result is rounded only once.
__device__ Element convert(Value value) {
#if INPUT_BITS <= 24
  u32 bits = __float_as_uint(exact(value));
#elif INPUT_BITS == 64 && INPUT_SIGNED
  const float cut = __ll2float_rz(value);
  u32 bits = __float_as_uint(cut) | (__float2ll_rz(cut) != value);
#elif INPUT_BITS == 64
  const float cut = __ull2float_rz(value);
  u32 bits = __float_as_uint(cut) | (__float2ull_rz(cut) != value);
#elif INPUT_SIGNED
  const float cut = __int2float_rz(value);
  u32 bits = __float_as_uint(cut) | (__float2int_rz(cut) != value);
#else
  const float cut = __uint2float_rz(value);
  u32 bits = __float_as_uint(cut) | (__float2uint_rz(cut) != value);
#endif
  return (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
#elif OUTPUT == 32
typedef float Element;
__device__ Element convert(Value value) { return exact(value); }
#elif OUTPUT == 64
typedef double Element;
__device__ Element convert(Value value) { return (double)value; }
#elif OUTPUT == 1
typedef u8 Element;
__device__ Element convert(Value value) { return (u8)value; }
#elif OUTPUT == 2
typedef u16 Element;
__device__ Element convert(Value value) { return (u16)value; }
#elif OUTPUT == 4
typedef u32 Element;
__device__ Element convert(Value value) { return (u32)value; }
#else
typedef u64 Element;
__device__ Element convert(Value value) { return (u64)value; }
#endif

#if INPUT_BITS == 4 || (INPUT_BITS % 8 == 0 && INPUT_BITS != 24)
#define ELEMENTS (16 / OUTPUT_BYTES)
#define PIECE (ELEMENTS * INPUT_BITS / 8)
#if PIECE >= 16
typedef uint4 Unit;
#elif PIECE == 8
typedef uint2 Unit;
#elif PIECE == 4
typedef u32 Unit;
#elif PIECE == 2
typedef u16 Unit;
#else
typedef u8 Unit;
#endif
#define UNITS (PIECE / (int)sizeof(Unit))
#define WORDS ((PIECE + 3) / 4)

__device__ Value element(const u32* words, int i) {
#if INPUT_BITS == 64
  const u32 first = words[2 * i], second = words[2 * i + 1];
  return (Value)(MSB_FIRST ? (u64)__byte_perm(first, 0, 0x0123) << 32 | __byte_perm(second, 0, 0x0123)
                           : (u64)second << 32 | first);
#elif INPUT_BITS == 32
  return (Value)(MSB_FIRST ? __byte_perm(words[i], 0, 0x0123) : words[i]);
#elif INPUT_BITS == 16
  const u32 word = MSB_FIRST ? __byte_perm(words[i / 2], 0, 0x2301) : words[i / 2];
  return (Value)(word << (i % 2 == 0 ? 16 : 0)) >> 16;
#elif INPUT_BITS == 8
  return (Value)(words[i / 4] << (24 - 8 * (i % 4))) >> 24;
#else
  const int nibble = MSB_FIRST ? 1 - i % 2 : i % 2;
  return (Value)(words[i / 8] << (28 - 8 * (i % 8 / 2) - 4 * nibble)) >> 28;
#endif
}

__device__ uint4 made_of(const u32* words) {
  union {
    Element elements[ELEMENTS];
    uint4 whole;
  } out;
#if SAME
  out.whole = *(const uint4*)words;
#else
#pragma unroll
  for (int e = 0; e < ELEMENTS; ++e) out.elements[e] = convert(element(words, e));
#endif
  return out.whole;
}

// `APART`: the input begins within a unit, after `SKIP` words and `shift` bits.
template <bool APART, int SKIP>
__device__ void move_pieces(u8* to, const u8* from, u32 pieces, u32 thread) {
  const Unit* const in = (const Unit*)(from - (u64)from % sizeof(Unit));
  const u32 shift = 8 * (u32)((u64)from % 4);
  for (u32 first = thread; first < pieces; first += THREADS * IN_FLIGHT) {
    union {
      Unit units[UNITS + APART];
      u32 words[((UNITS + APART) * sizeof(Unit) + 3) / 4];
    } window[IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; ++k) {
      const u32 piece = first + k * THREADS;
      if (piece >= pieces) continue;
#pragma unroll
      for (int u = 0; u < UNITS + APART; ++u)
        window[k].units[u] = __ldcs(in + (u64)piece * UNITS + u);
    }
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; ++k) {
      const u32 piece = first + k * THREADS;
      if (piece >= pieces) continue;
      union {
        u32 words[WORDS];
        uint4 aligned;
      } input;
#if PIECE < 4
      input.words[0] = window[k].words[0] >> (APART ? 8 : 0);
#else
#pragma unroll
      for (int w = 0; w < WORDS; ++w) {
        input.words[w] = window[k].words[w + SKIP];
        if (APART)
          input.words[w] = __funnelshift_r(input.words[w], window[k].words[w + SKIP + 1], shift);
      }
#endif
      __stcs((uint4*)to + piece, made_of(input.words));
    }
  }
}

__device__ void move(u8* to, const u8* from, u64 bytes, u32 thread) {
  const u64 elements = bytes * 8 / INPUT_BITS;
  const u64 before = ahead(to, OUTPUT_BYTES, elements);
#if INPUT_BITS == 4
  // A row of a module may begin such that pieces begin within a byte.
  if (before % 2 != 0) {
    for (u64 i = thread; i < elements; i += THREADS) ((Element*)to)[i] = convert(load(from, i));
    return;
  }
#endif
  const u32 pieces = (u32)((elements - before) / ELEMENTS);
  u8* const out = to + before * OUTPUT_BYTES;
  const u8* const in = from + before * INPUT_BITS / 8;
  const u32 apart = (u32)((u64)in % sizeof(Unit));
  if (apart == 0) {
    move_pieces<false, 0>(out, in, pieces, thread);
#if PIECE > 1
  } else if (apart < 4) {
    move_pieces<true, 0>(out, in, pieces, thread);
#endif
#if PIECE >= 8
  } else if (apart < 8) {
    move_pieces<true, 1>(out, in, pieces, thread);
#endif
#if PIECE >= 16
  } else if (apart < 12) {
    move_pieces<true, 2>(out, in, pieces, thread);
  } else {
    move_pieces<true, 3>(out, in, pieces, thread);
#endif
  }
  for (u64 i = thread; i < before; i += THREADS) ((Element*)to)[i] = convert(load(from, i));
  for (u64 i = before + (u64)pieces * ELEMENTS + thread; i < elements; i += THREADS)
    ((Element*)to)[i] = convert(load(from, i));
}
#else
// Elements that no unit has a whole number of: one after the other.
__device__ void move(u8* to, const u8* from, u64 bytes, u32 thread) {
  const u64 elements = bytes * 8 / INPUT_BITS;
  for (u64 i = thread; i < elements; i += THREADS) ((Element*)to)[i] = convert(load(from, i));
}
#endif

#if MODULES
// Elements that are `step` apart in the output.
__device__ void place_apart(u8* to, const u8* from, u64 bytes, long long step, u32 thread) {
#if SAME
  const u64 elements = bytes / ELEMENT_BYTES;
#else
  const u64 elements = bytes * 8 / INPUT_BITS;
#endif
  for (u64 i = thread; i < elements; i += THREADS) {
    u8* const at = to + (long long)i * step * ELEMENT_BYTES;
#if SAME
    for (int b = 0; b < ELEMENT_BYTES; ++b) at[b] = from[i * ELEMENT_BYTES + b];
#else
    *(Element*)at = convert(load(from, i));
#endif
  }
}

__device__ void fill_apart(u8* to, u64 bytes, long long step, u32 thread) {
  for (u64 i = thread; i < bytes / ELEMENT_BYTES; i += THREADS) {
    for (int b = 0; b < ELEMENT_BYTES; ++b)
      to[(long long)i * step * ELEMENT_BYTES + b] = (u8)(FILL >> 8 * (b % FILL_BYTES));
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS* PACKETS) place(const Copy* copies, u32 count) {
  const u32 number = blockIdx.x * PACKETS + threadIdx.x / THREADS;
  if (number >= count) return;
  const Copy copy = copies[number];
  const u32 thread = threadIdx.x % THREADS;
#if MODULES
  if (copy.step != 1 && copy.from == 0)
    return fill_apart((u8*)copy.to, copy.bytes, copy.step, thread);
  if (copy.step != 1)
    return place_apart((u8*)copy.to, (const u8*)copy.from, copy.bytes, copy.step, thread);
#endif
  if (copy.from == 0) return fill((u8*)copy.to, copy.bytes, thread);
  move((u8*)copy.to, (const u8*)copy.from, copy.bytes, thread);
}
)";

}  // namespace daqiri::cuda

/// Kernels as other programs write them: for packets at any addresses, with the offset and length
/// of the payload as arguments.
#pragma once

namespace bench {

/// Requires the macros THREADS (per packet) and PACKETS (per block). Payloads are copied, or
/// converted from big-endian int16 to fp32.
inline constexpr const char* GENERAL_SOURCE = R"(
typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;

__device__ bool packet(u32 count, u32& number, u32& thread) {
  number = blockIdx.x * PACKETS + threadIdx.x / THREADS;
  thread = threadIdx.x % THREADS;
  return number < count;
}

extern "C" __global__ void gather(u8* frame, const u8* const* packets, const u32* slots, u32 count,
                                  u32 offset, u32 length) {
  u32 number, thread;
  if (!packet(count, number, thread)) return;
  const u8* from = packets[number] + offset;
  u8* to = frame + (u64)slots[number] * length;
  const u64 both = (u64)from | (u64)to | length;
  if (both % 16 == 0) {
    for (u32 i = thread; i < length / 16; i += THREADS) ((uint4*)to)[i] = ((const uint4*)from)[i];
  } else if (both % 4 == 0) {
    for (u32 i = thread; i < length / 4; i += THREADS) ((u32*)to)[i] = ((const u32*)from)[i];
  } else if (both % 2 == 0) {
    for (u32 i = thread; i < length / 2; i += THREADS)
      ((unsigned short*)to)[i] = ((const unsigned short*)from)[i];
  } else {
    for (u32 i = thread; i < length; i += THREADS) to[i] = from[i];
  }
}

extern "C" __global__ void convert(u8* frame, const u8* const* packets, const u32* slots, u32 count,
                                   u32 offset, u32 length) {
  u32 number, thread;
  if (!packet(count, number, thread)) return;
  const u8* from = packets[number] + offset;
  float* to = (float*)(frame + (u64)slots[number] * length * 2);
  for (u32 i = thread; i < length / 2; i += THREADS)
    to[i] = (float)(short)(from[2 * i] << 8 | from[2 * i + 1]);
}
)";

}  // namespace bench

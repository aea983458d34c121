/* Before the source of a kernel: what CUDA C++ has, on this host, one thread after the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define __device__ static
#define __global__
#define __launch_bounds__(threads)
/* The only instruction that is written as such. */
#define asm(...) half = half_of(exact(value))

struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
static struct {
  unsigned x;
} threadIdx, blockIdx, blockDim;
/* The payload that is read. */
static unsigned long long first_byte, end_byte;

static unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
static float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
/* Of integers. */
static unsigned short half_of(float value) {
  const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000;
  if (bits << 1 == 0) return sign;
  const unsigned half = ((bits & 0x7FFFFFFF) + 0xFFF + (bits >> 13 & 1) - (112 << 23)) >> 13;
  return sign | (half > 0x7C00 ? 0x7C00 : half);
}
static float to_zero(long double exact) {
  const float near = (float)exact;
  return fabsl((long double)near) > fabsl(exact) ? nextafterf(near, 0) : near;
}
static float __int2float_rz(int value) { return to_zero(value); }
static float __uint2float_rz(unsigned value) { return to_zero(value); }
static int __float2int_rz(float value) { return (int)value; }
static unsigned __float2uint_rz(float value) { return (unsigned)value; }
static float __ll2float_rz(long long value) { return to_zero(value); }
static float __ull2float_rz(unsigned long long value) { return to_zero(value); }
static long long __float2ll_rz(float value) { return (long long)value; }
static unsigned long long __float2ull_rz(float value) { return (unsigned long long)value; }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return ((unsigned long long)high << 32 | low) >> (shift & 31);
}
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i)
    out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return out;
}
/* Aligned, and with a byte of the payload. */
template <typename T>
T __ldcs(const T* from) {
  const unsigned long long at = (unsigned long long)from;
  if (at % sizeof(T) != 0 || at + sizeof(T) <= first_byte || at >= end_byte) abort();
  return *from;
}
template <typename T>
void __stcs(T* to, T value) {
  if ((unsigned long long)to % sizeof(T) != 0) abort();
  *to = value;
}
/* A kernel of an application, by the types of its parameters. */
template <int...>
struct Places {};
template <int N, int... At>
struct UpTo : UpTo<N - 1, N - 1, At...> {};
template <int... At>
struct UpTo<0, At...> {
  typedef Places<At...> type;
};
template <typename... P, int... At>
void run_threads(void (*kernel)(P...), unsigned blocks, unsigned threads, void** arguments,
                 Places<At...>) {
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(*(P*)arguments[At]...);
}
template <typename... P>
void run_frame_kernel(void (*kernel)(P...), unsigned blocks, unsigned threads, void** arguments) {
  blockDim.x = threads;
  run_threads(kernel, blocks, threads, arguments, typename UpTo<sizeof...(P)>::type());
}
#ifdef THREADS
struct Copy;
extern "C" void place(const Copy* copies, unsigned count);
/* One block, of so many threads. */
extern "C" void run_block(const Copy* copies, unsigned count, unsigned block, unsigned threads) {
  const unsigned packets = threads / THREADS;
  blockIdx.x = block;
  for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
    const unsigned number = block * packets + threadIdx.x / THREADS;
    if (number < count) {
      const unsigned long long* copy = (const unsigned long long*)copies + 4 * number;
      first_byte = copy[1];
      end_byte = copy[1] + copy[2];
    }
    place(copies, count);
  }
}
#endif

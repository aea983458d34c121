#include "cuda/means_kernel.h"

namespace daqiri::cuda {

namespace {

/// Per block.
constexpr unsigned MEANS_THREADS = 256;

/// Follows the definition of the pixel type. Each thread computes one mean. It adds in the order of
/// memory/block_means.cpp and multiplies only by powers of two, so that fused multiply-adds give
/// the same result.
constexpr const char* MEANS_SOURCE = R"(
typedef unsigned int u32;
typedef unsigned long long u64;

#if HALF
__device__ float value_of(Pixel bits) {
  const u32 exponent = bits & 0x7C00u, rest = (bits & 0x7FFFu) << 13;
  const float size = exponent == 0 ? (float)(bits & 0x3FFu) * 0x1p-24f
                     : exponent == 0x7C00u ? __uint_as_float(rest + (224u << 23))
                                           : __uint_as_float(rest + (112u << 23));
  return bits & 0x8000u ? -size : size;
}
#elif BFLOAT
__device__ float value_of(Pixel bits) { return __uint_as_float((u32)bits << 16); }
#else
__device__ Pixel value_of(Pixel pixel) { return pixel; }
#endif

#if LONG
struct Sum {
  long long upper;
  u64 lower;
};
__device__ void add(Sum& sum, Pixel pixel) {
  sum.upper += (long long)(pixel >> 32);
  sum.lower += (u32)pixel;
}
__device__ double total(const Sum& sum) {
  return (double)sum.upper * 0x1p32 + (double)sum.lower;
}
#else
__device__ void add(Sum& sum, Pixel pixel) { sum += value_of(pixel); }
__device__ double total(Sum sum) { return (double)sum; }
#endif

extern "C" __global__ void means(const Pixel* frame, float* out, u64 number, u32 rows, u32 columns,
                                 u32 binning) {
  const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= number) return;
  const u64 wide = columns / binning, high = rows / binning;
  const u64 column = i % wide, row = i / wide % high, image = i / wide / high;
  const Pixel* line = frame + (image * rows + row * binning) * columns + column * binning;
  Sum sum = {};
  for (u32 y = 0; y < binning; ++y, line += columns)
    for (u32 x = 0; x < binning; ++x) add(sum, line[x]);
  const float mean = (float)(total(sum) / ((double)binning * binning));
  out[i] = mean == mean ? mean : __uint_as_float(0x7FC00000u);
}
)";

using Kind = memory::Pixels::Kind;

const char* type_of(const memory::Pixels& pixels) noexcept {
  const bool has_sign = pixels.kind == Kind::SIGNED;
  switch (pixels.bytes) {
    case 1:
      return has_sign ? "signed char" : "unsigned char";
    case 2:
      return has_sign ? "short" : "unsigned short";
    case 4:
      if (pixels.kind == Kind::FLOAT) return "float";
      return has_sign ? "int" : "unsigned int";
    default:
      if (pixels.kind == Kind::FLOAT) return "double";
      return has_sign ? "long long" : "unsigned long long";
  }
}

std::string source_of(const memory::Pixels& pixels) {
  const bool floats = pixels.kind == Kind::FLOAT || pixels.kind == Kind::BFLOAT;
  const bool wide = !floats && pixels.bytes == 8;
  std::string source = "typedef ";
  source.append(type_of(pixels)).append(" Pixel;\n");
  if (!wide) source.append("typedef ").append(floats ? "double" : "long long").append(" Sum;\n");
  const auto define = [&](const char* name, bool value) {
    source.append("#define ").append(name).append(value ? " 1\n" : " 0\n");
  };
  define("HALF", pixels.kind == Kind::FLOAT && pixels.bytes == 2);
  define("BFLOAT", pixels.kind == Kind::BFLOAT);
  define("LONG", wide);
  return source + MEANS_SOURCE;
}

}  // namespace

MeansKernel::MeansKernel(const Context& context, const memory::Pixels& pixels,
                         const std::string& what)
    : pixels_(pixels), module_(context, source_of(pixels), "means", what) {}

Result MeansKernel::launch(const Functions& call, const std::byte* frame, std::uint32_t binning,
                           float* means, void* stream) const noexcept {
  std::uint64_t from = address_of(frame);
  std::uint64_t to = address_of(means);
  std::uint64_t number = pixels_.means(binning);
  std::uint32_t rows = pixels_.rows;
  std::uint32_t columns = pixels_.columns;
  void* arguments[] = {&from, &to, &number, &rows, &columns, &binning};
  const auto blocks = static_cast<unsigned>((number + MEANS_THREADS - 1) / MEANS_THREADS);
  return call.launch(module_.function(), blocks, 1, 1, MEANS_THREADS, 1, 1, 0, stream,
                     static_cast<void**>(arguments), nullptr);
}

}  // namespace daqiri::cuda

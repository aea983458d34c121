#include "cuda/frame_kernel.h"

#include "daqiri/error.h"

namespace daqiri::cuda {

namespace {

/// Per block.
constexpr unsigned THREADS_OF_BLOCK = 256;
/// CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
constexpr int MAX_THREADS_PER_BLOCK = 0;

/// Templates that determine the parameter types of the kernel, placed before the application's
/// source and its macros. They do not use host functions, which NVRTC does not have.
constexpr const char* CHECKS = R"(namespace daqiri_check {
template <typename T> struct Kind { static const char value = 0; };
template <typename T> struct Kind<const T> { static const char value = Kind<T>::value; };
#define DAQIRI_KIND(type, kind) \
  template <> struct Kind<type> { static const char value = kind; };
DAQIRI_KIND(float, 'f')
DAQIRI_KIND(double, 'f')
DAQIRI_KIND(signed char, 'i')
DAQIRI_KIND(short, 'i')
DAQIRI_KIND(int, 'i')
DAQIRI_KIND(long, 'i')
DAQIRI_KIND(long long, 'i')
DAQIRI_KIND(unsigned char, 'u')
DAQIRI_KIND(unsigned short, 'u')
DAQIRI_KIND(unsigned int, 'u')
DAQIRI_KIND(unsigned long, 'u')
DAQIRI_KIND(unsigned long long, 'u')
#undef DAQIRI_KIND
struct None {};
template <int I, typename... Types> struct Nth { typedef None type; };
template <int I, typename First, typename... Rest>
struct Nth<I, First, Rest...> : Nth<I - 1, Rest...> {};
template <typename First, typename... Rest> struct Nth<0, First, Rest...> { typedef First type; };
template <typename E, char kind, int bytes> struct Is {
  static const bool value =
      sizeof(E) == bytes && (Kind<E>::value == 0 || Kind<E>::value == kind || kind == 0);
};
template <char kind, int bytes> struct Is<None, kind, bytes> { static const bool value = true; };
template <typename T> struct Kernel {
  static const int arrays = -1;
  template <int I, char kind, int bytes> struct Takes { static const bool value = true; };
};
template <typename T, typename N, typename... A>
struct Kernel<void(T*, N, A*...)> {
  static const bool counts = sizeof(N) == 8 && (Kind<N>::value == 'u' || Kind<N>::value == 'i');
  static const int arrays = counts ? (int)sizeof...(A) : -1;
  template <int I, char kind, int bytes>
  struct Takes : Is<typename Nth<I, T, A...>::type, kind, bytes> {};
};
}  // namespace daqiri_check
)";

/// "float32", or the number of bytes.
std::string name_of(const reorder::FrameKernel::Type& type) {
  const std::string bits = std::to_string(8 * type.bytes);
  if (type.kind == 'f') return "float" + bits;
  if (type.kind == 'i') return "int" + bits;
  if (type.kind == 'u') return "uint" + bits;
  return std::to_string(type.bytes) + " bytes each";
}

Module compiled(const Context& context, const reorder::FrameKernel& kernel,
                const std::string& what) {
  try {
    return {context, checked_source(kernel), kernel.name, what};
  } catch (const Error& e) {
    if (e.status() != Status::INTERNAL_ERROR) throw;
    throw Error(Status::INVALID_PARAMETER, what + ": kernel '" + kernel.name + "': " + e.what());
  }
}

bool is_known(char kind) noexcept { return kind == 'f' || kind == 'i' || kind == 'u'; }

}  // namespace

std::string checked_source(const reorder::FrameKernel& kernel) {
  std::string source = CHECKS;
  source.append("#line 1 \"").append(kernel.name).append("\"\n").append(kernel.source);
  source.append("\n#line 1 \"daqiri\"\n");
  const std::string traits = "daqiri_check::Kernel<decltype(" + kernel.name + ")>";
  const std::string count = std::to_string(kernel.arrays.size());
  const auto require = [&](const std::string& condition, const std::string& text) {
    source.append("static_assert(").append(condition).append(", \"kernel '");
    source.append(kernel.name).append("': ").append(text).append("\");\n");
  };
  require(traits + "::arrays >= 0",
          "parameters are (T* data, unsigned long long elements, a pointer for each array)");
  require(traits + "::arrays < 0 || " + traits + "::arrays == " + count,
          "it gets " + count + " arrays, but its parameters are for another number");
  const auto require_type = [&](std::size_t parameter, const reorder::FrameKernel::Type& type,
                                const std::string& text) {
    const std::string kind = is_known(type.kind) ? std::string("'") + type.kind + "'" : "0";
    require(traits + "::Takes<" + std::to_string(parameter) + ", " + kind + ", " +
                std::to_string(type.bytes) + ">::value",
            text + name_of(type) + ", but the parameter has another type");
  };
  require_type(0, kernel.element, "elements of frames are ");
  for (std::size_t i = 0; i < kernel.arrays.size(); ++i)
    require_type(i + 1, kernel.arrays[i].element, "array " + std::to_string(i) + " is ");
  return source;
}

FrameKernel::FrameKernel(const Context& context, const reorder::FrameKernel& kernel,
                         const std::string& what, void* stream)
    : name_(kernel.name),
      element_bytes_(kernel.element.bytes),
      module_(compiled(context, kernel, what)) {
  int most = 0;
  if (context.driver().call().function_attribute(&most, MAX_THREADS_PER_BLOCK,
                                                 module_.function()) == 0 &&
      static_cast<unsigned>(most) < THREADS_OF_BLOCK) {
    throw Error(Status::INVALID_PARAMETER,
                what + ": kernel '" + name_ + "' runs with up to " + std::to_string(most) +
                    " threads per block, but is launched with " + std::to_string(THREADS_OF_BLOCK) +
                    "; raise its __launch_bounds__, or let it use fewer registers");
  }
  copy_arrays(context, kernel, what, stream);
  arguments_ = {&data_, &elements_};
  for (DeviceAllocation& array : arrays_) arguments_.push_back(array.out(context));
}

void FrameKernel::copy_arrays(const Context& context, const reorder::FrameKernel& kernel,
                              const std::string& what, void* stream) {
  const Functions& call = context.driver().call();
  const auto require = [&](Result result, const std::string& action, const std::string& fix) {
    if (result == 0) return;
    throw Error(Status::GENERIC_FAILURE, what + ": kernel '" + name_ + "': " + action + " GPU " +
                                             std::to_string(context.gpu()) + " (" +
                                             context.driver().text_of(result) + "); " + fix);
  };
  arrays_.reserve(kernel.arrays.size());
  for (std::size_t i = 0; i < kernel.arrays.size(); ++i) {
    const auto& data = kernel.arrays[i].data;
    const std::string text =
        "array " + std::to_string(i) + " of " + std::to_string(data.size()) + " bytes ";
    DeviceAllocation& array = arrays_.emplace_back();
    require(call.allocate(array.out(context), data.size()), text + "does not fit on",
            "lower num_bufs of regions there, or end other programs that use it");
    require(call.copy_to_gpu(array.get(), data.data(), data.size(), stream),
            text + "cannot be copied to", "start the program again");
  }
  // The application may change its arrays from now on.
  Event event;
  Result result = call.make_event(event.out(context), EVENT_FLAGS);
  if (result == 0) result = call.record_event(event.get(), stream);
  if (result == 0) result = call.wait_for_event(event.get());
  require(result, "arrays cannot be copied to", "start the program again");
}

Result FrameKernel::launch(const Functions& call, std::byte* data, std::size_t bytes,
                           void* stream) noexcept {
  data_ = reinterpret_cast<std::uintptr_t>(data);
  elements_ = bytes / element_bytes_;
  if (elements_ == 0) return 0;
  const auto blocks = static_cast<unsigned>((elements_ + THREADS_OF_BLOCK - 1) / THREADS_OF_BLOCK);
  return call.launch(module_.function(), blocks, 1, 1, THREADS_OF_BLOCK, 1, 1, 0, stream,
                     arguments_.data(), nullptr);
}

}  // namespace daqiri::cuda

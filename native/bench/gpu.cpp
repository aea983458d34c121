// The kernel of reorder plans on a GPU, as the engine compiles and launches it. Packets are in
// buffers on the GPU or in pinned memory and go to slots in random order. For comparison: copies of
// as many bytes, and kernels as other programs write them (gpu_peers.h). The result of each kernel
// is compared once with that of the CPU.
//
// usage: bench_gpu; then a line `WHAT TYPES PAYLOAD PACKETS OFFSET MEMORY SECONDS [THREADS PACKETS
// IN_FLIGHT]` a measurement. WHAT: ours, copy, general-warp, general-block; with +burst: one launch
// at a time, which is waited for, with its list in pinned memory as the engine has it. TYPES: same,
// int16 (big-endian, to fp32), int4 (to fp32). MEMORY of packets and of frames: device, pinned
// (packets only), both. Bytes are those that are read and written.

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <tuple>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/kernel.h"
#include "cuda/library.h"
#include "daqiri/error.h"
#include "gpu_peers.h"
#include "reorder/convert.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

/// Driver functions that the engine does not use.
struct More {
  int (*allocate)(std::uint64_t*, std::size_t);
  int (*free)(std::uint64_t);
  int (*copy)(std::uint64_t, std::uint64_t, std::size_t, void*);
  int (*synchronize)(void*);
  int (*elapsed)(float*, void*, void*);
  int (*name)(char*, int, int);
  int (*set)(std::uint64_t, unsigned char, std::size_t, void*);
};

More more_functions() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  More f{};
  if (!cuda::find_function(library, "cuMemAlloc_v2", f.allocate) ||
      !cuda::find_function(library, "cuMemFree_v2", f.free) ||
      !cuda::find_function(library, "cuMemcpyAsync", f.copy) ||
      !cuda::find_function(library, "cuStreamSynchronize", f.synchronize) ||
      !cuda::find_function(library, "cuEventElapsedTime", f.elapsed) ||
      !cuda::find_function(library, "cuDeviceGetName", f.name) ||
      !cuda::find_function(library, "cuMemsetD8Async", f.set))
    throw Error(Status::NOT_SUPPORTED, "the NVIDIA driver lacks a function");
  return f;
}

struct Gpu {
  cuda::Context context{"bench_gpu"};
  const cuda::Functions& call{context.driver().call()};
  More more{more_functions()};
  void* stream{nullptr};
  void* events[2]{};

  Gpu() {
    require(call.make_stream(&stream, 1));
    for (void*& event : events) require(call.make_event(&event, 0));
  }
  void require(int result) const {
    if (result != 0) throw Error(Status::GENERIC_FAILURE, context.driver().text_of(result));
  }
};

/// Memory of the GPU, or pinned.
class Memory {
 public:
  Memory(const Gpu& gpu, bool pinned, std::size_t bytes) : gpu_(gpu), pinned_(pinned) {
    if (pinned) {
      void* memory = nullptr;
      gpu.require(gpu.call.allocate_host(&memory, bytes, 3));
      address = reinterpret_cast<std::uintptr_t>(memory);
    } else {
      gpu.require(gpu.more.allocate(&address, bytes));
    }
    // compute-sanitizer reports reads of uninitialized memory.
    set(0, bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (pinned_)
      gpu_.call.free_host(reinterpret_cast<void*>(address));
    else
      gpu_.more.free(address);
  }
  void set(unsigned char byte, std::size_t bytes) const {
    if (pinned_) {
      std::memset(reinterpret_cast<void*>(address), byte, bytes);
    } else {
      gpu_.require(gpu_.more.set(address, byte, bytes, gpu_.stream));
      gpu_.require(gpu_.more.synchronize(gpu_.stream));
    }
  }
  template <typename T>
  void fill(const std::vector<T>& from) const {
    gpu_.require(gpu_.more.copy(address, reinterpret_cast<std::uintptr_t>(from.data()),
                                from.size() * sizeof(T), gpu_.stream));
    gpu_.require(gpu_.more.synchronize(gpu_.stream));
  }

  std::uint64_t address{0};

 private:
  const Gpu& gpu_;
  bool pinned_;
};

struct Setup {
  std::string types;
  std::uint32_t payload{0};
  std::uint32_t packets{0};
  std::uint32_t offset{0};
  std::string memory;
  bool operator==(const Setup&) const = default;
};

ReorderConfig configuration(const std::string& types) {
  ReorderConfig config;
  if (types == "int16")
    config.data_types_ = {ReorderDataType::INT16, ReorderDataType::FP32,
                          ReorderEndianness::NETWORK};
  if (types == "int4") config.data_types_ = {ReorderDataType::INT4, ReorderDataType::FP32};
  return config;
}

/// Packets and the frame made of them.
class Packets {
 public:
  Packets(const Gpu& gpu, Setup setup)
      : setup_(std::move(setup)),
        gpu_(gpu),
        stride_((setup_.offset + setup_.payload + 255) / 256 * 256),
        out_(setup_.payload * (setup_.types == "int16"  ? 2
                               : setup_.types == "int4" ? 8
                                                        : 1)),
        input_(gpu, setup_.memory != "device", std::size_t{stride_} * setup_.packets),
        frame_(gpu, setup_.memory == "both", std::size_t{out_} * setup_.packets),
        copied_(gpu, setup_.memory != "device", bytes() / 2),
        copied_to_(gpu, false, bytes() / 2),
        copies_(gpu, false, setup_.packets * sizeof(cuda::Copy)),
        pinned_copies_(gpu, true, setup_.packets * sizeof(cuda::Copy)),
        addresses_(gpu, false, setup_.packets * sizeof(std::uint64_t)),
        slots_(gpu, false, setup_.packets * sizeof(std::uint32_t)) {
    data_.resize(std::size_t{stride_} * setup_.packets);
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i + 8 <= data_.size(); i += 8) {
      const std::uint64_t value = random();
      std::memcpy(&data_[i], &value, 8);
    }
    order_.resize(setup_.packets);
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::shuffle(order_, random);
    std::vector<cuda::Copy> copies;
    std::vector<std::uint64_t> addresses;
    for (std::size_t i = 0; i < setup_.packets; ++i) {
      addresses.push_back(input_.address + i * stride_);
      copies.push_back({frame_.address + std::uint64_t{out_} * order_[i],
                        addresses.back() + setup_.offset, setup_.payload});
    }
    input_.fill(data_);
    copies_.fill(copies);
    pinned_copies_.fill(copies);
    addresses_.fill(addresses);
    slots_.fill(order_);
  }

  [[nodiscard]] const Setup& setup() const { return setup_; }
  /// Bytes read and written.
  [[nodiscard]] std::size_t bytes() const {
    return (std::size_t{setup_.payload} + out_) * setup_.packets;
  }

  void launch(const cuda::Kernel& kernel, bool burst) const {
    const Memory& list = burst ? pinned_copies_ : copies_;
    gpu_.require(kernel.launch(gpu_.call, reinterpret_cast<const cuda::Copy*>(list.address),
                               setup_.packets, gpu_.stream));
  }
  void copy() const {
    // Half of the bytes are read. Over a link, only the bytes of the packets count.
    const std::size_t bytes_copied =
        setup_.memory == "device" ? bytes() / 2 : std::size_t{setup_.payload} * setup_.packets;
    gpu_.require(gpu_.more.copy(copied_to_.address, copied_.address, bytes_copied, gpu_.stream));
  }
  void launch_general(void* function, unsigned threads, unsigned packets) {
    std::uint32_t offset = setup_.offset;
    std::uint32_t length = setup_.payload;
    std::uint32_t count = setup_.packets;
    void* arguments[] = {&frame_.address, &addresses_.address, &slots_.address, &count, &offset,
                         &length};
    gpu_.require(gpu_.call.launch(function, (count + packets - 1) / packets, 1, 1,
                                  threads * packets, 1, 1, 0, gpu_.stream,
                                  static_cast<void**>(arguments), nullptr));
  }

  /// Whether the frame equals what the CPU makes of some of the packets.
  [[nodiscard]] bool right() const {
    std::vector<std::byte> wanted(out_);
    std::vector<std::byte> found(out_);
    const reorder::Move move = setup_.types == "same"
                                   ? nullptr
                                   : reorder::move_for(configuration(setup_.types).data_types_);
    for (std::size_t i = 0; i < setup_.packets; i += 1 + setup_.packets / 500) {
      const std::byte* const from = &data_[i * stride_ + setup_.offset];
      if (move == nullptr)
        std::memcpy(wanted.data(), from, setup_.payload);
      else
        move(wanted.data(), from, setup_.payload);
      gpu_.require(gpu_.more.copy(reinterpret_cast<std::uintptr_t>(found.data()),
                                  frame_.address + std::uint64_t{out_} * order_[i], out_,
                                  gpu_.stream));
      gpu_.require(gpu_.more.synchronize(gpu_.stream));
      if (found != wanted) return false;
    }
    return true;
  }

  /// Overwrites the frame, so that `right` checks the next kernel.
  void clear() const { frame_.set(0xA5, std::size_t{out_} * setup_.packets); }

 private:
  Setup setup_;
  const Gpu& gpu_;
  std::uint32_t stride_;
  std::uint32_t out_;
  Memory input_;
  Memory frame_;
  Memory copied_;
  Memory copied_to_;
  Memory copies_;
  Memory pinned_copies_;
  Memory addresses_;
  Memory slots_;
  std::vector<std::byte> data_;
  std::vector<std::uint32_t> order_;
};

/// Time of `doing` on the GPU; with `burst`, of one call after the other.
template <typename Doing>
std::string measure(const Gpu& gpu, const Packets& packets, double seconds, bool burst,
                    Doing doing) {
  std::uint64_t times = 0;
  double ns = 0;
  const auto round = [&](std::uint64_t count) {
    if (burst) {
      const std::uint64_t begun = monotonic_ns();
      for (std::uint64_t i = 0; i < count; ++i) {
        doing();
        gpu.require(gpu.more.synchronize(gpu.stream));
      }
      return static_cast<double>(monotonic_ns() - begun);
    }
    float ms = 0;
    gpu.require(gpu.call.record_event(gpu.events[0], gpu.stream));
    for (std::uint64_t i = 0; i < count; ++i) doing();
    gpu.require(gpu.call.record_event(gpu.events[1], gpu.stream));
    gpu.require(gpu.call.wait_for_event(gpu.events[1]));
    gpu.require(gpu.more.elapsed(&ms, gpu.events[0], gpu.events[1]));
    return static_cast<double>(ms) * 1e6;
  };
  // Warm up clocks and caches; each round takes some 5 ms.
  round(2);
  const double one = round(4) / 4;
  const auto count = static_cast<std::uint64_t>(std::clamp(5e6 / std::max(one, 1.0), 1.0, 1000.0));
  do {
    ns += round(count);
    times += count;
  } while (ns < seconds * 1e9);
  std::ostringstream line;
  line << R"({"ns": )" << ns << R"(, "launches": )" << times << R"(, "bytes": )"
       << static_cast<double>(packets.bytes()) * static_cast<double>(times) << "}";
  return line.str();
}

/// Kernels compiled so far.
class Kernels {
 public:
  explicit Kernels(const Gpu& gpu) : gpu_(gpu) {}

  const cuda::Kernel& ours(const std::string& types, const cuda::Geometry& geometry) {
    auto& kernel = ours_[{types, geometry.threads, geometry.packets, geometry.in_flight}];
    if (kernel == nullptr)
      kernel =
          std::make_unique<cuda::Kernel>(gpu_.context, configuration(types), "bench_gpu", geometry);
    return *kernel;
  }
  void* general(const std::string& types, unsigned threads, unsigned packets) {
    void*& function = general_[{types, threads}];
    if (function != nullptr) return function;
    int major = 0;
    int minor = 0;
    int version = 0;
    gpu_.require(gpu_.call.attribute(&major, 75, 0));
    gpu_.require(gpu_.call.attribute(&minor, 76, 0));
    gpu_.require(gpu_.call.version(&version));
    const std::string source = "#define THREADS " + std::to_string(threads) + "\n#define PACKETS " +
                               std::to_string(packets) + "\n" + bench::GENERAL_SOURCE;
    const std::string code = cuda::compile(source, major, minor, version / 1000);
    void* module = nullptr;
    gpu_.require(gpu_.call.load_module(&module, code.data()));
    gpu_.require(
        gpu_.call.find_function(&function, module, types == "same" ? "gather" : "convert"));
    return function;
  }

 private:
  const Gpu& gpu_;
  std::map<std::tuple<std::string, unsigned, unsigned, unsigned>, std::unique_ptr<cuda::Kernel>>
      ours_;
  std::map<std::tuple<std::string, unsigned>, void*> general_;
};

std::string answer(const Gpu& gpu, Kernels& kernels, Packets& packets, std::string what,
                   double seconds, const cuda::Geometry& geometry) {
  const bool burst = what.ends_with("+burst");
  if (burst) what.resize(what.size() - 6);
  const std::string& types = packets.setup().types;
  const auto checked = [&](auto doing) {
    packets.clear();
    doing();
    gpu.require(gpu.more.synchronize(gpu.stream));
    if (!packets.right()) throw Error(Status::INTERNAL_ERROR, what + " makes a wrong frame");
    return measure(gpu, packets, seconds, burst, doing);
  };
  if (what == "copy") return measure(gpu, packets, seconds, burst, [&] { packets.copy(); });
  if (what == "ours") {
    const cuda::Kernel& kernel = kernels.ours(types, geometry);
    return checked([&] { packets.launch(kernel, burst); });
  }
  const bool warp = what == "general-warp";
  if (!warp && what != "general-block")
    throw Error(Status::INVALID_PARAMETER, "no measurement '" + what + "'");
  const unsigned threads = warp ? 32 : 256;
  const unsigned in_block = warp ? 8 : 1;
  void* const function = kernels.general(types, threads, in_block);
  return checked([&] { packets.launch_general(function, threads, in_block); });
}

void serve() {
  const Gpu gpu;
  char name[128]{};
  int version = 0;
  gpu.require(gpu.more.name(name, sizeof name, 0));
  gpu.require(gpu.call.version(&version));
  std::cout << R"({"gpu": ")" << name << R"(", "cuda": ")" << version / 1000 << "."
            << version % 1000 / 10 << "\"}" << std::endl;
  Kernels kernels(gpu);
  std::unique_ptr<Packets> packets;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    Setup setup;
    double seconds = 0;
    if (!(words >> what >> setup.types >> setup.payload >> setup.packets >> setup.offset >>
          setup.memory >> seconds))
      throw Error(Status::INVALID_PARAMETER, "no measurement '" + line + "'");
    cuda::Geometry geometry =
        cuda::Geometry::of(configuration(setup.types).data_types_, setup.payload);
    if (unsigned threads = 0; words >> threads) {
      geometry.threads = threads;
      words >> geometry.packets >> geometry.in_flight;
    }
    if (packets == nullptr || packets->setup() != setup) {
      packets.reset();
      packets = std::make_unique<Packets>(gpu, setup);
    }
    std::cout << answer(gpu, kernels, *packets, what, seconds, geometry) << std::endl;
  }
}

}  // namespace

int main() {
  try {
    if (!cuda::Driver::why_absent().empty()) {
      std::cout << R"({"missing": ")" << cuda::Driver::why_absent() << "\"}" << std::endl;
      return 0;
    }
    serve();
  } catch (const std::exception& e) {
    std::cerr << "bench_gpu: " << e.what() << std::endl;
    return 1;
  }
  return 0;
}

#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "daqiri/error.h"
#include "memory/region.h"

using namespace daqiri;
using daqiri::memory::MemoryRegion;

namespace {
MemoryRegionConfig region_config(MemoryKind kind, std::uint64_t count, std::uint64_t size) {
  MemoryRegionConfig config;
  config.name_ = "frames";
  config.kind_ = kind;
  config.num_bufs_ = count;
  config.buf_size_ = size;
  return config;
}
}  // namespace

TEST_CASE("Buffers of a region do not overlap and are aligned", "[memory]") {
  const auto region = MemoryRegion::allocate(region_config(MemoryKind::HOST, 64, 1001));
  for (std::uint32_t i = 0; i < 64; ++i) {
    REQUIRE(reinterpret_cast<std::uintptr_t>(region->address(i)) % 64 == 0);
    std::memset(region->address(i), static_cast<int>(i), region->buf_size());
  }
  for (std::uint32_t i = 0; i < 64; ++i) {
    const auto* bytes = static_cast<const unsigned char*>(region->address(i));
    REQUIRE(bytes[0] == i);
    REQUIRE(bytes[1000] == i);
  }
}

TEST_CASE("Kinds that need CUDA say so", "[memory]") {
  for (const MemoryKind kind : {MemoryKind::DEVICE, MemoryKind::HOST_PINNED}) {
    try {
      MemoryRegion::allocate(region_config(kind, 4, 64));
      FAIL("allocated");
    } catch (const Error& error) {
      REQUIRE(error.status() == Status::NOT_SUPPORTED);
      REQUIRE(std::string(error.what()).find("frames") != std::string::npos);
      REQUIRE(std::string(error.what()).find("CUDA") != std::string::npos);
    }
  }
}

TEST_CASE("Missing hugepages are an error that names the command", "[memory]") {
  try {
    // 1 PiB: more than any host has reserved.
    MemoryRegion::allocate(
        region_config(MemoryKind::HUGE, std::uint64_t{1} << 30U, std::uint64_t{1} << 20U));
    FAIL("allocated");
  } catch (const Error& error) {
    REQUIRE(error.status() == Status::NO_FREE_PACKET_BUFFERS);
    REQUIRE(std::string(error.what()).find("nr_hugepages") != std::string::npos);
  }
}

TEST_CASE("A region is laid out as its engine needs it", "[memory]") {
  memory::RegionNeeds needs;
  needs.headroom = 256;
  needs.power_of_two_stride = true;
  const auto region = MemoryRegion::allocate(region_config(MemoryKind::HOST, 16, 1700), needs);
  REQUIRE(region->extent().stride == 2048);
  REQUIRE(region->extent().headroom == 256);
  REQUIRE(region->address(3) == region->extent().base + 3 * 2048 + 256);
  REQUIRE(region->extent().bytes >= 16 * 2048);
  REQUIRE(region->host_readable());
}

TEST_CASE("A large region begins where a transparent hugepage can", "[memory]") {
  constexpr std::size_t HUGEPAGE = std::size_t{2} << 20U;
  for (const std::uint64_t count : {512, 513, 1000, 4096}) {
    const auto region = MemoryRegion::allocate(region_config(MemoryKind::HOST, count, 4096));
    REQUIRE(region->extent().bytes >= HUGEPAGE);
    REQUIRE(reinterpret_cast<std::uintptr_t>(region->extent().base) % HUGEPAGE == 0);
    std::memset(region->extent().base, 1, region->extent().bytes);
  }
}

TEST_CASE("A NUMA node that the host has not is refused, and names those it has", "[memory]") {
  auto config = region_config(MemoryKind::HOST, 4, 64);
  config.affinity_ = 1023;
  try {
    MemoryRegion::allocate(config);
    FAIL("allocated");
  } catch (const Error& error) {
    INFO(error.what());
    REQUIRE(error.status() == Status::INVALID_PARAMETER);
    REQUIRE(std::string(error.what()).find("affinity is 1023") != std::string::npos);
    REQUIRE(std::string(error.what()).find("this host has 0") != std::string::npos);
  }
}

TEST_CASE("A region lies on the NUMA node of its affinity", "[memory]") {
  const auto region = MemoryRegion::allocate(region_config(MemoryKind::HOST, 4, 4096));
  std::ifstream maps("/proc/self/numa_maps");
  if (!maps) return;  // a kernel without NUMA
  std::ostringstream wanted;
  wanted << std::hex << std::setw(8) << std::setfill('0')
         << reinterpret_cast<std::uintptr_t>(region->extent().base);
  std::string line;
  std::string found;
  while (std::getline(maps, line)) {
    if (line.rfind(wanted.str(), 0) == 0) found = line;
  }
  INFO(found);
  REQUIRE(found.find(" bind:0") != std::string::npos);
}

namespace {

/// Memory that the CPU cannot access, like that of a GPU.
class Unreadable final : public MemoryRegion {
 public:
  Unreadable(const MemoryRegionConfig& config, const memory::RegionExtent& extent)
      : MemoryRegion(config, extent, memory::Place::DEVICE) {}
  ~Unreadable() override { Unreadable::free_memory(); }

  static std::unique_ptr<MemoryRegion> allocate(const MemoryRegionConfig& config,
                                                const memory::RegionNeeds& needs) {
    auto extent = memory::RegionExtent::of(config, needs, 4096);
    extent.base = static_cast<std::byte*>(
        mmap(nullptr, extent.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return std::make_unique<Unreadable>(config, extent);
  }
  [[nodiscard]] bool freed() const noexcept { return freed_; }

 private:
  void free_memory() noexcept override {
    if (!std::exchange(freed_, true)) munmap(extent().base, extent().bytes);
  }

  bool freed_{false};
};

}  // namespace

TEST_CASE("A kind of memory can be registered, and says that the CPU cannot read it", "[memory]") {
  const memory::RegisteredMemoryKind known(MemoryKind::DEVICE, Unreadable::allocate);
  const auto region = MemoryRegion::allocate(region_config(MemoryKind::DEVICE, 4, 64));
  REQUIRE_FALSE(region->host_readable());
  const memory::RegisteredMemoryKind forgotten(MemoryKind::DEVICE, nullptr);
}

TEST_CASE("A region that an engine divides in its own way tells what is free of that", "[memory]") {
  struct Strides final : memory::BufferOwner {
    explicit Strides(MemoryRegion& whole)
        : BufferOwner("strides", 16, memory::Place::HOST), whole_(whole) {
      REQUIRE(whole.take(taken_, 4) == 4);
      whole.lend(*this);
    }
    ~Strides() override { whole_.give(taken_, 4); }
    void give(const std::uint32_t*, std::uint32_t) noexcept override {}
    [[nodiscard]] const MemoryRegion* region() const noexcept override { return &whole_; }
    [[nodiscard]] memory::BufferLevels levels() const noexcept override { return {15, 16}; }

   private:
    MemoryRegion& whole_;
    std::uint32_t taken_[4]{};
  };
  const auto region = MemoryRegion::allocate(region_config(MemoryKind::HOST, 4, 64));
  CHECK(region->levels().free == 4);
  CHECK(region->levels().buffers == 4);
  CHECK(region->region() == region.get());
  {
    const Strides strides(*region);
    CHECK(strides.region() == region.get());
    CHECK(region->levels().free == 15);
    CHECK(region->levels().buffers == 16);
  }
  CHECK(region->available() == 4);
}

TEST_CASE("A retired region is given back with the last buffer, and has none any more",
          "[memory]") {
  const auto config = region_config(MemoryKind::DEVICE, 4, 64);
  auto extent = memory::RegionExtent::of(config, {}, 4096);
  extent.base = static_cast<std::byte*>(
      mmap(nullptr, extent.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  Unreadable region(config, extent);
  std::array<std::uint32_t, 4> buffers{};
  REQUIRE(region.take(buffers.data(), 3) == 3);
  region.retire();
  REQUIRE_FALSE(region.freed());
  // More buffers can be taken while some are held.
  REQUIRE(region.take(&buffers[3], 1) == 1);
  region.give(buffers.data(), 3);
  REQUIRE_FALSE(region.freed());
  region.give(&buffers[3], 1);
  REQUIRE(region.freed());
  REQUIRE(region.available() == 4);
  REQUIRE(region.take(buffers.data(), 1) == 0);
}

TEST_CASE("Of threads that give the last buffers of a retired region back, one frees it",
          "[memory]") {
  constexpr std::uint32_t BUFFERS = 64;
  const auto config = region_config(MemoryKind::DEVICE, BUFFERS, 64);
  for (int round = 0; round < 200; ++round) {
    auto extent = memory::RegionExtent::of(config, {}, 4096);
    extent.base = static_cast<std::byte*>(
        mmap(nullptr, extent.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Unreadable region(config, extent);
    std::array<std::uint32_t, BUFFERS> buffers{};
    REQUIRE(region.take(buffers.data(), BUFFERS) == BUFFERS);
    {
      std::vector<std::jthread> threads;
      threads.emplace_back([&] { region.retire(); });
      for (std::uint32_t first : {0U, BUFFERS / 2}) {
        threads.emplace_back([&, first] {
          for (std::uint32_t i = first; i < first + BUFFERS / 2; ++i) region.give(&buffers[i], 1);
        });
      }
    }
    REQUIRE(region.freed());
  }
}

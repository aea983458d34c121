#include <catch2/catch.hpp>

#include <cstring>

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

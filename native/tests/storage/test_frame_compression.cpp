// Compressing frames, and reading the chunks with HDF5.
#include <hdf5.h>

#include "storage/bursts.h"
#include "storage/frame_compression.h"
#include "storage/hdf5_file.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

/// Folder of the installed hdf5plugin; empty if not found.
std::string plugin_folder() {
  namespace fs = std::filesystem;
  for (const fs::path& libraries : {fs::path(DAQIRI_SOURCE_DIR) / ".venv" / "lib"}) {
    if (!fs::exists(libraries)) continue;
    for (const auto& python : fs::directory_iterator(libraries)) {
      const fs::path folder = python.path() / "site-packages" / "hdf5plugin" / "plugins";
      if (fs::exists(folder / "libh5bshuf.so")) return folder;
    }
  }
  return {};
}

const BitshuffleLz4* plugin() {
  const std::string folder = plugin_folder();
  if (folder.empty()) {
    WARN("skipped: hdf5plugin is not installed in .venv");
    return nullptr;
  }
  return &BitshuffleLz4::load(folder);
}

constexpr std::size_t FRAME = 3000;
constexpr std::size_t ELEMENT = 2;

/// The chunk decompressed by HDF5.
Bytes decompressed(const BitshuffleLz4& filter, std::span<const std::byte> chunk) {
  hdf5::enter();
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  REQUIRE(H5Pset_fapl_core(access, 1 << 16, false) >= 0);
  const hid_t file = H5Fcreate("chunks", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const hsize_t size = FRAME / ELEMENT;
  const hid_t space = H5Screate_simple(1, &size, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(H5Pset_chunk(creation, 1, &size) >= 0);
  filter.add_to(creation);
  const hid_t data =
      H5Dcreate2(file, "data", H5T_STD_U16LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(data >= 0);
  const hsize_t at = 0;
  REQUIRE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, &at, chunk.size(), chunk.data()) >= 0);
  Bytes bytes(FRAME);
  REQUIRE(H5Dread(data, H5T_STD_U16LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0);

  const hid_t stored = H5Dget_create_plist(data);
  unsigned flags = 0;
  std::size_t n = 8;
  std::array<unsigned, 8> values{};
  REQUIRE(H5Pget_filter_by_id2(stored, BitshuffleLz4::ID, &flags, &n, values.data(), 0, nullptr,
                               nullptr) >= 0);
  CHECK(n == 5);
  CHECK(flags == H5Z_FLAG_MANDATORY);
  CHECK(values == std::array<unsigned, 8>{0, 5, ELEMENT, 0, 2, 0, 0, 0});
  for (const hid_t id : {stored, creation}) H5Pclose(id);
  H5Dclose(data);
  H5Sclose(space);
  H5Fclose(file);
  H5Pclose(access);
  return bytes;
}

}  // namespace

TEST_CASE("Compressed frames come back in their order, and their buffers are free at once",
          "[storage][compression]") {
  const BitshuffleLz4* const filter = plugin();
  if (filter == nullptr) return;
  Bench bench(1, 1, FRAME);
  FrameCompressor compressor(*filter, FRAME, ELEMENT, 2);
  std::vector<Bytes> sent;
  const auto take = [&] {
    const std::span<const std::byte> chunk = compressor.front();
    CHECK(decompressed(*filter, chunk) == sent.front());
    // Incompressible data grows only slightly.
    CHECK(chunk.size() <= filter->bound(FRAME, ELEMENT));
    sent.erase(sent.begin());
    compressor.pop();
  };
  // More frames than the four bursts of the bench.
  for (std::uint32_t i = 0; i < 200; ++i) {
    Bytes frame = i % 3 == 0 ? random_bytes(FRAME, i) : Bytes(FRAME, static_cast<std::uint8_t>(i));
    if (compressor.full()) take();
    HeldBurst burst;
    // Wait until a worker has released one.
    REQUIRE(within_limit([&] { return (burst = bench.burst_or_none({{frame}})) != nullptr; }));
    compressor.put(*burst);
    sent.push_back(std::move(frame));
  }
  while (!compressor.empty()) take();
  CHECK(sent.empty());
}

TEST_CASE("Frames that wait in a compressor are given back with it", "[storage][compression]") {
  const BitshuffleLz4* const filter = plugin();
  if (filter == nullptr) return;
  Bench bench(1, 1, FRAME);
  for (int round = 0; round < 50; ++round) {
    FrameCompressor compressor(*filter, FRAME, ELEMENT, 1);
    for (int i = 0; i < 3; ++i) {
      HeldBurst burst = bench.burst({{random_bytes(FRAME, 1)}});
      compressor.put(*burst);
    }
    CHECK(compressor.full());
  }
  std::vector<HeldBurst> all;
  for (int i = 0; i < 4; ++i) all.push_back(bench.burst({{random_bytes(FRAME, 1)}}));
}

TEST_CASE("A compressor takes a number of threads that makes sense", "[storage][compression]") {
  for (const std::uint32_t threads : {0U, 65U}) {
    const auto [status, text] = refusal([&] { FrameCompressor::require_threads(threads); });
    CHECK(status == Status::INVALID_PARAMETER);
    CHECK_THAT(text, Contains("compression_threads is " + std::to_string(threads)));
  }
  FrameCompressor::require_threads(64);
}

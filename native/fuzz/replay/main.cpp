// A fuzz target without libFuzzer: runs the files of a folder, once each, in the order of their
// names.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "scratch_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int count, char** arguments) {
  daqiri::fuzz::require(count == 2, "the only argument is a folder");
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1]))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  daqiri::fuzz::require(!paths.empty(), "there are saved inputs");
  for (const std::string& path : paths) {
    // To be read above a report.
    std::fprintf(stderr, "%s\n", path.c_str());
    const auto bytes = daqiri::fuzz::content_of(path);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}

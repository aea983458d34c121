/// Named files in memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "require.h"

namespace daqiri::fuzz {

/// A folder that is removed at the end of the process.
class ScratchFolder {
 public:
  ScratchFolder() { require(mkdtemp(path_.data()) != nullptr, "a folder in memory can be made"); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }
  [[nodiscard]] bool is_empty() const { return std::filesystem::is_empty(path_); }
  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      std::filesystem::remove(entry.path());
  }

 private:
  std::string path_{"/dev/shm/daqiri-fuzz-XXXXXX"};
};

inline std::vector<std::uint8_t> content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), "a file that was written can be read");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_content(const std::string& path, const std::uint8_t* data, std::size_t size) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  out.close();
  require(out.good(), "a file in memory can be written");
}

}  // namespace daqiri::fuzz

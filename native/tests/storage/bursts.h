/// Bursts built by tests, temporary folders, and output of tcpdump and tshark.
#pragma once

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "burst/burst.h"
#include "daqiri/error.h"
#include "memory/region.h"
#include "net/link_layer.h"
#include "timing/clock.h"

namespace daqiri::test {

using Bytes = std::vector<std::uint8_t>;

inline const LinkLayer ETHERNET;

inline constexpr std::int64_t LIMIT_NS = 20'000'000'000;

/// Waits until `condition` is true, for at most LIMIT_NS.
template <typename Condition>
bool within_limit(Condition&& condition) {
  const std::uint64_t end = monotonic_ns() + LIMIT_NS;
  while (!condition()) {
    if (monotonic_ns() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "daqiri-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Names of the entries, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      found.push_back(entry.path().filename());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::string path_;
};

inline Bytes read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  REQUIRE(in.good());
  Bytes bytes(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(in.good());
  return bytes;
}

inline void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

/// Standard output of a command, which must succeed.
inline std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 65536> part{};
  for (std::size_t n; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), n);
  }
  INFO(command);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

struct SeenPacket {
  std::string time;
  Bytes bytes;
};

/// Times (seconds, as printed) and bytes of all packets, as read by tcpdump.
inline std::vector<SeenPacket> tcpdump(const std::string& path) {
  std::istringstream lines(
      output_of("tcpdump -Z root -n -tt --nano -xx -r " + path + " 2>/dev/null"));
  std::vector<SeenPacket> packets;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("0x") == 1 || line.find("\t0x") == 0) {
      std::istringstream words(line.substr(line.find(':') + 1));
      for (std::string word; words >> word;) {
        for (std::size_t i = 0; i + 1 < word.size(); i += 2) {
          packets.back().bytes.push_back(
              static_cast<std::uint8_t>(std::stoul(word.substr(i, 2), nullptr, 16)));
        }
      }
    } else {
      packets.push_back({line.substr(0, line.find(' ')), {}});
    }
  }
  return packets;
}

/// Rows of tab-separated fields, one per packet, as read by tshark.
inline std::vector<std::vector<std::string>> tshark(const std::string& path,
                                                    const std::vector<std::string>& fields) {
  std::string command = "tshark -n -r " + path + " -T fields";
  for (const std::string& field : fields) command += " -e " + field;
  std::istringstream lines(output_of(command + " 2>/dev/null"));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> row;
    std::istringstream columns(line);
    for (std::string column; std::getline(columns, column, '\t');) row.push_back(column);
    rows.push_back(row);
  }
  return rows;
}

/// Limits the size of files of this process; larger writes fail with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_{};
};

inline Bytes random_bytes(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  // One byte at a time takes minutes in unoptimised builds.
  for (std::size_t at = 0; at < n; at += 4) {
    const std::uint32_t drawn = static_cast<std::uint32_t>(random());
    std::memcpy(&bytes[at], &drawn, std::min<std::size_t>(4, n - at));
  }
  return bytes;
}

struct GivesBack {
  void operator()(Burst* burst) const { burst->release(); }
};
using HeldBurst = std::unique_ptr<Burst, GivesBack>;

/// Regions and a pool for bursts of `segments` segments.
class Bench {
 public:
  explicit Bench(int segments = 1, std::uint32_t capacity = 64, std::uint64_t buf_size = 2048)
      : pool_(4, capacity, segments, false) {
    for (int s = 0; s < segments; ++s) {
      MemoryRegionConfig config;
      config.name_ = "segment" + std::to_string(s);
      config.num_bufs_ = 4ULL * capacity;
      config.buf_size_ = buf_size;
      regions_.push_back(memory::MemoryRegion::allocate(config));
    }
  }
  /// A burst of packets given as segments. Timestamps: `first_ns` + i * `gap_ns`.
  HeldBurst burst(const std::vector<std::vector<Bytes>>& packets, std::uint64_t first_ns = 0,
                  std::uint64_t gap_ns = 0) {
    HeldBurst held = burst_or_none(packets, first_ns, gap_ns);
    REQUIRE(held != nullptr);
    return held;
  }
  /// Null if all bursts are in use.
  HeldBurst burst_or_none(const std::vector<std::vector<Bytes>>& packets,
                          std::uint64_t first_ns = 0, std::uint64_t gap_ns = 0) {
    Burst* burst = pool_.take();
    HeldBurst held(burst);
    if (burst == nullptr) return held;
    for (std::uint32_t i = 0; i < packets.size(); ++i) {
      REQUIRE(packets[i].size() == regions_.size());
      for (std::size_t s = 0; s < regions_.size(); ++s) {
        burst->owners[s] = regions_[s].get();
        REQUIRE(regions_[s]->take(&burst->buffers[s][i], 1) == 1);
        burst->pkts[s][i] = regions_[s]->address(burst->buffers[s][i]);
        burst->pkt_lens[s][i] = static_cast<std::uint32_t>(packets[i][s].size());
        if (!packets[i][s].empty()) {
          std::memcpy(burst->pkts[s][i], packets[i][s].data(), packets[i][s].size());
        }
        burst->hdr.hdr.nbytes += packets[i][s].size();
      }
      burst->timestamps[i] = first_ns == 0 ? 0 : first_ns + i * gap_ns;
      burst->flow_ids[i] = 0;
      burst->hdr.hdr.num_pkts = burst->owned = i + 1;
    }
    return held;
  }
  /// `n` packets of one segment with random contents.
  HeldBurst burst(std::size_t n, std::size_t length,
                  std::uint64_t first_ns = 1'700'000'000'000'000'001,
                  std::uint64_t gap_ns = 1'000) {
    std::vector<std::vector<Bytes>> packets;
    for (std::size_t i = 0; i < n; ++i) {
      packets.push_back({random_bytes(length, static_cast<std::uint32_t>(i))});
    }
    return burst(packets, first_ns, gap_ns);
  }

 private:
  std::vector<std::unique_ptr<memory::MemoryRegion>> regions_;
  BurstPool pool_;
};

/// Status and text of the exception; a Status that no test expects if there was none.
template <typename Call>
std::pair<Status, std::string> refusal(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return {e.status(), e.what()};
  }
  return {Status::SUCCESS, ""};
}

}  // namespace daqiri::test

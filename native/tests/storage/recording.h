/// A loopback session whose first receive queue is recorded.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/loopback_config.h"
#include "storage/bursts.h"
#include "storage/index_pcap.h"
#include "storage/recorder.h"

namespace daqiri::test {

/// The text of a value in the metadata.
inline std::string value_of(const std::string& json, const std::string& key) {
  const std::size_t at = json.find("\"" + key + "\": ");
  INFO(key << " in " << json);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + key.size() + 4;
  std::string value = json.substr(begin, json.find('\n', begin) - begin);
  if (value.back() == ',') value.pop_back();
  return value;
}

inline std::string sidecar_of(const std::string& path) {
  const Bytes text = read_file(path + ".json");
  return {text.begin(), text.end()};
}

/// More buffers than any test sends packets, so that even a slow recorder loses nothing.
inline NetworkConfig roomy_config(int batch = 64, std::uint32_t timeout_us = 500) {
  return loopback_config(batch, timeout_us, 8192);
}

/// For tests with expected errors: nothing is logged.
inline NetworkConfig silent() {
  NetworkConfig config = roomy_config();
  config.log_level_ = LogLevel::OFF;
  return config;
}

inline RecorderOptions into(const std::string& directory) {
  RecorderOptions options;
  options.directory = directory;
  return options;
}

/// Numbers of the frames in a file.
inline std::vector<std::uint32_t> numbers_in(const std::string& path) {
  const Bytes file = read_file(path);
  const PcapIndex index = index_pcap(file.data(), file.size(), path);
  REQUIRE(index.torn_bytes == 0);
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i < index.offsets.size(); ++i) {
    std::uint32_t number = 0;
    std::memcpy(&number, file.data() + index.offsets[i] + 42, sizeof number);
    numbers.push_back(number);
  }
  return numbers;
}

inline std::vector<std::uint32_t> counted(std::uint32_t first, std::uint32_t n) {
  std::vector<std::uint32_t> numbers(n);
  for (std::uint32_t i = 0; i < n; ++i) numbers[i] = first + i;
  return numbers;
}

inline std::vector<std::uint32_t> numbers_in(const std::vector<RecordedFile>& files) {
  std::vector<std::uint32_t> all;
  for (const RecordedFile& file : files) {
    const auto numbers = numbers_in(file.path);
    CHECK(numbers.size() == file.packets);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

struct Recording {
  explicit Recording(RecorderOptions options = {}, NetworkConfig config = roomy_config())
      : session(Session::open(std::move(config))),
        rx(session->rx_queue(0, 0)),
        tx(session->tx_queue(0, 0)) {
    if (options.directory.empty()) options.directory = dir.path();
    recorder = std::make_unique<Recorder>(session, rx, options);
  }
  void send(std::uint32_t first, std::uint32_t n, std::size_t length = 128) {
    REQUIRE(send_frames(tx, 5000, first, n, 0, 0, length));
    REQUIRE(tx.wait_idle(LIMIT_NS));
  }
  bool recorded(std::uint64_t n) {
    return within_limit([&] { return recorder->snapshot().packets == n; });
  }

  TempDir dir;
  std::shared_ptr<Session> session;
  RxQueue& rx;
  TxQueue& tx;
  std::unique_ptr<Recorder> recorder;
};

}  // namespace daqiri::test

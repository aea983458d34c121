// Splitting a file of acquired frames.
#include <algorithm>

#include "session/reorder_config.h"
#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t PAYLOAD = 128 - 42;

NetworkConfig framed() {
  NetworkConfig config = reordering();
  config.log_level_ = LogLevel::OFF;
  config.ifs_[0].rx_.reorder_configs_[0].frame_ = {{FRAME_PACKETS, PAYLOAD}, "uint8", {}};
  return config;
}

/// Records frames of a plan on request.
struct FrameRecording {
  FrameRecording() : session(Session::open(framed())) {
    RecorderOptions options;
    options.directory = dir.path();
    options.held = true;
    recorder = std::make_unique<Recorder>(session, session->reorder_plans(0).front(), options);
  }
  /// Sends and records frames [first, first + n).
  void acquire(std::uint32_t first, std::uint32_t n) {
    CHECK(recorder->acquire(n) == 0);
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, first * FRAME_PACKETS, n * FRAME_PACKETS));
    REQUIRE(within_limit([&] { return recorder->snapshot().acquired == n; }));
  }
  /// Number of frames in each complete file.
  [[nodiscard]] std::vector<std::uint64_t> counts() const {
    std::vector<std::uint64_t> found;
    for (const RecordedFile& file : recorder->files()) found.push_back(file.frames);
    return found;
  }

  TempDir dir;
  std::shared_ptr<Session> session;
  std::unique_ptr<Recorder> recorder;
};

/// Whether a file contains the data of frame `number`.
bool holds(const RecordedFile& file, std::uint32_t number) {
  Bytes frame;
  for (std::uint32_t slot = 0; slot < FRAME_PACKETS; ++slot) {
    const auto packet = udp_frame(5000, number * FRAME_PACKETS + slot);
    frame.insert(frame.end(), packet.begin() + 42, packet.end());
  }
  REQUIRE(frame.size() == FRAME_PACKETS * PAYLOAD);
  const Bytes bytes = read_file(file.path);
  return std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end()) != bytes.end();
}

}  // namespace

TEST_CASE("A split leaves the first frames, and the others begin the next file",
          "[storage][recorder]") {
  const std::uint64_t first = GENERATE(0, 3, 5);
  FrameRecording r;
  r.acquire(0, 5);
  r.recorder->split(first);
  CHECK(r.counts() == std::vector<std::uint64_t>{first});
  CHECK(r.recorder->snapshot().frames == 5);
  // Later frames follow in the next file.
  r.acquire(5, 2);
  r.recorder->stop();
  REQUIRE(r.counts() == std::vector<std::uint64_t>{first, 7 - first});
  const auto files = r.recorder->files();
  for (std::uint32_t number = 0; number < 7; ++number) {
    INFO(number);
    CHECK(holds(files[number < first ? 0 : 1], number));
  }
  for (const RecordedFile& file : files) {
    CHECK(file.dropped == 0);
    CHECK(file.left_out == 0);
  }
  const RecorderSnapshot snapshot = r.recorder->snapshot();
  CHECK(snapshot.frames == 7);
  CHECK(snapshot.dropped == 0);
  CHECK(snapshot.error.empty());
}

TEST_CASE("A split of more frames than there are is refused", "[storage][recorder]") {
  FrameRecording r;
  r.acquire(0, 2);
  const auto [status, text] = refusal([&] { r.recorder->split(3); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("the current file has 2"));
  r.acquire(2, 1);
  r.recorder->stop();
  CHECK(r.counts() == std::vector<std::uint64_t>{3});
  CHECK(refusal([&] { r.recorder->split(0); }).first == Status::NOT_READY);
}

TEST_CASE("A recorder of all frames is not split", "[storage][recorder]") {
  const auto session = Session::open(framed());
  const TempDir dir;
  Recorder recorder(session, session->reorder_plans(0).front(), into(dir.path()));
  const auto [status, text] = refusal([&] { recorder.split(0); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("held=True"));
}

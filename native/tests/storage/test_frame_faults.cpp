// Files of frames on full or broken disks.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "session/loopback_config.h"
#include "storage/bursts.h"
#include "storage/device_backend.h"
#include "storage/failing_write.h"
#include "storage/frame_repair.h"
#include "storage/frame_writer.h"
#include "storage/recorder.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t FRAME_BYTES = 4096;

FrameForm camera(std::uint32_t units = 64) {
  ReorderConfig config;
  config.name_ = "camera";
  config.frame_.shape_ = {32, 64};
  config.frame_.dtype_ = "uint16";
  config.columns_ = {{"first", {}}};
  // Else its rows are the larger part of a file.
  if (units == 64) config.columns_.push_back({"each", {}, ReorderColumnSource::PACKETS});
  FrameForm form(config, units);
  form.reductions = {"half"};
  return form;
}

/// Frames of one packet each, with their metadata.
class Frames {
 public:
  explicit Frames(std::uint32_t units = 64)
      : valid_(units / 64, ~std::uint64_t{0}), columns_(1 + units) {}

  HeldBurst next() {
    HeldBurst made;
    const Bytes bytes(FRAME_BYTES, static_cast<std::uint8_t>(++number_));
    REQUIRE(within_limit([&] {
      made = bench_.burst_or_none({{bytes}}, number_);
      return made != nullptr;
    }));
    made->last_time = number_;
    made->reorder.batch_id = number_;
    made->reorder.source_packet_count = 1;
    made->missing = 0;
    made->lost = 0;
    made->valid = valid_.data();
    made->units = static_cast<std::uint32_t>(64 * valid_.size());
    std::iota(columns_.begin(), columns_.end(), 1000 * number_);
    made->reorder.columns = columns_.data();
    made->reorder.num_column_values = static_cast<std::uint32_t>(columns_.size());
    return made;
  }
  std::uint32_t write(FrameWriter& writer) {
    return writer.write(*next(), 0, 1, RecordWriter::NO_LIMIT);
  }

 private:
  Bench bench_{1, 8, FRAME_BYTES};
  std::vector<std::uint64_t> valid_;
  /// The number of the frame times 1000, then one more for each packet.
  std::vector<std::uint64_t> columns_;
  std::uint64_t number_{0};
};

/// Whether files in `dir` can be written directly.
bool direct_possible(const TempDir& dir) {
  std::string why_not;
  const bool possible =
      possible_writer(WriterKind::DIRECT, dir.path(), why_not) == WriterKind::DIRECT;
  if (!possible) WARN("not tested: " << why_not);
  return possible;
}

/// With `kind` CUFILE, frames are in device memory.
std::unique_ptr<FrameWriter> make_writer(WriterKind kind, std::uint32_t units = 64) {
  std::unique_ptr<WriteBackend> backend;
  if (kind == WriterKind::DIRECT) backend = direct_backend();
  if (kind == WriterKind::CUFILE) backend = std::make_unique<DeviceBackend>();
  auto writer = std::make_unique<FrameWriter>(camera(units), nullptr, std::move(backend));
  writer->reduce_with([](const Burst& frame, std::span<double> numbers) {
    numbers[0] = static_cast<double>(frame.reorder.batch_id) / 2;
  });
  return writer;
}

/// A source whose frames come from the test.
class MadeSource final : public RecordingSource {
 public:
  /// Whether a direct writer is available.
  bool direct{false};

  void detach() noexcept override {}
  Burst* receive() noexcept override { return nullptr; }
  [[nodiscard]] bool closed() const noexcept override { return true; }
  WaitQueue& ready() noexcept override { return ready_; }
  std::uint32_t start_of(const Burst& /*burst*/, FlowId /*flow*/) noexcept override { return 0; }
  [[nodiscard]] std::uint64_t held() const noexcept override { return 0; }
  [[nodiscard]] SourceCounters counters() const noexcept override {
    return reorder::ReorderSnapshot{};
  }
  [[nodiscard]] std::unique_ptr<RecordWriter> make_writer(const RecorderOptions& /*options*/,
                                                          WriterKind kind) const override {
    if (kind == WriterKind::DIRECT && !direct)
      throw Error(Status::GENERIC_FAILURE, "no more threads");
    return ::make_writer(kind);
  }
  [[nodiscard]] const char* kind() const noexcept override { return "reorder_plan"; }
  void describe(const RecorderOptions& /*options*/, JsonObject& /*object*/) const override {}
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const std::string& interface() const noexcept override { return name_; }
  [[nodiscard]] bool has_flow(const FlowConfig& /*flow*/) const noexcept override { return false; }
  [[nodiscard]] int port() const noexcept override { return 0; }

 private:
  std::string name_{"made"};
  WaitQueue ready_;
};

std::shared_ptr<Session> quiet_session() {
  NetworkConfig config = loopback_config(64, 500, 64);
  config.log_level_ = LogLevel::OFF;
  return Session::open(std::move(config));
}

/// What a file says of its frames.
class StoredFrames {
 public:
  explicit StoredFrames(const std::string& path)
      : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "open") {}
  /// Elements of a dataset.
  template <typename Value>
  [[nodiscard]] std::vector<Value> read(const char* name) const {
    const hdf5::Handle dataset(
        H5Dopen2(file_, (detector_of(camera()) + "/" + name).c_str(), H5P_DEFAULT), H5Dclose,
        "open");
    const hdf5::Handle space(H5Dget_space(dataset), H5Sclose, "read");
    const hdf5::Handle type(H5Dget_type(dataset), H5Tclose, "read");
    std::vector<Value> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    hdf5::require(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0,
                  "read");
    return values;
  }
  template <typename Value>
  [[nodiscard]] std::vector<Value> read(FrameColumn column) const {
    return read<Value>(name_of(column));
  }

 private:
  hdf5::Handle file_;
};

}  // namespace

TEST_CASE("A disk error while rows are written costs no row that a file says it has",
          "[storage][frames]") {
  const TempDir dir("/var/tmp");
  const WriterKind kind = GENERATE(WriterKind::BUFFERED, WriterKind::DIRECT, WriterKind::CUFILE);
  if (kind == WriterKind::DIRECT && !direct_possible(dir)) return;
  bool interrupted = true;
  // Whether rows of frames were kept that were not in the file before the error.
  bool salvaged = false;
  int turn = 0;
  for (; interrupted && turn < 100; turn += 3) {
    Frames frames;
    const std::string path = dir / (std::to_string(turn) + ".h5");
    const auto writer = make_writer(kind);
    writer->create(path);
    const auto write = [&](int n) {
      int written = 0;
      while (written < n && frames.write(*writer) == 1) ++written;
      return written;
    };
    REQUIRE(write(1020) == 1020);
    writer->sync();
    REQUIRE(write(10) == 10);
    {
      const FailingWrite fault(false, turn, EIO);
      writer->sync();
      CHECK(writer->still_there());
      write(10);
      writer->close(false);
      interrupted = fault.met();
    }
    INFO(turn << ": " << writer->error());
    CHECK(writer->failed() == interrupted);
    const std::uint64_t kept = writer->records();
    CHECK(kept >= 1020);
    salvaged = salvaged || kept == 1030;
    const StoredFrames stored(path);
    std::vector<std::uint64_t> numbers(kept);
    std::iota(numbers.begin(), numbers.end(), 1U);
    const std::vector<std::uint64_t>& times = numbers;
    CHECK(stored.read<std::uint64_t>(FrameColumn::BATCH) == numbers);
    CHECK(stored.read<std::uint64_t>(FrameColumn::TIMESTAMP) == times);
    CHECK(stored.read<std::uint64_t>(FrameColumn::LAST_TIMESTAMP) == times);
    CHECK(stored.read<std::uint32_t>(FrameColumn::PACKETS) == std::vector<std::uint32_t>(kept, 1));
    std::vector<double> halves(numbers.begin(), numbers.end());
    for (double& half : halves) half /= 2;
    CHECK(stored.read<double>("half") == halves);
    std::vector<std::uint64_t> firsts;
    std::vector<std::uint64_t> each;
    for (const std::uint64_t number : numbers) {
      firsts.push_back(1000 * number);
      for (std::uint64_t packet = 1; packet <= 64; ++packet) each.push_back(1000 * number + packet);
    }
    CHECK(stored.read<std::uint64_t>("first") == firsts);
    CHECK(stored.read<std::uint64_t>("each") == each);
    CHECK(stored.read<std::uint8_t>(FrameColumn::LOSSY).size() == kept);
    CHECK(stored.read<std::uint8_t>(FrameColumn::VALID) ==
          std::vector<std::uint8_t>(8 * kept, 255));
    // All bytes of a frame are its number.
    std::vector<std::uint16_t> pixels;
    for (const std::uint64_t number : numbers)
      pixels.insert(pixels.end(), FRAME_BYTES / 2,
                    static_cast<std::uint16_t>((number & 255U) * 257U));
    CHECK(stored.read<std::uint16_t>("data") == pixels);
  }
  CHECK(!interrupted);
  CHECK(salvaged);
  CHECK(turn > 8);
}

TEST_CASE("A file of frames that cannot be cut after an error has those that it tells",
          "[storage][frames]") {
  const TempDir dir("/var/tmp");
  bool interrupted = true;
  int turn = 0;
  for (; interrupted && turn < 100; ++turn) {
    Frames frames;
    const std::string path = dir / (std::to_string(turn) + ".h5");
    const auto writer = make_writer(WriterKind::BUFFERED);
    writer->create(path);
    for (int i = 0; i < 5; ++i) REQUIRE(frames.write(*writer) == 1);
    writer->sync();
    for (int i = 0; i < 5; ++i) REQUIRE(frames.write(*writer) == 1);
    {
      const FailingWrite fault(false, 0, EIO);
      const FailingCut cut(turn);
      writer->sync();
      interrupted = cut.met();
      writer->close(false);
    }
    INFO(turn << ": " << writer->error());
    CHECK(writer->failed());
    CHECK(writer->records() == (interrupted ? 5 : 10));
    CHECK(StoredFrames(path).read<std::uint64_t>(FrameColumn::BATCH).size() == writer->records());
  }
  CHECK(!interrupted);
  CHECK(turn > 1);
}

TEST_CASE("A rewind that a disk interrupts leaves a file of the frames that were kept",
          "[storage][frames]") {
  const TempDir dir("/var/tmp");
  const WriterKind kind = GENERATE(WriterKind::BUFFERED, WriterKind::DIRECT, WriterKind::CUFILE);
  if (kind == WriterKind::DIRECT && !direct_possible(dir)) return;
  Frames frames;
  bool interrupted = true;
  int turn = 0;
  for (; interrupted && turn < 100; ++turn) {
    const std::string path = dir / (std::to_string(turn) + ".h5");
    const auto writer = make_writer(kind);
    writer->create(path);
    for (int i = 0; i < 10; ++i) REQUIRE(frames.write(*writer) == 1);
    writer->sync();
    {
      const FailingWrite fault(false, turn, EIO);
      const bool done = writer->rewind(4);
      interrupted = fault.met();
      CHECK(done == !interrupted);
    }
    writer->close(false);
    INFO(turn << ": " << writer->error());
    CHECK(writer->failed() == interrupted);
    CHECK(writer->records() == 4);
    CHECK(writer->tally().packets == 4);
    const FoundFrames found = examine_frames(path, false);
    CHECK(found.frames == 4);
    CHECK(found.packets == 4);
    for (const auto& [name, length] : found.lengths) CHECK(length >= 4);
    CHECK(found.lengths.back().second == 4);
  }
  CHECK(!interrupted);
  CHECK(turn > 1);
}

TEST_CASE("Frames that are taken out of a file are those of the next", "[storage][frames]") {
  const TempDir dir("/var/tmp");
  const WriterKind kind = GENERATE(WriterKind::BUFFERED, WriterKind::DIRECT, WriterKind::CUFILE);
  if (kind == WriterKind::DIRECT && !direct_possible(dir)) return;
  Frames frames;
  const auto writer = make_writer(kind);
  writer->create(dir / "first.h5");
  for (int i = 0; i < 10; ++i) REQUIRE(frames.write(*writer) == 1);
  REQUIRE(writer->rewind(8));
  const auto taken = writer->take_back(3);
  REQUIRE(taken != nullptr);
  writer->create(dir / "second.h5");
  REQUIRE(writer->put_back(*taken));
  REQUIRE(frames.write(*writer) == 1);
  writer->close(false);
  CHECK(writer->error().empty());
  CHECK(examine_frames(dir / "first.h5", false).frames == 3);
  CHECK(examine_frames(dir / "second.h5", false).frames == 6);
  // All bytes of a frame are its number.
  const Bytes bytes = read_file(dir / "second.h5");
  for (const std::uint8_t number : {4, 5, 6, 7, 8, 11})
    CHECK(std::ranges::count(bytes, number) >= FRAME_BYTES);
}

TEST_CASE("A file of frames that has no more room keeps all that were written",
          "[storage][frames]") {
  const TempDir dir("/var/tmp");
  // The valid bits of a frame take more than half a block.
  constexpr std::uint32_t UNITS = 8 * 38'400;
  constexpr rlim_t MOST = 19'500'000;
  const WriterKind kind = GENERATE(WriterKind::BUFFERED, WriterKind::DIRECT);
  if (kind == WriterKind::DIRECT && !direct_possible(dir)) return;
  Frames frames(UNITS);
  const std::string path = dir / "full.h5";
  const auto writer = make_writer(kind, UNITS);
  std::uint64_t written = 0;
  {
    const FileSizeLimit limit(MOST);
    writer->create(path);
    while (written < 10'000 && frames.write(*writer) == 1) ++written;
    writer->close(false);
  }
  INFO(writer->error());
  CHECK(writer->failed());
  CHECK(written > 200);
  CHECK(writer->records() == written);
  const FoundFrames found = examine_frames(path, false);
  CHECK(found.frames == written);
  for (const auto& [name, length] : found.lengths) CHECK(length == written);
}

TEST_CASE("A recorder that gets no direct writer has a buffered one", "[storage][frames]") {
  const TempDir dir("/var/tmp");
  if (!direct_possible(dir)) return;
  const auto session = quiet_session();
  MadeSource source;
  source.direct = GENERATE(true, false);
  RecorderOptions options;
  options.directory = dir.path();
  options.writer = GENERATE(WriterKind::AUTO, WriterKind::DIRECT);
  CaptureFiles files(options, *session, source);
  CHECK(files.writer_name() == (source.direct ? "direct" : "buffered"));
  files.finish();
  CHECK(files.error().empty());
}

TEST_CASE("The first frame of a file tells what was lost with the one before",
          "[storage][frames]") {
  const TempDir dir("/var/tmp");
  const auto session = quiet_session();
  MadeSource source;
  RecorderOptions options;
  options.directory = dir.path();
  options.on_error = OnError::RESUME;
  CaptureFiles files(options, *session, source);
  Frames frames;
  const auto write = [&] {
    const HeldBurst frame = frames.next();
    files.write(*frame, 0, 1);
    return frame->lossy;
  };
  CHECK(!write());
  CHECK(!write());
  {
    // There is no space for the next file; nothing is lost.
    const FileSizeLimit limit(1000);
    files.complete();
  }
  REQUIRE(files.failing());
  REQUIRE(files.counts().lost == 0);
  REQUIRE(unlink(std::string(files.path()).c_str()) == 0);
  // The next attempt follows only after some time.
  const std::uint64_t failed_at = monotonic_ns();
  REQUIRE(within_limit([&] { return monotonic_ns() > failed_at + 600'000'000; }));
  CHECK(write());
  CHECK(files.counts().lost == 2);
  CHECK(files.counts().records == 1);
  CHECK(!write());
  files.finish();
}

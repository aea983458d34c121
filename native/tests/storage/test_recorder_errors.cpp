// Recording to full disks and removed directories.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "storage/file_write.h"
#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

/// A file system of 256 KiB; `mounted` is false if mounting is not permitted.
class SmallDisk {
 public:
  SmallDisk() { mounted = mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=256k") == 0; }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  [[nodiscard]] const TempDir& dir() const { return dir_; }
  bool mounted{false};

 private:
  TempDir dir_;
};

bool skipped(const SmallDisk& disk) {
  if (!disk.mounted)
    WARN("skipped: mounting a small tmpfs needs root (" << std::strerror(errno) << ")");
  return !disk.mounted;
}

}  // namespace

TEST_CASE("On a full disk the file keeps whole records, and reception goes on",
          "[storage][recorder][disk]") {
  const SmallDisk disk;
  if (skipped(disk)) return;
  const auto session = Session::open(silent());
  RxQueue& rx = session->rx_queue(0, 0);
  Recorder recorder(session, rx, into(disk.dir().path()));
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 5000));
  REQUIRE(within_limit([&] {
    const RecorderSnapshot s = recorder.snapshot();
    return s.packets + s.dropped == 5000;
  }));
  const RecorderSnapshot snapshot = recorder.snapshot();
  CHECK(snapshot.running);
  CHECK(snapshot.packets > 1000);
  CHECK(snapshot.dropped > 1000);
  CHECK_THAT(snapshot.error,
             Contains(disk.dir() / "capture_000000.pcap") && Contains("No space left"));
  CHECK(rx.counters().dropped_total() == 0);
  const auto [status, text] = refusal([&] { recorder.roll(); });
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK(text == snapshot.error);
  recorder.stop();

  const auto files = recorder.files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].packets == snapshot.packets);
  CHECK(files[0].dropped == snapshot.dropped);
  const Bytes file = read_file(files[0].path);
  const PcapIndex index = index_pcap(file.data(), file.size(), files[0].path);
  CHECK(index.offsets.size() == snapshot.packets);
  CHECK(index.torn_bytes == 0);
  CHECK(tcpdump(files[0].path).size() == snapshot.packets);
  // Space for the metadata was reserved at the start.
  const Bytes json = read_file(files[0].path + ".json");
  CHECK_THAT(std::string(json.begin(), json.end()),
             Contains("\"write_error\": " + std::to_string(snapshot.dropped)));
  CHECK(disk.dir().names().size() == 2);
}

TEST_CASE("A recorder cannot begin on a full disk", "[storage][recorder][disk]") {
  const SmallDisk disk;
  if (skipped(disk)) return;
  {
    std::ofstream fill(disk.dir() / "fill", std::ios::binary);
    fill << std::string(300'000, 'x');
  }
  const auto session = Session::open(loopback_config());
  const auto [status, text] =
      refusal([&] { Recorder(session, session->rx_queue(0, 0), into(disk.dir().path())); });
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK_THAT(text, Contains("capture_000000.pcap") && Contains("No space left"));
  CHECK(disk.dir().names() == std::vector<std::string>{"fill"});
  CHECK(session->rx_queue(0, 0).recorder().empty());
}

TEST_CASE("A burst that does not fit the disk is cut to whole records", "[storage][file][disk]") {
  const SmallDisk disk;
  if (skipped(disk)) return;
  const std::uint32_t length = GENERATE(100U, 1000U);
  const std::uint32_t count = 400'000 / length;
  Bench bench(1, count);
  const auto burst = bench.burst(count, length);
  const auto [status, text] = refusal([&] { write_pcap(*burst, disk.dir().path(), "run"); });
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK_THAT(text, Contains(disk.dir() / "run.pcap") && Contains("No space left"));
  const std::size_t packets = tcpdump(disk.dir() / "run.pcap").size();
  CHECK(packets > count / 2);
  CHECK(std::filesystem::file_size(disk.dir() / "run.pcap") == 24 + packets * (16 + length));
  // The part that did not fit is missing; data that fits can still be appended.
  const auto handle = start_write_pcap(*burst, disk.dir().path(), "run");
  handle->wait();
  CHECK(handle->status() == Status::GENERIC_FAILURE);
  CHECK(handle->counts().completed_packets + handle->counts().failed_packets == count);
  CHECK(handle->counts().completed_packets == tcpdump(disk.dir() / "run.pcap").size() - packets);
  CHECK(handle->counts().failed_packets > count - 10);

  const auto raw = start_write_raw(*burst, disk.dir().path(), "p");
  raw->wait();
  CHECK(raw->status() == Status::GENERIC_FAILURE);
  CHECK_THAT(raw->error(), Contains("No space left"));
  CHECK(disk.dir().names().size() == 1 + raw->counts().completed_packets);
}

TEST_CASE("A recorder that is refused loses packets by name until it may write again",
          "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);
  RecorderOptions options = into(dir.path());
  options.on_error = GENERATE(OnError::STOP, OnError::RESUME);
  Recorder recorder(session, rx, options);
  const auto taken = [&](std::uint64_t packets) {
    return within_limit([&] {
      const RecorderSnapshot s = recorder.snapshot();
      return s.packets + s.dropped == packets;
    });
  };
  REQUIRE(send_frames(tx, 5000, 0, 100));
  REQUIRE(taken(100));
  recorder.refuse("1.5 GB are not in the store");
  REQUIRE(within_limit([&] { return recorder.snapshot().failing; }));
  REQUIRE(send_frames(tx, 5000, 100, 100));
  REQUIRE(taken(200));
  recorder.refuse("");
  const bool resumes = options.on_error == OnError::RESUME;
  if (resumes) {
    REQUIRE(within_limit([&] { return !recorder.snapshot().failing; }));
    REQUIRE(send_frames(tx, 5000, 200, 50));
    REQUIRE(taken(250));
  }
  recorder.stop();
  CHECK(recorder.snapshot().error == "1.5 GB are not in the store");
  CHECK(recorder.snapshot().packets == (resumes ? 150 : 100));
  CHECK(recorder.snapshot().dropped == 100);
  const auto files = recorder.files();
  REQUIRE(files.size() == (resumes ? 2 : 1));
  CHECK(files[0].packets == 100);
  CHECK(files[0].dropped == 100);
}

TEST_CASE("A directory that is removed ends the recording, not the reception",
          "[storage][recorder][disk]") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "captures");
  const auto session = Session::open(silent());
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);
  RecorderOptions options = into(dir / "captures");
  const bool between_files = GENERATE(false, true);
  if (between_files) options.roll_packets = 100;
  Recorder recorder(session, rx, options);
  REQUIRE(send_frames(tx, 5000, 0, 100));
  REQUIRE(within_limit([&] { return recorder.snapshot().packets == 100; }));
  if (between_files) REQUIRE(within_limit([&] { return recorder.snapshot().files == 1; }));
  std::filesystem::remove_all(dir / "captures");
  if (between_files) REQUIRE(send_frames(tx, 5000, 100, 10));
  // Detected even without traffic.
  REQUIRE(within_limit([&] { return !recorder.snapshot().error.empty(); }));
  CHECK_THAT(recorder.snapshot().error, Contains(dir / "captures/capture_00000"));
  CHECK_THAT(recorder.snapshot().error, Contains(between_files ? "No such file" : "was removed"));
  REQUIRE(send_frames(tx, 5000, 200, 1000));
  REQUIRE(within_limit([&] {
    const RecorderSnapshot s = recorder.snapshot();
    return s.packets + s.dropped == (between_files ? 1110 : 1100);
  }));
  CHECK(recorder.snapshot().packets == (between_files ? 100 : 0));
  CHECK(rx.counters().dropped_total() == 0);
  CHECK(recorder.snapshot().unreported == 0);
  recorder.stop();
  CHECK(recorder.files().size() == (between_files ? 1 : 0));
  CHECK_FALSE(std::filesystem::exists(dir / "captures"));
  // There is no metadata file to report it.
  CHECK(recorder.snapshot().unreported == recorder.snapshot().dropped);
}

TEST_CASE("A file that somebody cuts while it is written is lost, and told so",
          "[storage][recorder][disk]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  TxQueue& tx = session->tx_queue(0, 0);
  RecorderOptions options = into(dir.path());
  options.on_error = OnError::RESUME;
  options.format = GENERATE(CaptureFormat::PCAP, CaptureFormat::RAW);
  const std::uintmax_t cut_to = GENERATE(0, 1000);
  Recorder recorder(session, session->rx_queue(0, 0), options);
  REQUIRE(send_frames(tx, 5000, 0, 200));
  REQUIRE(within_limit([&] { return recorder.snapshot().flushed == 200; }));
  const std::string name =
      options.format == CaptureFormat::PCAP ? "capture_000000.pcap" : "capture_000000.raw";
  std::filesystem::resize_file(dir / name, cut_to);
  REQUIRE(send_frames(tx, 5000, 200, 100));
  REQUIRE(within_limit([&] { return recorder.snapshot().dropped >= 200; }));
  CHECK_THAT(recorder.snapshot().error, Contains(dir / name) && Contains("cut"));
  REQUIRE(within_limit([&] { return !recorder.snapshot().failing; }));
  REQUIRE(send_frames(tx, 5000, 300, 50));
  REQUIRE(within_limit([&] { return recorder.snapshot().packets >= 50; }));
  recorder.stop();
  const RecorderSnapshot snapshot = recorder.snapshot();
  CHECK(snapshot.packets + snapshot.dropped == 350);
  const auto files = recorder.files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].packets == snapshot.packets);
  CHECK(files[0].dropped == snapshot.dropped);
  CHECK_FALSE(std::filesystem::exists(dir / name));
}

TEST_CASE("Short packets are in the file soon, without later ones", "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  RecorderOptions options = into(dir.path());
  options.format = GENERATE(CaptureFormat::PCAP, CaptureFormat::RAW);
  Recorder recorder(session, session->rx_queue(0, 0), options);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  REQUIRE(within_limit([&] { return recorder.snapshot().flushed == 10; }));
  if (options.format == CaptureFormat::PCAP)
    CHECK(numbers_in(dir / "capture_000000.pcap") == counted(0, 10));
}

TEST_CASE("Short packets of a file that somebody removes are counted", "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  TxQueue& tx = session->tx_queue(0, 0);
  RecorderOptions options = into(dir.path());
  options.on_error = OnError::RESUME;
  Recorder recorder(session, session->rx_queue(0, 0), options);
  REQUIRE(send_frames(tx, 5000, 0, 200));
  // Some may be held back yet.
  REQUIRE(within_limit([&] { return recorder.snapshot().packets == 200; }));
  std::filesystem::remove(dir / "capture_000000.pcap");
  // More than are held back at once.
  REQUIRE(send_frames(tx, 5000, 200, 3000));
  REQUIRE(within_limit([&] {
    const RecorderSnapshot s = recorder.snapshot();
    return s.dropped >= 200 && s.packets + s.dropped == 3200 && !s.failing;
  }));
  REQUIRE(send_frames(tx, 5000, 3200, 100));
  REQUIRE(within_limit([&] {
    const RecorderSnapshot s = recorder.snapshot();
    return s.packets + s.dropped == 3300;
  }));
  recorder.stop();
  CHECK_THAT(recorder.snapshot().error, Contains("was removed or cut"));
  const auto files = recorder.files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].packets >= 100);
  CHECK(files[0].packets + files[0].dropped == 3300);
  CHECK(numbers_in(files) == counted(3300 - static_cast<std::uint32_t>(files[0].packets),
                                     static_cast<std::uint32_t>(files[0].packets)));
  CHECK_FALSE(std::filesystem::exists(dir / "capture_000000.pcap"));
}

TEST_CASE("Packets that are lost after they were held back do not count for the limit",
          "[storage][recorder][disk]") {
  const SmallDisk disk;
  if (skipped(disk)) return;
  const auto session = Session::open(silent());
  TxQueue& tx = session->tx_queue(0, 0);
  RecorderOptions options = into(disk.dir().path());
  options.on_error = OnError::RESUME;
  options.max_packets = 300;
  // The last one is held back, too; or they are put into the file by a roll.
  const std::uint32_t sent = GENERATE(200U, 300U);
  const bool rolls = GENERATE(false, true);
  Recorder recorder(session, session->rx_queue(0, 0), options);
  std::ofstream(disk.dir() / "fill", std::ios::binary) << std::string(300'000, 'x');
  REQUIRE(send_frames(tx, 5000, 0, sent));
  if (rolls) refusal([&] { recorder.roll(); });
  REQUIRE(within_limit([&] { return recorder.snapshot().dropped > 0; }));
  CHECK(recorder.snapshot().running);
  std::filesystem::remove(disk.dir() / "fill");
  REQUIRE(within_limit([&] { return !recorder.snapshot().failing; }));
  REQUIRE(send_frames(tx, 5000, sent, 300));
  REQUIRE(within_limit([&] { return !recorder.snapshot().running; }));
  const RecorderSnapshot snapshot = recorder.snapshot();
  CHECK(snapshot.limit_reached);
  CHECK(snapshot.packets == 300);
  CHECK(numbers_in(recorder.files()).size() == 300);
}

TEST_CASE("Where there may be no more threads nothing is begun, and the reason is told",
          "[storage][recorder]") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: the thread sanitizer does not follow threads of forked children");
  return;
#endif
  const TempDir dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = [](const auto& action) {
      const auto [status, text] = refusal(action);
      return status == Status::GENERIC_FAILURE && text.find("cannot start a thread") == 0;
    };
    setenv("XDG_RUNTIME_DIR", dir.path().c_str(), 1);
    // Limits do not apply to root.
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
    auto session = Session::open(silent());
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_NPROC, &limit);
    bool good = refused([&] { Recorder(session, session->rx_queue(0, 0), into(dir.path())); });
    good = good && refused([] { Session::open(silent()); });
    session.reset();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(within_limit([&] { return waitpid(child, &status, WNOHANG) == child; }));
  CHECK(status == 0);
  CHECK(dir.names() == std::vector<std::string>{"daqiri"});
  CHECK(std::filesystem::is_empty(dir / "daqiri"));
}

TEST_CASE("A recorder that lacks descriptors leaves nothing, however few there are",
          "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  const auto format = GENERATE(CaptureFormat::PCAP, CaptureFormat::RAW);
  RecorderOptions options = into(dir.path());
  options.format = format;
  const int first_free = ::dup(0);
  ::close(first_free);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  bool started = false;
  for (rlim_t n = 0; n < 32 && !started; ++n) {
    const rlimit few{static_cast<rlim_t>(first_free) + n, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    const auto [status, text] = refusal([&] {
      Recorder recorder(session, session->rx_queue(0, 0), options);
      recorder.stop();
    });
    setrlimit(RLIMIT_NOFILE, &limit);
    started = status == Status::SUCCESS;
    if (started) break;
    INFO(n << " descriptors: " << text);
    REQUIRE(dir.names().empty());
  }
  CHECK(started);
}

TEST_CASE("What a disk that stays full costs is told by files", "[storage][recorder][disk]") {
  const SmallDisk disk;
  if (skipped(disk)) return;
  const auto session = Session::open(silent());
  RxQueue& rx = session->rx_queue(0, 0);
  RecorderOptions options = into(disk.dir().path());
  options.on_error = GENERATE(OnError::STOP, OnError::RESUME);
  options.format = GENERATE(CaptureFormat::PCAP, CaptureFormat::RAW);
  options.roll_packets = 300;
  Recorder recorder(session, rx, options);
  TxQueue& tx = session->tx_queue(0, 0);
  for (std::uint32_t i = 0; i < 6; ++i) {
    REQUIRE(send_frames(tx, 5000, i * 1000, 1000));
    REQUIRE(within_limit([&] {
      const RecorderSnapshot s = recorder.snapshot();
      return s.packets + s.dropped == (i + 1) * 1000;
    }));
    // A recorder with on_error resume tries again twice a second.
    if (i == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  }
  recorder.stop();
  const RecorderSnapshot snapshot = recorder.snapshot();
  CHECK(snapshot.packets > 500);
  CHECK(snapshot.dropped > 1000);
  std::uint64_t packets = 0, dropped = 0, told = 0;
  for (const RecordedFile& file : recorder.files()) {
    packets += file.packets;
    dropped += file.dropped;
    const Bytes json = read_file(file.path + ".json");
    const std::string text(json.begin(), json.end());
    const std::size_t at = text.find("\"dropped\": ");
    REQUIRE(at != std::string::npos);
    told += std::stoull(text.substr(at + 11));
  }
  CHECK(packets == snapshot.packets);
  CHECK(dropped == snapshot.dropped);
  CHECK(told == snapshot.dropped);
  CHECK(snapshot.unreported == 0);
  // Failed attempts do not each create a file.
  CHECK(recorder.files().size() < 12);
}

TEST_CASE("A file whose successor cannot be made stays the current one", "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);
  RecorderOptions options = into(dir.path());
  options.on_error = GENERATE(OnError::STOP, OnError::RESUME);
  options.roll_packets = 500;
  Recorder recorder(session, rx, options);
  REQUIRE(send_frames(tx, 5000, 0, 100));
  REQUIRE(within_limit([&] { return recorder.snapshot().packets == 100; }));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const bool sent = send_frames(tx, 5000, 100, 1400);
  const bool taken = within_limit([&] {
    const RecorderSnapshot s = recorder.snapshot();
    return s.packets + s.dropped == 1500;
  });
  const RecorderSnapshot failing = recorder.snapshot();
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE((sent && taken));
  CHECK(failing.packets == 500);
  CHECK(failing.flushed == 500);
  CHECK(failing.files == 0);
  CHECK_THAT(failing.error, Contains("Too many open files"));
  std::uint64_t after = 0;
  if (options.on_error == OnError::RESUME) {
    REQUIRE(within_limit([&] { return !recorder.snapshot().failing; }));
    after = 100;
    REQUIRE(send_frames(tx, 5000, 1500, 100));
    REQUIRE(within_limit([&] { return recorder.snapshot().packets == 600; }));
  }
  recorder.stop();
  const auto files = recorder.files();
  REQUIRE(files.size() == (after > 0 ? 2 : 1));
  CHECK(files[0].packets == 500);
  CHECK(files[0].dropped == 1000);
  if (after > 0) {
    CHECK(files[1].packets == 100);
    CHECK(files[1].dropped == 0);
  }
}

TEST_CASE("Of a raw capture that goes before its metadata are there, nothing stays",
          "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  RecorderOptions options = into(dir.path());
  options.format = CaptureFormat::RAW;
  Recorder recorder(session, session->rx_queue(0, 0), options);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  REQUIRE(within_limit([&] { return recorder.snapshot().packets == 10; }));
  // Keep it under another name, so that the loss is detected only after the file was closed.
  std::filesystem::create_hard_link(dir / "capture_000000.raw", dir / "kept");
  REQUIRE(std::filesystem::remove(dir / "capture_000000.raw"));
  REQUIRE(std::filesystem::remove(dir / ".capture_000000.raw.json.part"));
  CHECK(refusal([&] { recorder.roll(); }).first == Status::GENERIC_FAILURE);
  recorder.stop();
  CHECK(recorder.snapshot().dropped == 10);
  const auto files = recorder.files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].dropped == 10);
  CHECK(dir.names() == std::vector<std::string>{"capture_000001.raw", "capture_000001.raw.json",
                                                "capture_000001.raw.npy", "kept"});
}

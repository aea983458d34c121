// Files of other recorders, running or killed, that a recorder finds.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

namespace {

RecorderOptions to_folder(const std::string& directory, OnError on_error = OnError::STOP) {
  RecorderOptions options;
  options.directory = directory;
  options.on_error = on_error;
  options.roll_packets = 100;
  return options;
}

NetworkConfig without_log() {
  NetworkConfig config = roomy_config();
  config.log_level_ = LogLevel::OFF;
  return config;
}

}  // namespace

TEST_CASE("What a killed recorder left is removed by the next one in the directory",
          "[storage][recorder]") {
  const TempDir dir;
  write_file(dir / ".old_000003.pcap.json.part", Bytes(3000, ' '));
  write_file(dir / ".gone_000001.pcap.json.part", Bytes(3000, ' '));
  write_file(dir / "old_000003.pcap", Bytes(5000, 'x'));
  write_file(dir / ".other", {1});
  // Blocks after the end of the file, as a recorder reserves them.
  const File old(open((dir / "old_000003.pcap").c_str(), O_RDWR | O_CLOEXEC));
  const bool allocates = fallocate(old.fd(), FALLOC_FL_KEEP_SIZE, 5000, 4 << 20) == 0;
  // The file of a running recorder.
  write_file(dir / ".live_000000.pcap.json.part", Bytes(3000, ' '));
  const File live(open((dir / ".live_000000.pcap.json.part").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(flock(live.fd(), LOCK_EX | LOCK_NB) == 0);

  Recording r(to_folder(dir.path()));
  CHECK(dir.names() == std::vector<std::string>{".capture_000000.pcap.json.part",
                                                ".live_000000.pcap.json.part", ".other",
                                                "capture_000000.pcap", "old_000003.pcap"});
  struct stat found{};
  REQUIRE(fstat(old.fd(), &found) == 0);
  CHECK(found.st_size == 5000);
  if (allocates) CHECK(found.st_blocks * 512 < 1 << 20);
}

TEST_CASE("A recorder does not write through a link that somebody has put in its way",
          "[storage][recorder]") {
  const TempDir dir;
  write_file(dir / "precious", {1, 2, 3});
  std::filesystem::create_symlink(dir / "precious", dir / ".capture_000001.pcap.json.part");
  Recording r(to_folder(dir.path()), without_log());
  r.send(0, 250);
  REQUIRE(r.recorded(250));
  r.recorder->stop();
  CHECK(read_file(dir / "precious") == Bytes{1, 2, 3});
  CHECK(std::filesystem::is_symlink(dir / ".capture_000001.pcap.json.part"));
  CHECK(r.recorder->files().size() == 3);
  CHECK_FALSE(std::filesystem::exists(dir / "capture_000001.pcap"));

  std::filesystem::create_symlink(dir / "precious", dir / ".first_000000.pcap.json.part");
  RecorderOptions options = to_folder(dir.path());
  options.prefix = "first";
  const auto [status, text] = refusal([&] { Recorder(r.session, r.rx, options); });
  CHECK(status == Status::INVALID_PARAMETER);
  CHECK_THAT(text, Contains("is not a regular file"));
  CHECK(read_file(dir / "precious") == Bytes{1, 2, 3});
}

TEST_CASE("A recording leaves out the number of a file that is in its way", "[storage][recorder]") {
  const TempDir dir;
  const OnError on_error = GENERATE(OnError::STOP, OnError::RESUME);
  write_file(dir / "capture_000002.pcap", {1, 2, 3});
  write_file(dir / "capture_000003.pcap", {1, 2, 3});
  Recording r(to_folder(dir.path(), on_error), without_log());
  r.send(0, 350);
  REQUIRE(r.recorded(350));
  r.recorder->stop();
  CHECK(r.recorder->snapshot().dropped == 0);
  std::vector<std::string> names;
  for (const RecordedFile& file : r.recorder->files())
    names.push_back(std::filesystem::path(file.path).filename());
  CHECK(names == std::vector<std::string>{"capture_000000.pcap", "capture_000001.pcap",
                                          "capture_000004.pcap", "capture_000005.pcap"});
  CHECK(read_file(dir / "capture_000002.pcap") == Bytes{1, 2, 3});
}

TEST_CASE("Two recordings that meet do not take each other's files", "[storage][recorder]") {
  const TempDir dir;
  Recording first(to_folder(dir.path()), without_log());
  RecorderOptions options = to_folder(dir.path());
  const auto session = Session::open(without_log());
  const auto [status, text] = refusal([&] { Recorder(session, session->rx_queue(0, 0), options); });
  CHECK(status == Status::INVALID_PARAMETER);
  options.first_number = 2;
  Recording second(options, without_log());
  first.send(0, 500);
  REQUIRE(first.recorded(500));
  second.send(0, 200);
  REQUIRE(second.recorded(200));
  first.recorder->stop();
  second.recorder->stop();
  std::uint64_t packets = 0;
  for (const Recording* r : {&first, &second}) {
    CHECK(r->recorder->snapshot().error.empty());
    for (const RecordedFile& file : r->recorder->files()) {
      packets += file.packets;
      CHECK(value_of(sidecar_of(file.path), "packets") == std::to_string(file.packets));
    }
  }
  CHECK(packets == 700);
}

TEST_CASE("A forked child neither holds up a recorder nor keeps its lock", "[storage][recorder]") {
  const TempDir dir;
  Recording r(to_folder(dir.path()));
  r.send(0, 50);
  REQUIRE(r.recorded(50));
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  r.recorder->stop();
  const File file(open((dir / "capture_000000.pcap").c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(flock(file.fd(), LOCK_EX | LOCK_NB) == 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(r.recorder->files().size() == 1);
}

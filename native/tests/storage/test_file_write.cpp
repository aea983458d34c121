#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "session/loopback_config.h"
#include "storage/bursts.h"
#include "storage/file_write.h"
#include "storage/packet_writer.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

TEST_CASE("A burst goes to a pcap file and is appended to it", "[storage][file]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(40, 300);
  const FileWriteStatus first = write_pcap(*burst, dir.path(), "run");
  CHECK(first.completed_packets == 40);
  CHECK(first.failed_packets == 0);
  CHECK(first.bytes_written == 24 + 40 * 316);
  const FileWriteStatus second = write_pcap(*burst, dir.path(), "run");
  CHECK(second.bytes_written == 40 * 316);
  CHECK(dir.names() == std::vector<std::string>{"run.pcap"});
  const auto seen = tcpdump(dir / "run.pcap");
  REQUIRE(seen.size() == 80);
  CHECK(seen[41].bytes == random_bytes(300, 1));
}

TEST_CASE("An empty burst leaves a pcap file without packets", "[storage][file]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(std::vector<std::vector<Bytes>>{});
  CHECK(write_pcap(*burst, dir.path(), "none").bytes_written == 24);
  CHECK(tcpdump(dir / "none.pcap").empty());
  CHECK(write_raw(*burst, dir.path(), "none").completed_packets == 0);
}

TEST_CASE("Each packet goes to a raw file of its own", "[storage][file]") {
  const TempDir dir;
  Bench bench(3);
  std::vector<std::vector<Bytes>> packets;
  Bytes last;
  for (std::uint32_t i = 0; i < 12; ++i) {
    packets.push_back({random_bytes(42, i), random_bytes(0, i), random_bytes(100 + i, 50 + i)});
    last = packets.back()[0];
    last.insert(last.end(), packets.back()[2].begin(), packets.back()[2].end());
  }
  const auto burst = bench.burst(packets);
  SECTION("whole") {
    write_file(dir / "p_11", Bytes(5000, 'x'));
    const FileWriteStatus done = write_raw(*burst, dir.path(), "p");
    CHECK(done.completed_packets == 12);
    CHECK(done.bytes_written == 12 * 142 + 66);
    CHECK(dir.names().size() == 12);
    CHECK(read_file(dir / "p_11") == last);
  }
  SECTION("without what lies before the offset") {
    const std::uint64_t offset = GENERATE(1, 42, 43, 150);
    write_raw(*burst, dir.path(), "p", offset);
    CHECK(read_file(dir / "p_11") ==
          Bytes(last.begin() + static_cast<std::ptrdiff_t>(offset), last.end()));
  }
  SECTION("an offset beyond the packet leaves an empty file") {
    CHECK(write_raw(*burst, dir.path(), "p", 145).bytes_written == 36);
    CHECK(read_file(dir / "p_0").empty());
    CHECK(read_file(dir / "p_11").size() == 8);
  }
}

TEST_CASE("Arguments are refused before a file is touched", "[storage][file]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(3, 100);
  const auto refused = [&](const std::string& directory, const std::string& prefix,
                           const std::string& expected) {
    for (const auto& call : {
             std::function<void()>([&] { write_pcap(*burst, directory, prefix); }),
             std::function<void()>([&] { write_raw(*burst, directory, prefix); }),
             std::function<void()>([&] { start_write_pcap(*burst, directory, prefix); }),
             std::function<void()>([&] { start_write_raw(*burst, directory, prefix); }),
         }) {
      const auto [status, text] = refusal(call);
      CHECK(status == Status::INVALID_PARAMETER);
      CHECK_THAT(text, Contains(expected));
    }
    CHECK(dir.names().empty());
  };
  SECTION("relative directory") { refused("tmp", "p", "not absolute"); }
  SECTION("no directory") { refused("", "p", "not absolute"); }
  SECTION("missing directory") { refused(dir / "missing", "p", "No such file"); }
  SECTION("a file as directory") { refused("/etc/passwd", "p", "not a directory"); }
  SECTION("empty prefix") { refused(dir.path(), "", "prefix"); }
  SECTION("prefix with a slash") { refused(dir.path(), "a/b", "prefix 'a/b'"); }
  SECTION("prefix with a backslash") { refused(dir.path(), "a\\b", "prefix"); }
  SECTION("prefix with a NUL") { refused(dir.path(), std::string("a\0b", 3), "prefix"); }
  SECTION("a freed packet") {
    burst->free_packet(1);
    refused(dir.path(), "p", "packet 1 of the burst was freed");
  }
  SECTION("more packets than there are") {
    burst->hdr.hdr.num_pkts = 4;
    refused(dir.path(), "p", "counts 4 packets and holds 3");
  }
}

TEST_CASE("A handle tells how a write in the background went", "[storage][file]") {
  const TempDir dir;
  Bench bench(1, 1000);
  const auto burst = bench.burst(1000, 200);
  SECTION("pcap") {
    const auto handle = start_write_pcap(*burst, dir.path(), "run", true);
    REQUIRE(handle->wait(10'000'000'000));
    CHECK(handle->done());
    CHECK(handle->status() == Status::SUCCESS);
    CHECK(handle->error().empty());
    CHECK(handle->counts().completed_packets == 1000);
    CHECK(handle->counts().bytes_written == 24 + 1000 * 216);
    CHECK(tshark(dir / "run.pcap", {"frame.len"}).size() == 1000);
  }
  SECTION("raw") {
    const auto handle = start_write_raw(*burst, dir.path(), "p", 150);
    REQUIRE(handle->wait());
    CHECK(handle->counts().completed_packets == 1000);
    CHECK(handle->counts().bytes_written == 1000 * 50);
    CHECK(dir.names().size() == 1000);
  }
  SECTION("in the order of their start, one after the other") {
    std::vector<std::shared_ptr<FileWriteHandle>> handles;
    for (int i = 0; i < 20; ++i) handles.push_back(start_write_pcap(*burst, dir.path(), "run"));
    handles.back()->wait();
    for (const auto& handle : handles) CHECK(handle->status() == Status::SUCCESS);
    CHECK(std::filesystem::file_size(dir / "run.pcap") == 24 + 20'000 * 216);
  }
  SECTION("whose handle nobody keeps") {
    start_write_pcap(*burst, dir.path(), "run");
    start_write_pcap(*burst, dir.path(), "run")->wait();
    CHECK(std::filesystem::file_size(dir / "run.pcap") == 24 + 2000 * 216);
  }
  SECTION("to a file that stays locked") {
    PacketWriter busy;
    busy.append(dir / "run.pcap");
    const auto handle = start_write_pcap(*burst, dir.path(), "run");
    REQUIRE(handle->wait(60'000'000'000));
    CHECK(handle->status() == Status::GENERIC_FAILURE);
    CHECK_THAT(handle->error(),
               Contains("run.pcap") && Contains("being written by another writer"));
  }
  SECTION("beside writes to a locked file, which keep their turn") {
    std::vector<std::shared_ptr<FileWriteHandle>> locked;
    {
      PacketWriter busy;
      busy.append(dir / "run.pcap");
      // Each is tried for a second; together they would take much longer than this test.
      for (int i = 0; i < 60; ++i) locked.push_back(start_write_pcap(*burst, dir.path(), "run"));
      const auto other = start_write_pcap(*burst, dir.path(), "other");
      REQUIRE(other->wait());
      CHECK(other->status() == Status::SUCCESS);
      CHECK_FALSE(locked.back()->done());
    }
    locked.back()->wait();
    std::size_t written = 0;
    for (const auto& handle : locked) written += handle->status() == Status::SUCCESS ? 1 : 0;
    CHECK(written > 0);
    CHECK(std::filesystem::file_size(dir / "run.pcap") == 24 + written * 1000 * 216);
  }
  SECTION("an error of the file") {
    write_file(dir / "run.pcap", Bytes(100, 'x'));
    const auto handle = start_write_pcap(*burst, dir.path(), "run");
    handle->wait();
    CHECK(handle->status() == Status::INVALID_PARAMETER);
    CHECK_THAT(handle->error(), Contains("not a pcap file"));
    CHECK(handle->counts().completed_packets == 0);
    CHECK(handle->counts().failed_packets == 1000);
    CHECK(read_file(dir / "run.pcap") == Bytes(100, 'x'));
  }
}

TEST_CASE("No more than the allowed number of writes wait", "[storage][file]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst(1, 60);
  std::vector<std::shared_ptr<FileWriteHandle>> handles;
  {
    // Blocks the file thread in the first job.
    PacketWriter busy;
    busy.append(dir / "run.pcap");
    const auto [status, text] = refusal([&] {
      for (std::size_t i = 0; i < MAX_PENDING_FILE_WRITES + 2; ++i) {
        handles.push_back(start_write_pcap(*burst, dir.path(), "run"));
      }
    });
    CHECK(status == Status::NO_SPACE_AVAILABLE);
    CHECK_THAT(text, Contains("wait for some"));
    CHECK_FALSE(handles.back()->done());
    CHECK(handles.back()->status() == Status::NOT_READY);
    CHECK_FALSE(handles.back()->wait(1'000'000));
  }
  for (const auto& handle : handles) {
    handle->wait();
    CHECK(handle->status() == Status::SUCCESS);
  }
  CHECK(std::filesystem::file_size(dir / "run.pcap") == 24 + handles.size() * 76);
}

TEST_CASE("Threads that append to one file take turns", "[storage][file]") {
  const TempDir dir;
  Bench bench;
  std::vector<HeldBurst> bursts;
  for (int t = 0; t < 4; ++t) bursts.push_back(bench.burst(50, 100));
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (const HeldBurst& burst : bursts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        if (refusal([&] { write_pcap(*burst, dir.path(), "run"); }).first != Status::SUCCESS)
          ++failures;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(tcpdump(dir / "run.pcap").size() == 4000);
}

TEST_CASE("A raw write that fails keeps whole files only", "[storage][file]") {
  const TempDir dir;
  Bench bench;
  const auto burst = bench.burst({{Bytes(50)}, {Bytes(50)}, {Bytes(200)}, {Bytes(50)}});
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{100, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto [status, text] = refusal([&] { write_raw(*burst, dir.path(), "p"); });
  auto handle = start_write_raw(*burst, dir.path(), "q");
  handle->wait();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK_THAT(text, Contains(dir / "p_2") && Contains("File too large"));
  CHECK(dir.names() == std::vector<std::string>{"p_0", "p_1", "q_0", "q_1"});
  CHECK(handle->status() == Status::GENERIC_FAILURE);
  CHECK(handle->counts().completed_packets == 2);
  CHECK(handle->counts().failed_packets == 2);
  CHECK(handle->counts().bytes_written == 100);
}

TEST_CASE("A received burst can be written after its session is closed", "[storage][file]") {
  const TempDir dir;
  auto session = Session::open(loopback_config(64, 500, 2048));
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 64));
  RxQueue& rx = session->rx_queue(0, 0);
  HeldBurst burst;
  for (int i = 0; i < 100 && burst == nullptr; ++i) {
    rx.wait(50'000'000);
    burst.reset(rx.receive());
  }
  REQUIRE(burst != nullptr);
  session->close();
  session.reset();
  const auto handle = start_write_pcap(*burst, dir.path(), "late");
  handle->wait();
  CHECK(handle->status() == Status::SUCCESS);
  const auto seen = tcpdump(dir / "late.pcap");
  REQUIRE(seen.size() == burst->num_packets());
  CHECK(seen[0].bytes == udp_frame(5000, 0));
}

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "system/mapped_file.h"

using namespace daqiri;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t SIZE = 64 * 4096;

/// An unnamed file of ones.
File ones(std::size_t size = SIZE) {
  File file(open(P_tmpdir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file.is_open());
  const std::vector<std::uint8_t> bytes(size, 1);
  REQUIRE(write_fully(file.fd(), bytes.data(), bytes.size(), 0) == 0);
  return file;
}

std::size_t sum(const MappedFile& file) {
  return std::accumulate(file.data(), file.data() + file.size(), std::size_t{0});
}

std::string complaint(const MappedFile& file) {
  try {
    file.require_whole();
  } catch (const Error& e) {
    CHECK(e.status() == Status::GENERIC_FAILURE);
    return e.what();
  }
  return {};
}

/// Exit status of a child that runs `work`.
template <typename Work>
int in_child(Work&& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("A file that is cut while it is mapped reads as zeros and is told", "[mapped]") {
  const File file = ones();
  const MappedFile mapped(file.fd(), "sample.pcap");
  CHECK(sum(mapped) == SIZE);
  CHECK(complaint(mapped).empty());
  REQUIRE(ftruncate(file.fd(), 5000) == 0);
  CHECK(sum(mapped) == 5000);
  CHECK_THAT(complaint(mapped), Contains("sample.pcap") && Contains("cut from 262144 to 5000") &&
                                    Contains("open it again"));
  // Pages that were replaced by zeros stay zero when the file grows again.
  REQUIRE(ftruncate(file.fd(), SIZE) == 0);
  CHECK_THAT(complaint(mapped), Contains("sample.pcap") && Contains("could not be read"));
  const MappedFile again(file.fd(), "sample.pcap");
  CHECK(complaint(again).empty());
}

TEST_CASE("A file that is cut and appended to all the time never ends the process", "[mapped]") {
  const File file = ones();
  std::atomic<bool> stopping{false};
  std::thread cutter([&] {
    const std::vector<std::uint8_t> bytes(SIZE, 1);
    while (!stopping) {
      static_cast<void>(ftruncate(file.fd(), 100));
      static_cast<void>(write_fully(file.fd(), bytes.data(), bytes.size(), 0));
    }
  });
  int whole = 0;
  int told = 0;
  for (int i = 0; i < 300; ++i) {
    const MappedFile mapped(file.fd(), "sample.pcap");
    const std::size_t found = sum(mapped);
    const bool complained = !complaint(mapped).empty();
    told += complained ? 1 : 0;
    whole += !complained && found == mapped.size() ? 1 : 0;
  }
  stopping = true;
  cutter.join();
  CHECK(whole + told > 0);
}

TEST_CASE("An empty file has nothing to map", "[mapped]") {
  const File file = ones(0);
  const MappedFile mapped(file.fd(), "empty");
  CHECK(mapped.size() == 0);
  CHECK(complaint(mapped).empty());
}

TEST_CASE("Bus errors of others end the process as before", "[mapped]") {
  const File file = ones();
  const MappedFile mapped(file.fd(), "sample.pcap");
  const int status = in_child([&] {
    std::signal(SIGBUS, SIG_DFL);
    const MappedFile ours(file.fd(), "sample.pcap");
    const File other = ones();
    const auto* bytes =
        static_cast<const std::uint8_t*>(mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, other.fd(), 0));
    static_cast<void>(ftruncate(other.fd(), 0));
    _exit(*const_cast<const volatile std::uint8_t*>(bytes));
  });
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS));
  const int sent = in_child([&] {
    std::signal(SIGBUS, SIG_DFL);
    const MappedFile ours(file.fd(), "sample.pcap");
    std::raise(SIGBUS);
  });
  CHECK((WIFSIGNALED(sent) && WTERMSIG(sent) == SIGBUS));
}

TEST_CASE("A handler of bus errors that was there is called", "[mapped]") {
  const int status = in_child([] {
    std::signal(SIGBUS, [](int) { _exit(42); });
    const File file = ones();
    const MappedFile mapped(file.fd(), "sample.pcap");
    static_cast<void>(ftruncate(file.fd(), 0));
    if (sum(mapped) != 0) _exit(1);
    std::raise(SIGBUS);
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 42));
}

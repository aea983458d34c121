#include "session/snapshot.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "system/log.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr int BACKLOG = 8;
/// A reader that takes nothing for this long is left.
constexpr timeval PATIENCE{0, 200'000};

/// Throws Error unless the directory exists and nobody else can write in it.
void make_private(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    throw file_error("cannot create", directory, errno);
  struct stat found{};
  if (lstat(directory.c_str(), &found) != 0) throw file_error("cannot read", directory, errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022U) != 0) {
    throw Error(Status::GENERIC_FAILURE,
                directory + " is not a directory that only this user can write in");
  }
}

}  // namespace

std::string Housekeeper::directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::string(runtime) + "/daqiri";
  return "/tmp/daqiri-" + std::to_string(geteuid());
}

Housekeeper::Housekeeper(const Session& session, int master_core)
    : session_(session), master_core_(master_core) {
  renew();
  doorbell_.reserve(1);
  try {
    listen();
  } catch (const Error& error) {
    socket_.close();
    path_.clear();
    log(LogLevel::INFO,
        std::string("other processes cannot ask for this engine's counters: ") + error.what());
  }
  try {
    thread_ = start_thread(std::bind_front(&Housekeeper::run, this));
  } catch (...) {
    if (socket_.is_open()) unlink(path_.c_str());
    throw;
  }
}

void Housekeeper::listen() {
  static std::atomic<unsigned> next_number{0};
  make_private(directory());
  path_ = directory() + "/" + std::to_string(getpid()) + "." + std::to_string(next_number++);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) throw file_error("cannot bind", path_, ENAMETOOLONG);
  std::memcpy(address.sun_path, path_.data(), path_.size());
  // What a killed process of the same number left.
  unlink(path_.c_str());
  // A child that outlives a killed engine would keep it open, and whoever asks would wait.
  socket_ = File::private_to_process(
      [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!socket_.is_open() ||
      bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket_.fd(), BACKLOG) != 0) {
    throw file_error("cannot bind", path_, errno);
  }
}

void Housekeeper::stop() noexcept {
  thread_ = {};
  if (!socket_.is_open()) return;
  unlink(path_.c_str());
  socket_.close();
}

void Housekeeper::run(const std::stop_token& stop) noexcept {
  const std::stop_callback ring(stop, [this] { doorbell_.ring(); });
  const std::string core = std::to_string(master_core_);
  configure_thread(core_available(core) ? core : std::string(ANY_CORE), "daqiri-keeper");
  // -1, which is never readable, without a socket.
  const int fd = socket_.fd();
  bool answers = true;
  std::uint64_t due = monotonic_ns() + PERIOD_NS;
  for (;;) {
    doorbell_.prepare();
    if (stop.stop_requested()) return doorbell_.cancel();
    const std::uint64_t now = monotonic_ns();
    doorbell_.wait(now < due ? static_cast<std::int64_t>(due - now) : 0,
                   std::span(&fd, answers ? 1 : 0));
    answers = answer();
    if (monotonic_ns() < due) continue;
    try {
      renew();
    } catch (const std::exception& error) {
      log(LogLevel::WARN, std::string("counters could not be copied: ") + error.what());
    }
    due = monotonic_ns() + PERIOD_NS;
  }
}

void Housekeeper::renew() {
  auto snapshot = std::make_shared<const SessionSnapshot>(SessionSnapshot::of(session_));
  const std::lock_guard lock(mutex_);
  latest_.swap(snapshot);
}

std::shared_ptr<const SessionSnapshot> Housekeeper::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

bool Housekeeper::answer() noexcept {
  const File reader(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  // Without a free descriptor, who asks stays in line, and the socket readable.
  if (!reader.is_open()) return errno == EAGAIN;
  setsockopt(reader.fd(), SOL_SOCKET, SO_SNDTIMEO, &PATIENCE, sizeof PATIENCE);
  try {
    const std::string text = SessionSnapshot::of(session_).json() + "\n";
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t n = send(reader.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  } catch (const std::exception& error) {
    log(LogLevel::WARN, std::string("counters could not be sent: ") + error.what());
  }
  return true;
}

}  // namespace daqiri

#include "storage/sidecar.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace daqiri {

void Sidecar::begin(const std::string& path, std::size_t size) {
  abandon();
  path_ = path + ".json";
  const std::size_t slash = path_.rfind('/') + 1;
  part_path_ = path_.substr(0, slash) + "." + path_.substr(slash) + ".part";
  part_ = File(open(part_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644));
  if (!part_.is_open()) throw file_error("cannot create", part_path_, errno);
  const std::string room(size, ' ');
  const int problem = write_fully(part_.fd(), room.data(), room.size(), 0);
  if (problem != 0) {
    abandon();
    throw file_error("cannot write", part_path_, problem);
  }
}

void Sidecar::finish(const std::string& text, bool durable) {
  int problem = write_fully(part_.fd(), text.data(), text.size(), 0);
  if (problem == 0 && ftruncate(part_.fd(), static_cast<off_t>(text.size())) != 0) problem = errno;
  if (problem == 0 && durable && fdatasync(part_.fd()) != 0) problem = errno;
  const int close_problem = part_.close();
  if (problem == 0) problem = close_problem;
  if (problem == 0 && rename(part_path_.c_str(), path_.c_str()) != 0) problem = errno;
  if (problem == 0) return;
  unlink(part_path_.c_str());
  throw file_error("cannot write", path_, problem);
}

void Sidecar::abandon() noexcept {
  if (!part_.is_open()) return;
  unlink(part_path_.c_str());
  part_.close();
}

}  // namespace daqiri

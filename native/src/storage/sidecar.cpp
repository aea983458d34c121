#include "storage/sidecar.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "storage/new_file.h"

namespace daqiri {

namespace {

constexpr const char* PART = ".part";

/// Removes the hidden metadata file `part` unless its recorder is running, that is, holds its lock;
/// frees blocks that were allocated after the end of the recorded file.
void remove_leftover(const std::string& part) noexcept {
  const File file(open(part.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found{};
  if (!file.is_open() || fstat(file.fd(), &found) != 0 || !S_ISREG(found.st_mode) ||
      flock(file.fd(), LOCK_EX | LOCK_NB) != 0)
    return;
  const std::size_t name = part.rfind('/') + 2;
  const std::size_t suffix = std::strlen(".json") + std::strlen(PART);
  const std::string path =
      part.substr(0, name - 1) + part.substr(name, part.size() - name - suffix);
  const File data(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  // Lock first: a program that appends may be changing the size.
  if (data.is_open() && flock(data.fd(), LOCK_EX | LOCK_NB) == 0 && fstat(data.fd(), &found) == 0 &&
      S_ISREG(found.st_mode)) {
    [[maybe_unused]] const int same_size = ftruncate(data.fd(), found.st_size);
  }
  unlink(part.c_str());
}

}  // namespace

void remove_leftovers(const std::string& directory) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory.c_str()), closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with('.') && name.ends_with(std::string(".json") + PART))
      remove_leftover(directory + "/" + std::string(name));
  }
}

Sidecar::Sidecar(const std::string& path, std::size_t size) : path_(path + ".json") {
  const std::size_t slash = path_.rfind('/') + 1;
  part_path_ = path_.substr(0, slash) + "." + path_.substr(slash) + PART;
  while (!part_.is_open()) create();
  const std::string space(size, ' ');
  const int problem = write_fully(part_.fd(), space.data(), space.size(), 0);
  if (problem == 0) return;
  unlink(part_path_.c_str());
  throw file_error("cannot write", part_path_, problem);
}

Sidecar::~Sidecar() {
  if (part_.is_open()) unlink(part_path_.c_str());
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

void Sidecar::create() {
  remove_leftover(part_path_);
  part_ = File::private_to_process(
      [&] { return open(part_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (!part_.is_open() && errno == EEXIST)
    refuse_existing(part_path_, "belongs to a running recorder, or is not a regular file");
  if (!part_.is_open()) throw file_error("cannot create", part_path_, errno);
  // Another process may have removed it as a leftover.
  struct stat found{};
  if ((flock(part_.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
      (fstat(part_.fd(), &found) == 0 && found.st_nlink == 0))
    part_.close();
}

}  // namespace daqiri

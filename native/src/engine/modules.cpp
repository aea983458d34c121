#include "engine/modules.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <system_error>

#include "engine/registry.h"
#include "system/library.h"

namespace daqiri {

namespace {

constexpr std::string_view PREFIX = "daqiri_engine_";
constexpr std::string_view SUFFIX = ".so";

std::vector<std::string> folders() {
  std::vector<std::string> found;
  // Null for programs with more privileges than their user.
  const char* given = secure_getenv("DAQIRI_ENGINE_PATH");
  std::string_view rest = given == nullptr ? "" : given;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (!folder.empty()) found.emplace_back(folder);
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  const std::filesystem::path library = library_path();
  if (!library.empty()) found.push_back(library.parent_path() / "daqiri-engines");
  return found;
}

/// Never a path, whatever a configuration contains.
bool is_engine_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

bool is_registered(std::string_view name) {
  return std::ranges::any_of(engines(), [&](const EngineEntry& each) {
    return each.traits.name == name && each.make != nullptr;
  });
}

/// Content of a file; empty: it cannot be read, and `problem` says why.
std::string content_of(const std::string& path, std::string& problem) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) {
    problem = "cannot be read: " + std::generic_category().message(errno);
  } else if (!S_ISREG(found.st_mode)) {
    // A FIFO would never end, and a device would not either.
    problem = "is not a regular file";
  } else {
    std::string content(static_cast<std::size_t>(found.st_size), '\0');
    std::ifstream file(path, std::ios::binary);
    if (file.read(content.data(), found.st_size)) return content;
    problem = "cannot be read: " + std::generic_category().message(errno);
  }
  return {};
}

/// Whether the file ends before what it announces (elf(5)): the loader would map it nevertheless,
/// and the process would end with SIGBUS.
bool is_cut(const std::string& content) {
  ElfW(Ehdr) header{};
  if (content.size() < sizeof header) return true;
  std::memcpy(&header, content.data(), sizeof header);
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part{};
    const std::uint64_t at = header.e_phoff + i * sizeof part;
    if (at > content.size() || content.size() - at < sizeof part) return true;
    std::memcpy(&part, content.data() + at, sizeof part);
    if (part.p_type == PT_LOAD &&
        (part.p_offset > content.size() || content.size() - part.p_offset < part.p_filesz))
      return true;
  }
  return false;
}

/// Version that a module was built for, from its file: before any of its code runs. See
/// cmake/engine_module.cpp.in.
std::string version_of(const std::string& content) {
  constexpr std::string_view MARK = "daqiri_engine_version=";
  const std::size_t mark = content.find(MARK);
  return mark == std::string::npos ? "" : content.c_str() + mark + MARK.size();
}

std::string load(const std::string& path, std::string_view name) {
  const std::string its = "its module " + path;
  std::string problem;
  const std::string content = content_of(path, problem);
  if (!problem.empty())
    return its + " " + problem + "; remove it, or install the module of this version";
  const std::string version = version_of(content);
  const std::string wanted = library_version();
  if (version.empty())
    return its + " has no version of daqiri in it; build it with daqiri_engine() of CMake";
  if (version != wanted)
    return its + " is built for daqiri " + version + ", and this is daqiri " + wanted +
           "; install the module of " + wanted;
  if (is_cut(content)) return its + " is incomplete; copy it again";
  // It stays: the registry refers to it, and its threads may run its code.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const char* reason = dlerror();
    return its + " cannot be loaded: " + (reason == nullptr ? "no reason given" : reason) +
           "; install the library that is named there, or remove the module";
  }
  if (!is_registered(name))
    return its + " registers no engine '" + std::string(name) + "'; rename it to " +
           std::string(PREFIX) + "NAME" + std::string(SUFFIX) + ", with the name in its traits";
  return {};
}

}  // namespace

std::vector<std::string> engines_with_module() {
  std::set<std::string> names;
  for (const std::string& folder : folders()) {
    std::error_code error;
    for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
         file.increment(error)) {
      const std::string name = file->path().filename();
      if (!name.starts_with(PREFIX) || !name.ends_with(SUFFIX)) continue;
      const std::string engine =
          name.substr(PREFIX.size(), name.size() - PREFIX.size() - SUFFIX.size());
      if (is_engine_name(engine)) names.insert(engine);
    }
  }
  return {names.begin(), names.end()};
}

std::string load_engine(std::string_view name) {
  static std::mutex loading;
  const std::lock_guard lock(loading);
  if (!is_engine_name(name) || is_registered(name)) return {};
  for (const std::string& folder : folders()) {
    const std::string path =
        folder + "/" + std::string(PREFIX) + std::string(name) + std::string(SUFFIX);
    // Also a link that leads nowhere.
    struct stat found{};
    if (lstat(path.c_str(), &found) == 0) return load(path, name);
  }
  return {};
}

std::map<std::string, std::string> load_engines() {
  std::map<std::string, std::string> problems;
  for (const std::string& name : engines_with_module()) {
    const std::string problem = load_engine(name);
    if (!problem.empty()) problems[name] = problem;
  }
  return problems;
}

}  // namespace daqiri

#include "storage/sidecar.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

namespace daqiri {

namespace {

constexpr std::size_t ROOM = 4096;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

const char* word(bool value) { return value ? "true" : "false"; }

}  // namespace

std::uint64_t CaptureMetadata::dropped() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& [reason, packets] : dropped_by_reason) sum += packets;
  return sum;
}

std::string CaptureMetadata::json() const {
  std::string reasons;
  for (const auto& [reason, packets] : dropped_by_reason) {
    if (packets == 0) continue;
    reasons += (reasons.empty() ? "" : ", ") + quoted(reason) + ": " + std::to_string(packets);
  }
  std::string text = "{\n";
  const auto add = [&text](const char* key, const std::string& value, bool last = false) {
    text += "  " + quoted(key) + ": " + value + (last ? "\n" : ",\n");
  };
  add("packets", std::to_string(tally.packets));
  add("bytes", std::to_string(tally.wire_bytes));
  add("t_first_ns", std::to_string(tally.first_ns));
  add("t_last_ns", std::to_string(tally.last_ns));
  add("dropped", std::to_string(dropped()));
  add("dropped_by_reason", "{" + reasons + "}");
  add("link_type", std::to_string(format.link_type));
  add("nanosecond", word(format.nanosecond));
  add("headers_reconstructed", word(headers_reconstructed));
  add("queue", quoted(queue));
  add("clock", quoted("CLOCK_REALTIME"));
  add("torn_bytes", "0", true);
  return text + "}\n";
}

void Sidecar::begin(const std::string& pcap_path) {
  abandon();
  path_ = pcap_path + ".json";
  const std::size_t slash = path_.rfind('/') + 1;
  part_path_ = path_.substr(0, slash) + "." + path_.substr(slash) + ".part";
  part_ = File(open(part_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644));
  if (!part_.is_open()) throw file_error("cannot create", part_path_, errno);
  const std::string room(ROOM, ' ');
  const int problem = write_fully(part_.fd(), room.data(), room.size(), 0);
  if (problem != 0) {
    abandon();
    throw file_error("cannot write", part_path_, problem);
  }
}

void Sidecar::finish(const CaptureMetadata& metadata) {
  const std::string text = metadata.json();
  int problem = write_fully(part_.fd(), text.data(), text.size(), 0);
  if (problem == 0 && ftruncate(part_.fd(), static_cast<off_t>(text.size())) != 0) problem = errno;
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

#include "api/failure.h"

#include <algorithm>
#include <cstddef>

#include "daqiri/daqiri.h"

namespace daqiri {

namespace api {

namespace {

/// Enough for a validation report of some dozens of problems. Plain memory, so that it outlives
/// every destructor of the thread.
struct Text {
  static constexpr std::size_t CAPACITY = 8191;
  std::size_t size;
  char text[CAPACITY + 1];
};
thread_local Text last{0, {}};

}  // namespace

Reason::Reason(std::string_view call) noexcept {
  last.size = 0;
  add(call).add(": ");
}

Reason& Reason::add(std::string_view text) noexcept {
  const std::size_t n = std::min(text.size(), Text::CAPACITY - last.size);
  text.copy(last.text + last.size, n);
  last.size += n;
  last.text[last.size] = '\0';
  return *this;
}

std::string_view Reason::text() const noexcept { return {last.text, last.size}; }

}  // namespace api

const char* last_error() noexcept { return api::last.text; }

}  // namespace daqiri

// Text of a configuration: parsed, validated, written as YAML, and parsed again with the same
// result.
#include <cstdint>
#include <string_view>

#include "daqiri/config.h"
#include "require.h"
#include "system/text.h"

using namespace daqiri;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  NetworkConfig config;
  const ConfigReport report = load_config_text(text, "<text>", config);
  require(find_invalid_utf8(report.text()) == std::string_view::npos,
          "messages are UTF-8, whatever the file holds");
  if (!report.ok()) {
    require(!report.text().empty(), "what is refused has a reason");
    // A configuration that was loaded can be written.
    static_cast<void>(config_to_yaml(config));
    return 0;
  }
  NetworkConfig again;
  const ConfigReport second = load_config_text(config_to_yaml(config), "<written>", again);
  require(second.ok(), "what is written can be read");
  require(again == config, "what is written means the same");
  NetworkConfig checked = config;
  require(validate_config(checked).ok() && checked == config,
          "what was checked stays as it is when it is checked again");
  return 0;
}

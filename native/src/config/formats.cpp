#include "config/formats.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <regex>

#include <arpa/inet.h>
#include <net/if.h>

#include "config/findings.h"

namespace daqiri::config {
namespace {

constexpr std::string_view STORES[] = {"s3", "gs", "az"};

/// What rows of frames have already: datasets of their files and of master files, those of NeXus,
/// too, and columns of detectors.
constexpr std::string_view FRAME_COLUMNS[] = {"data",
                                              "batch",
                                              "sequence_number",
                                              "timestamp",
                                              "last_timestamp",
                                              "packets",
                                              "missing",
                                              "timed_out",
                                              "lossy",
                                              "valid",
                                              "description",
                                              "bit_depth_readout",
                                              "local_name",
                                              "count_time",
                                              "x_pixel_size",
                                              "y_pixel_size",
                                              "distance",
                                              "frame_start_number",
                                              "pixel_mask",
                                              "pixel_mask_applied",
                                              "dark",
                                              "dark_applied",
                                              "flatfield",
                                              "flatfield_applied",
                                              "frames",
                                              "dropped",
                                              "missing_packets",
                                              "lost_before_engine",
                                              "time"};
/// Words that YAML readers do not take for text.
constexpr std::string_view YAML_WORDS[] = {"true", "false", "yes", "no", "on", "off", "null"};

/// Reads decimal digits only; none: there are other characters, or the number exceeds `last`.
std::optional<std::uint32_t> read_digits(std::string_view text, std::int64_t last) {
  std::uint32_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = status == std::errc{} && end == text.data() + text.size() && number <= last;
  return good ? std::optional(number) : std::nullopt;
}

bool is_address(int family, std::string_view text) {
  std::array<unsigned char, sizeof(in6_addr)> buffer{};
  return text.find('\0') == std::string_view::npos &&
         inet_pton(family, std::string(text).c_str(), buffer.data()) == 1;
}

std::string read_ipv4(std::string_view text, in_addr_t& address) {
  if (!is_address(AF_INET, text)) return "not an IPv4 address";
  in_addr parsed{};
  inet_pton(AF_INET, std::string(text).c_str(), &parsed);
  address = parsed.s_addr;
  return {};
}

std::string read_ipv4_text(std::string_view text, std::string& address) {
  if (!is_address(AF_INET, text)) return "not an IPv4 address";
  address = text;
  return {};
}

std::string read_ip(std::string_view text, std::string& address) {
  if (!is_ip_address(text)) return "not an address";
  address = text;
  return {};
}

std::string read_mac(std::string_view text, std::string& mac) {
  static const std::regex form("[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}");
  if (text.size() != 17 || !std::regex_match(text.begin(), text.end(), form))
    return "not an Ethernet address";
  mac = text;
  return {};
}

std::string read_port_range(std::string_view text, PortRange& range) {
  const std::size_t dash = text.find('-');
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  if (!read_integer(text.substr(0, dash), WORD, lo).empty() ||
      !read_integer(text.substr(dash == std::string_view::npos ? 0 : dash + 1), WORD, hi).empty())
    return "not a port or range";
  if (lo > hi) return "the range ends before it begins";
  range = {static_cast<std::uint16_t>(lo), static_cast<std::uint16_t>(hi)};
  return {};
}

std::string write_port_range(const PortRange& range) {
  if (range.lo == range.hi) return range.any() ? "" : std::to_string(range.lo);
  return concat(range.lo, "-", range.hi);
}

std::string read_core(std::string_view text, std::string& core) {
  const auto number = read_digits(text, CPU_CORE.last);
  if (text != ANY_CORE && !number) return "not a core number";
  core = number ? std::to_string(*number) : std::string(text);
  return {};
}

/// In the form that write_endpoint produces.
std::string read_endpoint_text(std::string_view text, std::string& address) {
  Endpoint endpoint;
  std::string wrong = read_endpoint(text, endpoint);
  if (wrong.empty()) address = write_endpoint(endpoint);
  return wrong;
}

std::string read_real(std::string_view text, double& value) {
  // YAML has .nan and .inf.
  const bool dotted = text.starts_with(".n") || text.starts_with(".i") || text.starts_with("-.i");
  std::string plain(text);
  if (dotted) plain.erase(plain.find('.'), 1);
  const char* end = plain.data() + plain.size();
  const auto [last, error] = std::from_chars(plain.data(), end, value);
  return error == std::errc() && last == end ? "" : "not a number";
}

std::string write_real(const double& value) {
  if (value == 0 && !std::signbit(value)) return {};
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  return {std::begin(text), end};
}

std::string read_store(std::string_view text, std::string& address) {
  std::string wrong = store_address_error(text);
  if (wrong.empty()) address = text;
  return wrong;
}

std::string read_column(std::string_view text, std::string& name) {
  constexpr std::size_t LONGEST = 64;
  const auto in_a_name = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const std::string small = lower(text);
  if (text.empty() || small.front() < 'a' || small.front() > 'z') return "which begins otherwise";
  if (text.size() > LONGEST) return "which is longer";
  if (!std::ranges::all_of(text, in_a_name)) return "which has other characters";
  if (std::ranges::find(FRAME_COLUMNS, small) != std::end(FRAME_COLUMNS))
    return "which frames have already";
  if (std::ranges::find(YAML_WORDS, small) != std::end(YAML_WORDS))
    return "which YAML readers do not take for a text";
  name = text;
  return {};
}

std::string as_it_is(const std::string& text) { return text; }

constexpr const char* OUT_OF_RANGE = "out of range";

std::string read_magnitude(std::string_view digits, std::uint64_t& magnitude) {
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) base = 16;
  if (digits.starts_with("0o")) base = 8;
  if (base != 10) digits.remove_prefix(2);
  const auto [end, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (status == std::errc::invalid_argument || end != digits.data() + digits.size())
    return "not an integer";
  if (base == 10 && digits.size() > 1 && digits.front() == '0')
    return "a leading zero is octal to some readers and decimal to others";
  return status == std::errc{} ? "" : OUT_OF_RANGE;
}

std::string write_natural(const std::uint64_t& number) { return std::to_string(number); }

constexpr std::string_view ANY_STEP = "any";

std::string read_batch_step(std::string_view text, std::uint64_t& step) {
  std::uint64_t number = 0;
  std::string wrong = text == ANY_STEP ? std::string() : read_magnitude(text, number);
  if (wrong.empty() && text != ANY_STEP && (number == 0 || number > UINT32_MAX))
    wrong = OUT_OF_RANGE;
  if (wrong.empty()) step = number;
  return wrong;
}

/// 1 is the default and is not written.
std::string write_batch_step(const std::uint64_t& step) {
  return step == 1 ? std::string() : step == 0 ? std::string(ANY_STEP) : std::to_string(step);
}

std::string read_rotation(std::string_view text, std::uint32_t& degrees) {
  std::int64_t number = 0;
  std::string wrong = read_integer(text, {0, 270}, number);
  if (wrong.empty() && number % 90 != 0) wrong = "another angle";
  if (wrong.empty()) degrees = static_cast<std::uint32_t>(number);
  return wrong;
}

std::string write_rotation(const std::uint32_t& degrees) { return std::to_string(degrees); }

}  // namespace

std::string engine_name(const CommonConfig& common) {
  if (common.engine_type == EngineType::OTHER) return common.engine_name_;
  // The engine ibverbs has two types: packets of a raw stream, and RDMA.
  const bool rdma = common.engine_type == EngineType::RDMA;
  return text_of(ENGINES, rdma ? EngineType::IBVERBS : common.engine_type);
}

std::string engine_word(const CommonConfig& common) {
  if (common.engine == EngineType::DEFAULT || common.engine == EngineType::UNKNOWN) return {};
  if (common.engine == EngineType::OTHER) return common.engine_name_;
  if (common.engine != EngineType::RDMA) return text_of(ENGINES, common.engine);
  return common.stream_type == StreamType::SOCKET ? "ibverbs" : "rdma";
}

EngineType engine_type_of(std::string_view name, const CommonConfig& common) noexcept {
  const Name* found = find_name(ENGINES, name);
  if (found == nullptr) return EngineType::OTHER;
  const auto type = static_cast<EngineType>(found->value);
  const bool sockets = common.stream_type == StreamType::SOCKET;
  return type == EngineType::IBVERBS && sockets ? EngineType::RDMA : type;
}

bool same_engine(EngineType configured, EngineType resolved) noexcept {
  // A socket engine leaves roce:// endpoints to RDMA.
  return configured == resolved ||
         (resolved == EngineType::RDMA &&
          (configured == EngineType::SOCKET || configured == EngineType::IBVERBS));
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

const Name* find_name(Names names, std::string_view text) noexcept {
  const auto found = std::ranges::find(names, text, &Name::text);
  return found == names.end() ? nullptr : &*found;
}

std::string alternatives(Names names) {
  std::string result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view between = i + 1 == names.size() ? " or " : ", ";
    result += concat(i == 0 ? "" : between, "'", names[i].text, "'");
  }
  return result;
}

std::string wrong_word(Names names, std::string_view word) {
  return find_name(names, word) == nullptr ? "unknown word" : "";
}

std::string accepts_integer(const Range& range) {
  if (range.first == range.last) return concat(range.first);
  const std::string text = concat("an integer from ", range.first, " to ", range.last);
  return range.unit.empty() ? text : concat(text, " (", range.unit, ")");
}

std::string read_integer(std::string_view text, const Range& range, std::int64_t& value) {
  const bool negative = text.starts_with('-');
  std::uint64_t magnitude = 0;
  std::string wrong =
      read_magnitude(negative || text.starts_with('+') ? text.substr(1) : text, magnitude);
  if (!wrong.empty()) return wrong;
  const auto number = static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
  if (magnitude > INT64_MAX || number < range.first || number > range.last) return OUT_OF_RANGE;
  value = number;
  return {};
}

std::string write_ipv4(const in_addr_t& address) {
  if (address == INADDR_ANY) return {};
  std::array<char, INET_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET, &address, text.data(), text.size());
}

std::string read_endpoint(std::string_view text, Endpoint& endpoint) {
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) return "no scheme";
  const Name* scheme = find_name(SCHEMES, text.substr(0, colon));
  if (scheme == nullptr) return "unknown scheme " + quoted(text.substr(0, colon));
  const auto protocol = static_cast<SocketProtocol>(scheme->value);

  std::string_view rest = text.substr(colon + 3);
  if (const std::size_t query = rest.find('?'); query != std::string_view::npos) {
    // DAQIRI allows a RoCE address to name its only engine.
    if (protocol != SocketProtocol::ROCE || rest.substr(query) != "?engine=ibverbs")
      return "unknown parameter " + quoted(rest.substr(query));
    rest = rest.substr(0, query);
  }

  const bool bracket = rest.starts_with('[');
  const std::size_t end = rest.find(bracket ? ']' : ':');
  if (bracket && end == std::string_view::npos) return "'[' without ']'";
  const std::string_view host = bracket ? rest.substr(1, end - 1) : rest.substr(0, end);
  if (bracket && !is_ipv6_address(host)) return quoted(host) + " is not a numeric IPv6 address";
  if (!bracket && !is_address(AF_INET, host))
    return quoted(host) + " is not a numeric IPv4 address (put IPv6 addresses in brackets)";

  rest.remove_prefix(std::min(rest.size(), bracket ? end + 1 : end));
  const bool no_port = rest.empty();
  if (no_port && protocol != SocketProtocol::ROCE) return "no port";
  const auto port = rest.starts_with(':') ? read_digits(rest.substr(1), WORD.last) : std::nullopt;
  if (!no_port && !port) return "the port is not a number from 0 to 65535";
  endpoint = {protocol, std::string(host), static_cast<std::uint16_t>(port.value_or(0))};
  return {};
}

std::string write_endpoint(const Endpoint& endpoint) {
  const bool bracket = endpoint.host.find(':') != std::string::npos;
  const std::string text = concat(text_of(SCHEMES, endpoint.protocol), "://", bracket ? "[" : "",
                                  endpoint.host, bracket ? "]" : "");
  const bool no_port = endpoint.protocol == SocketProtocol::ROCE && endpoint.port == 0;
  return no_port ? text : concat(text, ":", endpoint.port);
}

bool is_ipv6_address(std::string_view text) {
  const std::size_t percent = text.find('%');
  if (percent == std::string_view::npos) return is_address(AF_INET6, text);
  const std::string_view scope = text.substr(percent + 1);
  const auto in_a_name = [](char c) { return c > ' ' && c < '\x7f' && c != '/' && c != '%'; };
  return !scope.empty() && scope.size() < IF_NAMESIZE && std::ranges::all_of(scope, in_a_name) &&
         is_address(AF_INET6, text.substr(0, percent));
}

bool is_ip_address(std::string_view text) {
  return is_address(AF_INET, text) || is_ipv6_address(text);
}

std::string store_address_error(std::string_view text) {
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) return "no scheme";
  if (std::ranges::find(STORES, text.substr(0, colon)) == std::end(STORES)) return "another scheme";
  const std::string_view rest = text.substr(colon + 3);
  const std::string_view bucket = rest.substr(0, rest.find('/'));
  const auto in_a_bucket = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  };
  if (bucket.empty() || !std::ranges::all_of(bucket, in_a_bucket)) return "no bucket";
  // Object stores do not accept such parts of a key, or URIs do not.
  std::string_view key = rest.substr(bucket.size());
  while (key.ends_with('/')) key.remove_suffix(1);
  while (!key.empty()) {
    key.remove_prefix(1);
    const std::string_view part = key.substr(0, key.find('/'));
    if (part.empty() || part == "." || part == "..") return "a part of the prefix is empty or dots";
    const auto refused = [](char c) {
      return (c >= 0 && c < ' ') || c == '\x7f' || c == '?' || c == '#';
    };
    if (std::ranges::any_of(part, refused))
      return "the prefix has a character that keys cannot have";
    key.remove_prefix(part.size());
  }
  return {};
}

constexpr std::string_view AN_IPV4_ADDRESS = "an IPv4 address such as 192.168.1.10";
constinit const Form<in_addr_t> ipv4_form{AN_IPV4_ADDRESS, read_ipv4, write_ipv4};
constinit const Form<std::string> ipv4_text_form{AN_IPV4_ADDRESS, read_ipv4_text, as_it_is};
constinit const Form<std::string> ip_form{"a numeric IPv4 or IPv6 address", read_ip, as_it_is};
constinit const Form<std::string> mac_form{"an Ethernet address such as 02:00:00:00:00:01",
                                           read_mac, as_it_is};
constinit const Form<PortRange> ports_form{
    "a UDP port from 0 (any) to 65535, or a range such as 1000-1010", read_port_range,
    write_port_range};
constinit const Form<double> real_form{"a number, or nan", read_real, write_real};
constinit const Form<std::uint64_t> natural_form{"an integer from 0 to 18446744073709551615",
                                                 read_magnitude, write_natural};
constinit const Form<std::uint64_t> batch_step_form{
    "an integer from 1 to 4294967295, or 'any' for numbers that grow irregularly", read_batch_step,
    write_batch_step};
constinit const Form<std::uint32_t> rotation_form{"0, 90, 180 and 270 (degrees, counterclockwise)",
                                                  read_rotation, write_rotation};
constinit const Form<std::string> core_form{
    "a core number from 0 to 8191, or 'any' for a thread that is not pinned", read_core, as_it_is};
constinit const Form<std::string> endpoint_form{
    "tcp://ip:port, udp://ip:port or roce://ip[:port] with a numeric address", read_endpoint_text,
    as_it_is};

constinit const Form<std::string> column_form{
    "up to 64 letters, digits and _ that begin with a letter, such as pulse_id, and no name that "
    "rows and files of frames have already",
    read_column, as_it_is};
constinit const Form<std::string> store_form{
    "the address of an object store: s3://bucket/prefix, gs:// or az://", read_store, as_it_is};

}  // namespace daqiri::config

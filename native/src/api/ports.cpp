#include <algorithm>
#include <array>
#include <string>

#include "api/failure.h"
#include "api/sessions.h"
#include "daqiri/daqiri.h"

namespace daqiri {

using api::fail;
using std::string_view;

namespace {

/// Run `action` with the running session; what it throws becomes a status.
template <typename Action>
Status with_session(string_view call, Action&& action) noexcept {
  const auto running = api::running();
  if (running == nullptr) return fail(Status::NOT_READY, call, api::not_running());
  return api::guarded(call, [&] {
    action(*running->session);
    return Status::SUCCESS;
  });
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::size_t MAC_SIZE = 6;
constexpr std::size_t MAC_TEXT_SIZE = 3 * MAC_SIZE - 1;

bool parse_mac(string_view text, std::array<char, MAC_SIZE>& mac) noexcept {
  if (text.size() != MAC_TEXT_SIZE) return false;
  for (std::size_t i = 0; i < MAC_SIZE; ++i) {
    const int high = hex_digit(text[3 * i]);
    const int low = hex_digit(text[3 * i + 1]);
    if (high < 0 || low < 0 || (i + 1 < MAC_SIZE && text[3 * i + 2] != ':')) return false;
    mac[i] = static_cast<char>(high << 4 | low);
  }
  return true;
}

}  // namespace

Status get_mac_addr(int port, char* mac) {
  constexpr string_view CALL = "get_mac_addr";
  if (mac == nullptr) return fail(Status::NULL_PTR, CALL, string_view("mac is null"));
  return with_session(CALL, [&](const Session& session) {
    const auto address = session.port(port).io->mac_address();
    std::copy(address.begin(), address.end(), reinterpret_cast<std::uint8_t*>(mac));
  });
}

int get_port_id(const std::string& name_or_address) {
  constexpr string_view CALL = "get_port_id";
  int id = -1;
  with_session(CALL, [&](const Session& session) {
    id = session.port_id(name_or_address);
    if (id >= 0) return;
    std::string known;
    for (const InterfaceConfig& interface : session.config().ifs_) {
      known += (known.empty() ? "" : ", ") + interface.name_;
    }
    throw Error(Status::INVALID_PARAMETER,
                "no interface has name or address '" + name_or_address + "'; there are " + known);
  });
  return id;
}

std::uint16_t get_num_rx_queues(int port) {
  std::uint16_t n = 0;
  with_session("get_num_rx_queues", [&](const Session& session) {
    n = static_cast<std::uint16_t>(session.port(port).rx.size());
  });
  return n;
}

Status drop_all_traffic(int port) {
  return with_session("drop_all_traffic", [&](const Session& session) {
    for (const auto& queue : session.port(port).rx) queue->set_drop_all(true);
  });
}

Status allow_all_traffic(int port) {
  return with_session("allow_all_traffic", [&](const Session& session) {
    for (const auto& queue : session.port(port).rx) queue->set_drop_all(false);
  });
}

Status flush_port_queue(int port, int queue) {
  return with_session("flush_port_queue", [&](const Session& session) {
    session.rx_queue(port, queue).request_flush();
  });
}

void format_eth_addr(char* dst, const std::string& addr) {
  constexpr string_view CALL = "format_eth_addr";
  if (dst == nullptr) {
    fail(Status::NULL_PTR, CALL, string_view("dst is null"));
    return;
  }
  std::array<char, MAC_SIZE> mac{};
  if (!parse_mac(addr, mac)) {
    mac.fill(0);
    fail(Status::INVALID_PARAMETER, CALL, string_view("'"), string_view(addr),
         string_view("' is no address of the form aa:bb:cc:dd:ee:ff"));
  }
  std::copy(mac.begin(), mac.end(), dst);
}

}  // namespace daqiri

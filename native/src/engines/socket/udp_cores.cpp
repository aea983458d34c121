#include "engines/socket/udp_cores.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>

#include "engines/socket/sockets.h"
#include "steering/distribution.h"

namespace daqiri::sockets {

namespace {

std::vector<sock_filter> program_for(const InterfaceConfig& interface, const UdpSocket& first,
                                     std::size_t sockets) {
  if (interface.rx_.flows_.empty()) {
    return steering::distribution_by_peer(first.local().ipv6(),
                                          static_cast<std::uint32_t>(sockets));
  }
  const std::vector<std::size_t> numbers = sockets_of(interface);
  std::map<int, std::uint32_t> by_queue;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    by_queue[interface.rx_.queues_[i].common_.id_] = static_cast<std::uint32_t>(numbers[i]);
  return steering::distribution(interface.rx_, by_queue);
}

}  // namespace

bool spreads(const InterfaceConfig& interface) noexcept {
  const auto& queues = interface.rx_.queues_;
  const bool one_core = std::all_of(queues.begin(), queues.end(), [&](const RxQueueConfig& queue) {
    return queue.common_.cpu_core_ == queues.front().common_.cpu_core_;
  });
  return !one_core && interface.socket_.mode_ == SocketMode::SERVER;
}

std::vector<std::size_t> sockets_of(const InterfaceConfig& interface) {
  std::vector<std::size_t> numbers;
  std::map<std::string, std::size_t> by_core;
  const bool several = spreads(interface);
  for (const RxQueueConfig& queue : interface.rx_.queues_) {
    const std::size_t position = numbers.size();
    if (!several) {
      numbers.push_back(0);
    } else if (interface.rx_.flows_.empty()) {
      numbers.push_back(position);
    } else {
      numbers.push_back(by_core.try_emplace(queue.common_.cpu_core_, by_core.size()).first->second);
    }
  }
  return numbers;
}

std::vector<std::unique_ptr<UdpSocket>> open_sockets(const InterfaceConfig& interface,
                                                     File& claim) {
  const std::vector<std::size_t> numbers = sockets_of(interface);
  const std::size_t count = numbers.empty() ? 1 : *std::ranges::max_element(numbers) + 1;
  if (count > 1) claim = claim_address(interface.name_, addresses_of(interface).local);
  std::vector<std::unique_ptr<UdpSocket>> sockets;
  sockets.reserve(count);
  sockets.push_back(
      std::make_unique<UdpSocket>(interface, count > 1 ? Sharing::FIRST : Sharing::ALONE));
  if (count == 1) return sockets;
  while (sockets.size() < count)
    sockets.push_back(std::make_unique<UdpSocket>(interface, Sharing::FURTHER));
  std::vector<sock_filter> code = program_for(interface, *sockets.front(), count);
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  // Of all sockets at the address, which the kernel numbers in the order of bind(2).
  if (setsockopt(sockets.front()->fd(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                 sizeof program) != 0) {
    throw socket_error(interface.name_, "distribute the datagrams among several sockets at",
                       Transport::UDP, sockets.front()->local(), errno);
  }
  for (const auto& socket : sockets) {
    // Until now, the kernel distributed in another way.
    socket->discard_waiting();
    if (socket != sockets.front()) socket->report_destinations();
  }
  return sockets;
}

}  // namespace daqiri::sockets

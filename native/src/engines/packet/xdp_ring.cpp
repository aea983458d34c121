#include "engines/packet/xdp_ring.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <utility>

#include "net/headers.h"
#include "timing/clock.h"

// Linux defines this, but the headers of some distributions do not.
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

namespace daqiri::packet {

namespace {

/// Half a page if every frame of the interface fits.
std::uint32_t chunk_bytes(const NetworkInterface& interface) {
  constexpr std::uint32_t SMALL = 2048;
  constexpr std::uint32_t LARGE = 4096;
  return interface.mtu + FRAME_OVERHEAD <= SMALL - Umem::HEADROOM ? SMALL : LARGE;
}

File watch(const NetworkInterface& interface) {
  File socket = open_packet_socket(interface);
  make_promiscuous(socket, interface);
  return socket;
}

ifreq request_for(const NetworkInterface& interface) {
  ifreq request{};
  interface.name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

/// Receive queues of the network card; 0: its driver does not report them.
std::uint32_t num_queues(const NetworkInterface& interface, const File& socket) {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request = request_for(interface);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  const bool told = ioctl(socket.fd(), SIOCETHTOOL, &request) == 0;
  return told ? channels.rx_count + channels.combined_count : 0;
}

}  // namespace

XdpRing::XdpRing(const NetworkInterface& interface, const Options& options)
    : FrameRing("packets of " + interface.name, chunk_bytes(interface), memory::Place::HOST),
      interface_(interface),
      watch_(watch(interface)),
      umem_(interface.name, std::max(options.bytes, FEWEST_BYTES), chunk_bytes(interface)),
      queues_told_(num_queues(interface, watch_)),
      takes_any_flow_(options.filter.takes_any_flow()),
      program_(interface, options.filter, queues_told_ > 0 ? queues_told_ : MOST_UNTOLD) {
  attach(options.or_generic);
  open_sockets(options.busy_poll);
}

XdpRing::~XdpRing() { stop(); }

void XdpRing::attach(bool or_generic) {
  int refused = 0;
  try {
    link_.emplace(interface_, program_, XdpMode::NATIVE, refused);
    return;
  } catch (const Error& error) {
    // These errors would be the same for both modes.
    if (!or_generic || refused == EPERM || refused == EBUSY || refused == EEXIST) throw;
    why_generic_ = error.what();
  }
  mode_ = XdpMode::GENERIC;
  link_.emplace(interface_, program_, mode_, refused);
}

void XdpRing::open_sockets(bool busy_poll) {
  const std::uint32_t most = queues_told_ > 0 ? queues_told_ : MOST_UNTOLD;
  options_.ring_size = XdpShares::ring_size(umem_.chunks(), umem_.chunk_bytes(), most);
  options_.copy = mode_ == XdpMode::GENERIC;
  options_.pieces = interface_.mtu + FRAME_OVERHEAD > umem_.chunk_bytes() - Umem::HEADROOM;
  options_.busy_poll = busy_poll;
  for (; options_.queue < most; ++options_.queue) {
    auto socket = std::make_unique<XdpSocket>(interface_, umem_, options_);
    if (!socket->bind()) break;
    sockets_.push_back(std::move(socket));
    options_.other = sockets_.front().get();
  }
  zero_copy_ = sockets_.front()->zero_copy();
  latest_ns_.assign(sockets_.size(), monotonic_ns());
  arrived_.assign(sockets_.size(), 0);
  const auto count = static_cast<std::uint32_t>(sockets_.size());
  shares_ = XdpShares(umem_.chunks(), count);
  for (const auto& socket : sockets_) {
    socket->refill(shares_);
    program_.set_socket(socket->queue(), socket->fd());
  }
}

std::uint64_t XdpRing::kernel_bytes() const noexcept {
  return sockets_.size() * (options_.ring_size * XdpShares::DESCRIPTOR_BYTES +
                            umem_.chunks() * std::uint64_t{NOTE_BYTES});
}

std::vector<int> XdpRing::fds() const {
  std::vector<int> all;
  all.reserve(sockets_.size());
  for (const auto& socket : sockets_) all.push_back(socket->fd());
  return all;
}

std::string XdpRing::path() const {
  std::string path = mode_ == XdpMode::NATIVE ? "af_xdp native" : "af_xdp generic";
  if (zero_copy_) path += ", zero copy";
  if (detached_.load(std::memory_order_relaxed)) path += ", detached";
  return path;
}

const char* XdpRing::fixed_flows() const noexcept {
  if (takes_any_flow_) return nullptr;
  return "its XDP program receives only frames of the flows that existed when it was opened; set "
         "dynamic_flow_capacity to receive frames of added flows, or open the engine again";
}

Frame XdpRing::peek() noexcept {
  if (frame_.data != nullptr) return frame_;
  // Try each socket once.
  for (std::size_t tried = 0; tried <= sockets_.size(); ++tried) {
    if (left_ > 0 && read()) return frame_;
    next_socket();
  }
  return {};
}

bool XdpRing::read() noexcept {
  const XdpSocket& socket = *sockets_[turn_];
  const std::uint32_t waiting = socket.waiting();
  if (waiting == 0) return false;
  const auto place_of = [&](const xdp_desc& piece) {
    return reinterpret_cast<std::uint8_t*>(umem_.base() + piece.addr);
  };
  const xdp_desc& first = socket.descriptor(0);
  Frame frame;
  frame.data = place_of(first);
  frame.length = first.len;
  frame.wire_length = first.len;
  std::size_t rest = 0;
  std::uint32_t pieces = 1;
  for (bool more = (first.options & XDP_PKT_CONTD) != 0; more; ++pieces) {
    // The end of the frame has not arrived yet.
    if (pieces == waiting) return false;
    const xdp_desc& piece = socket.descriptor(pieces);
    more = (piece.options & XDP_PKT_CONTD) != 0;
    frame.wire_length += piece.len;
    if (rest == MOST_PIECES) continue;
    rest_[rest++] = {place_of(piece), piece.len};
    frame.length += piece.len;
  }
  frame.rest = std::span(rest_.data(), rest);
  for (std::uint32_t ahead = LOOK_AHEAD; ahead < LOOK_AHEAD + pieces && ahead < waiting; ++ahead) {
    const std::uint8_t* later = place_of(socket.descriptor(ahead));
    __builtin_prefetch(later - XDP_TIME_BYTES);
    __builtin_prefetch(later);
  }
  std::uint64_t time = 0;
  std::memcpy(&time, frame.data - XDP_TIME_BYTES, sizeof time);
  // Without space for a time, the memory still has that of the frame that was there before.
  std::uint64_t& latest = latest_ns_[turn_];
  const bool told = time + DISORDER_NS >= latest && time <= looked_ns_;
  if (told) latest = std::max(latest, time);
  frame.time = (told ? time : monotonic_ns()) + clock_offset_;
  frame_ = frame;
  pieces_ = pieces;
  kept_ = false;
  return true;
}

void XdpRing::advance() noexcept {
  XdpSocket& socket = *sockets_[turn_];
  for (std::uint32_t i = kept_ ? 1 : 0; i < pieces_; ++i)
    put_back(umem_.chunk_at(socket.descriptor(i).addr));
  socket.advance(pieces_);
  left_ -= std::min(left_, pieces_);
  frame_ = {};
}

std::uint32_t XdpRing::keep(std::uint32_t times) noexcept {
  const std::uint32_t chunk = umem_.chunk_at(sockets_[turn_]->descriptor(0).addr);
  umem_.keep(chunk, times);
  kept_ = true;
  return chunk;
}

void XdpRing::put_back(std::uint32_t chunk) noexcept {
  returned_[num_returned_++] = chunk;
  if (num_returned_ < returned_.size()) return;
  put_back_all();
}

void XdpRing::put_back_all() noexcept {
  umem_.put_back(returned_.data(), num_returned_);
  num_returned_ = 0;
}

void XdpRing::next_socket() noexcept {
  put_back_all();
  sockets_[turn_]->refill(shares_);
  turn_ = turn_ + 1 == sockets_.size() ? 0 : turn_ + 1;
  XdpSocket& socket = *sockets_[turn_];
  if (socket.waiting() == 0) socket.look();
  left_ = std::min(socket.waiting(), TURN);
  if (left_ == 0) return;
  looked_ns_ = monotonic_ns();
  clock_offset_ = realtime_ns() - looked_ns_;
}

bool XdpRing::waits_for_memory() const noexcept {
  return umem_.kept() > 0 && std::ranges::any_of(sockets_, [&](const auto& socket) {
           return socket->starved(shares_);
         });
}

std::uint32_t XdpRing::take_drops() noexcept {
  std::uint64_t counted = 0;
  drops_uncounted_ = false;
  for (const auto& socket : sockets_) {
    const XdpDrops drops = socket->take_drops();
    counted += drops.counted;
    drops_uncounted_ = drops_uncounted_ || drops.uncounted;
  }
  return static_cast<std::uint32_t>(counted);
}

int XdpRing::balance() noexcept {
  if (sockets_.size() == 1 || stopped_) return -1;
  for (const auto& socket : sockets_) arrived_[socket->queue()] = socket->take_arrived();
  shares_.update(arrived_, monotonic_ns());
  for (const auto& socket : sockets_) socket->refill(shares_);
  const std::size_t idle = find_idle();
  return idle == sockets_.size() ? -1 : exchange(idle);
}

std::size_t XdpRing::find_idle() const noexcept {
  const std::size_t none = sockets_.size();
  if (umem_.available() > shares_.reserve()) return none;
  if (monotonic_ns() - exchanged_ns_ < EXCHANGE_NS) return none;
  std::size_t found = none;
  bool needed = false;
  for (std::size_t at = 0; at < none; ++at) {
    const XdpSocket& socket = *sockets_[at];
    if (!shares_.idle(socket.queue())) {
      needed = needed || socket.held() < std::min(shares_.most(socket.queue()), shares_.part()) / 2;
    } else if (socket.held() > 2 * shares_.floor() && socket.waiting() == 0 &&
               (found == none || socket.held() > sockets_[found]->held())) {
      found = at;
    }
  }
  return needed ? found : none;
}

int XdpRing::exchange(std::size_t at) noexcept {
  exchanged_ns_ = monotonic_ns();
  XdpSocket::Options options = options_;
  options.queue = sockets_[at]->queue();
  options.other = sockets_[at == 0 ? 1 : 0].get();
  std::unique_ptr<XdpSocket> fresh;
  try {
    fresh = std::make_unique<XdpSocket>(interface_, umem_, options);
  } catch (const std::exception&) {
    // For example, the process has dropped its privileges.
    return -1;
  }
  program_.remove_socket(options.queue);
  // A frame that the program had sent to the socket before may still arrive.
  const timespec moment{0, 1'000'000};
  nanosleep(&moment, nullptr);
  const bool idle = sockets_[at]->waiting() == 0;
  try {
    if (idle) {
      sockets_[at] = std::move(fresh);
      // It can be bound only after neither kernel nor card can write for the old one.
      if (!sockets_[at]->bind()) throw xdp_error(interface_, "bind an AF_XDP socket again", ENODEV);
      put_back_all();
      umem_.recover(options.queue);
      sockets_[at]->refill(shares_);
    }
    program_.set_socket(options.queue, sockets_[at]->fd());
  } catch (const std::exception&) {
    queue_lost_ = true;
  }
  return idle ? sockets_[at]->fd() : -1;
}

int XdpRing::take_error() noexcept {
  int error = 0;
  for (const auto& socket : sockets_) error = std::max(error, socket->take_error());
  if (queue_lost_ || (link_ && !link_->attached())) {
    if (detached_.exchange(true, std::memory_order_relaxed)) return 0;
    return ENOLINK;
  }
  ifreq request{};
  request.ifr_ifindex = interface_.index;
  const bool up = ioctl(watch_.fd(), SIOCGIFNAME, &request) == 0 &&
                  ioctl(watch_.fd(), SIOCGIFFLAGS, &request) == 0 &&
                  (request.ifr_flags & IFF_UP) != 0;
  if (!up && std::exchange(was_up_, up)) error = ENETDOWN;
  was_up_ = up;
  return error;
}

void XdpRing::stop() noexcept {
  link_.reset();
  program_.close();
  // Frames that are kept need the memory only.
  sockets_.clear();
  watch_.close();
}

}  // namespace daqiri::packet

#include "engines/packet/xdp_ring.h"

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

}  // namespace

XdpRing::XdpRing(std::shared_ptr<XdpAttachment> attachment, const Options& options)
    : FrameRing("packets of " + attachment->interface().name, chunk_bytes(attachment->interface()),
                memory::Place::HOST),
      attachment_(std::move(attachment)),
      umem_(interface().name, std::max(options.bytes, FEWEST_BYTES), chunk_bytes(interface())) {
  open_sockets(options);
}

XdpRing::~XdpRing() { stop(); }

void XdpRing::open_sockets(const Options& options) {
  const std::uint32_t most = attachment_->most_queues();
  const std::uint32_t own = (most - options.first + options.of - 1) / options.of;
  options_.ring_size = XdpShares::ring_size(umem_.chunks(), umem_.chunk_bytes(), own);
  options_.copy = attachment_->mode() == XdpMode::GENERIC;
  options_.pieces = interface().mtu + FRAME_OVERHEAD > umem_.chunk_bytes() - Umem::HEADROOM;
  options_.busy_poll = options.busy_poll;
  for (options_.queue = options.first; options_.queue < most; options_.queue += options.of) {
    options_.position = static_cast<std::uint32_t>(sockets_.size());
    auto socket = std::make_unique<XdpSocket>(interface(), umem_, options_);
    if (!socket->bind()) break;
    sockets_.push_back(std::move(socket));
    options_.other = sockets_.front().get();
  }
  zero_copy_ = sockets_.front()->zero_copy();
  latest_ns_.assign(sockets_.size(), monotonic_ns());
  arrived_.assign(sockets_.size(), 0);
  const auto count = static_cast<std::uint32_t>(sockets_.size());
  holdings_.resize(sockets_.size());
  shares_ = XdpShares(umem_.chunks(), count, options_.ring_size);
  for (const auto& socket : sockets_) {
    socket->refill(shares_);
    attachment_->program().set_socket(socket->queue(), socket->fd());
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
  std::string path = attachment_->mode() == XdpMode::NATIVE ? "af_xdp native" : "af_xdp generic";
  if (zero_copy_) path += ", zero copy";
  if (attachment_->detached()) path += ", detached";
  return path;
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
  for (std::size_t at = 0; at < sockets_.size(); ++at) arrived_[at] = sockets_[at]->take_arrived();
  shares_.update(arrived_, monotonic_ns());
  for (const auto& socket : sockets_) socket->refill(shares_);
  if (monotonic_ns() - exchanged_ns_ < EXCHANGE_NS) return -1;
  for (std::size_t at = 0; at < sockets_.size(); ++at)
    holdings_[at] = {.held = sockets_[at]->held(), .waiting = sockets_[at]->waiting()};
  const std::size_t idle = shares_.surplus(holdings_, umem_.available());
  return idle == sockets_.size() ? -1 : exchange(idle);
}

int XdpRing::exchange(std::size_t at) noexcept {
  exchanged_ns_ = monotonic_ns();
  XdpSocket::Options options = options_;
  options.queue = sockets_[at]->queue();
  options.position = static_cast<std::uint32_t>(at);
  options.other = sockets_[at == 0 ? 1 : 0].get();
  std::unique_ptr<XdpSocket> fresh;
  try {
    fresh = std::make_unique<XdpSocket>(interface(), umem_, options);
  } catch (const std::exception&) {
    // For example, the process has dropped its privileges.
    return -1;
  }
  attachment_->program().remove_socket(options.queue);
  // A frame that the program had sent to the socket before may still arrive.
  const timespec moment{0, 1'000'000};
  nanosleep(&moment, nullptr);
  const bool idle = sockets_[at]->waiting() == 0;
  try {
    if (idle) {
      sockets_[at] = std::move(fresh);
      // It can be bound only after neither kernel nor card can write for the old one.
      if (!sockets_[at]->bind())
        throw xdp_error(interface(), "bind an AF_XDP socket again", ENODEV);
      put_back_all();
      umem_.recover(options.queue);
      sockets_[at]->refill(shares_);
    }
    attachment_->program().set_socket(options.queue, sockets_[at]->fd());
  } catch (const std::exception&) {
    queue_lost_ = true;
  }
  return idle ? sockets_[at]->fd() : -1;
}

int XdpRing::take_error() noexcept {
  int error = 0;
  for (const auto& socket : sockets_) error = std::max(error, socket->take_error());
  return std::max(error, attachment_->take_error(queue_lost_));
}

void XdpRing::stop_arrivals() noexcept {
  stopped_ = true;
  for (const auto& socket : sockets_) attachment_->program().remove_socket(socket->queue());
}

void XdpRing::stop() noexcept {
  attachment_->stop();
  // Frames that are kept need the memory only.
  sockets_.clear();
}

}  // namespace daqiri::packet

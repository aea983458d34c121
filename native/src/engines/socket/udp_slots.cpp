#include "engines/socket/udp_queues.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/packet_buffers.h"

namespace daqiri::sockets {

namespace {

/// After this many consecutive messages of one datagram, the layout of rows ends.
constexpr std::uint32_t SINGLES_TO_END_ROWS = 32;
/// Longest row that kernels usually send.
constexpr std::uint32_t USUAL_ROW = 64;

}  // namespace

UdpSlots::UdpSlots(const RxQueue& queue, bool named, std::size_t sharers, bool hands_over)
    : queue_(queue),
      segments_(static_cast<std::uint32_t>(queue.num_segments())),
      hands_over_(hands_over),
      vectors_(std::size_t{ROW_SLOTS} * (MAX_ROW * MAX_NUM_SEGS + 1)),
      // Not touched unless a message needs it.
      overflow_(std::make_unique_for_overwrite<std::byte[]>(std::size_t{MAX_SLOTS} * MAX_MESSAGE)),
      staging_(std::make_unique_for_overwrite<std::byte[]>(MAX_MESSAGE)) {
  std::uint64_t buffers = UINT32_MAX;
  for (int s = 0; s < queue.num_segments(); ++s) {
    capacity_ += queue.segment_capacity(s);
    buffers = std::min(buffers, queue.region(s).config().num_bufs_);
  }
  // A limit, because other queues may use the same region, and buffers that wait here are not
  // freed.
  share_ = std::max(1U, static_cast<std::uint32_t>(buffers / (4 * sharers)));
  for (std::uint32_t i = 0; i < MAX_SLOTS; ++i) {
    messages_[i].msg_hdr.msg_name = named ? names_[i].data() : nullptr;
    messages_[i].msg_hdr.msg_control = &controls_[i];
    overflows_[i] = {overflow(i), MAX_MESSAGE};
    reset(messages_[i].msg_hdr);
  }
  lay_out(capacity_, 1, MAX_SLOTS);
}

void UdpSlots::reset(msghdr& header) const noexcept {
  header.msg_namelen = header.msg_name == nullptr ? 0 : SocketAddress::CAPACITY;
  header.msg_controllen = sizeof(Control);
}

// --- Layout

void UdpSlots::lay_out(std::uint32_t segment, std::uint32_t row, std::uint32_t slots) noexcept {
  compact();
  length_ = segment;
  row_ = row;
  slots_ = slots;
  cut(segment, piece_lengths_.data());
  point_to_vectors();
  for (std::uint32_t slot = 0; slot < slots_; ++slot)
    messages_[slot].msg_hdr.msg_iov[vectors_per_slot() - 1] = overflows_[slot];
  const std::uint32_t places = std::min(row_ * slots_, share_);
  if (ready_ > places) {
    for (std::uint32_t s = 0; s < segments_; ++s)
      queue_.region(static_cast<int>(s)).give(&buffers_[s][places], ready_ - places);
    ready_ = places;
  }
  bind(0, ready_);
  end_last_slot();
}

void UdpSlots::choose_layout() noexcept {
  const std::uint32_t count = std::exchange(row_count_, 0);
  if (count > 1 && row_segment_ <= capacity_) {
    const std::uint32_t longest = count > USUAL_ROW ? MAX_ROW : USUAL_ROW;
    const std::uint32_t row =
        std::clamp((MAX_MESSAGE - 1 + row_segment_ - 1) / row_segment_, 2U, longest);
    if (row_segment_ != length_ || row > row_) lay_out(row_segment_, row, ROW_SLOTS);
  } else if (row_ > 1 && singles_ >= SINGLES_TO_END_ROWS) {
    lay_out(capacity_, 1, MAX_SLOTS);
  }
}

void UdpSlots::compact() noexcept {
  for (std::uint32_t s = 0; s < segments_; ++s) {
    Numbers& numbers = buffers_[s];
    std::uint32_t* to = numbers.data();
    std::uint32_t from = 0;
    for (std::uint32_t v = 0; v < num_vacant_; ++v) {
      to = std::copy(numbers.data() + from, numbers.data() + vacant_[v].first, to);
      from = vacant_[v].first + vacant_[v].count;
    }
    std::copy(numbers.data() + from, numbers.data() + ready_, to);
  }
  for (std::uint32_t v = 0; v < num_vacant_; ++v) ready_ -= vacant_[v].count;
  num_vacant_ = 0;
}

void UdpSlots::vacate(std::uint32_t first, std::uint32_t count) noexcept {
  Places* last = num_vacant_ > 0 ? &vacant_[num_vacant_ - 1] : nullptr;
  if (last != nullptr && last->first + last->count == first) {
    last->count += count;
  } else {
    vacant_[num_vacant_++] = {first, count};
  }
}

void UdpSlots::bind(std::uint32_t first, std::uint32_t count) noexcept {
  std::uint32_t slot = first / row_;
  for (std::uint32_t place = first; place < first + count; ++place) {
    if (place == (slot + 1) * row_) ++slot;
    // After the vectors of a slot there is one for the overflow.
    iovec* vectors = &vectors_[std::size_t{place} * segments_ + slot];
    for (std::uint32_t s = 0; s < segments_; ++s)
      vectors[s] = {queue_.region(static_cast<int>(s)).address(buffers_[s][place]),
                    piece_lengths_[s]};
  }
}

void UdpSlots::point_to_vectors() noexcept {
  for (std::uint32_t slot = 0; slot < slots_; ++slot)
    messages_[slot].msg_hdr.msg_iov = &vectors_[std::size_t{slot} * vectors_per_slot()];
}

void UdpSlots::bind_overflows() noexcept {
  for (std::uint32_t slot = 0; slot < MAX_SLOTS; ++slot) {
    messages_[slot].msg_hdr.msg_iov = &overflows_[slot];
    messages_[slot].msg_hdr.msg_iovlen = hands_over_ ? 1 : 0;
  }
}

void UdpSlots::end_last_slot() noexcept {
  if (blank()) return bind_overflows();
  if (messages_[0].msg_hdr.msg_iov == overflows_.data()) point_to_vectors();
  const std::uint32_t full = ready_ / row_;
  for (std::uint32_t slot = 0; slot < full; ++slot)
    messages_[slot].msg_hdr.msg_iovlen = vectors_per_slot();
  if (full < slots_) {
    const std::uint32_t vectors = (ready_ - full * row_) * segments_;
    messages_[full].msg_hdr.msg_iov[vectors] = overflows_[full];
    messages_[full].msg_hdr.msg_iovlen = vectors + 1;
  }
}

std::uint32_t UdpSlots::fill() noexcept {
  choose_layout();
  const std::uint32_t places = std::min(row_ * slots_, share_);
  if (num_vacant_ > 0 || ready_ < places) {
    if (ready_ < places) vacate(ready_, places - ready_);
    ready_ = places;
    bool complete = true;
    for (std::uint32_t v = 0; v < num_vacant_; ++v) {
      Places& empty = vacant_[v];
      const std::uint32_t n = take_buffers(queue_, buffers_.data(), empty.first, empty.count);
      bind(empty.first, n);
      empty.first += n;
      empty.count -= n;
      complete = complete && empty.count == 0;
    }
    if (complete) {
      num_vacant_ = 0;
    } else {
      compact();
      bind(0, ready_);
    }
    end_last_slot();
  }
  return blank() ? MAX_SLOTS : (ready_ + row_ - 1) / row_;
}

void UdpSlots::close() noexcept {
  compact();
  for (std::uint32_t s = 0; s < segments_; ++s)
    queue_.region(static_cast<int>(s)).give(buffers_[s].data(), ready_);
  ready_ = 0;
}

// --- Messages

UdpMessage UdpSlots::read(mmsghdr& message) noexcept {
  msghdr& header = message.msg_hdr;
  UdpMessage result;
  // With MSG_TRUNC the kernel returns the length on the wire, even if it was truncated.
  result.bytes = message.msg_len;
  std::uint32_t segment = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      timespec t{};
      std::memcpy(&t, CMSG_DATA(c), sizeof(t));
      result.timestamp = static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
                         static_cast<std::uint64_t>(t.tv_nsec);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(c), sizeof(info));
      // The second one is an address of this host.
      result.to_many = info.ipi_addr.s_addr != info.ipi_spec_dst.s_addr;
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(c), sizeof(info));
      result.to_many = IN6_IS_ADDR_MULTICAST(&info.ipi6_addr);
    } else if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      int size = 0;
      std::memcpy(&size, CMSG_DATA(c), sizeof(size));
      segment = static_cast<std::uint32_t>(std::max(size, 0));
    }
  }
  reset(header);
  const bool single = segment == 0 || segment >= result.bytes;
  result.count = single ? 1 : (result.bytes + segment - 1) / segment;
  result.segment = single ? result.bytes : segment;
  result.last = result.bytes - (result.count - 1) * result.segment;
  return result;
}

UdpMessage UdpSlots::open(std::uint32_t slot) noexcept {
  const UdpMessage message = read(messages_[slot]);
  if (blank()) return message;
  bool fits = false;
  if (message.count > 1) {
    row_segment_ = message.segment;
    row_count_ = message.count;
    singles_ = 0;
    fits = message.segment == length_;
  } else {
    ++singles_;
    fits = message.bytes <= length_ || length_ == capacity_;
  }
  staged_ = MAX_SLOTS;
  if (!fits) stage(slot, message.bytes);
  return message;
}

const std::byte* UdpSlots::whole(std::uint32_t slot, const UdpMessage& message) noexcept {
  if (!has_data()) return nullptr;
  if (blank()) return overflow(slot);
  if (staged_ != slot) stage(slot, message.bytes);
  return staging_.get();
}

std::span<const std::uint8_t> UdpSlots::head(std::uint32_t slot, const UdpMessage& message,
                                             std::uint32_t packet, Head& room) const noexcept {
  if (!has_data()) return {};
  auto size = std::min<std::uint32_t>(message.length(packet), room.size());
  const auto bytes = [&](const void* data) {
    return std::span(static_cast<const std::uint8_t*>(data), size);
  };
  const std::size_t at = std::size_t{packet} * message.segment;
  if (staged_ == slot) return bytes(&staging_[at]);
  if (blank()) return bytes(overflow(slot) + at);
  const std::uint32_t places = places_of(slot);
  if (packet >= places) return bytes(overflow(slot) + at - std::size_t{places} * message.segment);
  const iovec* pieces = &vectors_[(std::size_t{slot} * row_ + packet) * segments_ + slot];
  if (pieces->iov_len >= size) return bytes(pieces->iov_base);
  std::uint32_t copied = 0;
  for (std::uint32_t s = 0; s < segments_ && copied < size; ++s) {
    const auto n = std::min<std::size_t>(pieces[s].iov_len, size - copied);
    std::memcpy(&room[copied], pieces[s].iov_base, n);
    copied += static_cast<std::uint32_t>(n);
  }
  size = copied;
  return bytes(room.data());
}

void UdpSlots::stage(std::uint32_t slot, std::uint32_t bytes) noexcept {
  const iovec* vector = messages_[slot].msg_hdr.msg_iov;
  bytes = std::min(bytes, MAX_MESSAGE);
  for (std::uint32_t done = 0; done < bytes; ++vector) {
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(vector->iov_len, bytes - done));
    std::memcpy(&staging_[done], vector->iov_base, n);
    done += n;
  }
  staged_ = slot;
}

void UdpSlots::cut(std::uint32_t length, std::uint32_t* lengths) const noexcept {
  for (std::uint32_t s = 0; s < segments_; ++s) {
    lengths[s] = std::min(length, queue_.segment_capacity(static_cast<int>(s)));
    length -= lengths[s];
  }
}

void UdpSlots::copy_out(const std::byte* data, std::uint32_t length, const Numbers* numbers,
                        std::uint32_t at) const noexcept {
  std::array<std::uint32_t, MAX_NUM_SEGS> lengths{};
  cut(length, lengths.data());
  for (std::uint32_t s = 0; s < segments_; ++s) {
    std::memcpy(queue_.region(static_cast<int>(s)).address(numbers[s][at]), data, lengths[s]);
    data += lengths[s];
  }
}

std::uint32_t UdpSlots::take_spare(std::uint32_t n) noexcept {
  std::uint32_t got = take_buffers(queue_, taken_.data(), 0, n);
  // If the regions have no free buffers, use those of slots that this call did not fill.
  for (; got < n && ready_ > received_ * row_; ++got) {
    --ready_;
    for (std::uint32_t s = 0; s < segments_; ++s) taken_[s][got] = buffers_[s][ready_];
  }
  return got;
}

std::uint32_t UdpSlots::place(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                              std::uint32_t end, RxBatch& batch) noexcept {
  if (blank()) return 0;
  // The last one may be shorter.
  if (end == message.count && message.last != message.segment && first + 1 < end) --end;
  const std::uint32_t places = places_of(slot);
  const bool placed = first < places;
  const bool moved = staged_ == slot;
  std::uint32_t n = placed ? std::min(end, places) - first : std::min(end - first, MAX_ROW);
  const Numbers* numbers = placed ? buffers_.data() : taken_.data();
  std::uint32_t at = placed ? slot * row_ + first : 0;
  if (placed) {
    vacate(at, n);
  } else {
    n = take_spare(n);
  }
  if (moved || !placed) {
    const std::byte* data = moved ? staging_.get() : overflow(slot);
    const std::uint32_t skipped = moved ? 0 : places;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t packet = first + i;
      copy_out(data + std::size_t{packet - skipped} * message.segment, message.length(packet),
               numbers, at + i);
    }
  }
  batch.count = n;
  std::array<std::uint32_t, MAX_NUM_SEGS> lengths{};
  cut(message.length(first), lengths.data());
  for (std::uint32_t s = 0; s < segments_; ++s) {
    batch.segments[s].buffers = &numbers[s][at];
    batch.segments[s].lengths.constant = lengths[s];
  }
  return n;
}

}  // namespace daqiri::sockets

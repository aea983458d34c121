// Appending packets to a file with any content: the file is rejected and not changed, or its
// complete records are kept and new ones follow. A torn record at the end is cut off.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daqiri/error.h"
#include "packet_bursts.h"
#include "require.h"
#include "scratch_folder.h"
#include "storage/index_pcap.h"
#include "storage/packet_writer.h"

using namespace daqiri;
using fuzz::require;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// The format in the header of the file; the default format without a header.
pcap::Format format_of(const std::uint8_t* data, std::size_t size) {
  try {
    const pcap::Format found = pcap::read_header(data, size, "file");
    return {found.link_type, found.nanosecond};
  } catch (const Error&) {
    return {};
  }
}

/// Why the file is rejected; empty if it is open.
std::optional<std::string> refusal(PacketWriter& writer, const std::string& path,
                                   std::uint32_t longest) {
  try {
    writer.append(path, longest);
  } catch (const Error& error) {
    require(error.status() == Status::INVALID_PARAMETER, "a bad file is the caller's");
    return error.what();
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchFolder folder;
  static fuzz::PacketBursts bursts(1);
  if (size == 0) return 0;
  const std::uint8_t chosen = data[size - 1];
  --size;
  folder.clear();
  const std::string path = folder / "a.pcap";
  fuzz::write_content(path, data, size);
  Bytes before(data, data + size);
  pcap::Format format = format_of(data, size);
  if ((chosen & 1U) != 0) format.nanosecond = !format.nanosecond;

  const auto burst = bursts.make(1U + chosen / 16, [&] { return chosen * 5U; });
  PacketWriter writer(format);
  if (refusal(writer, path, chosen * 5U)) {
    require(fuzz::content_of(path) == before, "a file that is refused stays as it was");
    return 0;
  }
  const Bytes opened = fuzz::content_of(path);
  if (before.empty()) before = opened;
  require(
      opened.size() <= before.size() && std::equal(opened.begin(), opened.end(), before.begin()),
      "a file that is accepted loses its torn end at most");
  require(before.size() - opened.size() <= sizeof(pcap::RecordHeader) + pcap::SNAP_LENGTH,
          "what is torn is one record at most");
  before = opened;
  const auto n = static_cast<std::uint32_t>(burst->hdr.hdr.num_pkts);
  require(writer.write(*burst, LinkLayer{}, 0, n) == n, "a file in memory takes all");
  writer.close();
  require(!writer.failed(), "a file in memory can be written");

  const Bytes after = fuzz::content_of(path);
  require(after.size() >= before.size() && std::equal(before.begin(), before.end(), after.begin()),
          "what was there stays");
  const PcapIndex old = test::index_pcap(before.data(), before.size(), path);
  const PcapIndex now = test::index_pcap(after.data(), after.size(), path);
  require(old.torn_bytes == 0 && now.torn_bytes == 0, "the file has whole records");
  require(now.offsets.size() == old.offsets.size() + n, "each packet is a record");
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::size_t record = old.offsets.size() + i;
    const Bytes packet = fuzz::bytes_of(*burst, i);
    require(now.lengths[record] == packet.size() && now.wire_lengths[record] == packet.size() &&
                std::equal(packet.begin(), packet.end(),
                           after.begin() + static_cast<std::ptrdiff_t>(now.offsets[record])),
            "a record holds its packet");
  }
  return 0;
}

/// Bursts to a classic pcap file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/packet_writer.h"
#include "storage/pcap_format.h"

namespace daqiri {

struct PcapFormat {
  std::uint32_t link_type{LINKTYPE_ETHERNET};
  bool nanosecond{false};
};

class PcapWriter final : public PacketWriter {
 public:
  enum class Existing { APPEND, REFUSE };

  explicit PcapWriter(const PcapFormat& format = {},
                      std::unique_ptr<FileOutput> output = buffered_output());
  ~PcapWriter() override;

  [[nodiscard]] const char* suffix() const noexcept override { return ".pcap"; }
  void prepare(const std::string& path) override;

  /// Begin `path`, with the file header where it is new or empty. `longest` is the longest record
  /// that an existing file must take (at most pcap::SNAP_LENGTH). A torn record at its end, which a
  /// killed writer has left, is cut off. Throws Error, leaving an existing file as it was:
  /// INVALID_PARAMETER when it is of another kind or damaged, NOT_READY when somebody else writes
  /// it, GENERIC_FAILURE with path and errno.
  void open(const std::string& path, const PcapFormat& format, Existing existing,
            std::uint32_t longest = 0);

 private:
  void append(File file, const std::string& path, std::uint32_t longest, bool created);
  /// Returns where to go on.
  std::uint64_t require_compatible(int fd, const std::string& path, std::uint64_t size,
                                   std::uint32_t longest);
  int end(bool durable) noexcept override;
  void add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes, std::uint32_t packet,
           std::uint64_t time) noexcept override;

  PcapFormat format_;
  std::uint32_t snap_length_{pcap::SNAP_LENGTH};
  std::uint32_t ns_per_tick_{1};
};

}  // namespace daqiri

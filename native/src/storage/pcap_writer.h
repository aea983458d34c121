/// Bursts to a classic pcap file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/packet_writer.h"

namespace daqiri {

struct PcapFormat {
  std::uint32_t link_type{LINKTYPE_ETHERNET};
  bool nanosecond{false};
};

class PcapWriter final : public PacketWriter {
 public:
  enum class Existing { APPEND, REFUSE };

  explicit PcapWriter(const PcapFormat& format = {},
                      std::unique_ptr<FileOutput> output = buffered_output(),
                      TailGuard* guard = nullptr);
  ~PcapWriter() override;

  [[nodiscard]] const char* suffix() const noexcept override { return ".pcap"; }
  void create(const std::string& path) override { open(path, format_, Existing::REFUSE); }

  /// Begin `path`, with the file header where it is new or empty. `longest` is the longest record
  /// that an existing file must take (at most pcap::SNAP_LENGTH). Throws Error, leaving an existing
  /// file as it was: INVALID_PARAMETER when it is of another kind or ends in a torn record,
  /// NOT_READY when somebody else writes it, GENERIC_FAILURE with path and errno.
  void open(const std::string& path, const PcapFormat& format, Existing existing,
            std::uint32_t longest = 0);

 private:
  void begin(std::uint32_t longest);
  void require_compatible(std::uint64_t size, std::uint32_t longest);
  void add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes, std::uint32_t packet,
           std::uint64_t time) noexcept override;

  PcapFormat format_;
  std::uint32_t snap_length_{0};
  std::uint32_t ns_per_tick_{1};
};

}  // namespace daqiri

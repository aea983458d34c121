// A pcap reader with libpcap: lengths and times of all packets, or the packets copied to rows of
// one array.
//
// usage: peers_pcap_read_libpcap FILE ROW_BYTES

#include <pcap/pcap.h>

#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/program.h"

namespace {

pcap_t* open_file(const char* path) {
  char problem[PCAP_ERRBUF_SIZE] = {};
  pcap_t* file = pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, problem);
  if (file == nullptr) {
    std::fprintf(stderr, "%s\n", problem);
    std::exit(1);
  }
  return file;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: peers_pcap_read_libpcap FILE ROW_BYTES\n", stderr);
    return 2;
  }
  const auto row = bench::number<std::size_t>(argv[2]);
  pcap_pkthdr* header = nullptr;
  const u_char* data = nullptr;

  const std::uint64_t begun = bench::now_ns();
  pcap_t* file = open_file(argv[1]);
  std::vector<std::uint32_t> lengths;
  std::vector<std::int64_t> timestamps;
  while (pcap_next_ex(file, &header, &data) == 1) {
    lengths.push_back(header->caplen);
    timestamps.push_back(header->ts.tv_sec * 1'000'000'000 + header->ts.tv_usec);
  }
  pcap_close(file);
  const std::uint64_t indexed = bench::now_ns();

  std::vector<std::uint8_t> rows(lengths.size() * row, 1);  // in memory before it is timed
  const std::uint64_t before = bench::now_ns();
  file = open_file(argv[1]);
  for (std::size_t i = 0; pcap_next_ex(file, &header, &data) == 1; ++i)
    std::memcpy(&rows[i * row], data, header->caplen);
  pcap_close(file);
  const std::uint64_t gathered = bench::now_ns();
  std::ostringstream line;
  line << R"({"packets": )" << lengths.size() << R"(, "index_ns": )" << indexed - begun
       << R"(, "gather_ns": )" << gathered - before << R"(, "check": )"
       << static_cast<int>(rows[rows.size() / 2]) << "}";
  bench::print_line(line.str());
  return 0;
}

// Warnings name the keys that an engine does not use.
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

const std::string UDP = SOCKET;

const std::string MEMORY = R"(version: 1
master_core: 0
stream_type: raw
loopback: sw
memory_regions:
- {name: buffers, kind: host, num_bufs: 4096, buf_size: 2048}
interfaces:
- name: port
  address: loopback
  rx:
    queues:
    - {name: in, id: 0, cpu_core: any, batch_size: 16, memory_regions: [buffers]}
  tx:
    queues:
    - {name: out, id: 0, cpu_core: any, batch_size: 16, memory_regions: [buffers]}
)";

std::string tcp() {
  std::string text = UDP;
  for (std::size_t at = text.find("udp://"); at != std::string::npos; at = text.find("udp://"))
    text.replace(at, 6, "tcp://");
  return text;
}

void unused(const std::string& text, std::string_view what, std::string_view by,
            const std::string& path, const std::string& part) {
  const Loaded loaded = require_warning(replaced(text, what, by), path, part);
  CHECK_THAT(loaded.report.text(), Catch::Contains("has no effect on engine '"));
  CHECK(loaded.report.problems_.front().line_ > 0);
}

}  // namespace

TEST_CASE("what no engine uses yet is warned of on each", "[config][unused]") {
  for (const std::string& text : {UDP, tcp(), MEMORY}) {
    require_clean(text);
    unused(text, "version: 1", "version: 1\ndebug: true", "debug", "use log_level: debug");
    unused(text, "buf_size: 2048}", "buf_size: 2048, owned: false}", "memory_regions[0].owned",
           "found 'false'");
    unused(text, "buf_size: 2048}", "buf_size: 2048, access: [local, rdma_read]}",
           "memory_regions[0].access", "found [local, rdma_read]");
    const std::string queue = text == MEMORY ? "interfaces[0].tx.queues[0]." :  //
                                  "interfaces[1].tx.queues[0].";
    unused(text, "{name: out,", "{name: out, timeout_us: 100,", queue + "timeout_us",
           "found '100'");
    unused(text, "  rx:\n", "  rx:\n    receive_path: auto\n", "interfaces[0].rx.receive_path",
           "it is for engine 'packet'");
  }
}

TEST_CASE("what sockets do not use is warned of", "[config][unused]") {
  for (const std::string& text : {UDP, tcp()}) {
    unused(text, "{name: out,", "{name: out, offloads: [tx_eth_src],",
           "interfaces[1].tx.queues[0].offloads", "found [tx_eth_src]");
    unused(text, "mode: client,", "mode: client, min_ipg_ns: 100,",
           "interfaces[1].socket_config.min_ipg_ns", "use pacing_mbps");
    unused(text, "mode: server,", "mode: server, max_burst_interval_ms: 5,",
           "interfaces[0].socket_config.max_burst_interval_ms", "use timeout_us");
    unused(text, "mode: server,", "mode: server, retry_connect_s: 2,",
           "interfaces[0].socket_config.retry_connect_s", "only a TCP client connects");
  }
  unused(UDP, "mode: client,", "mode: client, retry_connect_s: 2,",
         "interfaces[1].socket_config.retry_connect_s", "only a TCP client connects");
  require_clean(replaced(tcp(), "mode: client,", "mode: client, retry_connect_s: 2,"));
  // The loopback engine fills in addresses, like a network card.
  require_clean(replaced(MEMORY, "{name: out,", "{name: out, offloads: [tx_eth_src],"));
}

TEST_CASE("a default that is written out is no warning", "[config][unused]") {
  for (const std::string& text : {UDP, tcp(), MEMORY})
    require_clean(config_to_yaml(require_clean(text)));
}

TEST_CASE("structs built in code are warned of in the same words", "[config][unused]") {
  NetworkConfig config = require_clean(MEMORY);
  config.mrs_.begin()->second.owned_ = false;
  config.debug_ = true;
  const ConfigReport report = validate_config(config);
  CHECK(report.ok());
  REQUIRE(report.problems_.size() == 2);
  CHECK_THAT(report.text(),
             Catch::Contains("debug: found 'true', which has no effect on engine 'loopback'") &&
                 Catch::Contains("memory_regions['buffers'].owned: found 'false'"));
}

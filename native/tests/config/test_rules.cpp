// Rules between values: a violation is one error, at the key to change.
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

const std::string FLOWS = "interfaces[0].rx.flows";

void breaks(const std::string& text, std::string_view what, std::string_view by,
            const std::string& path, const std::string& part) {
  INFO(what << " -> " << by);
  require_error(replaced(text, what, by), path, part);
}

}  // namespace

TEST_CASE("names and ids are unique", "[config][rules]") {
  breaks(RAW, "name: payloads", "name: headers", "memory_regions[1].name", "memory_regions[0]");
  breaks(RAW, "name: tx_port", "name: rx_port", "interfaces[1].name", "interfaces[0]");
  breaks(RAW, "name: direct, id: 2", "name: whole, id: 2", "interfaces[0].rx.queues[2].name",
         "queues[1]");
  breaks(RAW, "name: direct, id: 2", "name: direct, id: 1", "interfaces[0].rx.queues[2].id",
         "queues[1]");
  breaks(RAW, "name: spread, id: 2", "name: plain, id: 2", FLOWS + "[1].name", "flows[0]");
  breaks(RAW, "name: spread, id: 2", "name: spread, id: 1", FLOWS + "[1].id",
         "interfaces[0].rx.flows[0]");
  breaks(RAW, "name: wrap\n", "name: tag\n", "interfaces[1].tx.flows[1].name", "flows[0]");
  breaks(FLEX, "name: stream, id: 4", "name: channel, id: 4", "interfaces[0].rx.flex_items[1].name",
         "flex_items[0]");
  breaks(REORDER, "name: by_number", "name: by_count", "interfaces[0].rx.reorder_configs[1].name",
         "reorder_configs[0]");
  std::string flex = replaced(FLEX, "name: stream, id: 4", "name: stream, id: 3");
  require_error(replaced(flex, "{flex_item_id: 4, val: 7}", "{flex_item_id: 3, val: 7}"),
                "interfaces[0].rx.flex_items[1].id", "flex_items[0]");
}

TEST_CASE("names can be those of files and groups", "[config][rules]") {
  const std::string accepts = "; accepts a text of up to 200 bytes that is not '.' or '..'";
  const std::string plan = "interfaces[0].rx.reorder_configs[2]";
  for (const std::string name : {".", ".."}) {
    const std::string found = "found '" + name + "', which is a folder to file systems" + accepts;
    breaks(FRAMES, "name: by_count", "name: " + name, plan + ".name", found);
    breaks(RAW, "name: tx_port", "name: " + name, "interfaces[1].name", found);
    breaks(RAW, "name: whole, id: 1", "name: " + name + ", id: 1",
           "interfaces[0].rx.queues[1].name", found);
    breaks(JOINT, "name: by_count", "name: " + name, "reorder_configs[2].name", found);
    require_error(replaced(FRAMES, "modes: {fast:", "modes: {" + name + ":"), plan + ".modes",
                  "found '" + name + "' as a name, which is a folder to file systems" + accepts);
  }
  for (const char* name : {"...", "a.b", ".a", "a/b", "\"\\xE9\""})
    CHECK(load(replaced(FRAMES, "name: by_count", std::string("name: ") + name)).report.ok());
  breaks(FRAMES, "name: by_count", "name: " + std::string(201, 'x'), plan + ".name",
         "...', a long text" + accepts);
  CHECK(load(replaced(FRAMES, "name: by_count", "name: " + std::string(200, 'x'))).report.ok());
}

TEST_CASE("lists that need elements have some", "[config][rules]") {
  const std::string plans = "interfaces[0].rx.reorder_configs";
  breaks(FRAMES, "shape: [210, 140]", "shape: []", plans + "[2].frame.shape",
         "found an empty list; accepts the lengths of axes, such as [512, 1024]");
  breaks(FRAMES, "first_packet: [5]", "first_packet: []",
         plans + "[2].method.seq_packets_per_batch.first_packet",
         "found an empty list; accepts one number, or one for each flow");
}

TEST_CASE("flow ids are unique over interfaces, and 0 is told of", "[config][rules]") {
  const std::string other = replaced(RAW, "      tx:\n", R"(      rx:
        queues: [{name: q, id: 0, cpu_core: 7, batch_size: 64, memory_regions: [whole]}]
        flows: [{name: again, id: 5, action: {type: queue, id: 0}}]
      tx:
)");
  require_error(other, "interfaces[1].rx.flows[0].id", "interfaces[0].rx.flows[4]");
  require_clean(replaced(other, "name: again, id: 5", "name: again, id: 50"));
  require_warning(replaced(RAW, "name: spread, id: 2", "name: spread, id: 0"), FLOWS + "[1].id",
                  "match no flow");
  const Loaded two = load(replaced(replaced(RAW, "name: spread, id: 2", "name: spread, id: 0"),
                                   "name: vlan, id: 3", "name: vlan, id: 0"));
  CHECK(two.report.ok());
  CHECK(warnings(two.report) == 2);
}

TEST_CASE("a flow that no packet reaches is told of, with the flow that takes them",
          "[config][rules]") {
  require_warning(replaced(RAW, "{name: spread, id: 2, match: {udp_dst: 3000}, action",
                           "{name: spread, id: 2, match: {udp_dst: 2005, udp_src: 1000, ipv4_len: "
                           "1050, ipv4_src: 10.0.0.1, ipv4_dst: 10.0.0.2}, action"),
                  FLOWS + "[1].match", "flow 'plain' comes first");
  require_warning(replaced(ECPRI, "name: control, id: 2, match: {ecpri: {msg_type: 2, rtc_id: 18}}",
                           "name: control, id: 2, match: {ecpri: {msg_type: 0, pc_id: 17}}"),
                  FLOWS + "[1].match", "matches all packets of flow 'control'");
  // If it comes first, it matches the remaining packets.
  require_clean(replaced(ECPRI, "name: type, id: 3, match: {ecpri: {msg_type: 5}}",
                         "name: type, id: 3, match: {ecpri: {msg_type: 2}}"));
  require_warning(replaced(ECPRI, "{ecpri: {msg_type: 0, pc_id: 17}}, action: {type: queue",
                           "{ecpri: {msg_type: 5, pc_id: 17}}, action: {type: queue"),
                  FLOWS + "[0].match.ecpri.msg_type", "types 0 to 3");
  require_warning(replaced(FLEX, "{flex_item_id: 4, val: 7}", "{flex_item_id: 3, val: 272}"),
                  FLOWS + "[1].match", "no packet reaches this flow");
}

TEST_CASE("engine is inferred from addresses and endpoints", "[config][rules]") {
  const std::string raw = replaced(RAW, "    engine: dpdk\n", "");
  CHECK(require_clean(raw).common_.engine_type == EngineType::DPDK);
  CHECK(require_clean(raw).common_.engine_inferred_);
  const std::string kernel =
      replaced(replaced(raw, "0000:05:00.0", "eth0"), "0000:05:00.1", "enp5s0f1np1");
  CHECK(load(kernel).report.ok());
  CHECK(load(kernel).config.common_.engine_type == EngineType::PACKET);
  CHECK(require_clean(replaced(raw, "0000:05:00.0", "05:00.0")).common_.engine_type ==
        EngineType::DPDK);
  CHECK(require_clean(SOCKET).common_.engine_type == EngineType::SOCKET);
  CHECK(require_clean(SOCKET).common_.protocol == SocketProtocol::UDP);
  CHECK(require_clean(ROCE).common_.engine_type == EngineType::RDMA);
  CHECK(require_clean(LEGACY).common_.protocol == SocketProtocol::TCP);
  CHECK(require_clean(replaced(replaced(ROCE, "roce://10.100.3.1", "rdma://10.100.3.1"),
                               "roce://10.100.1.1", "roce://10.100.1.1?engine=ibverbs"))
            .common_.engine_type == EngineType::RDMA);
  CHECK(require_clean(replaced(RAW, "engine: dpdk", "engine: ibverbs")).common_.engine_type ==
        EngineType::IBVERBS);
  CHECK_FALSE(require_clean(RAW).common_.engine_inferred_);

  const std::string memory = replaced(replaced(raw, "loopback: \"\"", "loopback: sw"),
                                      "address: 0000:05:00.0", "address: loopback");
  const Loaded loopback = load(memory);
  CHECK(loopback.report.ok());
  CHECK(loopback.config.common_.engine_type == EngineType::DPDK);
}

TEST_CASE("engine, stream type and address fit together", "[config][rules]") {
  const std::string inferred = replaced(RAW, "    engine: dpdk\n", "");
  breaks(RAW, "engine: dpdk", "engine: socket", "engine", "accepts 'dpdk', 'ibverbs' or 'packet'");
  breaks(RAW, "address: 0000:05:00.0", "address: eth0", "interfaces[0].address", "engine: dpdk");
  breaks(RAW, "address: 0000:05:00.0", "address: 10.0.0.1", "interfaces[0].address", "PCI address");
  breaks(RAW, "address: 0000:05:00.0", "address: loopback", "interfaces[0].address",
         "loopback: sw");
  breaks(RAW, "address: 0000:05:00.0", "address: interface_name_too_long", "interfaces[0].address",
         "PCI address");
  for (const char* device :
       {"net_null0", "net_tap0,iface=dtap0", "net_af_packet0,iface=eth0,qpairs=2"})
    require_clean(replaced(RAW, "0000:05:00.0", device));
  for (const char* text : {"net_", "net_tap0,", "net-tap0,iface=a", "tap0,iface=dtap0"})
    breaks(RAW, "address: 0000:05:00.0", "address: \"" + std::string(text) + "\"",
           "interfaces[0].address", "PCI address");
  breaks(RAW, "address: 0000:05:00.0", "address: eth0", "interfaces[0].address",
         "or a virtual device such as net_tap0,iface=dtap0");
  breaks(inferred.c_str(), "address: 0000:05:00.1", "address: eth0", "interfaces[1].address",
         "interfaces[0].address is for engine dpdk");
  const std::string packet =
      replaced(replaced(RAW, "0000:05:00.1", "eth1"), "engine: dpdk", "engine: packet");
  require_error(packet, "interfaces[0].address", "engine: packet");
  breaks(SOCKET, "stream_type: socket", "stream_type: socket\nengine: dpdk", "engine",
         "accepts 'socket'");
  breaks(SOCKET, "stream_type: socket", "stream_type: socket\nengine: ibverbs", "engine",
         "udp:// endpoints");
  breaks(ROCE, "stream_type: socket", "stream_type: socket\nengine: packet", "engine",
         "accepts 'ibverbs'");
  breaks(SOCKET, "stream_type: socket", "stream_type: socket\nloopback: sw", "loopback",
         "stream_type: raw");
}

TEST_CASE("sockets have the endpoints that their role needs", "[config][rules]") {
  const std::string server = "interfaces[0].socket_config";
  const std::string client = "interfaces[1].socket_config";
  breaks(SOCKET, "mode: server, local_addr: \"udp://127.0.0.1:5001\",", "mode: server,",
         server + ".local_addr", "required for a server");
  breaks(SOCKET, ", remote_addr: \"udp://127.0.0.1:5001\"", "", client + ".remote_addr",
         "required for a client");
  breaks(SOCKET, "local_addr: \"udp://127.0.0.1:5001\"", "local_addr: \"udp://127.0.0.1:0\"",
         server + ".local_addr", "1 to 65535");
  breaks(SOCKET, "remote_addr: \"udp://127.0.0.1:5001\"", "remote_addr: \"udp://[::1]:5001\"",
         client + ".remote_addr", "two IPv6");
  breaks(SOCKET, "local_addr: \"udp://127.0.0.1:5002\"", "local_addr: \"tcp://127.0.0.1:5002\"",
         client + ".local_addr", "one transport");
  breaks(SOCKET,
         "  socket_config: {mode: client, local_addr: \"udp://127.0.0.1:5002\", remote_addr: "
         "\"udp://127.0.0.1:5001\"}\n",
         "", client, "required for stream_type: socket");
  breaks(SOCKET, "  rx:\n", "  roce_config: {transport_mode: RC}\n  rx:\n",
         "interfaces[0].roce_config", "roce:// endpoints");
  breaks(ROCE, ", local_addr: \"roce://10.100.1.1\"", "", client + ".local_addr",
         "required for a RoCE client");
  breaks(ROCE, "local_addr: \"roce://10.100.1.1\"",
         "local_addr: \"roce://10.100.1.1\", remote_addr: \"roce://10.100.3.1:4096\"",
         client + ".remote_addr", "RoCE client");
  breaks(ROCE, "local_addr: \"roce://10.100.3.1:4096\"", "local_addr: \"roce://10.100.3.1\"",
         server + ".local_addr", "1 to 65535");
  breaks(ROCE, "address: 10.100.3.1", "address: mlx5_0", "interfaces[0].address",
         "numeric IPv4 or IPv6");
  breaks(RAW, "      address: 0000:05:00.0\n",
         "      address: 0000:05:00.0\n      socket_config: {mode: server, local_addr: "
         "'udp://127.0.0.1:1'}\n",
         server, "stream_type: raw");
  breaks(RAW, "      address: 0000:05:00.0\n",
         "      address: 0000:05:00.0\n      roce_config: {}\n", "interfaces[0].roce_config",
         "stream_type: raw");
  require_clean(replaced(replaced(SOCKET, "udp://127.0.0.1:5002", "udp://[::1]:5002"),
                         "remote_addr: \"udp://127.0.0.1:5001\"",
                         "remote_addr: \"udp://[::1]:5001\""));
  require_clean(replaced(SOCKET, "udp://127.0.0.1:5002", "udp://127.0.0.1:0"));
  require_warning(
      replaced(SOCKET, "mode: server,", "mode: server, remote_addr: \"udp://127.0.0.1:9\","),
      server + ".remote_addr", "no effect");
  require_warning(replaced(SOCKET, "max_payload_size: 2048", "max_payload_size: 65508"),
                  server + ".max_payload_size", "65507");
}

TEST_CASE("endpoints of older files are folded in", "[config][rules]") {
  const NetworkConfig config = require_clean(LEGACY);
  const SocketConfig& socket = config.ifs_[1].socket_;
  CHECK(socket.local_addr_ == "tcp://127.0.0.1:6002");
  CHECK(socket.local_ip_ == "127.0.0.1");
  CHECK(socket.local_port_ == 6002);
  CHECK(socket.remote_addr_ == "tcp://127.0.0.1:6001");
  const std::string client = "interfaces[1].socket_config";
  breaks(LEGACY, "local_ip: 127.0.0.1, local_port: 6002",
         "local_addr: \"tcp://127.0.0.1:6002\", local_port: 6002", client + ".local_port",
         "local_addr");
  breaks(LEGACY, "remote_ip: 127.0.0.1, ", "", client + ".remote_port", "remote_addr");
  breaks(LEGACY, ", remote_port: 6001", "", client + ".remote_port", "1 to 65535");
  const std::string no_scheme = replaced(LEGACY, "local_addr: \"tcp://127.0.0.1:6001\"",
                                         "local_ip: 127.0.0.1, local_port: 6001");
  const Loaded loaded = load(no_scheme);
  CHECK(errors(loaded.report) == 3);
  CHECK_THAT(loaded.report.text(), Catch::Contains("local_addr: udp://ip:port or tcp://ip:port"));
  require_error(replaced(no_scheme, "stream_type", "protocol: tcp\nstream_type"), "protocol",
                "scheme");
  const std::string roce =
      replaced(replaced(no_scheme, "stream_type", "engine: ibverbs\nstream_type"),
               ", remote_ip: 127.0.0.1, remote_port: 6001", "");
  const Loaded verbs = load(roce);
  INFO(verbs.report.text());
  CHECK(verbs.report.ok());
  CHECK(verbs.config.common_.protocol == SocketProtocol::ROCE);
}

TEST_CASE("queues name regions that exist and fit", "[config][rules]") {
  const std::string queues = "interfaces[0].rx.queues";
  breaks(RAW, "memory_regions: [headers, payloads]", "memory_regions: [headers, payload]",
         queues + "[0].memory_regions[1]", "'payloads'");
  breaks(RAW, "memory_regions: [headers, payloads]",
         "memory_regions: [headers, whole, whole, whole, whole]", queues + "[0].memory_regions",
         "at most 4");
  breaks(SOCKET, ", memory_regions: [buffers]", "", queues + "[0].memory_regions",
         "found no region");
  breaks(RAW, "split_boundary: 42", "split_boundary: 129", queues + "[0].split_boundary",
         "128 bytes");
  breaks(RAW, "poll_mode: indirect, memory_regions: [whole]",
         "split_boundary: 8, memory_regions: [whole]", queues + "[1].split_boundary",
         "queue of two");
  const Loaded none = load(replaced(
      SOCKET, "memory_regions:\n- {name: buffers, kind: host, num_bufs: 4096, buf_size: 2048}\n",
      ""));
  CHECK(errors(none.report) == 2);
  CHECK_THAT(none.report.text(),
             Catch::Contains(queues + "[0].memory_regions[0]: found 'buffers'") &&
                 Catch::Contains("which is empty"));
}

TEST_CASE("a directly polled queue has no core, batch or timeout", "[config][rules]") {
  const std::string queue = "interfaces[0].rx.queues[2]";
  const std::string direct =
      replaced(RAW, "id: 2, cpu_core: 5, batch_size: 64,", "id: 2, poll_mode: direct,");
  require_clean(direct);
  require_clean(replaced(direct, "    engine: dpdk\n", ""));
  require_clean(replaced(direct, "engine: dpdk", "engine: ibverbs"));
  require_error(replaced(SOCKET, "name: in,", "name: in, poll_mode: direct,"),
                "interfaces[0].rx.queues[0].poll_mode",
                "with engine 'socket'; accepts it with loopback: sw");
  for (const char* key : {"cpu_core", "batch_size", "timeout_us"})
    breaks(direct, "poll_mode: direct,", "poll_mode: direct, " + std::string(key) + ": 1,",
           queue + "." + key, "remove the key");
  breaks(RAW, "cpu_core: \"5\", ", "", "interfaces[0].rx.queues[1].cpu_core", "required");
  breaks(RAW, "batch_size: 256, ", "", "interfaces[0].rx.queues[1].batch_size", "required");
}

TEST_CASE("small regions of raw queues are raised, and said so", "[config][rules]") {
  const Loaded raised = require_warning(
      replaced(RAW, "kind: host\n      num_bufs: 20000", "kind: host\n      num_bufs: 12287"),
      "memory_regions[2].num_bufs", "from 12287 to 24576");
  CHECK(memory_regions(raised.config)[2]->num_bufs_ == 24576);
  CHECK(require_clean(
            replaced(RAW, "kind: host\n      num_bufs: 20000", "kind: host\n      num_bufs: 12288"))
            .mrs_.at("whole")
            .num_bufs_ == 12288);
  CHECK(require_clean(SOCKET).mrs_.at("buffers").num_bufs_ == 4096);
  CHECK(require_clean(REORDER).mrs_.at("batches").num_bufs_ == 16);
  CHECK(rx_ring_size(raised.config, raised.config.ifs_[0].rx_.queues_[0].common_) == 8192);

  const std::string memory =
      replaced(replaced(FLEX, "stream_type: raw", "stream_type: raw\nloopback: sw"),
               "batch_size: 64", "batch_size: 1000");
  const Loaded loopback = require_warning(replaced(memory, "num_bufs: 16384", "num_bufs: 1535"),
                                          "memory_regions[0].num_bufs", "from 1535 to 3072");
  CHECK(memory_regions(loopback.config)[0]->num_bufs_ == 3072);
  CHECK(rx_ring_size(loopback.config, loopback.config.ifs_[0].rx_.queues_[0].common_) == 1024);
  CHECK(rx_ring_size(loopback.config, loopback.config.ifs_[0].rx_.queues_[1].common_) == 64);
  const NetworkConfig socket = require_clean(SOCKET);
  CHECK(rx_ring_size(socket, socket.ifs_[0].rx_.queues_[0].common_) == 0);
}

TEST_CASE("what has no effect or little sense is a warning", "[config][rules]") {
  require_warning(replaced(RAW, "loopback_drops: false", "loopback_drops: true"), "loopback_drops",
                  "without loopback: sw");
  require_warning(replaced(RAW, "master_core: 3", "master_core: 4"),
                  "interfaces[0].rx.queues[0].cpu_core", "master_core");
  require_clean(replaced(SOCKET, "master_core: 0", "master_core: 1"));
  require_warning(replaced(ROCE, "batch_size: 1}", "batch_size: 1, memory_regions: [data]}"),
                  "interfaces[0].rx.queues[0].memory_regions", "RoCE");
  require_warning(replaced(SOCKET, "batch_size: 16", "batch_size: 5000"),
                  "interfaces[0].rx.queues[0].batch_size", "4096 buffers");
  require_warning(replaced(FLEX, "val: 0x10, mask: 0xff", "val: 0x100, mask: 0xff"),
                  FLOWS + "[0].match.val", "ever matches");
  require_warning(replaced(SOCKET,
                           "  tx:\n    queues:\n    - {name: out, id: 0, cpu_core: 1, batch_size: "
                           "16, memory_regions: [buffers]}\n",
                           ""),
                  "interfaces[1]", "neither rx nor tx");
}

TEST_CASE("actions end in a queue that exists", "[config][rules]") {
  breaks(RAW, "action: {type: queue, id: 0}", "action: {type: queue, id: 9}",
         FLOWS + "[0].action.id", "accepts 0, 1, 2");
  breaks(RAW, "action: {type: queue, id: 0}", "action: {type: queue, ids: [9]}",
         FLOWS + "[0].action.ids[0]", "accepts 0, 1, 2");
  breaks(RAW, "action: {type: queue, ids: [0, 1]}", "action: {type: queue, ids: [0, 1], id: 0}",
         FLOWS + "[1].action.ids", "together with id");
  breaks(RAW, "action: {type: queue, ids: [0, 1]}", "action: {type: queue, ids: []}",
         FLOWS + "[1].action.ids", "empty list");
  breaks(RAW, "action: {type: queue, ids: [0, 1]}", "action: {type: queue}",
         FLOWS + "[1].action.id", "required");
  breaks(RAW, "[{type: vlan_pop}, {type: queue, id: 1}]", "[{type: vlan_pop}]",
         FLOWS + "[2].actions[0].type", "'queue' there");
  breaks(RAW, "[{type: vlan_pop}, {type: queue, id: 1}]",
         "[{type: queue, id: 1}, {type: queue, id: 1}]", FLOWS + "[2].actions[0].type",
         "last action");
  breaks(RAW, "[{type: vlan_pop}, {type: queue, id: 1}]",
         "[{type: vlan_push, vlan_id: 3}, {type: queue, id: 1}]", FLOWS + "[2].actions[0].type",
         "'queue', 'vlan_pop' or 'tunnel_decap'");
  breaks(RAW, "action: {type: queue, id: 0}", "action: {type: vlan_pop}", FLOWS + "[0].action.type",
         "accepts 'queue'");
  breaks(RAW, "action: {type: queue, id: 0}",
         "action: {type: queue, id: 0}\n          actions: [{type: queue, id: 0}]",
         FLOWS + "[0].action", "together with actions");
  breaks(RAW, "          action: {type: queue, id: 0}\n", "", FLOWS + "[0].action", "required");
  breaks(RAW, "{type: gre, gre_protocol: 0x6558}}", "{type: gre, vni: 3}}",
         FLOWS + "[4].actions[0].tunnel.vni", "unknown key");
  breaks(RAW, "{type: nvgre, tni: 7, flow_id: 3}}", "{type: nvgre}}",
         FLOWS + "[5].actions[0].tunnel.tni", "required");
  breaks(
      SOCKET, "  rx:\n",
      "  rx:\n    flows: [{name: a, id: 1, actions: [{type: vlan_pop}, {type: queue, id: 0}]}]\n",
      FLOWS + "[0].actions[0].type", "stream_type: raw");
  breaks(SOCKET, "  tx:\n",
         "  tx:\n    flows: [{name: a, id: 1, action: {type: vlan_push, vlan_id: 1}}]\n",
         "interfaces[1].tx.flows[0]", "stream_type: raw");
  breaks(RAW, "action: {type: vlan_push, vlan_id: 100,", "action: {type: queue, id: 100,",
         "interfaces[1].tx.flows[0].action.type", "'vlan_push' or 'tunnel_encap'");
  breaks(FLEX, "action: {type: vlan_push, vlan_id: 3}", "actions: []",
         "interfaces[0].tx.flows[0].actions", "at least one");
  breaks(RAW, "outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2, outer_udp_src: 50000",
         "outer_ipv4_dst: 192.168.0.2, outer_udp_src: 50000",
         "interfaces[1].tx.flows[4].action.tunnel.outer_ipv4_src", "required");
}

TEST_CASE("an interface has one kind of match", "[config][rules]") {
  breaks(FLEX, "match: {flex_item_id: 4, val: 7}", "match: {udp_dst: 7}", FLOWS + "[1].match",
         "flex item");
  breaks(FLEX, "match: {flex_item_id: 4, val: 7}", "match: {flex_item_id: 4, val: 7, udp_dst: 7}",
         FLOWS + "[1].match.udp_dst", "one kind");
  breaks(FLEX, "match: {flex_item_id: 4, val: 7}", "match: {val: 7}",
         FLOWS + "[1].match.flex_item_id", "required");
  breaks(FLEX, "match: {flex_item_id: 4, val: 7}", "match: {flex_item_id: 4}",
         FLOWS + "[1].match.val", "required");
  breaks(FLEX, "match: {flex_item_id: 4, val: 7}", "match: {flex_item_id: 9, val: 7}",
         FLOWS + "[1].match.flex_item_id", "accepts 3, 4");
  breaks(FLEX, "{flex_item_id: 3, val: 0x10, mask: 0xff}, action: {type: queue, id: 0}",
         "{flex_item_id: 3, val: 0x10}, actions: [{type: vlan_pop}, {type: queue, id: 0}]",
         FLOWS + "[0].actions[0].type", "flex item");
  breaks(FLEX, "{name: any, id: 1,", "{name: any, id: 1, match: {flex_item_id: 3},",
         "interfaces[0].tx.flows[0].match.flex_item_id", "unknown key");
  breaks(ECPRI, "match: {ecpri: {}}", "match: {udp_dst: 1}", FLOWS + "[3].match", "eCPRI");
  breaks(ECPRI, "match: {ecpri: {}}", "match: {ecpri: {}, ipv4_len: 99}",
         FLOWS + "[3].match.ipv4_len", "one kind");
  breaks(ECPRI, "match: {ecpri: {}}", "match: {ecpri: {}, val: 99}", FLOWS + "[3].match.val",
         "one kind");
  breaks(ECPRI, "{ecpri: {msg_type: 5}}", "{ecpri: {pc_id: 5}}", FLOWS + "[2].match.ecpri.pc_id",
         "msg_type");
  breaks(ECPRI, "{ecpri: {msg_type: 5}}", "{ecpri: {msg_type: 5, pc_id: 1, rtc_id: 1}}",
         FLOWS + "[2].match.ecpri.rtc_id", "one of the two");
  const std::string two = replaced(ECPRI, "    flows:\n    - {name: data",
                                   "    - {name: q1, id: 1, cpu_core: 1, batch_size: 64, "
                                   "memory_regions: [packets]}\n    flows:\n    - {name: data");
  require_error(replaced(two, "{ecpri: {}}, action: {type: queue, id: 0}",
                         "{ecpri: {}}, action: {type: queue, ids: [0, 1]}"),
                FLOWS + "[3].action.ids", "eCPRI");
}

TEST_CASE("numbers of packets tell their frames and places", "[config][rules]") {
  const std::string plans = "interfaces[0].rx.reorder_configs";
  const std::string modules = plans + "[0].method.batch_packet_number";
  const std::string heaps = plans + "[1]";
  const std::string by_count = plans + "[2].method.seq_packets_per_batch";
  const std::string by_number = plans + "[3].method.seq_batch_number";
  breaks(FRAMES, "bit_offset: 192, bit_width: 32, byte_order: little",
         "bit_offset: 193, bit_width: 64",
         heaps + ".method.batch_byte_offset.byte_offset.bit_width",
         "accepts fields within 8 bytes");
  breaks(FRAMES, "first_packet: 1\n", "first_packet: [1, 2, 3]\n", modules + ".first_packet",
         "found 3 numbers for 2 flows; accepts one number, or one for each flow of flow_ids");
  breaks(FRAMES, "first_packet: 3", "first_packet: 65536", by_number + ".first_packet",
         "accepts numbers of the 16 bits of the field");
  breaks(FRAMES, "bit_offset: 32, bit_width: 8, byte_order: little, base: udp_payload, step: 2",
         "bit_offset: 72, bit_width: 8, byte_order: little, base: udp_payload, step: 2",
         by_number + ".first_packet", "accepts one of these, or seq_packets_per_batch");
  // Numbers that go on where they wrap.
  breaks(FRAMES, "step: 2}\n          packets_per_batch: 64",
         "step: 3}\n          packets_per_batch: 64", by_count + ".sequence_number.step",
         "accepts a power of two, or numbers of 48 bits");
  require_clean(replaced(FRAMES,
                         "{bit_offset: 0, bit_width: 32, byte_order: little, base: udp_payload, "
                         "step: 2}\n          packets_per_batch: 64",
                         "{bit_offset: 0, bit_width: 48, byte_order: little, base: udp_payload, "
                         "step: 3}\n          packets_per_batch: 60"));
  breaks(FRAMES, "step: 2}\n          packets_per_batch: 64",
         "step: 2}\n          packets_per_batch: 60", by_count + ".packets_per_batch",
         "found 60; accepts a power of two up to 1073741824");
  breaks(FRAMES, "base: udp_payload, step: 2}\n          first_packet: 3",
         "base: udp_payload, step: 200}\n          first_packet: 3",
         by_number + ".batch_number.step",
         "found 200; accepts less than half of the numbers of 8 bits");
  // With fewer numbers than places, no image would ever be complete.
  const std::string packet =
      "packet_number: {bit_offset: 96, bit_width: 32, byte_order: little, "
      "base: udp_payload, step: 1}";
  const auto narrow = [&](const char* field) {
    return replaced(FRAMES, packet, std::string("packet_number: ") + field);
  };
  require_clean(narrow("{bit_offset: 96, bit_width: 7, base: udp_payload, step: 1}"));
  require_error(narrow("{bit_offset: 96, bit_width: 6, base: udp_payload, step: 1}"),
                modules + ".packet_number.bit_width",
                "found 6, which is 64 packet numbers in steps of 1, for the 128 packets");
  require_error(narrow("{bit_offset: 96, bit_width: 8, base: udp_payload, step: 4}"),
                modules + ".packet_number.bit_width",
                "found 8, which is 64 packet numbers in steps of 4, for the 128 packets");
  std::string running = replaced(FRAMES, "running: false", "running: true");
  require_clean(running);
  running = replaced(running, "packets_per_batch: 256", "packets_per_batch: 200");
  running = replaced(running, "shape: [1024, 1024]", "shape: [1000, 1024]");
  require_error(replaced(running, "flow_stride: 128", "flow_stride: 100"), modules + ".running",
                "where they begin anew, images would be shifted");
}

TEST_CASE("columns have names that frames do not have yet", "[config][rules]") {
  const std::string columns = "interfaces[0].rx.reorder_configs[1].columns";
  const auto named = [](const std::string& name) {
    return replaced(FRAMES, "        name: {bit_offset: 320",
                    "        " + name + ": {bit_offset: 320");
  };
  const std::string longest(64, 'a');
  for (const std::string& name :
       {std::string("pulse_id"), std::string("Energy2"), std::string("n"), longest})
    require_clean(named(name));
  const auto refused = [&](const std::string& name, const std::string& why) {
    require_error(named(name), columns,
                  "found '" + name + "' as a name, " + why + "; accepts up to 64 letters");
  };
  refused("batch", "which frames have already");
  refused("Valid", "which frames have already");
  refused("time", "which frames have already");
  refused("yes", "which YAML readers do not take for a text");
  refused("_id", "which begins otherwise");
  refused("2nd", "which begins otherwise");
  refused("pulse-id", "which has other characters");
  refused(std::string(65, 'a'), "which is longer");
  require_error(named("[a]"), columns, "found a list as a name, not a text");
  const std::string more = ": {bit_offset: 8, bit_width: 8}\n        name: {bit_offset: 320";
  require_error(replaced(FRAMES, "name: {bit_offset: 320", "NAME" + more), columns + ".name",
                "found beside 'NAME'; accepts names that differ in more than small and capital");
  require_error(replaced(FRAMES, "name: {bit_offset: 320", "name" + more), columns + ".name",
                "the key is given twice, first in line");
  std::string many;
  for (int i = 0; i < 64; ++i)
    many += "c" + std::to_string(i) + ": {bit_offset: 8, bit_width: 8}\n        ";
  require_error(replaced(FRAMES, "name: {bit_offset: 320", many + "name: {bit_offset: 320"),
                columns, "found 65; accepts up to 64 columns");
}

TEST_CASE("columns of packets need packets with a number in the frame", "[config][rules]") {
  const std::string plans = "interfaces[0].rx.reorder_configs[";
  breaks(FRAMES, "from: sum", "from: packets", plans + "1].columns.name.from",
         "found 'packets' with batch_byte_offset, where packets have no number in the frame; "
         "accepts first and sum, or another method");
  const std::string by_count = "      flow_ids: [4]\n";
  const auto with = [&](const std::string& columns) {
    return replaced(FRAMES, by_count, by_count + "      columns: {" + columns + "}\n");
  };
  const std::string each = "{bit_offset: 320, bit_width: 16, from: packets}";
  require_clean(with("a: " + each));
  require_clean(with("a: " + each + ", b: " + each));
  // Modes have packets of their own.
  const std::string mode = plans + "2].modes.fast.method";
  const auto other = [](const std::string& shape, const std::string& method) {
    return "modes: {fast: {frame: {shape: [" + shape +
           "]}, data_types: {input_type: uint16, output_type: uint16}, method: {" + method + "}}}";
  };
  require_error(
      replaced(with("b: {bit_offset: 320, bit_width: 16, from: sum}, a: " + each),
               "modes: {fast: {window: 1}}",
               other("4",
                     "batch_byte_offset: {batch_number: {bit_offset: 0, bit_width: 8}, "
                     "byte_offset: {bit_offset: 8, bit_width: 8}, batch_bytes: 8}")),
      mode + ".batch_byte_offset",
      "found column 'a' from: packets with batch_byte_offset, where packets have no number in the "
      "frame; accepts another method, or columns from: first and from: sum");
  const std::string sequence =
      "seq_packets_per_batch: {sequence_number: {bit_offset: 0, bit_width: 32}, "
      "packets_per_batch: ";
  const auto counting = [&](const std::string& columns, const std::string& packets) {
    return replaced(with(columns), "modes: {fast: {window: 1}}",
                    other(packets, sequence + packets + "}"));
  };
  require_clean(counting("a: " + each, "2"));
  // Few packets of the plan, too many of the mode.
  std::string many;
  for (int i = 0; i < 64; ++i) many += "c" + std::to_string(i) + ": " + each + ", ";
  require_clean(with(many));
  require_error(counting(many, "32768"), mode + ".seq_packets_per_batch",
                "found 64 columns from: packets with 32768 packets of a frame; accepts up to "
                "1048576 numbers of a frame, in all columns from: packets");
}

TEST_CASE("conditions can be fulfilled, and payloads fill frames", "[config][rules]") {
  const std::string heaps = "interfaces[0].rx.reorder_configs[1]";
  breaks(FRAMES, "mask: 0xff, equal: 3", "mask: 0xfe, equal: 3", heaps + ".conditions[0].equal",
         "found 3, which no packet has; accepts the bits of 254");
  breaks(FRAMES, "at_least: 4, at_most: 5", "at_least: 70000", heaps + ".conditions[1].at_least",
         "found 70000, which no packet has; accepts up to 65535");
  breaks(FRAMES, "at_least: 4, at_most: 5", "equal: 4, at_most: 5", heaps + ".conditions[1]",
         "found equal beside at_least or at_most");
  breaks(FRAMES, ", at_least: 4, at_most: 5", "", heaps + ".conditions[1]",
         "found no value; accepts equal, or at_least and at_most");
  breaks(FRAMES, "payload_bytes: 1024", "payload_bytes: 9000", heaps + ".payload_bytes",
         "accepts at most the 8936 bytes");
  const std::string modules =
      replaced(FRAMES, "flow_stride: 128", "flow_stride: 128\n      payload_bytes: 8200");
  // 128 packets of 8200 bytes for each half of the frame; the last one has 7176 of them.
  require_clean(modules);
  require_error(replaced(modules, "payload_bytes: 8200", "payload_bytes: 8320"),
                "interfaces[0].rx.reorder_configs[0].frame.shape",
                "accepts 2 parts of 128 packets of 8320 bytes each, of which the last may have "
                "fewer: more than 2113280, and at most 2129920");
  // Pixels may go on in the next packet, but not through it.
  require_clean(replaced(modules, "payload_bytes: 8200", "payload_bytes: 8201"));
  require_error(replaced(modules, "payload_bytes: 8200", "payload_bytes: 8101"),
                "interfaces[0].rx.reorder_configs[0].frame.shape",
                "found a frame of 2097152 bytes, which 256 packets of payload_bytes: 8101 do not "
                "fill; accepts 2 parts of whole 2 bytes of an element of uint16, more than "
                "1028827 and at most 1036928 bytes of payloads each");
  require_error(replaced(modules, "payload_bytes: 8200", "payload_bytes: 1"),
                "interfaces[0].rx.reorder_configs[0].payload_bytes",
                "found 1; accepts a multiple of the 2 bytes of an element of uint16, or with "
                "reorder_type: cpu, a frame, and a method with packet or sequence numbers, any "
                "number above 2");
}

TEST_CASE("modules are in the image, apart, and have whole parts", "[config][rules]") {
  const std::string at = "interfaces[0].rx.reorder_configs[2].frame.";
  const std::string modules = at + "modules.";
  breaks(FRAMES, "shape: [210, 140]", "shape: [2, 70, 70]", at + "shape",
         "found 3 numbers and modules; accepts two, rows and columns of the image");
  breaks(FRAMES, "shape: [210, 140]", "shape: [210, 140]\n        dtype: uint32", at + "dtype",
         "found elements of 4 bytes, output_type: uint16, and modules");
  breaks(FRAMES, "tile: [30, 64]", "tile: [30, 24]", modules + "tile",
         "found [30, 24]; accepts rows and columns that divide [60, 64], the shape of a module");
  breaks(FRAMES, "tile: [30, 64]", "tile: [30, 1]", modules + "tile",
         "found 1 columns; accepts a multiple of 2, the pixels that have whole bytes in packets");
  breaks(FRAMES, "          chip_gap: [2, 2]\n", "", modules + "chip",
         "found without chip_gap; accepts both: rows and columns of a chip, and those between");
  breaks(FRAMES, "origin: [70, 4]", "origin: [150, 4]", modules + "positions[1].origin",
         "found [150, 4] for a module of 66 x 62 pixels, beyond the image of 210 x 140");
  breaks(FRAMES, "origin: [70, 4]", "origin: [61, 4]", modules + "positions[1].origin",
         "found [61, 4] for a module of 66 x 62 pixels, which overlaps the one at [0, 0]");
  breaks(FRAMES, "rotate: 90", "rotate: 45", modules + "positions[1].rotate",
         "found '45', another angle; accepts 0, 90, 180 and 270 (degrees, counterclockwise)");
  breaks(FRAMES, "rotate: 90", "rotate: x", modules + "positions[1].rotate",
         "found 'x', not an integer; accepts 0, 90, 180 and 270 (degrees, counterclockwise)");
}

TEST_CASE("reorder plans get packets they can use", "[config][rules]") {
  const std::string plan = "interfaces[0].rx.reorder_configs[0]";
  const std::string plan2 = "interfaces[0].rx.reorder_configs[1]";
  CHECK(
      require_clean(REORDER).ifs_[0].rx_.reorder_configs_[1].seq_batch_number_.packets_per_batch_ ==
      256);
  breaks(REORDER, "flow_ids: [1]", "flow_ids: []", plan + ".flow_ids", "empty list");
  breaks(REORDER, "flow_ids: [1]", "flow_ids: [7]", plan + ".flow_ids[0]", "not a flow");
  breaks(REORDER, "flow_ids: [2]", "flow_ids: [3, 1]", plan2 + ".flow_ids[1]",
         "claimed by " + plan + ".flow_ids[0]");
  breaks(REORDER, "memory_region: batches\n      flow_ids: [2]",
         "memory_region: gpu\n      flow_ids: [2]", plan2 + ".memory_region",
         "not a memory region");
  const std::string gpu =
      replaced(REORDER, "- {name: batches",
               "- {name: gpu, kind: device, num_bufs: 4, buf_size: 100000000}\n- {name: batches");
  require_error(replaced(gpu, "memory_region: batches\n      flow_ids: [2]",
                         "memory_region: gpu\n      flow_ids: [2]"),
                plan2 + ".memory_region", "'host', 'host_pinned' or 'huge'");
  const Loaded on_gpu =
      load(replaced(gpu, "reorder_type: cpu\n      memory_region: batches\n      flow_ids: [2]",
                    "reorder_type: gpu\n      memory_region: gpu\n      flow_ids: [2]"));
  CHECK_THAT(on_gpu.report.text(),
             Catch::Contains(plan2 + ".flow_ids: found 'packets' of kind 'huge'"));
  CHECK(errors(on_gpu.report) == 1);
  const Loaded by_threads = load(replaced(
      gpu, "reorder_type: cpu\n      memory_region: batches\n      flow_ids: [2]",
      "reorder_type: gpu\n      cpu_core: 1\n      memory_region: gpu\n      flow_ids: [2]"));
  CHECK_THAT(by_threads.report.text(), Catch::Contains(plan2 + ".cpu_core: found with "));

  breaks(REORDER, "bit_width: 4}", "bit_width: 13}",
         plan2 + ".method.seq_batch_number.batch_number.bit_width", "at most the 12");
  // 32 bits are enough for batches that do not divide their numbers.
  const std::string per_batch = plan + ".method.seq_packets_per_batch.packets_per_batch";
  require_clean(replaced(REORDER, "packets_per_batch: 1024", "packets_per_batch: 700"));
  breaks(REORDER, "bit_width: 32}\n          packets_per_batch: 1024",
         "bit_width: 31}\n          packets_per_batch: 700", per_batch,
         "a power of two up to 1073741824");
  breaks(REORDER, "bit_width: 32}\n          packets_per_batch: 1024",
         "bit_width: 4}\n          packets_per_batch: 32", per_batch, "a power of two up to 8");
  breaks(REORDER, "packets_per_batch: 1024", "packets_per_batch: 131073", per_batch,
         "any number up to 131072");
  breaks(REORDER, "payload_byte_offset: 64", "payload_byte_offset: 4000",
         plan + ".payload_byte_offset", "2048 bytes");
  breaks(REORDER, "bit_offset: 348", "bit_offset: 16381",
         plan2 + ".method.seq_batch_number.batch_number.bit_offset", "ends at bit 16385");
  breaks(REORDER,
         "      method:\n        seq_packets_per_batch:\n          sequence_number: {bit_offset: "
         "336, bit_width: 32}\n          packets_per_batch: 1024\n",
         "      method: {}\n", plan + ".method", "no method");
  breaks(REORDER, "      method:\n        seq_batch_number:",
         "      method:\n        seq_packets_per_batch: {sequence_number: {bit_offset: 0, "
         "bit_width: 8}, packets_per_batch: 4}\n        seq_batch_number:",
         plan2 + ".method", "several methods");
  // 1024 packets of 1984 bytes, 16-bit samples to 32-bit.
  require_clean(replaced(REORDER, "buf_size: 520093696", "buf_size: 4063232"));
  breaks(REORDER, "buf_size: 520093696", "buf_size: 4063231", plan + ".memory_region",
         "up to 3968 bytes");

  const std::string two =
      replaced(REORDER, "    flows:\n",
               "    - {name: q1, id: 1, cpu_core: 1, batch_size: 64, memory_regions: [packets]}\n"
               "    - {name: q2, id: 2, cpu_core: 1, batch_size: 64, memory_regions: [packets, "
               "batches]}\n    flows:\n");
  const std::string others = replaced(two, "num_bufs: 16,", "num_bufs: 20000,");
  require_clean(others);
  const auto first_to = [&](const char* action) {
    return replaced(others, "{udp_dst: 5000}, action: {type: queue, id: 0}", action);
  };
  require_clean(first_to("{udp_dst: 5000}, action: {type: queue, ids: [0, 1]}"));
  for (const char* action : {"{udp_dst: 5000}, action: {type: queue, id: 2}",
                             "{udp_dst: 5000}, action: {type: queue, ids: [1, 2]}"})
    require_error(first_to(action), plan + ".flow_ids", "2 memory regions");
  require_clean(replaced(replaced(others, "{udp_dst: 5002}, action: {type: queue, id: 0}",
                                  "{udp_dst: 5002}, action: {type: queue, id: 1}"),
                         "flow_ids: [1]", "flow_ids: [1, 3]"));
}

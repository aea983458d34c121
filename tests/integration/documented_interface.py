"""The names of DAQIRI's documents: functions, types, constants and configuration keys.

What is the same here, what differs and why, and what this build lacks is found by compiling and
running against the installed library; `docs/reference/coming-from-daqiri.md` shows it.
"""

# Declarations, without the namespace `daqiri`.
FUNCTIONS = {
    "Initialization": """
        Status daqiri_init(NetworkConfig&)
        Status daqiri_init(const std::string&)
        Status daqiri_init_from_yaml_string(const std::string&)
        Status daqiri_init_from_yaml_file(const std::string&)
        Status parse_network_config(const std::string&, NetworkConfig&)
        Status parse_network_config_from_yaml_string(const std::string&, NetworkConfig&)
        Status parse_network_config_from_yaml_file(const std::string&, NetworkConfig&)
        EngineType get_engine_type()
        EngineType get_engine_type(const NetworkConfig&)
        void shutdown()
        void print_stats()
        const char* version_string()
        int version_year()
        int version_month()
        int version_patch()
        int abi_version()
        void set_log_level(LogLevel::Level)
        LogLevel::Level get_log_level()
        LogLevel::Level log_level_from_string(const std::string&)
    """,
    "Bursts": """
        BurstParams* create_burst_params()
        BurstParams* create_tx_burst_params()
        void set_header(BurstParams*, uint16_t, uint16_t, int64_t, int)
        void set_num_packets(BurstParams*, int64_t)
        int64_t get_num_packets(BurstParams*)
        int64_t get_q_id(BurstParams*)
        uint64_t get_burst_tot_byte(BurstParams*)
        void* get_packet_ptr(BurstParams*, int)
        void* get_segment_packet_ptr(BurstParams*, int, int)
        uint32_t get_packet_length(BurstParams*, int)
        uint32_t get_segment_packet_length(BurstParams*, int, int)
        FlowId get_packet_flow_id(BurstParams*, int)
        Status get_packet_rx_timestamp(BurstParams*, int, uint64_t*)
        uintptr_t get_connection_id(const BurstParams*)
        void set_connection_id(BurstParams*, uintptr_t)
        void free_packet(BurstParams*, int)
        void free_packet_segment(BurstParams*, int, int)
        void free_all_segment_packets(BurstParams*, int)
        void free_segment_packets_and_burst(BurstParams*, int)
        void free_all_packets_and_burst_rx(BurstParams*)
        void free_all_packets_and_burst_tx(BurstParams*)
        void free_rx_burst(BurstParams*)
        void free_tx_burst(BurstParams*)
        void free_rx_metadata(BurstParams*)
        void free_tx_metadata(BurstParams*)
    """,
    "Receive": """
        Status get_rx_burst(BurstParams**, int, int)
        Status get_rx_burst(BurstParams**, int)
        Status get_rx_burst(BurstParams**)
        Status get_rx_burst(BurstParams**, uintptr_t, bool)
        Status set_reorder_cuda_stream(const std::string&, const std::string&, cudaStream_t)
        Status get_reorder_burst_info(BurstParams*, ReorderBurstInfo*)
    """,
    "Flows at run time": """
        Status add_rx_flow_async(int, const FlowRuleConfig&, FlowOpId*)
        Status add_rx_flows_async(int, const std::vector<FlowRuleConfig>&, FlowOpId*)
        Status delete_flow_async(FlowId, FlowOpId*)
        Status poll_flow_op(FlowOpResult*)
    """,
    "Transmit": """
        bool is_tx_burst_available(BurstParams*)
        Status get_tx_packet_burst(BurstParams*)
        Status set_eth_header(BurstParams*, int, char*)
        Status set_ipv4_header(BurstParams*, int, int, uint8_t, unsigned int, unsigned int)
        Status set_udp_header(BurstParams*, int, int, uint16_t, uint16_t)
        Status set_udp_payload(BurstParams*, int, void*, int)
        Status set_packet_lengths(BurstParams*, int, const std::initializer_list<int>&)
        Status set_all_packet_lengths(BurstParams*, const std::initializer_list<int>&)
        Status set_packet_tx_time(BurstParams*, int, uint64_t)
        Status send_tx_burst(BurstParams*)
    """,
    "Files": """
        Status daqiri_write_raw_to_file(BurstParams*, const std::string&, const std::string&,
            uint64_t)
        Status daqiri_write_pcap_to_file(BurstParams*, const std::string&, const std::string&)
        Status daqiri_write_raw_to_file_async(BurstParams*, const std::string&, const std::string&,
            uint64_t, FileWriteHandle**)
        Status daqiri_write_pcap_to_file_async(BurstParams*, const std::string&,
            const std::string&, FileWriteHandle**)
        Status daqiri_file_write_poll(FileWriteHandle*, FileWriteStatus*)
        Status daqiri_file_write_wait(FileWriteHandle*, FileWriteStatus*)
        Status daqiri_file_write_destroy(FileWriteHandle*)
    """,
    "S3": """
        Status daqiri_s3_writer_create(const S3WriterConfig&, S3Writer**)
        Status daqiri_s3_writer_destroy(S3Writer*)
        Status daqiri_write_raw_to_s3_objects_async(S3Writer*, BurstParams*, const std::string&,
            uint64_t, S3WriteHandle**)
        Status daqiri_s3_write_poll(S3WriteHandle*, S3WriteStatus*)
        Status daqiri_s3_write_wait(S3WriteHandle*, S3WriteStatus*)
        Status daqiri_s3_write_destroy(S3WriteHandle*)
    """,
    "Ports": """
        Status get_mac_addr(int, char*)
        int get_port_id(const std::string&)
        uint16_t get_num_rx_queues(int)
        Status drop_all_traffic(int)
        Status allow_all_traffic(int)
        void flush_port_queue(int, int)
        void format_eth_addr(char*, std::string)
    """,
    "Sockets": """
        Status socket_connect_to_server(const std::string&, uint16_t, uintptr_t*)
        Status socket_connect_to_server(const std::string&, uint16_t, const std::string&,
            uintptr_t*)
        Status socket_get_port_queue(uintptr_t, uint16_t*, uint16_t*)
        Status socket_get_server_conn_id(const std::string&, uint16_t, uintptr_t*)
        Status socket_setsockopt(uintptr_t, int, int, const void*, size_t)
    """,
    "RDMA": """
        Status rdma_connect_to_server(const std::string&, uint16_t, uintptr_t*)
        Status rdma_connect_to_server(const std::string&, uint16_t, const std::string&, uintptr_t*)
        Status rdma_get_port_queue(uintptr_t, uint16_t*, uint16_t*)
        Status rdma_get_server_conn_id(const std::string&, uint16_t, uintptr_t*)
        Status rdma_set_header(BurstParams*, RDMAOpCode, uintptr_t, bool, int, uint64_t,
            const std::string&)
        RDMAOpCode rdma_get_opcode(BurstParams*)
    """,
}

# Why a declaration differs from the documented one, although all documented calls compile.
CONST = "takes a pointer to `const`"
DECLARED_OTHERWISE = {
    **dict.fromkeys(
        [
            "get_num_packets",
            "get_q_id",
            "get_burst_tot_byte",
            "get_packet_length",
            "get_segment_packet_length",
            "get_packet_flow_id",
            "get_packet_rx_timestamp",
            "get_reorder_burst_info",
            "is_tx_burst_available",
            "rdma_get_opcode",
            "set_eth_header",
            "set_udp_payload",
        ],
        CONST,
    ),
    "set_packet_lengths": "a template for integers of any type",
    "set_all_packet_lengths": "a template for integers of any type",
    "flush_port_queue": "returns a `Status`",
    "format_eth_addr": "takes a reference to `const`",
    "set_log_level": "takes the class; a level converts to it",
}

# Calls of functions that may be missing in a build; the library reports the reason.
MAY_BE_MISSING = {
    "get_reorder_burst_info": "(burst, &info)",
    "add_rx_flow_async": "(0, {}, &op)",
    "add_rx_flows_async": "(0, {}, &op)",
    "delete_flow_async": "(1, &op)",
    "poll_flow_op": "(&result)",
    "rdma_connect_to_server": '("127.0.0.1", 1, &connection)',
    "rdma_get_port_queue": "(1, &port, &port)",
    "rdma_get_server_conn_id": '("127.0.0.1", 1, &connection)',
    "rdma_set_header": '(burst, RDMAOpCode::SEND, 1, false, 1, 1, "x")',
    "rdma_get_opcode": "(burst)",
}

# Enumerators by number, starting with the given number.
ENUMS = {
    "Status": "SUCCESS NULL_PTR NO_FREE_BURST_BUFFERS NO_FREE_PACKET_BUFFERS NOT_READY "
    "INVALID_PARAMETER NO_SPACE_AVAILABLE NOT_SUPPORTED GENERIC_FAILURE CONNECT_FAILURE "
    "INTERNAL_ERROR",
    "EngineType": "UNKNOWN=-1 DEFAULT DPDK SOCKET RDMA IBVERBS",
    "StreamType": "RAW SOCKET INVALID",
    "SocketProtocol": "TCP UDP ROCE INVALID",
    "SocketMode": "CLIENT SERVER INVALID",
    "MemoryKind": "HOST HOST_PINNED HUGE DEVICE INVALID",
    "LoopbackType": "DISABLED LOOPBACK_TYPE_SW",
    "QueuePollMode": "INDIRECT DIRECT",
    "Direction": "RX TX TX_RX",
    "BufferLocation": "CPU GPU CPU_GPU_SPLIT",
    "FlowType": "QUEUE VLAN_PUSH VLAN_POP TUNNEL_ENCAP TUNNEL_DECAP",
    "FlowMatchType": "IPV4_UDP FLEX_ITEM ECPRI",
    "TunnelType": "NONE VXLAN GRE NVGRE",
    "FlowOpType": "ADD_RX ADD_RX_BATCH DELETE",
    "ReorderMethod": "INVALID SEQ_BATCH_NUMBER SEQ_PACKETS_PER_BATCH",
    "ReorderDataType": "SAME INT4 INT8 INT16 INT32 FP16 BF16 FP32 FP64 INVALID",
    "ReorderEndianness": "HOST NETWORK INVALID",
    "RDMAOpCode": "CONNECT SEND RECEIVE RDMA_WRITE RDMA_WRITE_IMM RDMA_READ RDMA_READ_IMM INVALID",
    "RDMACompletionType": "RX TX INVALID",
    "RDMAMode": "CLIENT SERVER INVALID",
    "RDMATransportMode": "RC UC UD INVALID",
    "ErrorGlobalStats": "OUT_OF_RX_BUFFERS RX_QUEUE_FULL METADATA_BUF_DEPLETED SENTINEL",
    "LogLevel": "TRACE DEBUG INFO WARN ERROR CRITICAL OFF",
}

# Members of structs, with their types if the documents specify them.
STRUCTS = {
    "BurstParams": "hdr:BurstHeader transport_hdr event:cudaEvent_t pkts pkt_lens pkt_extra_info "
    "custom_pkt_data:std::shared_ptr<void>",
    "BurstHeader": "hdr:BurstHeaderParams custom_burst_data",
    "BurstHeaderParams": "num_pkts:size_t port_id:uint16_t q_id:uint16_t num_segs:int "
    "nbytes:uint64_t max_pkt:uint32_t max_pkt_size:uint32_t burst_flags:uint32_t first_pkt_addr "
    "gpu_pkt0_idx gpu_pkt0_addr",
    "UDPIPV4Pkt": "eth:ethhdr ip:iphdr udp:udphdr",
    "ReorderBurstInfo": "batch_id:uint64_t source_packet_count:uint32_t packets_per_batch:uint32_t "
    "payload_len:uint32_t aggregate_len:uint32_t burst_flags:uint32_t",
    "FlowOpResult": "op_id_:FlowOpId type_:FlowOpType status_:Status flow_id_:FlowId "
    "flow_ids_:std::vector<FlowId>",
    "FileWriteStatus": "completed_packets:uint32_t failed_packets:uint32_t bytes_written:uint64_t",
    "S3WriterConfig": "bucket:std::string region:std::string endpoint_override:std::string "
    "path_style:bool max_inflight_uploads max_staged_bytes aws_sdk_already_initialized:bool",
    "S3WriteStatus": "completed_objects:uint32_t failed_objects:uint32_t bytes_uploaded:uint64_t",
    "NetworkConfig": "common_:CommonConfig "
    "mrs_:std::unordered_map<std::string,MemoryRegionConfig> ifs_:std::vector<InterfaceConfig> "
    "log_level_:LogLevel::Level debug_:bool tx_meta_buffers_:uint32_t rx_meta_buffers_:uint32_t",
    "CommonConfig": "version:int master_core_:int stream_type:StreamType protocol:SocketProtocol "
    "engine:EngineType engine_type:EngineType dir:Direction loopback_:LoopbackType",
    "MemoryRegionConfig": "name_:std::string kind_:MemoryKind affinity_:uint16_t "
    "access_:uint32_t num_bufs_:size_t buf_size_:size_t adj_size_:size_t ttl_size_:size_t "
    "owned_:bool",
    "InterfaceConfig": "name_:std::string address_:std::string port_id_:uint16_t "
    "socket_:SocketConfig roce_:RoCEConfig rdma_:RDMAConfig rx_:RxConfig tx_:TxConfig",
    "SocketConfig": "mode_:SocketMode local_addr_:std::string remote_addr_:std::string "
    "local_ip_:std::string local_port_:uint16_t remote_ip_:std::string remote_port_:uint16_t "
    "max_payload_size_:uint16_t max_burst_interval_ms_ min_ipg_ns_ retry_connect_s_",
    "RoCEConfig": "transport_mode_:std::string",
    "RDMAConfig": "mode_:RDMAMode xmode_:RDMATransportMode port_:uint16_t",
    "RxConfig": "flow_isolation_:bool hardware_timestamps_:bool dynamic_flow_capacity_:uint32_t "
    "queues_:std::vector<RxQueueConfig> flows_:std::vector<FlowConfig> "
    "flex_items_:std::vector<FlexItemConfig> reorder_configs_:std::vector<ReorderConfig>",
    "TxConfig": "accurate_send_:bool queues_:std::vector<TxQueueConfig> "
    "flows_:std::vector<FlowConfig>",
    "CommonQueueConfig": "name_:std::string id_:int batch_size_:int split_boundary_:int "
    "cpu_core_:std::string mrs_:std::vector<std::string> offloads_:std::vector<std::string>",
    "RxQueueConfig": "common_:CommonQueueConfig timeout_us_:uint64_t poll_mode_:QueuePollMode",
    "TxQueueConfig": "common_:CommonQueueConfig poll_mode_:QueuePollMode pacing_mbps_:uint64_t",
    "FlowConfig": "name_:std::string id_:FlowId action_:FlowAction "
    "actions_:std::vector<FlowAction> match_:FlowMatch",
    "FlowRuleConfig": "name_:std::string action_:FlowAction actions_:std::vector<FlowAction> "
    "match_:FlowMatch",
    "FlowMatch": "type_:FlowMatchType udp_src_:uint16_t udp_dst_:uint16_t ipv4_len_:uint16_t "
    "ipv4_src_:in_addr_t ipv4_dst_:in_addr_t flex_item_match_:FlexItemMatch "
    "ecpri_match_:EcpriMatch",
    "FlexItemMatch": "flex_item_id_ val_:uint32_t mask_:uint32_t",
    "FlexItemConfig": "name_:std::string id_ offset_ udp_dst_port_:uint16_t",
    "EcpriMatch": "match_msg_type_:bool msg_type_:uint8_t match_id_:bool id_:uint16_t",
    "FlowAction": "type_:FlowType id_:uint16_t ids_:std::vector<uint16_t> vlan_:VlanActionConfig "
    "tunnel_:TunnelConfig",
    "VlanActionConfig": "vlan_id_:uint16_t pcp_:uint8_t dei_:uint8_t ethertype_:uint16_t",
    "TunnelConfig": "type_:TunnelType outer_eth_src_:std::string outer_eth_dst_:std::string "
    "outer_ipv4_src_:std::string outer_ipv4_dst_:std::string outer_ipv4_ttl_:uint8_t "
    "outer_ipv4_tos_:uint8_t vni_:uint32_t outer_udp_src_:uint16_t outer_udp_dst_:uint16_t "
    "gre_protocol_:uint16_t tni_:uint32_t flow_id_:uint8_t",
    "ReorderConfig": "name_:std::string reorder_type_:std::string memory_region_:std::string "
    "payload_byte_offset_ flow_ids_ method_:ReorderMethod "
    "seq_batch_number_:ReorderSeqBatchNumberConfig "
    "seq_packets_per_batch_:ReorderSeqPacketsPerBatchConfig data_types_:ReorderDataTypesConfig",
    "ReorderSeqBatchNumberConfig": "sequence_number_:ReorderBitFieldConfig "
    "batch_number_:ReorderBitFieldConfig packets_per_batch_",
    "ReorderSeqPacketsPerBatchConfig": "sequence_number_:ReorderBitFieldConfig packets_per_batch_",
    "ReorderBitFieldConfig": "bit_offset_ bit_width_",
    "ReorderDataTypesConfig": "input_type_:ReorderDataType output_type_:ReorderDataType "
    "endianness_:ReorderEndianness",
    "EnabledDirections": "",
    "FlowId": "=uint32_t",
    "FlowOpId": "=uint64_t",
    "FileWriteHandle": "",
    "S3Writer": "",
    "S3WriteHandle": "",
}

# Why the type of a member, or a member of a type, differs from the documented one.
MEMBERS_OTHERWISE = {
    "FlowMatch.udp_src_": "`PortRange` (accepts a port or a range)",
    "FlowMatch.udp_dst_": "`PortRange` (accepts a port or a range)",
    "SocketConfig.max_payload_size_": "32 bits: larger values are reported instead of cut off",
}

CONSTANTS = {
    "MAX_NUM_SEGS": "4",
    "MAX_NUM_RX_QUEUES": "32",
    "MAX_NUM_TX_QUEUES": "32",
    "MAX_INTERFACES": "4",
    "ADV_NETWORK_HEADER_SIZE_BYTES": "256",
    "DEFAULT_TX_META_BUFFERS": "256",
    "DEFAULT_RX_META_BUFFERS": "256",
    "DEFAULT_DYNAMIC_FLOW_CAPACITY": "0",
    "MEM_ACCESS_LOCAL": "1",
    "MEM_ACCESS_RDMA_WRITE": "2",
    "MEM_ACCESS_RDMA_READ": "4",
    "DAQIRI_BURST_FLAG_REORDERED": "1U << 28",
    "DAQIRI_BURST_FLAG_REORDER_TIMEOUT": "1U << 29",
}
# Macros, with their value if it differs from that of the library.
MACROS = {
    "DAQIRI_VERSION": "",
    "DAQIRI_VERSION_YEAR": "",
    "DAQIRI_VERSION_MONTH": "",
    "DAQIRI_VERSION_PATCH": "",
    "DAQIRI_ABI_VERSION": "1",
    "DAQIRI_LOG_TRACE": "",
    "DAQIRI_LOG_DEBUG": "",
    "DAQIRI_LOG_INFO": "",
    "DAQIRI_LOG_WARN": "",
    "DAQIRI_LOG_ERROR": "",
    "DAQIRI_LOG_CRITICAL": "",
}
HEADERS = ["daqiri/daqiri.h", "daqiri/common.h", "daqiri/types.h", "daqiri/version.h"]
HEADERS += ["daqiri/logging.hpp"]

RAW = {
    "version": 1,
    "master_core": 0,
    "stream_type": "raw",
    "loopback": "sw",
    "memory_regions": [
        {"name": "rx", "kind": "host", "num_bufs": 192, "buf_size": 2048},
        {"name": "rx_data", "kind": "host", "num_bufs": 192, "buf_size": 2048},
        {"name": "tx", "kind": "host", "num_bufs": 192, "buf_size": 2048},
    ],
    "interfaces": [
        {
            "name": "camera",
            "address": "loopback",
            "rx": {
                "queues": [
                    {
                        "name": "rx",
                        "id": 0,
                        "cpu_core": "any",
                        "batch_size": 8,
                        "memory_regions": ["rx", "rx_data"],
                    }
                ],
                "flows": [{"name": "all", "id": 7, "action": {"type": "queue", "id": 0}}],
            },
            "tx": {
                "queues": [
                    {
                        "name": "tx",
                        "id": 0,
                        "cpu_core": "any",
                        "batch_size": 8,
                        "memory_regions": ["tx"],
                    }
                ]
            },
        }
    ],
}


def socket(**socket_config: object) -> dict[str, object]:
    """Return a configuration of a UDP client, or of the given values."""
    given = {"mode": "client", "remote_addr": "udp://127.0.0.1:9"} | socket_config
    given = {key: value for key, value in given.items() if value is not None}
    (interface,) = RAW["interfaces"]
    queues = {
        side: {"queues": [interface[side]["queues"][0] | {"memory_regions": [side]}]}
        for side in ("rx", "tx")
    }
    regions = [region for region in RAW["memory_regions"] if region["name"] != "rx_data"]
    peer = {"name": "peer", "address": "127.0.0.1", "socket_config": given, **queues}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket",
        "memory_regions": regions,
        "interfaces": [peer],
    }


def roce(**roce_config: object) -> dict[str, object]:
    config = socket(remote_addr=None, local_addr="roce://127.0.0.1")
    config["interfaces"][0]["roce_config"] = roce_config
    return config


def flow(**match: object) -> list[dict[str, object]]:
    return [{"name": "f", "id": 7, "match": match, "action": {"type": "queue", "id": 0}}]


# An older spelling of one endpoint, together with the new one of the other.
OLD_LOCAL = {"local_ip": "127.45.67.89", "local_port": 47001}
OLD_REMOTE = {
    "remote_addr": None,
    "local_addr": "udp://127.45.67.89:47001",
    "remote_ip": "127.0.0.1",
    "remote_port": 9,
}
FLEX = {"name": "item", "id": 0, "offset": 4, "udp_dst_port": 5000}
TUNNEL = {
    "outer_eth_src": "02:00:00:00:00:01",
    "outer_eth_dst": "02:00:00:00:00:02",
    "outer_ipv4_src": "10.0.0.1",
    "outer_ipv4_dst": "10.0.0.2",
}
FIELD = {"bit_offset": 336, "bit_width": 8}
REGIONS = [*RAW["memory_regions"], {"name": "b", "kind": "host", "num_bufs": 4, "buf_size": 65536}]


def decap(**tunnel: object) -> list[dict[str, object]]:
    transform = {"type": "tunnel_decap", "tunnel": TUNNEL | tunnel}
    return [{"name": "f", "id": 7, "actions": [transform, {"type": "queue", "id": 0}]}]


def reorder(**changed: object) -> dict[str, object]:
    batches = {"sequence_number": FIELD, "packets_per_batch": 8}
    plan = {
        "name": "plan",
        "reorder_type": "cpu",
        "memory_region": "b",
        "payload_byte_offset": 42,
        "flow_ids": [7],
        "method": {"seq_packets_per_batch": batches},
    } | changed
    (interface,) = RAW["interfaces"]
    queue = interface["rx"]["queues"][0] | {"memory_regions": ["rx"]}
    rx = interface["rx"] | {"queues": [queue], "reorder_configs": [plan]}
    regions = [region for region in REGIONS if region["name"] != "rx_data"]
    return RAW | {"memory_regions": regions, "interfaces": [interface | {"rx": rx}]}


RX = "interfaces[].rx"
TX = "interfaces[].tx"
# For every key: a configuration that has it, or the place of its value in RAW, and the value.
KEYS = {
    "version": 1,
    "master_core": 0,
    "stream_type": "raw",
    "engine": ("engine", "default"),
    "log_level": "INFO",
    "debug": True,
    "loopback": "sw",
    "tx_meta_buffers": 256,
    "rx_meta_buffers": 256,
    "memory_regions[].name": "rx",
    "memory_regions[].kind": "host",
    "memory_regions[].kind: huge": None,
    "memory_regions[].kind: device": None,
    "memory_regions[].kind: host_pinned": None,
    "memory_regions[].affinity": 0,
    "memory_regions[].access": ["local", "rdma_read", "rdma_write"],
    "memory_regions[].num_bufs": 256,
    "memory_regions[].buf_size": 4096,
    "memory_regions[].owned": False,
    "interfaces[].name": "camera",
    "interfaces[].address": "loopback",
    "interfaces[].socket_config.mode": socket(),
    "interfaces[].socket_config.local_addr": socket(local_addr="udp://127.45.67.89:47001"),
    "interfaces[].socket_config.remote_addr": socket(),
    "interfaces[].socket_config.local_ip": socket(**OLD_LOCAL),
    "interfaces[].socket_config.local_port": socket(**OLD_LOCAL),
    "interfaces[].socket_config.remote_ip": socket(**OLD_REMOTE),
    "interfaces[].socket_config.remote_port": socket(**OLD_REMOTE),
    "interfaces[].socket_config.max_payload_size": socket(max_payload_size=1000),
    "interfaces[].socket_config.max_burst_interval_ms": socket(max_burst_interval_ms=1),
    "interfaces[].socket_config.min_ipg_ns": socket(min_ipg_ns=1),
    "interfaces[].socket_config.retry_connect_s": socket(
        remote_addr="tcp://127.0.0.1:9", retry_connect_s=2
    ),
    "interfaces[].roce_config.transport_mode": roce(transport_mode="RC"),
    f"{RX}.flow_isolation": True,
    f"{RX}.hardware_timestamps": True,
    f"{RX}.dynamic_flow_capacity": 16,
    f"{RX}.queues[].name": "rx",
    f"{RX}.queues[].id": 0,
    f"{RX}.queues[].cpu_core": None,
    f"{RX}.queues[].batch_size": 8,
    f"{RX}.queues[].memory_regions": ["rx", "rx_data"],
    f"{RX}.queues[].timeout_us": 1000,
    f"{RX}.queues[].split_boundary": 42,
    f"{RX}.queues[].poll_mode": "indirect",
    f"{RX}.queues[].poll_mode: direct": RAW
    | {
        "loopback": "",
        "engine": "ibverbs",
        "interfaces": [
            {
                "name": "camera",
                "address": "0000:01:00.0",
                "rx": {
                    "queues": [
                        {"name": "rx", "id": 0, "memory_regions": ["rx"], "poll_mode": "direct"}
                    ],
                    "flows": RAW["interfaces"][0]["rx"]["flows"],
                },
            }
        ],
    },
    f"{RX}.flows[].name": "all",
    f"{RX}.flows[].id": 7,
    f"{RX}.flows[].match.udp_src": 4000,
    f"{RX}.flows[].match.udp_dst": "1000-1010",
    f"{RX}.flows[].match.ipv4_len": 100,
    f"{RX}.flows[].match.ipv4_src": "10.0.0.1",
    f"{RX}.flows[].match.ipv4_dst": "10.0.0.2",
    f"{RX}.flows[].match.flex_item_id": (
        RX,
        RAW["interfaces"][0]["rx"]
        | {"flex_items": [FLEX], "flows": flow(flex_item_id=0, val=1, mask=255)},
    ),
    f"{RX}.flows[].match.ecpri": (f"{RX}.flows", flow(ecpri={"msg_type": 0, "pc_id": 1})),
    f"{RX}.flows[].action.type": "queue",
    f"{RX}.flows[].action.id": 0,
    f"{RX}.flows[].action.ids": (f"{RX}.flows[].action", {"type": "queue", "ids": [0]}),
    f"{RX}.flows[].action.ids, several": (
        RX,
        {
            "queues": [
                RAW["interfaces"][0]["rx"]["queues"][0] | {"id": i, "name": str(i)} for i in (0, 1)
            ],
            "flows": [{"name": "f", "id": 7, "action": {"type": "queue", "ids": [0, 1]}}],
        },
    ),
    f"{RX}.flows[].actions, vlan_pop": (
        f"{RX}.flows",
        [{"name": "f", "id": 7, "actions": [{"type": "vlan_pop"}, {"type": "queue", "id": 0}]}],
    ),
    f"{RX}.flows[].actions, tunnel_decap of vxlan": (f"{RX}.flows", decap(type="vxlan", vni=1)),
    f"{RX}.flows[].actions, tunnel_decap of gre": (f"{RX}.flows", decap(type="gre")),
    f"{RX}.flows[].actions, tunnel_decap of nvgre": (f"{RX}.flows", decap(type="nvgre", tni=1)),
    f"{RX}.flex_items[]": (f"{RX}.flex_items", [FLEX]),
    f"{RX}.reorder_configs[], method seq_packets_per_batch": reorder(),
    f"{RX}.reorder_configs[], method seq_batch_number": reorder(
        method={"seq_batch_number": {"sequence_number": FIELD, "batch_number": FIELD}}
    ),
    f"{RX}.reorder_configs[].data_types": reorder(
        data_types={"input_type": "int16", "output_type": "fp32", "endianness": "network"}
    ),
    f"{TX}.accurate_send": socket(),
    f"{TX}.queues[].name": "tx",
    f"{TX}.queues[].id": 0,
    f"{TX}.queues[].cpu_core": None,
    f"{TX}.queues[].batch_size": 8,
    f"{TX}.queues[].memory_regions": ["tx"],
    f"{TX}.queues[].offloads": ["tx_eth_src"],
    f"{TX}.queues[].pacing_mbps": 1000,
    f"{TX}.queues[].poll_mode": "indirect",
    f"{TX}.queues[].timeout_us": 1,
    f"{TX}.flows[], vlan_push": (
        f"{TX}.flows",
        [{"name": "t", "id": 9, "action": {"type": "vlan_push", "vlan_id": 5, "pcp": 1}}],
    ),
    f"{TX}.flows[], tunnel_encap": (
        f"{TX}.flows",
        [
            {
                "name": "t",
                "id": 9,
                "action": {"type": "tunnel_encap", "tunnel": TUNNEL | {"type": "vxlan", "vni": 1}},
            }
        ],
    ),
}

# How the meaning of an accepted key differs.
KEYS_OTHERWISE = {
    "version": "only 1, as documented; DAQIRI reads any number",
    "engine": "also `packet`, and names of engines that the program registers",
    "memory_regions[].kind: huge": "never uses ordinary memory; fails to start without hugepages",
    "memory_regions[].kind: device": "packets are copied there when the program gets their burst",
    "memory_regions[].kind: host_pinned": "on a NUMA node; 0 if `affinity` is omitted",
    "memory_regions[].affinity": "0 if omitted; DAQIRI rejects this",
    "memory_regions[].num_bufs": "must be at least 1; DAQIRI does not check this",
    "interfaces[].address": "also the name of a Linux network interface",
    "interfaces[].socket_config.local_addr": "also IPv6",
    "interfaces[].socket_config.remote_addr": "also IPv6",
    "interfaces[].socket_config.max_payload_size": "limits the length of a send; DAQIRI "
    "sizes buffers by it",
    "interfaces[].roce_config.transport_mode": "RC if omitted; DAQIRI rejects this",
    f"{RX}.queues[].cpu_core": "also `any`: the thread is not pinned",
    f"{RX}.queues[].batch_size": "sockets also use it: the largest number of packets in a burst",
    f"{RX}.queues[].timeout_us": "sockets also use it: how long a burst collects packets",
    f"{RX}.queues[].split_boundary": "is read from the file; default: the size of the first buffer",
    f"{RX}.flows[].match.udp_dst": "a range is matched; DAQIRI treats a range as any port",
    f"{RX}.flows[].match.flex_item_id": "`mask` may be omitted: all bits",
    f"{TX}.accurate_send": "for UDP clients whose network interface has the qdisc fq or etf, and "
    "cards of engine dpdk that keep them; with false, software keeps launch times",
    f"{TX}.queues[].cpu_core": "also `any`: the thread is not pinned",
    f"{TX}.queues[].pacing_mbps": "works in software, without a network card",
}

/// The programming interface. Programs include only this header.
///
/// The functions act on the default session of the process, which exists from `daqiri_init` to
/// `shutdown`, or on a session that the calling thread has selected (session.h). Any thread may
/// call any function. A burst belongs to one thread at a time.
///
/// No function throws. Before `daqiri_init`, after `shutdown`, with a null or freed burst, or with
/// an index out of range, a call has no effect: it returns a status other than SUCCESS (functions
/// that return a value: 0, null, -1 or false), and `last_error` has the reason. Failures are also
/// logged. For calls per burst or packet, the log has the first failure on each queue and then at
/// most one line per second, which includes the number of omitted lines. A temporary lack (no
/// burst, no free buffer, no client to look up) is not logged. Only this library creates bursts: a
/// `BurstParams` that a program creates itself is not a burst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "daqiri/burst.h"
#include "daqiri/config.h"
#include "daqiri/cuda_types.h"
#include "daqiri/file_write.h"
#include "daqiri/flow_ops.h"
#include "daqiri/logging.hpp"
#include "daqiri/packet.h"
#include "daqiri/rdma.h"
#include "daqiri/reorder.h"
#include "daqiri/s3.h"
#include "daqiri/session.h"
#include "daqiri/status.h"
#include "daqiri/version.h"
#include "daqiri/yaml.h"

/// \defgroup start Start and stop
/// \defgroup sessions Several engines
/// \defgroup configuration Configuration
/// \defgroup bursts Bursts and packets
/// \defgroup receive Receive
/// \defgroup transmit Transmit
/// \defgroup flows Flows
/// \defgroup reorder Reorder
/// \defgroup files Files
/// \defgroup s3 S3
/// \defgroup ports Ports
/// \defgroup connections Connections of socket streams
/// \defgroup rdma RDMA
/// \defgroup errors Errors

namespace daqiri {

/// \addtogroup errors
/// \{

/// Return the reason of the calling thread's last failed call: what failed, what was found and how
/// to fix it. Empty before the first failure; a successful call does not change it. The pointer is
/// valid until the thread's next failure.
const char* last_error() noexcept;

/// \}

/// \addtogroup start
/// \{

/// Start the default session. After SUCCESS, memory is allocated, queues are configured, threads
/// run, and `config` contains all defaults and adjusted values. INTERNAL_ERROR: the default session
/// is already running; it continues unchanged. INVALID_PARAMETER: `last_error` lists all problems
/// of the configuration. Other failures: `last_error` names the missing resource or feature.
Status daqiri_init(NetworkConfig& config);
/// Like `daqiri_init`, from a file if `yaml_or_path` names one or ends in .yaml or .yml, otherwise
/// from YAML text.
Status daqiri_init(const std::string& yaml_or_path);
/// Like `daqiri_init`, from YAML text.
Status daqiri_init_from_yaml_string(const std::string& yaml);
/// Like `daqiri_init`, from a file.
Status daqiri_init_from_yaml_file(const std::string& path);

/// \}

/// \addtogroup configuration
/// \{

/// Read and validate a configuration without starting an engine. `config` contains the values that
/// could be read, also after a failure.
Status parse_network_config(const std::string& yaml_or_path, NetworkConfig& config);
/// Like `parse_network_config`, from YAML text.
Status parse_network_config_from_yaml_string(const std::string& yaml, NetworkConfig& config);
/// Like `parse_network_config`, from a file.
Status parse_network_config_from_yaml_file(const std::string& path, NetworkConfig& config);

/// \}

/// \addtogroup start
/// \{

/// Return the engine of the session; UNKNOWN before `daqiri_init`.
EngineType get_engine_type();

/// Stop the default session. Bursts that the program holds stay readable and are freed as usual.
/// No effect if the session is not running.
void shutdown();
/// Print the counters of all queues to standard output.
void print_stats();

/// \}

/// \addtogroup bursts
/// \{

/// Like `create_tx_burst_params`.
BurstParams* create_burst_params();
/// Return an empty transmit burst; null if all bursts are in use.
BurstParams* create_tx_burst_params();

/// Set the queue of a transmit burst, and request `num` packets (0: the queue's batch_size) of
/// `segs` segments each. `get_tx_packet_burst` checks the values.
void set_header(BurstParams* burst, std::uint16_t port, std::uint16_t queue, std::int64_t num,
                int segs);
/// Before `get_tx_packet_burst`: set the number of packets to request. After it: set the number of
/// packets to send, at most those of the burst.
void set_num_packets(BurstParams* burst, std::int64_t num);
/// Return the number of packets; 0: no burst.
std::int64_t get_num_packets(const BurstParams* burst);
/// Return the queue id; -1: no burst.
std::int64_t get_q_id(const BurstParams* burst);
/// Return the bytes of all packets and segments.
std::uint64_t get_burst_tot_byte(const BurstParams* burst);

/// Return the address of a packet's first segment: a host or device address, depending on the
/// memory region. Null if the packet has been freed.
void* get_packet_ptr(BurstParams* burst, int idx);
/// Return the address of a packet's part in segment `seg`.
void* get_segment_packet_ptr(BurstParams* burst, int seg, int idx);
/// Return the length of a packet in bytes, over all segments.
std::uint32_t get_packet_length(const BurstParams* burst, int idx);
/// Return the bytes of a packet in segment `seg`.
std::uint32_t get_segment_packet_length(const BurstParams* burst, int seg, int idx);
/// Return the flow of a packet; 0: no flow matched.
FlowId get_packet_flow_id(const BurstParams* burst, int idx);
/// Get the arrival time of a packet in ns on the port's clock (kernel engines: CLOCK_REALTIME).
/// NOT_SUPPORTED: the packet has no timestamp.
Status get_packet_rx_timestamp(const BurstParams* burst, int idx, std::uint64_t* timestamp_ns);

/// Return the connection to the peer that a burst came from or goes to; 0: none.
std::uintptr_t get_connection_id(const BurstParams* burst);
/// Set the peer that a transmit burst goes to. 0: for a client its server, for a server the peer
/// from which it received last.
void set_connection_id(BurstParams* burst, std::uintptr_t conn_id);

// These functions free packet buffers. The burst itself stays until one of the functions below
// frees it.
/// Free all segments of a packet.
void free_packet(BurstParams* burst, int idx);
/// Free one segment of a packet.
void free_packet_segment(BurstParams* burst, int seg, int idx);
/// Free one segment of all packets.
void free_all_segment_packets(BurstParams* burst, int seg);

// These functions free a burst with all buffers that it still holds. They have the same effect;
// DAQIRI programs use the different names after freeing all packets, one segment, or single
// packets.
/// Free a received burst. `free_rx_burst` and `free_rx_metadata` do the same.
void free_all_packets_and_burst_rx(BurstParams* burst);
/// Free a transmit burst. `free_tx_burst` and `free_tx_metadata` do the same.
void free_all_packets_and_burst_tx(BurstParams* burst);
/// Like `free_rx_burst`; first checks that segment `seg` exists.
void free_segment_packets_and_burst(BurstParams* burst, int seg);
/// Like `free_all_packets_and_burst_rx`.
void free_rx_burst(BurstParams* burst);
/// Like `free_all_packets_and_burst_tx`.
void free_tx_burst(BurstParams* burst);
/// Like `free_all_packets_and_burst_rx`.
void free_rx_metadata(BurstParams* burst);
/// Like `free_all_packets_and_burst_tx`.
void free_tx_metadata(BurstParams* burst);

/// \}

/// \addtogroup receive
/// \{

/// Get the next burst of a queue. The program has to free it. Never waits: NULL_PTR if no burst is
/// available yet. NOT_READY before `daqiri_init`, and while a recorder reads the queue.
Status get_rx_burst(BurstParams** burst, int port, int queue);
/// Get the next burst of any queue of a port. Queues take turns, starting after the queue that last
/// had a burst.
Status get_rx_burst(BurstParams** burst, int port);
/// Get the next burst of any queue of any port. Queues take turns in the same way.
Status get_rx_burst(BurstParams** burst);
/// Get the next burst from one peer or, with the connection of a UDP server itself, from any of its
/// peers. `server`: whether the program is the server.
Status get_rx_burst(BurstParams** burst, std::uintptr_t conn_id, bool server);

/// Like `get_rx_burst` for one queue, but wait at most `timeout_us` for a burst. A program that
/// shares its core with the engine's threads then needs one wake-up per burst. NULL_PTR: no burst
/// came, a signal was handled, or the session is shutting down. Other threads may wait for other
/// queues.
Status wait_rx_burst(BurstParams** burst, int port, int queue, std::int64_t timeout_us);

/// \}

/// \addtogroup reorder
/// \{

/// Assemble the frames of a reorder config on the GPU in `stream` from now on, after other work in
/// the stream; null: in a separate stream. `reorder_name` is the configured name; `interface_name`
/// is empty for a config with flows of several interfaces. Kernels launched earlier have finished
/// when this returns. Keep the stream until another is set or the session is shut down.
Status set_reorder_cuda_stream(const std::string& interface_name, const std::string& reorder_name,
                               cudaStream_t stream);
/// Use a mode of a reorder config from now on; empty: the config as it is written. Names as for
/// `set_reorder_cuda_stream`. Frames that no receiver has are given up. NOT_READY: a receiver is
/// attached to the plan, or the session is closed; INVALID_PARAMETER: there is no such mode.
Status set_reorder_mode(const std::string& interface_name, const std::string& reorder_name,
                        const std::string& mode);
/// Get the properties of an aggregate, a burst with DAQIRI_BURST_FLAG_REORDERED. NOT_SUPPORTED: the
/// burst is not an aggregate.
Status get_reorder_burst_info(const BurstParams* burst, ReorderBurstInfo* info);

/// \}

/// \addtogroup flows
/// Operations run in the background. `poll_flow_op` returns completed operations, in any order.
/// \{

/// Start to add a flow. `op_id` receives the number of the operation.
Status add_rx_flow_async(int port, const FlowRuleConfig& flow, FlowOpId* op_id);
/// Start to add several flows in one operation.
Status add_rx_flows_async(int port, const std::vector<FlowRuleConfig>& flows, FlowOpId* op_id);
/// Start to delete a flow that was added at run time.
Status delete_flow_async(FlowId flow_id, FlowOpId* op_id);
/// Get a completed operation. NOT_READY: none has completed.
Status poll_flow_op(FlowOpResult* result);

/// \}

/// \addtogroup transmit
/// \{

/// Return whether `get_tx_packet_burst` would find enough free buffers now.
bool is_tx_burst_available(const BurstParams* burst);
/// Allocate the packet buffers that `set_header` requested. NO_FREE_PACKET_BUFFERS: try again
/// later. INVALID_PARAMETER: the queue's memory regions have fewer buffers than packets requested,
/// or have other segments, or there is no such queue.
Status get_tx_packet_burst(BurstParams* burst);

// These functions write all fields of Ethernet, IPv4 and UDP headers. Call them in this order.
// INVALID_PARAMETER: the length exceeds the buffers of all segments. If a burst has several
// segments and their lengths are not set yet, `set_udp_payload` begins in the second segment; a
// payload that is too long for that begins in the first segment, directly after the headers (42
// bytes). Packets of socket streams are the payload only: the kernel writes the headers, and these
// functions return NOT_SUPPORTED.

/// Write the Ethernet header. `dst_mac`: 6 bytes. The source is the port's address.
Status set_eth_header(BurstParams* burst, int idx, const char* dst_mac);
/// Write the IPv4 header. `ip_len`: bytes after the IPv4 header. Addresses in host byte order.
Status set_ipv4_header(BurstParams* burst, int idx, int ip_len, std::uint8_t proto,
                       std::uint32_t src_host, std::uint32_t dst_host);
/// Write the UDP header. `udp_len`: bytes after the UDP header. The checksum is 0 (none) until
/// `set_udp_payload`.
Status set_udp_header(BurstParams* burst, int idx, int udp_len, std::uint16_t src_port,
                      std::uint16_t dst_port);
/// Copy the payload. If `len` equals the length in the headers, also fill in the UDP checksum. For
/// a payload that was written in place, pass its address in the packet: then only the checksum is
/// computed.
Status set_udp_payload(BurstParams* burst, int idx, const void* data, int len);

namespace detail {
Status set_lengths(BurstParams* burst, int idx, const std::int64_t* lengths, std::size_t count);
Status set_all_lengths(BurstParams* burst, const std::int64_t* lengths, std::size_t count);

template <class Integer>
using IfInteger = std::enable_if_t<std::is_integral_v<Integer>, int>;

/// Lengths of any integer type. `count` is the number given, also if there are too many.
template <class Integer>
struct SegmentLengths {
  explicit SegmentLengths(std::initializer_list<Integer> lengths) : count(lengths.size()) {
    std::size_t i = 0;
    for (const Integer length : lengths) {
      if (i < MAX_NUM_SEGS) values[i++] = static_cast<std::int64_t>(length);
    }
  }
  std::int64_t values[MAX_NUM_SEGS]{};
  std::size_t count;
};
}  // namespace detail

/// Set the bytes to send of a packet for each segment: {length}, or {headers, payload}, ...
template <class Integer, detail::IfInteger<Integer> = 0>
Status set_packet_lengths(BurstParams* burst, int idx, std::initializer_list<Integer> lengths) {
  const detail::SegmentLengths<Integer> all(lengths);
  return detail::set_lengths(burst, idx, all.values, all.count);
}
/// Like the template, for `{}` and mixed integer types.
inline Status set_packet_lengths(BurstParams* burst, int idx,
                                 std::initializer_list<std::int64_t> lengths) {
  return set_packet_lengths<std::int64_t>(burst, idx, lengths);
}
/// Set the same bytes to send for every packet.
template <class Integer, detail::IfInteger<Integer> = 0>
Status set_all_packet_lengths(BurstParams* burst, std::initializer_list<Integer> lengths) {
  const detail::SegmentLengths<Integer> all(lengths);
  return detail::set_all_lengths(burst, all.values, all.count);
}
/// Like the template, for `{}` and mixed integer types.
inline Status set_all_packet_lengths(BurstParams* burst,
                                     std::initializer_list<std::int64_t> lengths) {
  return set_all_packet_lengths<std::int64_t>(burst, lengths);
}

/// Set the launch time of a packet in ns on the port's clock; 0: at once. A packet whose time is in
/// the past is sent at once and counted as late. Packets of a queue keep their order.
Status set_packet_tx_time(BurstParams* burst, int idx, std::uint64_t time_ns);
/// Submit the burst. After SUCCESS it belongs to the engine. After NO_SPACE_AVAILABLE and
/// CONNECT_FAILURE it has been freed. After any other status it still belongs to the caller.
/// CONNECT_FAILURE: there is no destination, because a server has no peer yet, or the connection is
/// closed or unknown. Packets that a TCP client submits before its server listens wait.
Status send_tx_burst(BurstParams* burst);

/// \}

/// \addtogroup files
/// `absolute_path` is an existing directory. The burst still belongs to the caller.
/// \{

/// Write each packet to its own file `<file_prefix>_<index>`, without its first
/// `packet_data_offset` bytes. Existing files are overwritten.
Status daqiri_write_raw_to_file(BurstParams* burst, const std::string& absolute_path,
                                const std::string& file_prefix, std::uint64_t packet_data_offset);
/// Append the packets to `<file_prefix>.pcap`.
Status daqiri_write_pcap_to_file(BurstParams* burst, const std::string& absolute_path,
                                 const std::string& file_prefix);
// Writes in the background: until the write has finished, the burst can be read and freed, but not
// changed or sent (NOT_READY). If it is freed during the write, its buffers are released when the
// write has finished.
/// Like `daqiri_write_raw_to_file`, in the background.
Status daqiri_write_raw_to_file_async(BurstParams* burst, const std::string& absolute_path,
                                      const std::string& file_prefix,
                                      std::uint64_t packet_data_offset, FileWriteHandle** handle);
/// Like `daqiri_write_pcap_to_file`, in the background.
Status daqiri_write_pcap_to_file_async(BurstParams* burst, const std::string& absolute_path,
                                       const std::string& file_prefix, FileWriteHandle** handle);
/// Return NOT_READY during the write, then its result. `status` may be null.
Status daqiri_file_write_poll(FileWriteHandle* handle, FileWriteStatus* status);
/// Wait until the write has finished and return its result. `status` may be null.
Status daqiri_file_write_wait(FileWriteHandle* handle, FileWriteStatus* status);
/// Wait until the write has finished, then free the handle.
Status daqiri_file_write_destroy(FileWriteHandle* handle);

/// \}

/// \addtogroup s3
/// The packets are copied: the burst may be freed as soon as a call returns. Transient errors are
/// repeated; after the first object that failed, no more of the call are begun.
/// \{

/// Create a client of one bucket, with a thread for its uploads. NOT_SUPPORTED: libcurl or
/// libcrypto is not installed. GENERIC_FAILURE: no credentials were found; the reason names where
/// they were looked for.
Status daqiri_s3_writer_create(const S3WriterConfig& config, S3Writer** writer);
/// Wait for the uploads of the writer, then free it. Handles of its uploads stay valid.
Status daqiri_s3_writer_destroy(S3Writer* writer);
/// Start to upload each packet without its first `packet_data_offset` bytes, as object
/// `<object_prefix>_<index>`. NO_SPACE_AVAILABLE: more than `max_staged_bytes` would wait for
/// upload; nothing is uploaded.
Status daqiri_write_raw_to_s3_objects_async(S3Writer* writer, BurstParams* burst,
                                            const std::string& object_prefix,
                                            std::uint64_t packet_data_offset,
                                            S3WriteHandle** handle);
/// Start to upload all packets, without their first `packet_data_offset` bytes, one after another
/// as one object, then their index as `<object_name>.npy`: a NumPy array with offset, length, flow
/// and time of each packet, like that of a raw recording. These are two objects.
Status daqiri_write_burst_to_s3_object_async(S3Writer* writer, BurstParams* burst,
                                             const std::string& object_name,
                                             std::uint64_t packet_data_offset,
                                             S3WriteHandle** handle);
/// Return NOT_READY during the upload, then its result. `status` may be null.
Status daqiri_s3_write_poll(S3WriteHandle* handle, S3WriteStatus* status);
/// Wait until the upload has finished and return its result. `status` may be null.
Status daqiri_s3_write_wait(S3WriteHandle* handle, S3WriteStatus* status);
/// Wait until the upload has finished, then free the handle.
Status daqiri_s3_write_destroy(S3WriteHandle* handle);

/// \}

/// \addtogroup ports
/// \{

/// Get the MAC address of a port. `mac` has space for 6 bytes. A socket stream has the address of
/// the network interface that it uses. NOT_SUPPORTED, with zeros in `mac`: that interface has no
/// MAC address (127.0.0.1).
Status get_mac_addr(int port, char* mac);
/// Return the port with this name or address; -1: unknown.
int get_port_id(const std::string& name_or_address);
/// Return the number of receive queues; 0: unknown port.
std::uint16_t get_num_rx_queues(int port);
/// Drop the packets that a port receives until `allow_all_traffic`; they are counted as filtered.
/// Packets in its receive queues are dropped, too.
Status drop_all_traffic(int port);
/// Receive packets again. Packets that arrived before the call do not reach the program.
Status allow_all_traffic(int port);
/// Drop the packets in a receive queue.
Status flush_port_queue(int port, int queue);
/// Drop the packets that were submitted to a transmit queue and have not left. They are counted as
/// flushed; `dropped` (may be null) receives their number. Any thread may call this. A TCP peer has
/// 25 ms to accept data that the kernel already holds. Then its connection is reset, and a client
/// reconnects.
Status flush_tx_queue(int port, int queue, std::uint64_t* dropped);
/// Convert "aa:bb:cc:dd:ee:ff" to 6 bytes; any other text gives zeros.
void format_eth_addr(char* dst, const std::string& addr);

/// \}

/// \addtogroup connections
/// \{

/// Connect to a server. `conn_id` receives the connection. CONNECT_FAILURE: the connection failed;
/// `last_error` has the reason.
Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                std::uintptr_t* conn_id);
/// Connect to a server from a source address, which selects the interface.
Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                const std::string& src_addr, std::uintptr_t* conn_id);
/// Get the port and queue that send and receive the packets of a connection.
Status socket_get_port_queue(std::uintptr_t conn_id, std::uint16_t* port, std::uint16_t* queue);
/// Get a connection of the server that listens at an address, for sending and receiving. UDP: the
/// connection of the server itself; packets sent to it go to the peer from which the server
/// received last. TCP: of the connected clients, the one that was accepted first; clients that have
/// finished sending come last. NULL_PTR: no client is connected yet. INVALID_PARAMETER: no server
/// listens at this address.
Status socket_get_server_conn_id(const std::string& server_addr, std::uint16_t server_port,
                                 std::uintptr_t* conn_id);
/// Call setsockopt(2) on the connection's current socket. GENERIC_FAILURE: the kernel rejected the
/// option.
Status socket_setsockopt(std::uintptr_t conn_id, int level, int optname, const void* optval,
                         std::size_t optlen);

/// \}

/// \addtogroup rdma
/// \{

/// Connect to a server. `conn_id` receives the connection. CONNECT_FAILURE: the connection failed;
/// `last_error` has the reason.
Status rdma_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                              std::uintptr_t* conn_id);
/// Connect to a server from a source address, which selects the interface.
Status rdma_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                              const std::string& src_addr, std::uintptr_t* conn_id);
/// Like `socket_get_port_queue`.
Status rdma_get_port_queue(std::uintptr_t conn_id, std::uint16_t* port, std::uint16_t* queue);
/// Like `socket_get_server_conn_id`.
Status rdma_get_server_conn_id(const std::string& server_addr, std::uint16_t server_port,
                               std::uintptr_t* conn_id);
/// Set the operation of a transmit burst: opcode, connection, side, number of packets, number in
/// completions (`wr_id`), and the memory region that it reads from or writes to.
Status rdma_set_header(BurstParams* burst, RDMAOpCode op_code, std::uintptr_t conn_id,
                       bool is_server, int num_pkts, std::uint64_t wr_id,
                       const std::string& local_mr_name);
/// Return the operation of a burst; INVALID: it has none.
RDMAOpCode rdma_get_opcode(const BurstParams* burst);

/// \}

}  // namespace daqiri

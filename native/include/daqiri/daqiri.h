/// The programming interface. Include this one.
///
/// The functions act on the process's default session, from `daqiri_init` to `shutdown`, or on
/// another that the thread selected (session.h). Any thread may call any of them; one burst belongs
/// to one thread at a time.
///
/// Nothing here throws. Before `daqiri_init`, after `shutdown`, with a null or freed burst, or with
/// an index out of range, a call does nothing but return a status other than SUCCESS (0, null, -1
/// or false where it returns a value), and `last_error` says why. So does the log: of calls that
/// are made per burst or packet, the first failure on each queue, and then one a second at most,
/// with how many were left out. What is only not there yet (no burst, no free buffer, no client to
/// look up) is not logged. Bursts come from this library only: a `BurstParams` made by hand is not
/// a burst.
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

/// Why the calling thread's last failed call failed: what was asked, what was found, what to do.
/// Empty before any failure; a call that succeeds leaves it. Valid until the thread's next failure.
const char* last_error() noexcept;

/// \}

/// \addtogroup start
/// \{

/// Start the engine. On SUCCESS memory is allocated, queues are configured, threads run, and
/// `config` holds every default and adjustment that was applied. INTERNAL_ERROR when already
/// started (it runs on untouched), INVALID_PARAMETER with every problem of the configuration in
/// `last_error`, else what was missing.
Status daqiri_init(NetworkConfig& config);
/// As above from a file where `yaml_or_path` names one, or ends in .yaml or .yml; else from YAML
/// text.
Status daqiri_init(const std::string& yaml_or_path);
/// As `daqiri_init`, from YAML text.
Status daqiri_init_from_yaml_string(const std::string& yaml);
/// As `daqiri_init`, from a file.
Status daqiri_init_from_yaml_file(const std::string& path);

/// \}

/// \addtogroup configuration
/// \{

/// Read and validate; nothing is started. `config` holds what could be read, also on failure.
Status parse_network_config(const std::string& yaml_or_path, NetworkConfig& config);
/// As `parse_network_config`, from YAML text.
Status parse_network_config_from_yaml_string(const std::string& yaml, NetworkConfig& config);
/// As `parse_network_config`, from a file.
Status parse_network_config_from_yaml_file(const std::string& path, NetworkConfig& config);

/// \}

/// \addtogroup start
/// \{

/// Engine that runs; UNKNOWN before `daqiri_init`.
EngineType get_engine_type();

/// Stop the engine. Bursts that the program holds stay readable, and are freed as ever. No-op when
/// not started.
void shutdown();
/// Print the counters of every queue to standard output.
void print_stats();

/// \}

/// \addtogroup bursts
/// \{

/// An empty transmit burst; null when all are in use. Both names do the same.
BurstParams* create_burst_params();
/// An empty transmit burst; null when all are in use.
BurstParams* create_tx_burst_params();

/// Say which queue a transmit burst is for and what it shall hold: `num` packets (0: as many as the
/// queue's batch_size) of `segs` segments each. Checked by `get_tx_packet_burst`.
void set_header(BurstParams* burst, std::uint16_t port, std::uint16_t queue, std::int64_t num,
                int segs);
/// Before `get_tx_packet_burst`: packets wanted. After it: packets to send, at most those it has.
void set_num_packets(BurstParams* burst, std::int64_t num);
/// Packets of the burst; 0: no burst.
std::int64_t get_num_packets(const BurstParams* burst);
/// Queue of the burst; -1: no burst.
std::int64_t get_q_id(const BurstParams* burst);
/// Bytes of all packets of the burst, over all segments.
std::uint64_t get_burst_tot_byte(const BurstParams* burst);

/// Address of a packet, in host or device memory as its memory region. Null when it was freed.
void* get_packet_ptr(BurstParams* burst, int idx);
/// Address of the part of a packet that is in one segment.
void* get_segment_packet_ptr(BurstParams* burst, int seg, int idx);
/// Bytes of a packet, over all segments.
std::uint32_t get_packet_length(const BurstParams* burst, int idx);
/// Bytes of a packet in one segment.
std::uint32_t get_segment_packet_length(const BurstParams* burst, int seg, int idx);
/// Flow that a packet matched; 0: none.
FlowId get_packet_flow_id(const BurstParams* burst, int idx);
/// Arrival time of a packet, ns, on the port's clock: CLOCK_REALTIME on kernel engines.
/// NOT_SUPPORTED for a packet without.
Status get_packet_rx_timestamp(const BurstParams* burst, int idx, std::uint64_t* timestamp_ns);

/// Which peer a burst came from, or goes to; 0: none.
std::uintptr_t get_connection_id(const BurstParams* burst);
/// Which peer a transmit burst goes to; 0: a client's server, or the peer that a server received
/// from last.
void set_connection_id(BurstParams* burst, std::uintptr_t conn_id);

// Give packet buffers back. The burst itself stays until one of the functions below frees it.
/// Free all segments of a packet.
void free_packet(BurstParams* burst, int idx);
/// Free one segment of a packet.
void free_packet_segment(BurstParams* burst, int seg, int idx);
/// Free one segment of all packets.
void free_all_segment_packets(BurstParams* burst, int seg);

// Give a burst back with all buffers that it still holds. These do the same; the names are those
// that programs use after freeing everything, one segment, or the packets one by one.
/// Free a received burst with its packets; `free_rx_burst` and `free_rx_metadata` do the same.
void free_all_packets_and_burst_rx(BurstParams* burst);
/// Free a transmit burst with its packets; `free_tx_burst` and `free_tx_metadata` do the same.
void free_all_packets_and_burst_tx(BurstParams* burst);
/// As `free_rx_burst`, after a look whether segment `seg` exists.
void free_segment_packets_and_burst(BurstParams* burst, int seg);
/// As `free_all_packets_and_burst_rx`.
void free_rx_burst(BurstParams* burst);
/// As `free_all_packets_and_burst_tx`.
void free_tx_burst(BurstParams* burst);
/// As `free_all_packets_and_burst_rx`.
void free_rx_metadata(BurstParams* burst);
/// As `free_all_packets_and_burst_tx`.
void free_tx_metadata(BurstParams* burst);

/// \}

/// \addtogroup receive
/// \{

/// The next burst, to be freed by the program. Never waits: NULL_PTR when nothing is there yet.
/// NOT_READY before `daqiri_init`.
Status get_rx_burst(BurstParams** burst, int port, int queue);
/// From any queue of a port, of any port; they take turns, starting after the one that last had
/// data.
Status get_rx_burst(BurstParams** burst, int port);
/// From any queue of any port; they take turns likewise.
Status get_rx_burst(BurstParams** burst);
/// From one peer, or with a UDP server's own id from any of its peers. `server`: which side the
/// program is.
Status get_rx_burst(BurstParams** burst, std::uintptr_t conn_id, bool server);

/// As the first, and waits for a burst, for `timeout_us` at most; a program that shares its core
/// with the engine's threads gets along with one wake-up a burst. NULL_PTR when none came, when a
/// signal was handled, or when the session is shutting down. Other threads may call it for other
/// queues.
Status wait_rx_burst(BurstParams** burst, int port, int queue, std::int64_t timeout_us);

/// \}

/// \addtogroup reorder
/// \{

/// Make the frames of a reorder config on a GPU in `stream` from now on, behind what else is
/// there; null: in a stream of its own. `reorder_name` as configured. What was launched before is
/// done when this returns. The stream lives until another is set, or until shutdown.
Status set_reorder_cuda_stream(const std::string& interface_name, const std::string& reorder_name,
                               cudaStream_t stream);
/// Of a burst with DAQIRI_BURST_FLAG_REORDERED. NOT_SUPPORTED for any other.
Status get_reorder_burst_info(const BurstParams* burst, ReorderBurstInfo* info);

/// \}

/// \addtogroup flows
/// Completions are polled, in any order.
/// \{

/// Begin to add a flow; `op_id` names the operation in `poll_flow_op`.
Status add_rx_flow_async(int port, const FlowRuleConfig& flow, FlowOpId* op_id);
/// Begin to add several flows in one operation.
Status add_rx_flows_async(int port, const std::vector<FlowRuleConfig>& flows, FlowOpId* op_id);
/// Begin to delete a flow that was added at run time.
Status delete_flow_async(FlowId flow_id, FlowOpId* op_id);
/// The next completed operation; NOT_READY while there is none.
Status poll_flow_op(FlowOpResult* result);

/// \}

/// \addtogroup transmit
/// \{

/// True when `get_tx_packet_burst` would find buffers now.
bool is_tx_burst_available(const BurstParams* burst);
/// Take buffers for what `set_header` asked. NO_FREE_PACKET_BUFFERS: try again later.
/// INVALID_PARAMETER: more packets than the queue's memory regions have buffers, other segments, or
/// no such queue.
Status get_tx_packet_burst(BurstParams* burst);

// Headers of Ethernet/IPv4/UDP frames, every field. Write them in this order. INVALID_PARAMETER for
// a length beyond the buffers of all segments. In a burst of several segments whose lengths are not
// set yet, `set_udp_payload` begins in the second segment, or, where the payload is too long for
// that, right behind the headers (42 bytes) in the first. Socket streams have no headers
// (NOT_SUPPORTED; the kernel writes them); their packets are the payload.

/// Write the Ethernet header. `dst_mac`: 6 bytes. The source is the port's address.
Status set_eth_header(BurstParams* burst, int idx, const char* dst_mac);
/// Write the IPv4 header. `ip_len`: bytes after it. Addresses in host byte order.
Status set_ipv4_header(BurstParams* burst, int idx, int ip_len, std::uint8_t proto,
                       std::uint32_t src_host, std::uint32_t dst_host);
/// Write the UDP header. `udp_len`: bytes after it. The checksum is 0 (none) until
/// `set_udp_payload`.
Status set_udp_header(BurstParams* burst, int idx, int udp_len, std::uint16_t src_port,
                      std::uint16_t dst_port);
/// Copy the payload, and fill in the UDP checksum where `len` is what the headers announce. For a
/// payload that was written in place, pass its own address: only the checksum is computed then.
Status set_udp_payload(BurstParams* burst, int idx, const void* data, int len);

namespace detail {
Status set_lengths(BurstParams* burst, int idx, const std::int64_t* lengths, std::size_t count);
Status set_all_lengths(BurstParams* burst, const std::int64_t* lengths, std::size_t count);

template <class Integer>
using IfInteger = std::enable_if_t<std::is_integral_v<Integer>, int>;

/// Lengths of any integer type; too many are told from too few.
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

/// Bytes to send of a packet, per segment: {length}, or {headers, payload}, ...
template <class Integer, detail::IfInteger<Integer> = 0>
Status set_packet_lengths(BurstParams* burst, int idx, std::initializer_list<Integer> lengths) {
  const detail::SegmentLengths<Integer> all(lengths);
  return detail::set_lengths(burst, idx, all.values, all.count);
}
/// As above, for `{}` and mixed integers.
inline Status set_packet_lengths(BurstParams* burst, int idx,
                                 std::initializer_list<std::int64_t> lengths) {
  return set_packet_lengths<std::int64_t>(burst, idx, lengths);
}
/// The same for every packet.
template <class Integer, detail::IfInteger<Integer> = 0>
Status set_all_packet_lengths(BurstParams* burst, std::initializer_list<Integer> lengths) {
  const detail::SegmentLengths<Integer> all(lengths);
  return detail::set_all_lengths(burst, all.values, all.count);
}
/// As above, for `{}` and mixed integers.
inline Status set_all_packet_lengths(BurstParams* burst,
                                     std::initializer_list<std::int64_t> lengths) {
  return set_all_packet_lengths<std::int64_t>(burst, lengths);
}

/// Launch time of a packet, ns on the port's clock; 0: at once. A time in the past is sent at once
/// and counted as late. Packets of a queue never overtake each other.
Status set_packet_tx_time(BurstParams* burst, int idx, std::uint64_t time_ns);
/// Queue the burst. On SUCCESS, and on NO_SPACE_AVAILABLE and CONNECT_FAILURE (already freed then),
/// it is no longer the caller's; on any other status it still is. CONNECT_FAILURE: it could go
/// nowhere, because a server has no peer yet, or the connection is gone or never was. What a TCP
/// client sends before its server is there waits.
Status send_tx_burst(BurstParams* burst);

/// \}

/// \addtogroup files
/// `absolute_path` is an existing directory. The burst stays the caller's.
/// \{

/// Write each packet to a file of its own, `<file_prefix>_<index>`, truncated, without the first
/// `packet_data_offset` bytes.
Status daqiri_write_raw_to_file(BurstParams* burst, const std::string& absolute_path,
                                const std::string& file_prefix, std::uint64_t packet_data_offset);
/// Append the packets to `<file_prefix>.pcap`.
Status daqiri_write_pcap_to_file(BurstParams* burst, const std::string& absolute_path,
                                 const std::string& file_prefix);
// In the background: until the handle is done the burst can be read and freed, and is not changed
// or sent (NOT_READY). Freed, it gives its buffers back when it is written.
/// `daqiri_write_raw_to_file` in the background.
Status daqiri_write_raw_to_file_async(BurstParams* burst, const std::string& absolute_path,
                                      const std::string& file_prefix,
                                      std::uint64_t packet_data_offset, FileWriteHandle** handle);
/// `daqiri_write_pcap_to_file` in the background.
Status daqiri_write_pcap_to_file_async(BurstParams* burst, const std::string& absolute_path,
                                       const std::string& file_prefix, FileWriteHandle** handle);
/// State of a write: NOT_READY while it goes on, then how it ended. `status` may be null.
Status daqiri_file_write_poll(FileWriteHandle* handle, FileWriteStatus* status);
/// Wait for a write, then as `daqiri_file_write_poll`.
Status daqiri_file_write_wait(FileWriteHandle* handle, FileWriteStatus* status);
/// Wait for a write, then free its handle.
Status daqiri_file_write_destroy(FileWriteHandle* handle);

/// \}

/// \addtogroup s3
/// Objects are called `<object_prefix>_<index>`.
/// The burst may be freed as soon as a call returns.
/// \{

/// Make a client of one bucket.
Status daqiri_s3_writer_create(const S3WriterConfig& config, S3Writer** writer);
/// Wait for a client's uploads, then free it.
Status daqiri_s3_writer_destroy(S3Writer* writer);
/// Begin to upload each packet without its first `packet_data_offset` bytes.
Status daqiri_write_raw_to_s3_objects_async(S3Writer* writer, BurstParams* burst,
                                            const std::string& object_prefix,
                                            std::uint64_t packet_data_offset,
                                            S3WriteHandle** handle);
/// State of an upload: NOT_READY while it goes on, then how it ended.
Status daqiri_s3_write_poll(S3WriteHandle* handle, S3WriteStatus* status);
/// Wait for an upload, then as `daqiri_s3_write_poll`.
Status daqiri_s3_write_wait(S3WriteHandle* handle, S3WriteStatus* status);
/// Wait for an upload, then free its handle.
Status daqiri_s3_write_destroy(S3WriteHandle* handle);

/// \}

/// \addtogroup ports
/// \{

/// MAC address of a port; `mac` has room for 6 bytes. Of a socket stream: that of the network
/// interface it uses; NOT_SUPPORTED, and zeros, where that has none (127.0.0.1).
Status get_mac_addr(int port, char* mac);
/// Number of a port, by the interface's name or address; -1: unknown.
int get_port_id(const std::string& name_or_address);
/// Receive queues of a port; 0 for an unknown port.
std::uint16_t get_num_rx_queues(int port);
/// Count what arrives as filtered, and what is queued as dropped, until `allow_all_traffic`.
Status drop_all_traffic(int port);
/// Undo `drop_all_traffic`. Nothing that arrived before reaches the program afterwards.
Status allow_all_traffic(int port);
/// Drop what is queued for the program.
Status flush_port_queue(int port, int queue);
/// Drop what was handed to a transmit queue and has not left, counted as flushed; `dropped` (may be
/// null) gets the number of packets. Any thread. A TCP peer gets 25 ms to take what was given to
/// the kernel before, then its connection is reset, and a client connects again.
Status flush_tx_queue(int port, int queue, std::uint64_t* dropped);
/// "aa:bb:cc:dd:ee:ff" to 6 bytes; zeros for anything else.
void format_eth_addr(char* dst, const std::string& addr);

/// \}

/// \addtogroup connections
/// \{

/// Connect to a server; `conn_id` gets the connection. CONNECT_FAILURE says why it failed.
Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                std::uintptr_t* conn_id);
/// As above from a source address, which says which interface.
Status socket_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                                const std::string& src_addr, std::uintptr_t* conn_id);
/// Port and queue that a connection's packets come and go by.
Status socket_get_port_queue(std::uintptr_t conn_id, std::uint16_t* port, std::uint16_t* queue);
/// Connection of the server that listens there, to send and receive by. UDP: the server's own,
/// which stands for whichever peer it received from last. TCP: that of the client that was accepted
/// first of those that are connected (of those that have finished sending, if there is no other);
/// NULL_PTR until there is one. INVALID_PARAMETER when no server listens there.
Status socket_get_server_conn_id(const std::string& server_addr, std::uint16_t server_port,
                                 std::uintptr_t* conn_id);
/// setsockopt(2) on the connection's present socket. GENERIC_FAILURE when the kernel refuses.
Status socket_setsockopt(std::uintptr_t conn_id, int level, int optname, const void* optval,
                         std::size_t optlen);

/// \}

/// \addtogroup rdma
/// \{

/// Connect to a server; `conn_id` gets the connection. CONNECT_FAILURE says why it failed.
Status rdma_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                              std::uintptr_t* conn_id);
/// As above from a source address, which says which interface.
Status rdma_connect_to_server(const std::string& server_addr, std::uint16_t server_port,
                              const std::string& src_addr, std::uintptr_t* conn_id);
/// As `socket_get_port_queue`.
Status rdma_get_port_queue(std::uintptr_t conn_id, std::uint16_t* port, std::uint16_t* queue);
/// As `socket_get_server_conn_id`.
Status rdma_get_server_conn_id(const std::string& server_addr, std::uint16_t server_port,
                               std::uintptr_t* conn_id);
/// Say what a transmit burst does: operation, connection, side, packets, its number in completions,
/// and the memory region that it reads from or writes to.
Status rdma_set_header(BurstParams* burst, RDMAOpCode op_code, std::uintptr_t conn_id,
                       bool is_server, int num_pkts, std::uint64_t wr_id,
                       const std::string& local_mr_name);
/// Operation of a burst; INVALID for a burst without.
RDMAOpCode rdma_get_opcode(const BurstParams* burst);

/// \}

}  // namespace daqiri

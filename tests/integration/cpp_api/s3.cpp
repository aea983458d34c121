// Upload received packets to S3 objects. Usage: s3 CONFIG ENDPOINT BUCKET
#include "program.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  check(daqiri::daqiri_init(argv[1]), "daqiri_init");
  daqiri::S3WriterConfig config;
  config.bucket = argv[3];
  config.region = "us-east-1";
  config.endpoint_override = argv[2];
  config.path_style = true;
  daqiri::S3Writer* writer = nullptr;
  check(daqiri::daqiri_s3_writer_create(config, &writer), "daqiri_s3_writer_create");

  const int port_id = daqiri::get_port_id("camera");
  auto* sent = tx_burst(port_id, 0, 8, 1);
  for (int i = 0; i < 8; i++) write_frame(sent, i, "data", 4, 5000);
  check(daqiri::send_tx_burst(sent), "send_tx_burst");
  auto* burst = rx_burst(port_id);
  daqiri::S3WriteHandle* handle = nullptr;
  check(daqiri::daqiri_write_raw_to_s3_objects_async(writer, burst, "run/packet",
                                                     sizeof(daqiri::UDPIPV4Pkt), &handle),
        "daqiri_write_raw_to_s3_objects_async");
  daqiri::S3WriteHandle* whole = nullptr;
  check(daqiri::daqiri_write_burst_to_s3_object_async(writer, burst, "run/burst",
                                                      sizeof(daqiri::UDPIPV4Pkt), &whole),
        "daqiri_write_burst_to_s3_object_async");
  daqiri::free_all_packets_and_burst_rx(burst);
  daqiri::S3WriteStatus status{};
  auto st = daqiri::daqiri_s3_write_poll(handle, &status);
  if (st == daqiri::Status::NOT_READY) st = daqiri::daqiri_s3_write_wait(handle, &status);
  check(st, "daqiri_s3_write_wait");
  expect(status.completed_objects == 8 && status.bytes_uploaded == 32, "objects");
  check(daqiri::daqiri_s3_write_destroy(handle), "daqiri_s3_write_destroy");
  check(daqiri::daqiri_s3_write_wait(whole, &status), "daqiri_s3_write_wait");
  expect(status.completed_objects == 2 && status.bytes_uploaded == 32, "burst");
  check(daqiri::daqiri_s3_write_destroy(whole), "daqiri_s3_write_destroy");
  check(daqiri::daqiri_s3_writer_destroy(writer), "daqiri_s3_writer_destroy");
  daqiri::shutdown();
  std::puts("done");
}

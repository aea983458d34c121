#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "daqiri/daqiri.h"
#include "engine.h"
#include "free_port.h"
#include "http_server.h"

namespace daqiri {

using namespace test;

namespace {

S3WriterConfig config_of(const std::string& endpoint) {
  setenv("AWS_ACCESS_KEY_ID", "any", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "any", 1);
  S3WriterConfig config;
  config.bucket = "bucket";
  config.region = "us-east-1";
  config.endpoint_override = endpoint;
  config.path_style = true;
  return config;
}

/// A service that refuses connections.
S3WriterConfig nowhere() {
  return config_of("http://127.0.0.1:" + std::to_string(PortBlocks().next()));
}

void check(Status status, Status wanted, const char* what) {
  CHECK(status == wanted);
  CHECK_THAT(last_error(), Catch::Contains(what));
}

}  // namespace

TEST_CASE("mistakes with S3 are refused in words", "[api][misuse]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(1);
  S3Writer* writer = nullptr;
  S3WriteHandle* handle = nullptr;
  check(daqiri_s3_writer_create({}, nullptr), Status::NULL_PTR, "writer");
  check(daqiri_s3_writer_create({}, &writer), Status::INVALID_PARAMETER, "bucket is ''");
  CHECK(writer == nullptr);
  check(daqiri_s3_writer_destroy(nullptr), Status::NULL_PTR, "writer");
  check(daqiri_write_raw_to_s3_objects_async(nullptr, burst, "p", 0, &handle), Status::NULL_PTR,
        "writer");
  check(daqiri_s3_write_poll(nullptr, nullptr), Status::NULL_PTR, "handle");
  check(daqiri_s3_write_wait(nullptr, nullptr), Status::NULL_PTR, "handle");
  check(daqiri_s3_write_destroy(nullptr), Status::NULL_PTR, "handle");

  REQUIRE(daqiri_s3_writer_create(nowhere(), &writer) == Status::SUCCESS);
  check(daqiri_write_raw_to_s3_objects_async(writer, burst, "p", 0, nullptr), Status::NULL_PTR,
        "handle");
  check(daqiri_write_raw_to_s3_objects_async(writer, nullptr, "p", 0, &handle), Status::NULL_PTR,
        "burst");
  check(daqiri_write_burst_to_s3_object_async(writer, burst, "", 0, &handle),
        Status::INVALID_PARAMETER, "empty");
  CHECK(handle == nullptr);
  CHECK(daqiri_s3_writer_destroy(writer) == Status::SUCCESS);
  check(daqiri_s3_writer_destroy(writer), Status::INVALID_PARAMETER, "destroyed");
  check(daqiri_write_raw_to_s3_objects_async(writer, burst, "p", 0, &handle),
        Status::INVALID_PARAMETER, "destroyed");
  free_tx_burst(burst);
}

TEST_CASE("threads share a writer", "[api]") {
  const Engine engine(LOOPBACK);
  HttpServer server;
  constexpr int THREADS = 4;
  constexpr int BURSTS = 5;
  for (int t = 0; t < THREADS; ++t) {
    for (int b = 0; b < BURSTS; ++b) {
      const std::string name = "PUT /bucket/" + std::to_string(t) + "-" + std::to_string(b);
      for (int i = 0; i < 8; ++i) server.answer(name + "_" + std::to_string(i), "");
      server.answer(name, "");
      server.answer(name + ".npy", "");
    }
  }
  S3Writer* writer = nullptr;
  REQUIRE(daqiri_s3_writer_create(config_of(server.url()), &writer) == Status::SUCCESS);
  std::array<BurstParams*, THREADS> bursts{};
  for (BurstParams*& burst : bursts) burst = filled_burst(8);
  std::array<std::uint32_t, THREADS> completed{};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < THREADS; ++t) {
      threads.emplace_back([&, t] {
        const auto own = static_cast<std::size_t>(t);
        for (int b = 0; b < BURSTS; ++b) {
          const std::string name = std::to_string(t) + "-" + std::to_string(b);
          for (const auto start :
               {daqiri_write_raw_to_s3_objects_async, daqiri_write_burst_to_s3_object_async}) {
            S3WriteHandle* handle = nullptr;
            S3WriteStatus status;
            if (start(writer, bursts[own], name, 0, &handle) != Status::SUCCESS) return;
            daqiri_s3_write_poll(handle, &status);
            if (daqiri_s3_write_wait(handle, &status) != Status::SUCCESS) return;
            completed[own] += status.completed_objects;
            daqiri_s3_write_destroy(handle);
          }
        }
      });
    }
  }
  CHECK(completed == std::array<std::uint32_t, THREADS>{50, 50, 50, 50});
  CHECK(server.requests().size() == 200);
  for (BurstParams* burst : bursts) free_tx_burst(burst);
  CHECK(daqiri_s3_writer_destroy(writer) == Status::SUCCESS);
}

TEST_CASE("an upload that fails is told, also after its writer was destroyed", "[api]") {
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(8);
  S3Writer* writer = nullptr;
  S3WriteHandle* handle = nullptr;
  REQUIRE(daqiri_s3_writer_create(nowhere(), &writer) == Status::SUCCESS);
  REQUIRE(daqiri_write_raw_to_s3_objects_async(writer, burst, "p", 0, &handle) == Status::SUCCESS);
  free_tx_burst(burst);
  CHECK(daqiri_s3_writer_destroy(writer) == Status::SUCCESS);
  S3WriteStatus status;
  check(daqiri_s3_write_poll(handle, &status), Status::GENERIC_FAILURE, "s3://bucket/p_");
  check(daqiri_s3_write_wait(handle, nullptr), Status::GENERIC_FAILURE, "(5 attempts)");
  CHECK(status.completed_objects == 0);
  CHECK(status.failed_objects == 8);
  CHECK(status.bytes_uploaded == 0);
  CHECK(daqiri_s3_write_destroy(handle) == Status::SUCCESS);
  check(daqiri_s3_write_destroy(handle), Status::INVALID_PARAMETER, "destroyed");
  check(daqiri_s3_write_poll(handle, nullptr), Status::INVALID_PARAMETER, "destroyed");
}

TEST_CASE("a forked child uploads on its own, and ends", "[api]") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  WARN("skipped: sanitizers do not follow threads of forked children");
  return;
#endif
  const Engine engine(LOOPBACK);
  BurstParams* burst = filled_burst(8);
  S3Writer* writer = nullptr;
  S3WriteHandle* handle = nullptr;
  REQUIRE(daqiri_s3_writer_create(nowhere(), &writer) == Status::SUCCESS);
  REQUIRE(daqiri_write_raw_to_s3_objects_async(writer, burst, "p", 0, &handle) == Status::SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    S3Writer* own = nullptr;
    S3WriteHandle* started = nullptr;
    const bool parents = daqiri_s3_write_wait(handle, nullptr) == Status::INVALID_PARAMETER &&
                         daqiri_s3_writer_destroy(writer) == Status::INVALID_PARAMETER;
    const bool tried =
        daqiri_s3_writer_create(nowhere(), &own) == Status::SUCCESS && own != writer &&
        daqiri_write_raw_to_s3_objects_async(own, burst, "p", 0, &started) == Status::SUCCESS &&
        daqiri_s3_write_wait(started, nullptr) == Status::GENERIC_FAILURE;
    std::exit(parents && tried ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(daqiri_s3_write_wait(handle, nullptr) == Status::GENERIC_FAILURE);
  CHECK(daqiri_s3_write_destroy(handle) == Status::SUCCESS);
  CHECK(daqiri_s3_writer_destroy(writer) == Status::SUCCESS);
  free_tx_burst(burst);
}

}  // namespace daqiri

/// libcurl, if the host has it: its functions and constants, so that its headers are not needed to
/// compile. They are the same in all versions since 7.68 that are called libcurl.so.4.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "system/loaded_library.h"

namespace daqiri::curl {

struct Easy;
struct Multi;
struct List;

/// CURLcode
enum class Code : int {
  OK = 0,
  UNSUPPORTED_PROTOCOL = 1,
  COULDNT_RESOLVE_PROXY = 5,
  COULDNT_RESOLVE_HOST = 6,
  COULDNT_CONNECT = 7,
  WEIRD_SERVER_REPLY = 8,
  PARTIAL_FILE = 18,
  OPERATION_TIMEDOUT = 28,
  SSL_CONNECT_ERROR = 35,
  GOT_NOTHING = 52,
  SEND_ERROR = 55,
  RECV_ERROR = 56,
  SEND_FAIL_REWIND = 65,
};

/// CURLoption. The type of a value is in the number: below 10000 long, then pointer, from 20000
/// function, from 30000 curl_off_t.
enum class Option : int {
  LOW_SPEED_LIMIT = 19,
  LOW_SPEED_TIME = 20,
  HTTP_VERSION = 84,
  NOSIGNAL = 99,
  TIMEOUT_MS = 155,
  CONNECTTIMEOUT_MS = 156,
  PATH_AS_IS = 234,
  UPLOAD_BUFFERSIZE = 280,
  WRITEDATA = 10001,
  URL = 10002,
  ERRORBUFFER = 10010,
  POSTFIELDS = 10015,
  HTTPHEADER = 10023,
  HEADERDATA = 10029,
  CUSTOMREQUEST = 10036,
  PRIVATE = 10103,
  NOPROXY = 10177,
  WRITEFUNCTION = 20011,
  HEADERFUNCTION = 20079,
  POSTFIELDSIZE_LARGE = 30120,
};

/// CURLINFO
enum class Info : int {
  PRIVATE = 0x100015,
  RESPONSE_CODE = 0x200002,
};

/// CURLMoption
enum class MultiOption : int { MAXCONNECTS = 6 };

/// CURLMsg
struct Message {
  int kind;
  Easy* easy;
  union {
    void* data;
    Code code;
  };
};

/// CURLMSG_DONE
inline constexpr int MESSAGE_DONE = 1;
/// CURL_HTTP_VERSION_1_1
inline constexpr long HTTP_1_1 = 2;
/// CURL_ERROR_SIZE
inline constexpr std::size_t ERROR_SIZE = 256;
/// CURL_GLOBAL_DEFAULT
inline constexpr long GLOBAL_DEFAULT = 3;

/// A function for WRITEFUNCTION and HEADERFUNCTION; returns the bytes that it took.
using Write = std::size_t (*)(const char* data, std::size_t one, std::size_t size, void* to);

class Library : public LoadedLibrary {
 public:
  Library() noexcept;

  Code (*global_init)(long){find("curl_global_init")};
  Easy* (*easy_init)(){find("curl_easy_init")};
  Code (*easy_setopt)(Easy*, Option, ...){find("curl_easy_setopt")};
  Code (*easy_getinfo)(Easy*, Info, ...){find("curl_easy_getinfo")};
  Code (*easy_perform)(Easy*){find("curl_easy_perform")};
  void (*easy_cleanup)(Easy*){find("curl_easy_cleanup")};
  const char* (*easy_strerror)(Code){find("curl_easy_strerror")};
  List* (*slist_append)(List*, const char*){find("curl_slist_append")};
  void (*slist_free_all)(List*){find("curl_slist_free_all")};
  Multi* (*multi_init)(){find("curl_multi_init")};
  int (*multi_setopt)(Multi*, MultiOption, ...){find("curl_multi_setopt")};
  int (*multi_add_handle)(Multi*, Easy*){find("curl_multi_add_handle")};
  int (*multi_remove_handle)(Multi*, Easy*){find("curl_multi_remove_handle")};
  int (*multi_perform)(Multi*, int* running){find("curl_multi_perform")};
  int (*multi_poll)(Multi*, void* more, unsigned num_more, int timeout_ms,
                    int* ready){find("curl_multi_poll")};
  int (*multi_wakeup)(Multi*){find("curl_multi_wakeup")};
  const Message* (*multi_info_read)(Multi*, int* left){find("curl_multi_info_read")};
  int (*multi_cleanup)(Multi*){find("curl_multi_cleanup")};

  void set(Easy* easy, Option option, long value) const noexcept {
    easy_setopt(easy, option, value);
  }
  void set(Easy* easy, Option option, const void* value) const noexcept {
    easy_setopt(easy, option, value);
  }
  void set(Easy* easy, Option option, Write value) const noexcept {
    easy_setopt(easy, option, value);
  }
};

/// Loaded and initialised by the first call.
const Library& library() noexcept;

/// Headers of a request.
class Headers {
 public:
  Headers() = default;
  Headers(Headers&& other) noexcept : list_(std::exchange(other.list_, nullptr)) {}
  Headers& operator=(Headers&& other) noexcept {
    std::swap(list_, other.list_);
    return *this;
  }
  ~Headers() { library().slist_free_all(list_); }

  /// `name: value`; without a value, the header is not sent. Throws std::bad_alloc.
  void add(const std::string& header);
  [[nodiscard]] const List* list() const noexcept { return list_; }

 private:
  List* list_{nullptr};
};

struct Answer {
  /// HTTP status; 0: there was no answer.
  long status{0};
  std::string body;
  /// Why there was none.
  std::string error;
};

/// Perform a short request without body, not through a proxy.
Answer fetch(const std::string& method, const std::string& url,
             const std::vector<std::string>& headers, std::chrono::milliseconds timeout);

}  // namespace daqiri::curl

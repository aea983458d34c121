#include "storage/libcurl.h"

#include <array>
#include <memory>
#include <new>

namespace daqiri::curl {

namespace {

/// Answers of the services that are asked are much shorter.
constexpr std::size_t LONGEST_ANSWER = 1 << 16;

std::size_t append(const char* data, std::size_t /*one*/, std::size_t size, void* to) {
  auto& text = *static_cast<std::string*>(to);
  if (text.size() + size > LONGEST_ANSWER) return 0;
  text.append(data, size);
  return size;
}

}  // namespace

Library::Library() noexcept : LoadedLibrary({"libcurl.so.4", "libcurl-gnutls.so.4"}) {}

const Library& library() noexcept {
  static const Library loaded = [] {
    Library found;
    if (!found.missing()) found.global_init(GLOBAL_DEFAULT);
    return found;
  }();
  return loaded;
}

void Headers::add(const std::string& header) {
  List* const longer = library().slist_append(list_, header.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  list_ = longer;
}

Answer fetch(const std::string& method, const std::string& url,
             const std::vector<std::string>& headers, std::chrono::milliseconds timeout) {
  const Library& curl = library();
  const std::unique_ptr<Easy, void (*)(Easy*)> easy(curl.easy_init(), curl.easy_cleanup);
  if (easy == nullptr) throw std::bad_alloc();
  Headers list;
  for (const std::string& header : headers) list.add(header);
  Answer answer;
  std::array<char, ERROR_SIZE> error{};
  curl.set(easy.get(), Option::NOSIGNAL, 1L);
  curl.set(easy.get(), Option::URL, url.c_str());
  curl.set(easy.get(), Option::CUSTOMREQUEST, method.c_str());
  curl.set(easy.get(), Option::HTTPHEADER, list.list());
  curl.set(easy.get(), Option::NOPROXY, "*");
  curl.set(easy.get(), Option::CONNECTTIMEOUT_MS, static_cast<long>(timeout.count()));
  curl.set(easy.get(), Option::TIMEOUT_MS, static_cast<long>(2 * timeout.count()));
  curl.set(easy.get(), Option::WRITEFUNCTION, append);
  curl.set(easy.get(), Option::WRITEDATA, &answer.body);
  curl.set(easy.get(), Option::ERRORBUFFER, error.data());
  const Code code = curl.easy_perform(easy.get());
  if (code == Code::OK) {
    curl.easy_getinfo(easy.get(), Info::RESPONSE_CODE, &answer.status);
  } else {
    answer.error = error[0] != '\0' ? error.data() : curl.easy_strerror(code);
  }
  return answer;
}

}  // namespace daqiri::curl

#include "system/libpcap.h"

#include <dlfcn.h>

namespace daqiri {

namespace {

/// Debian and derived distributions use the first name, others the second.
void* load() noexcept {
  void* const loaded = dlopen("libpcap.so.0.8", RTLD_NOW | RTLD_LOCAL);
  return loaded != nullptr ? loaded : dlopen("libpcap.so.1", RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Libpcap::Libpcap() noexcept : loaded_(load()) {}

Libpcap::Symbol Libpcap::find(const char* name) noexcept {
  void* const found = loaded_ == nullptr ? nullptr : dlsym(loaded_, name);
  missing_ = missing_ || found == nullptr;
  return {found};
}

}  // namespace daqiri

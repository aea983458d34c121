/// libpcap, if the host has it.
#pragma once

#include "system/loaded_library.h"

namespace daqiri {

/// Base class of classes whose members are functions of libpcap.
class Libpcap : public LoadedLibrary {
 protected:
  /// Debian and derived distributions use the first name, others the second.
  Libpcap() noexcept : LoadedLibrary({"libpcap.so.0.8", "libpcap.so.1"}) {}
};

}  // namespace daqiri

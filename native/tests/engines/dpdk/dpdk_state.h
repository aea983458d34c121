/// What DPDK has in this process; its functions are those of the loaded libraries.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace daqiri::test {

struct DpdkState {
  unsigned ports{0};
  /// Rings and pools have some, too.
  unsigned memzones{0};
  unsigned allocations{0};
  std::size_t allocated_bytes{0};
  bool operator==(const DpdkState&) const = default;

  /// The engine was opened before.
  static DpdkState now() {
    DpdkState state;
    state.ports = find<std::uint16_t()>("librte_ethdev.so", "rte_eth_dev_count_total")();
    const auto count = [](const void*, void* number) { ++*static_cast<unsigned*>(number); };
    find<void(void (*)(const void*, void*), void*)>("librte_eal.so", "rte_memzone_walk")(
        count, &state.memzones);
    auto* const tell =
        find<int(int, HeapStatistics*)>("librte_eal.so", "rte_malloc_get_socket_stats");
    constexpr int MOST_SOCKETS = 8;
    for (int socket = 0; socket < MOST_SOCKETS; ++socket) {
      HeapStatistics heap{};
      if (tell(socket, &heap) != 0) continue;
      state.allocations += heap.allocations;
      state.allocated_bytes += heap.allocated_bytes;
    }
    return state;
  }

 private:
  /// rte_malloc_socket_stats of rte_malloc.h.
  struct HeapStatistics {
    std::size_t total_bytes, free_bytes, largest_free;
    unsigned free, allocations;
    std::size_t allocated_bytes;
  };

  template <typename Function>
  static Function* find(const std::string& library, const char* name) {
    struct Search {
      const std::string& wanted;
      std::string path{};
    } search{library};
    dl_iterate_phdr(
        [](dl_phdr_info* one, std::size_t, void* asked) {
          auto& found = *static_cast<Search*>(asked);
          const std::string path = one->dlpi_name;
          if (path.find("/" + found.wanted) != std::string::npos) found.path = path;
          return 0;
        },
        &search);
    void* const loaded = dlopen(search.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* const address = loaded == nullptr ? nullptr : dlsym(loaded, name);
    if (address == nullptr) throw std::runtime_error(library + " has no " + name);
    dlclose(loaded);
    return reinterpret_cast<Function*>(address);
  }
};

}  // namespace daqiri::test

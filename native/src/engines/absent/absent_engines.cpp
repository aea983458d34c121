// Engines that a configuration can name, but this build does not contain. Configurations for them
// are still validated, by these traits.
#include "engine/registry.h"

namespace daqiri {

namespace {

constexpr std::uint32_t RING = 8192;

constexpr SocketProtocol RDMA[] = {SocketProtocol::ROCE};

const RegisteredEngine ibverbs{{{.name = "ibverbs",
                                 .transports = RDMA,
                                 .addresses = AddressForm::PCI_OR_INTERFACE_NAME,
                                 .kernel_bypass = true,
                                 .rdma_cards = true,
                                 .polls_without_pause = true,
                                 .rx_descriptors = RING,
                                 .device_memory = true,
                                 .direct_mode = true},
                                [](const NetworkConfig& config) {
                                  const EngineType type = config.common_.engine_type;
                                  return config.common_.loopback_ == LoopbackType::DISABLED &&
                                         (type == EngineType::IBVERBS || type == EngineType::RDMA);
                                },
                                nullptr}};

}  // namespace

}  // namespace daqiri

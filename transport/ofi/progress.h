#pragma once

#include <cstdint>

namespace telegrad::ofi {

// What epoll's events are of: these, or an endpoint's id behind them.
constexpr uint64_t kFabricKey = 0;
constexpr uint64_t kListenerKey = 1;
constexpr uint64_t kFirstEndpointKey = 16;

}  // namespace telegrad::ofi

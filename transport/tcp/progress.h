#pragma once

#include <cstdint>

// What an event of the context's epoll is about.
namespace telegrad::tcp {

constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kListenerKey = 1;
constexpr uint64_t kFirstConnectionKey = 2;

}  // namespace telegrad::tcp

#pragma once

#include <cstdint>

// What an event of the context's epoll is about.
namespace telegrad::tcp {

constexpr uint64_t kListenerKey = 0;
constexpr uint64_t kSameHostKey = 1;
constexpr uint64_t kFirstConnectionKey = 2;

}  // namespace telegrad::tcp

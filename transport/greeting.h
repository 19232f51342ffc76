#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

// What transports grant to strangers.
namespace telegrad {

// From connect or accept to the peer's hello.
constexpr Duration kGreetGrace = std::chrono::seconds(10);
// Who have connected and said nothing yet.
constexpr size_t kMaxGreeting = 1024;

}  // namespace telegrad

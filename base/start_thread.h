#pragma once

#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"

namespace telegrad {

// Where no thread can be had, the process ends as without memory: code 32, and
// the limits that it has. In a library, too, which is not the caller's to ask.
template <typename Body>
std::thread StartThread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error&) {
    OutOfThreads();
  }
}

template <typename Body>
auto StartAsync(Body body) {
  try {
    return std::async(std::launch::async, std::move(body));
  } catch (const std::system_error&) {
    OutOfThreads();
  }
}

}  // namespace telegrad

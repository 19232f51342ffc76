#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/device.h"
#include "gtest/gtest.h"
#include "kernels/dispatch.h"

namespace telegrad::testing {

constexpr Device kGpu = {DeviceKind::kCuda, 0};

// Skips the test where there is none, or fails it where one is demanded.
inline bool HasGpu() {
  std::string why_not;
  if (kernels::CudaKernels(0, &why_not) != nullptr) return true;
  const char* const required = std::getenv("TELEGRAD_TEST_REQUIRE");
  [&] {
    if (required != nullptr && std::strstr(required, "cuda") != nullptr) {
      FAIL() << why_not;
    }
    GTEST_SKIP() << why_not;
  }();
  return false;
}

}  // namespace telegrad::testing

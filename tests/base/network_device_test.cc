#include "base/network_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

TEST(NetworkDevice, LoopbackHasItsAddress) {
  const auto address = AddressOfDevice("lo");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(NetworkDevice, UnknownOnesAreToldFromThoseThereAre) {
  for (const char* name : {"eth99", "", "127.0.0.1"}) {
    EXPECT_THAT(AddressOfDevice(name),
                StatusIs(absl::StatusCode::kNotFound, "lo"));
  }
}

}  // namespace
}  // namespace telegrad

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

TEST(NetworkDevice, AddressesStandForThemselves) {
  for (const char* address : {"10.1.2.3", "::1"}) {
    const auto found = AddressOrDevice(address);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(*found, address);
  }
  EXPECT_EQ(AddressOrDevice("lo").value_or(""), "127.0.0.1");
}

TEST(NetworkDevice, UnknownOnesAreToldFromThoseThereAre) {
  for (const char* name : {"eth99", "", "127.0.0.1"}) {
    EXPECT_THAT(AddressOfDevice(name),
                StatusIs(absl::StatusCode::kNotFound, "lo"));
  }
}

}  // namespace
}  // namespace telegrad

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

TEST(NetworkDevice, AddressesAreOfADevice) {
  EXPECT_EQ(DeviceOfAddress("127.0.0.1").value_or(""), "lo");
  for (const char* address : {"203.0.113.77", "lo", ""}) {
    EXPECT_THAT(DeviceOfAddress(address),
                StatusIs(absl::StatusCode::kNotFound, address));
  }
}

TEST(NetworkDevice, UnknownOnesAreToldFromThoseThereAre) {
  for (const char* name : {"eth99", "", "127.0.0.1"}) {
    EXPECT_THAT(AddressOfDevice(name),
                StatusIs(absl::StatusCode::kNotFound, "lo"));
  }
}

}  // namespace
}  // namespace telegrad

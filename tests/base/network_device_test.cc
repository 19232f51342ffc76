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

// Of a device other than loopback, if there is one.
std::string OutsideAddress() {
  return OwnAddress("auto", "203.0.113.77").value_or("");
}

TEST(OwnAddress, TakesAnAddressANetworkAndADevice) {
  for (const char* text : {"127.0.0.1", "lo", "127.0.0.0/8", "127.0.0.1/32"}) {
    EXPECT_EQ(OwnAddress(text, "").value_or(""), "127.0.0.1") << text;
  }
  EXPECT_EQ(OwnAddress("127.5.6.7", "").value_or(""), "127.5.6.7");
  const std::string outside = OutsideAddress();
  if (outside.empty()) GTEST_SKIP() << "no route to other hosts here";
  EXPECT_EQ(OwnAddress(outside, "").value_or(""), outside);
  EXPECT_EQ(OwnAddress(outside + "/32", "").value_or(""), outside);
  EXPECT_EQ(OwnAddress(*DeviceOfAddress(outside), "").value_or(""), outside);
}

TEST(OwnAddress, IsTheOneByWhichAHostIsReached) {
  EXPECT_EQ(OwnAddress("auto", "127.0.0.1").value_or(""), "127.0.0.1");
  EXPECT_EQ(OwnAddress("auto", "localhost").value_or(""), "127.0.0.1");
  const std::string outside = OutsideAddress();
  if (outside.empty()) GTEST_SKIP() << "no route to other hosts here";
  EXPECT_EQ(OwnAddress("auto", outside).value_or(""), outside);
}

TEST(OwnAddress, RefusesWhatThisHostHasNot) {
  for (const char* text :
       {"203.0.113.77", "203.0.113.0/24", "ib99", "", "0.0.0.0", "::", "any",
        "127.0.0.0/33", "127.0.0.0/", "127.0.0.0/-1", "/8", "lo/8"}) {
    EXPECT_THAT(OwnAddress(text, "127.0.0.1"),
                StatusIs(absl::StatusCode::kInvalidArgument, "lo 127.0.0.1"))
        << text;
  }
  EXPECT_THAT(OwnAddress("auto", "no.such.host.invalid"),
              StatusIs(absl::StatusCode::kInvalidArgument, "auto"));
}

}  // namespace
}  // namespace telegrad

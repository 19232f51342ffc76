#include "base/vendor.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/open_library.h"
#include "tests/testing/status_matchers.h"

// As their headers declare them; this program is linked with neither library.
extern "C" const char* ucp_get_version_string();
extern "C" uint32_t fi_version();

namespace telegrad::vendor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

bool IsLoaded(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

void OnSignal(int /*number*/) {}

// One test: what is loaded stays.
TEST(Vendor, LibrariesAreOpened) {
  EXPECT_EQ(IsLoaded("libucp.so.0"), OpenUcx().ok());
  EXPECT_FALSE(IsLoaded("libfabric.so.1"));
  ASSERT_NE(signal(SIGTERM, &OnSignal), SIG_ERR);
  for (const auto open : {&OpenUcx, &OpenOfi}) {
    const absl::Status opened = open();
    if (!opened.ok()) GTEST_SKIP() << opened;
    EXPECT_THAT(open(), IsOk());
  }
  EXPECT_THAT(ucp_get_version_string(), StartsWith("1."));
  EXPECT_GE(fi_version() >> 16, 1u);
  EXPECT_EQ(signal(SIGTERM, SIG_DFL), &OnSignal);
  // Debian's libfabric brings a library that takes it.
  EXPECT_EQ(signal(SIGINT, SIG_DFL), SIG_DFL);
}

TEST(Vendor, UcxLeavesTheHeapAloneWhereNothingIsRegistered) {
  std::error_code error;
  if (!std::filesystem::is_empty("/dev/infiniband", error) && !error) {
    GTEST_SKIP() << "this machine has RDMA devices";
  }
  if (getenv("UCX_MEM_EVENTS") != nullptr) GTEST_SKIP() << "UCX_MEM_EVENTS";
  if (!OpenUcx().ok()) GTEST_SKIP() << OpenUcx();
  void* const ucm = dlopen("libucm.so.0", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(ucm, nullptr);
  // As ucm/api/ucm.h declares it; 1 << 17 is UCM_EVENT_VM_UNMAPPED.
  const auto set_handler =
      reinterpret_cast<int8_t (*)(int, int, void (*)(int, void*, void*),
                                  void*)>(dlsym(ucm, "ucm_set_event_handler"));
  ASSERT_NE(set_handler, nullptr);
  EXPECT_NE(set_handler(
                1 << 17, 0, [](int, void*, void*) {}, nullptr),
            0);
  dlclose(ucm);
}

TEST(Vendor, WhatIsMissingIsNamedAndNoSlotIsFilled) {
  void* slots[2] = {};
  EXPECT_THAT(Open("libpigeon.so.7", {{"fly", &slots[0]}}),
              StatusIs(absl::StatusCode::kUnavailable, "libpigeon.so.7"));
  EXPECT_THAT(
      Open("libm.so.6", {{"cos", &slots[0]}, {"pigeon", &slots[1]}}),
      StatusIs(absl::StatusCode::kUnavailable, "libm.so.6 has no pigeon"));
  EXPECT_THAT(Open("libm.so.6", {{"cos", &slots[0], "PIGEON_7.0"}}),
              StatusIs(absl::StatusCode::kUnavailable, "cos@PIGEON_7.0"));
  EXPECT_EQ(slots[0], nullptr);
  EXPECT_THAT(Open("libm.so.6", {{"cos", &slots[0]}}), IsOk());
  EXPECT_EQ(slots[0], dlsym(RTLD_DEFAULT, "cos"));
}

TEST(Vendor, TheErrorSaysWhereTheLibraryComesFrom) {
  EXPECT_THAT(FromPackage(absl::OkStatus(), "pigeons"), IsOk());
  EXPECT_THAT(std::string(FromPackage(absl::UnavailableError("no libpigeon.so"),
                                      "pigeons (pip: pigeon)")
                              .message()),
              AllOf(HasSubstr("not installed: no libpigeon.so"),
                    HasSubstr("pigeons (pip: pigeon)")));
}

}  // namespace
}  // namespace telegrad::vendor

#include "trainer/networks/gpus.h"

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::StatusIs;
using Gpus = std::vector<int>;
constexpr absl::StatusCode kUsage = absl::StatusCode::kInvalidArgument;

absl::StatusOr<Gpus> Choose(absl::string_view text, int count) {
  return ChooseGpus(text, [&]() -> absl::StatusOr<int> { return count; });
}

TEST(Gpus, AreThoseNamedInTheirOrderOrAll) {
  EXPECT_EQ(*Choose("1,0", 2), Gpus({1, 0}));
  EXPECT_EQ(*Choose("3", 4), Gpus({3}));
  EXPECT_EQ(*Choose("all", 1), Gpus({0}));
  EXPECT_EQ(*Choose("all", 3), Gpus({0, 1, 2}));
}

TEST(Gpus, ThatAreNotThereAreRefusedWithTheirNumber) {
  EXPECT_THAT(Choose("7", 2), StatusIs(kUsage, "no device 7; there are 2"));
  EXPECT_THAT(Choose("0,1", 1), StatusIs(kUsage, "no device 1; there is 1"));
  EXPECT_THAT(Choose("0,1,0", 2), StatusIs(kUsage, "device 0 comes twice"));
  EXPECT_EQ(ExitCodeOf(Choose("7", 2).status()), ExitCode::kUsage);
}

TEST(Gpus, TextThatIsNoDeviceIsRefused) {
  for (const char* text : {"", "x", "0,", ",0", "-1", "0-1", "ALL", "0,all",
                           "99999999999999999999"}) {
    EXPECT_THAT(Choose(text, 2), StatusIs(kUsage, "--gpus")) << text;
  }
}

TEST(Gpus, TheReasonWhyThereAreNoneIsTold) {
  const auto none = ChooseGpus("all", []() -> absl::StatusOr<int> {
    return absl::FailedPreconditionError("the driver is too old");
  });
  EXPECT_THAT(none, StatusIs(kUsage, "the driver is too old; without --gpus"));
}

TEST(Gpus, AreDealtOverWorkersByTheirNumberOnTheHost) {
  const Gpus gpus = {2, 0, 3};
  Gpus dealt;
  for (int local = 0; local < 5; ++local) dealt.push_back(DealGpu(gpus, local));
  EXPECT_EQ(dealt, Gpus({2, 0, 3, 2, 0}));
  EXPECT_EQ(SharingNotice(3, 3), "");
  EXPECT_EQ(SharingNotice(3, 2), "");
  EXPECT_THAT(SharingNotice(2, 4),
              ::testing::HasSubstr("4 workers share 2 GPUs"));
  EXPECT_THAT(SharingNotice(1, 2),
              ::testing::HasSubstr("2 workers share 1 GPU:"));
}

// Text that is wrong by itself is so whatever the machine has.
TEST(Gpus, AreNotCountedForWrongText) {
  bool has_counted = false;
  EXPECT_THAT(ChooseGpus("0,0",
                         [&]() -> absl::StatusOr<int> {
                           has_counted = true;
                           return 1;
                         }),
              StatusIs(kUsage, "twice"));
  EXPECT_FALSE(has_counted);
}

}  // namespace
}  // namespace telegrad

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/job/path/data_path.h"
#include "tests/kvstore/ps/raw_worker.h"
#include "tests/kvstore/row_buffers.h"

// How jobs end that have rows and workers that sum on their host first.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::PushRows;
using testing::RowBuffer;
using testing::SharingJob;
using testing::Soon;

TEST(HostRowsFail, NameTheWorkerOfABadGradient) {
  Cluster cluster(SharingJob());
  cluster.Run([](KVStore& store) {
    const bool is_bad = store.group().rank() == 3;
    const RowBuffer grad(
        {7}, is_bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
    const absl::Status status = PushRows(store, 1, grad);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("worker/3: gradient of table holds NaN or infinity, "
                          "the first in row 7"));
  });
}

// One for which another one pushes is worker/1; its place is behind both that
// do.
TEST(HostRowsFail, AreNotPushedByWhoReads) {
  const std::vector<FrameHeader> bad = {
      {.type = FrameType::kPush},
      {.type = FrameType::kPushRows},
      {.type = FrameType::kPropose},
      {.type = FrameType::kInit},
      {.type = FrameType::kPull, .flags = kFlagNextValue},
      {.type = FrameType::kDeclare},
  };
  for (FrameHeader frame : bad) {
    ClusterConfig config = SharingJob();
    config.tensors = {{"dense", 33}};  // nobody reads by itself
    config.has_values = false;
    config.secret = *Secret::Derive(std::string(32, 'k'), "local");
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      Buffer memory(4 * 33);
      const auto round = [&] {
        return store.PushPull(0, memory.view(), memory.view(), 0).Wait(Soon());
      };
      ASSERT_THAT(round(), IsOk());
      ASSERT_THAT(store.group().Gather("round", "").status(), IsOk());
      if (store.group().rank() == 0) {
        const DataPath& path = store.group().data_path();
        testing::RawConnection raw(path.transport, path.server_addresses[0]);
        frame.epoch = store.group().membership().epoch;
        frame.source = 2;
        ASSERT_TRUE(raw.Authenticate(
            config.secret, {.node = {Role::kWorker, 2}, .epoch = frame.epoch}));
        FrameHeader pull = frame;
        pull.type = FrameType::kPull;
        pull.flags = 0;
        raw.Send(pull, "");
        EXPECT_TRUE(raw.Await(FrameType::kValue));
        raw.Send(frame, std::string(16, '\0'));
        EXPECT_TRUE(raw.AwaitClosed());
      }
      const absl::Status status = round();
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("of a worker for which another one pushes"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1: frame"));
    });
  }
}

TEST(HostRowsFail, EndWhereAWorkerIsLost) {
  for (const int lost : {0, 3}) {
    Cluster cluster(SharingJob());
    cluster.Run([&](KVStore& store) {
      ASSERT_THAT(PushRows(store, 1, RowBuffer({1}, 1)), IsOk());
      ASSERT_THAT(store.group().Gather("round", "").status(), IsOk());
      if (store.group().rank() == lost) {
        store.group().Fail(WithExitCode(
            ExitCode::kPeerDied,
            absl::UnavailableError(absl::StrCat("worker/", lost, " died"))));
        return;
      }
      const absl::Status status = PushRows(store, 1, RowBuffer({1}, 1));
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("worker/", lost)));
    });
  }
}

}  // namespace
}  // namespace telegrad

#include "gmock/gmock.h"
#include "kvstore/ps/worker/worker_tensor.h"
#include "tests/testing/status_matchers.h"

// Whose turn it is with a worker's tensor, and what a failure does to that.
namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr auto kNotNow = absl::StatusCode::kFailedPrecondition;

class Turns : public ::testing::Test {
 protected:
  absl::Status Begin(const std::shared_ptr<WorkerOp>& op) {
    return turns_.Begin(spec_, op, failure_);
  }
  static std::shared_ptr<WorkerOp> Op(OpKind kind) {
    return std::make_shared<WorkerOp>(kind, Key{0}, ConstBytes(), Bytes());
  }

  const TensorSpec spec_{"a", 4};
  const std::unique_ptr<WorkerGroup> group_ = MakeSoloGroup();
  int num_wakes_ = 0;
  WorkerFailure failure_{*group_, [this] { ++num_wakes_; }};
  WorkerTurns turns_;
};

TEST_F(Turns, AreOneOperationsAtATime) {
  const auto value = Op(OpKind::kGiveValue);
  const auto push = Op(OpKind::kPushPull);
  ASSERT_THAT(Begin(value), IsOk());
  EXPECT_THAT(Begin(push), StatusIs(kNotNow, "has an operation already"));
  EXPECT_THAT(turns_.CheckIdle("a change", spec_),
              StatusIs(kNotNow, "a change within a round of tensor a"));
  EXPECT_EQ(turns_.End(*value), value);
  EXPECT_THAT(turns_.CheckIdle("a change", spec_), IsOk());
  EXPECT_EQ(turns_.End(*value), nullptr);
  ASSERT_THAT(Begin(push), IsOk());
  EXPECT_EQ(turns_.active(), push);
}

TEST_F(Turns, CountRoundsAndBroadcastsApart) {
  for (uint64_t step = 0; step < 3; ++step) {
    for (const OpKind kind : {OpKind::kTakeValue, OpKind::kPush}) {
      const auto op = Op(kind);
      ASSERT_THAT(Begin(op), IsOk());
      EXPECT_EQ(op->step, step);
      turns_.End(*op);
    }
    const auto pull = Op(OpKind::kPull);
    ASSERT_THAT(Begin(pull), IsOk());
    EXPECT_EQ(pull->step, step + 1);
    turns_.End(*pull);
  }
  EXPECT_EQ(turns_.rounds(), 3u);
}

TEST_F(Turns, APullNeedsAValue) {
  EXPECT_THAT(Begin(Op(OpKind::kPull)), StatusIs(kNotNow, "has no value"));
  turns_.set_rounds(3);  // of a codec's state, which has none
  EXPECT_THAT(Begin(Op(OpKind::kPull)), StatusIs(kNotNow, "has no value"));
  const auto push = Op(OpKind::kPush);
  ASSERT_THAT(Begin(push), IsOk());
  EXPECT_EQ(push->step, 3u);
  turns_.End(*push);
  EXPECT_THAT(Begin(Op(OpKind::kPull)), IsOk());
}

TEST_F(Turns, EndWithTheFirstFailure) {
  failure_.Set(absl::DataLossError("first"));
  failure_.Set(absl::AbortedError("second"));
  EXPECT_EQ(num_wakes_, 2);
  EXPECT_THAT(Begin(Op(OpKind::kPush)),
              StatusIs(absl::StatusCode::kDataLoss, "first"));
  EXPECT_EQ(turns_.active(), nullptr);
}

// What does not let go of a caller's memory ends the job, and is waited for.
TEST(Release, ReturnsWhenTheMemoryIsNotInUse) {
  const std::unique_ptr<WorkerGroup> group = MakeSoloGroup();
  absl::Status failure;
  group->OnFailure([&](const absl::Status& why) { failure = why; });
  const auto state = std::make_shared<Ticket::State>();
  state->describe = [] { return "a sum"; };
  int num_asked = 0;
  AwaitRelease(*group, state, [&](TimePoint) { return ++num_asked == 4; });
  EXPECT_EQ(num_asked, 4);
  EXPECT_THAT(failure, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                "a sum, nor when it was cancelled"));
}

TEST(WorkerTensor, HasNoChunksThatNoFrameTakes) {
  const std::vector<TensorSpec> specs = {
      {.name = "a", .num_elems = size_t{6} << 20, .row_elems = 1}};
  BufferPool buffers;
  const EngineConfig config{.num_contributors = 1, .buffers = &buffers};
  const auto make = [&](size_t chunk_elems) {
    const auto layouts =
        MakeShardPlan(specs, 1, chunk_elems, config.compression);
    return MakeWorkerTensor(specs[0], layouts->front(), config).status();
  };
  EXPECT_THAT(make(size_t{1} << 20), IsOk());
  EXPECT_THAT(make(size_t{6} << 20),
              StatusIs(absl::StatusCode::kInvalidArgument, "smaller chunks"));
}

}  // namespace
}  // namespace telegrad

#include "tests/kvstore/ps/round.h"

// Values that a worker gives to all, and pulls.
namespace telegrad {
namespace {

using testing::IsOk;
using testing::kAccept;
using testing::kElems;
using testing::Round;
using testing::StatusIs;

TEST_F(Round, TakesOneValueAtATimeBetweenRounds) {
  Make("none", ReplyMode::kDense);
  const size_t bytes = 4 * kElems;
  EXPECT_FALSE(rounds_->OnPull(1, {.step = 0}, *this).ok());  // none yet
  EXPECT_FALSE(rounds_->BeginValue(0, bytes - 4).ok());
  EXPECT_FALSE(rounds_->BeginValue(0, bytes + 4).ok());
  EXPECT_FALSE(rounds_->BeginValue(1, bytes).ok());
  EXPECT_THAT(rounds_->BeginValue(0, bytes), IsOk());
  EXPECT_FALSE(rounds_->BeginValue(0, bytes).ok());  // while it arrives
  EXPECT_THAT(rounds_->OnValue(0, 0, *this), IsOk());
  EXPECT_FALSE(rounds_->BeginValue(0, bytes).ok());
  EXPECT_EQ(*Begin(2, Header()), kAccept);
  EXPECT_FALSE(rounds_->BeginValue(1, bytes).ok());  // while a push arrives
}

// Who was fast may give the next value, from its own worker, before all others
// have asked for the one before.
TEST_F(Round, KeepsAValueUntilAllHaveIt) {
  Make("none", ReplyMode::kDense);
  const auto give = [this](int worker, uint64_t index) {
    const absl::StatusOr<Bytes> target = rounds_->BeginValue(index, 4 * kElems);
    ASSERT_THAT(target, IsOk());
    target->data[0] = static_cast<std::byte>(index);
    answers_.clear();
    EXPECT_THAT(rounds_->OnValue(worker, 0, *this), IsOk());
  };
  const auto take = [this](int worker, uint64_t index) {
    answers_.clear();
    EXPECT_THAT(rounds_->OnPull(
                    worker, {.step = index, .wants_broadcast = true}, *this),
                IsOk());
  };
  give(0, 0);
  take(1, 0);
  ASSERT_EQ(answers_.size(), 1u);
  give(1, 1);
  EXPECT_TRUE(answers_.empty());
  EXPECT_FALSE(rounds_->BeginValue(1, 4 * kElems).ok());  // it is there
  take(0, 1);
  EXPECT_TRUE(answers_.empty());
  take(2, 0);
  ASSERT_EQ(answers_.size(), 3u);  // worker 2, then who gave, and worker 0
  EXPECT_EQ(answers_[0][0], std::byte{0});
  EXPECT_EQ(answers_[2][0], std::byte{1});
  take(2, 1);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0][0], std::byte{1});
}

TEST_F(Round, AnswersPullsWhenThereIsWhatTheyWant) {
  Make("none", ReplyMode::kDense);
  const PullHeader pull{.step = 0, .wants_broadcast = true};
  EXPECT_THAT(rounds_->OnPull(2, pull, *this), IsOk());
  EXPECT_TRUE(answers_.empty());
  EXPECT_THAT(rounds_->OnPull(2, pull, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "second pull"));
  EXPECT_THAT(rounds_->OnPull(1, {.step = 1, .wants_broadcast = true}, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "broadcasts"));
  const absl::StatusOr<Bytes> target = rounds_->BeginValue(0, 4 * kElems);
  ASSERT_THAT(target, IsOk());
  target->data[0] = std::byte{7};
  EXPECT_THAT(rounds_->OnValue(0, 0, *this), IsOk());
  ASSERT_EQ(answers_.size(), 2u);  // whose value it is, and worker 2
  EXPECT_EQ(answers_[1][0], std::byte{7});
  const std::vector<std::byte> sums = RunRound({0, 1, 2}, 0);
  answers_.clear();
  EXPECT_THAT(rounds_->OnPull(1, {.step = 1}, *this), IsOk());
  EXPECT_THAT(answers_, ::testing::ElementsAre(sums));
  EXPECT_THAT(rounds_->OnPull(1, {.step = 0}, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "rounds"));
}

}  // namespace
}  // namespace telegrad

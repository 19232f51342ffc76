#include "kvstore/ps/server/aggregate_sync.h"

#include <algorithm>
#include <cstring>

#include "tests/kvstore/ps/round.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::kAccept;
using testing::kDuplicate;
using testing::kElems;
using testing::kWorkers;
using testing::Round;
using testing::StatusIs;
using testing::Verdict;

TEST_F(Round, CountsDistinctWorkers) {
  Make("2bit", ReplyMode::kSum);
  const FrameHeader header = Header();
  EXPECT_FALSE(Push(1, header, Payload(1, 0)));
  for (int i = 0; i < 5; ++i) {  // the same push again is no other worker
    EXPECT_EQ(*Begin(1, header), kDuplicate);
  }
  EXPECT_FALSE(Push(0, header, Payload(0, 0)));
  EXPECT_TRUE(Push(2, header, Payload(2, 0)));
  const std::vector<std::byte> with_duplicates = Finish();
  Make("2bit", ReplyMode::kSum);
  EXPECT_EQ(RunRound({0, 1, 2}, 0), with_duplicates);
}

TEST_F(Round, IgnoresAPushThatIsStillArriving) {
  Make("2bit", ReplyMode::kSum);
  EXPECT_EQ(*Begin(0, Header()), kAccept);
  EXPECT_EQ(*Begin(0, Header()), kDuplicate);
}

TEST_F(Round, IgnoresOldStepsAndRefusesNewOnes) {
  Make("none", ReplyMode::kDense);
  RunRound({0, 1, 2}, 0);
  RunRound({0, 1, 2}, 1);
  EXPECT_EQ(rounds_->num_rounds(), 2u);
  EXPECT_EQ(*Begin(0, Header(0)), kDuplicate);
  EXPECT_EQ(*Begin(0, Header(1)), kDuplicate);
  for (const uint64_t step : {uint64_t{3}, uint64_t{4}, UINT64_MAX}) {
    EXPECT_THAT(Begin(0, Header(step)),
                StatusIs(absl::StatusCode::kInvalidArgument, "step"));
  }
  EXPECT_EQ(*Begin(0, Header(2)), kAccept);
}

TEST_F(Round, RefusesPushesOfAnotherShape) {
  Make("2bit", ReplyMode::kSum);
  const std::vector<void (*)(FrameHeader&)> changes = {
      [](FrameHeader& h) { --h.payload_bytes; },
      [](FrameHeader& h) { ++h.payload_bytes; },
      [](FrameHeader& h) { h.payload_bytes = 0; },
      [](FrameHeader& h) { h.codec = 0; },
      [](FrameHeader& h) { h.codec = 200; },
      [](FrameHeader& h) { ++h.codec_version; },
      [](FrameHeader& h) { h.packing = 1; },
      [](FrameHeader& h) { h.contributors = 2; },
      [](FrameHeader& h) { h.contributors = 0; },
      [](FrameHeader& h) { h.reply_format = 0; },
      [](FrameHeader& h) { h.reply_format = 9; },
      [](FrameHeader& h) { h.scale = 0; },
      [](FrameHeader& h) { h.proposed_scale = kMaxScale + 1; },
      [](FrameHeader& h) { h.proposed_scale = kMinScale - 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    FrameHeader header = Header();
    changes[i](header);
    EXPECT_THAT(Begin(0, header),
                StatusIs(absl::StatusCode::kInvalidArgument, "push"))
        << i;
  }
  EXPECT_EQ(*Begin(0, Header()), kAccept);
}

TEST_F(Round, RefusesWishesForCodecsThatItHasNot) {
  Make("2bit", ReplyMode::kSum);
  FrameHeader header = Header();
  header.proposed_mode = CodecMode::kAlternative;
  EXPECT_THAT(Begin(0, header),
              StatusIs(absl::StatusCode::kInvalidArgument, "mode 3"));
  header.proposed_mode = CodecMode::kPaused;
  EXPECT_THAT(Begin(0, header), IsOk());
}

TEST_F(Round, SumsDoNotDependOnTheOrderOfArrival) {
  const std::vector<std::pair<std::string, ReplyMode>> cases = {
      {"none", ReplyMode::kDense},
      {"2bit", ReplyMode::kSum},
      {"2bit", ReplyMode::kReencode},
      {"2bit", ReplyMode::kDense}};
  for (const auto& [type, reply] : cases) {
    std::vector<std::vector<std::byte>> first;
    std::vector<int> order = {0, 1, 2};
    do {
      Make(type, reply);
      for (int step = 0; step < 4; ++step) {
        const std::vector<std::byte> bytes = RunRound(order, step);
        const auto at = static_cast<size_t>(step);
        if (first.size() <= at) first.push_back(bytes);
        EXPECT_EQ(bytes, first[at]) << type << " " << ToString(reply);
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_F(Round, AddsUncompressedGradientsInRankOrder) {
  Make("none", ReplyMode::kDense);
  // 1e8 swallows 1 but not what is left after -1e8: the order shows.
  const float values[kWorkers] = {1e8f, 1.0f, -1e8f};
  for (const int worker : {2, 1, 0}) {
    Buffer payload(4 * kElems);
    std::fill_n(payload.as<float>(), kElems, values[worker]);
    Push(worker, Header(), payload);
  }
  const std::vector<std::byte> bytes = Finish();
  const float expected = (values[0] + values[1]) + values[2];
  EXPECT_EQ(std::memcmp(bytes.data(), &expected, 4), 0);
}

TEST_F(Round, AnswersWithTheWorkersOwnPriorities) {
  Make("2bit", ReplyMode::kSum);
  for (int worker = 0; worker < kWorkers; ++worker) {
    FrameHeader header = Header();
    header.priority = 10 - 20 * worker;
    Push(worker, header, Payload(worker, 0));
  }
  Finish();
  EXPECT_THAT(priorities_,
              ::testing::ElementsAre(std::pair(0, 10), std::pair(1, -10),
                                     std::pair(2, -30)));
  ASSERT_THAT(rounds_->OnPull(1, {.step = 1, .priority = 4}, *this), IsOk());
  EXPECT_EQ(priorities_[1], 4);
}

// A value is not installed while the pool sums.
TEST_F(Round, TakesNoValueInAWorkersRound) {
  Make("none", ReplyMode::kDense);
  Push(1, Header(), Buffer(4 * kElems));
  EXPECT_THAT(rounds_->OnPull(1, {.wants_broadcast = true}, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "within a round"));
}

TEST_F(Round, AgreesOnTheLargestWishTwoRoundsLater) {
  Make("2bit", ReplyMode::kSum, {});
  EXPECT_FALSE(Begin(0, Header()).ok());  // nothing agreed yet
  EXPECT_FALSE(*Propose(0, -4));
  EXPECT_FALSE(Propose(0, -4).ok());  // once per worker
  EXPECT_FALSE(Propose(1, kMaxScale + 1).ok());
  EXPECT_FALSE(Propose(1, kFixedScale).ok());
  EXPECT_FALSE(*Propose(1, -6));
  EXPECT_TRUE(*Propose(2, kNoScale));
  EXPECT_EQ(agreed_, -4);
  // Wishes by step and worker, and the scale in force at each step.
  const int16_t wishes[][kWorkers] = {
      {-3, -9, kNoScale}, {kNoScale, kNoScale, kNoScale},
      {-8, -8, -7},       {kMinScale, kMaxScale, 0},
      {0, 0, 0},          {0, 0, 0}};
  const int16_t in_force[] = {-4, -4, -3, -4, -7, kMaxScale};
  for (uint64_t step = 0; step < 6; ++step) {
    for (int worker = 0; worker < kWorkers; ++worker) {
      FrameHeader header = Header(step);
      header.proposed_scale = wishes[step][worker];
      header.scale = static_cast<int16_t>(in_force[step] + 1);
      EXPECT_FALSE(Begin(worker, header).ok());
      header.scale = in_force[step];
      Push(worker, header, Payload(worker, static_cast<int>(step)));
    }
    Finish();
    EXPECT_EQ(last_.settings.scale, in_force[step]) << step;
  }
}

TEST_F(Round, KeepsTheDefaultScaleWithoutWishes) {
  Make("2bit", ReplyMode::kSum, {});
  for (int worker = 0; worker < kWorkers; ++worker) {
    EXPECT_EQ(*Propose(worker, kNoScale), worker == kWorkers - 1);
  }
  EXPECT_EQ(agreed_, kDefaultScale);
}

TEST_F(Round, FindsPayloadsThatAreNoCodes) {
  Make("2bit", ReplyMode::kSum);
  ASSERT_EQ(*Begin(0, Header()), kAccept);
  const Bytes target = target_;
  std::memset(target.data, 0, target.size);
  target.data[0] = std::byte{0x40};  // code 01
  EXPECT_FALSE(rounds_->OnPushed(0, false).ok());
  target.data[0] = std::byte{0};
  target.data[target.size - 1] = std::byte{3};  // behind the end
  EXPECT_FALSE(rounds_->OnPushed(0, false).ok());
  target.data[target.size - 1] = std::byte{0};
  EXPECT_THAT(rounds_->OnPushed(0, false), IsOk());
}

}  // namespace
}  // namespace telegrad

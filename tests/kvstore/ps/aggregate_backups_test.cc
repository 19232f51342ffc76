#include "kvstore/ps/server/aggregate_backups.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "kvstore/ps/server/chunk_state.h"
#include "tests/kvstore/ps/growing_chunk.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::GrowingChunk;
using testing::IsOk;
using testing::StatusIs;

constexpr size_t kBackedElems = GrowingChunk::kElems;
constexpr auto kNotTaken = absl::StatusCode::kInvalidArgument;

class BackedChunk : public GrowingChunk {
 public:
  BackedChunk(int workers, int num_dropped, const std::string& type = "none")
      : GrowingChunk(workers, type) {
    auto sum = ChunkSum::Make(layout(), layout().chunks[0], config());
    EXPECT_THAT(sum, IsOk());
    auto made = std::make_unique<BackupAggregator>(*std::move(sum), config(),
                                                   num_dropped);
    chunk_ = made.get();
    Own(std::move(made));
    Start(workers);
  }

  // What was answered; one of worker -1: a duplicate.
  absl::StatusOr<std::vector<Sent>> Push(int worker, uint64_t step, float value,
                                         bool takes_all = false) {
    PushHeader push = Header(step);
    push.takes_all = takes_all;
    const std::vector<float> payload(kBackedElems, value);
    return Push(worker, push, payload.data());
  }
  absl::StatusOr<std::vector<Sent>> Push(int worker, const PushHeader& push,
                                         const void* payload) {
    ASSIGN_OR_RETURN(const Aggregator::Admission admission,
                     chunk_->Admit(worker, push));
    if (admission.is_duplicate) return std::vector<Sent>{{.worker = -1}};
    std::memcpy(admission.target.data, payload, push.payload_bytes);
    ASSIGN_OR_RETURN(const bool is_due, chunk_->OnPushed(worker, false));
    if (is_due) num_completed_ += chunk_->Complete(*this);
    return Take();
  }

  // An answer to a push of so many floats of `weight`.
  static Sent Answered(int worker, uint64_t step, float weight,
                       uint16_t late = 0) {
    return {.worker = worker,
            .step = step,
            .contributors = late,
            .is_late = late > 0,
            .weights = std::vector<float>(kBackedElems, weight)};
  }
  BackupAggregator& aggregator() { return *chunk_; }
  size_t num_completed() const { return num_completed_; }

 private:
  BackupAggregator* chunk_;
  size_t num_completed_ = 0;
};

using Answers = std::vector<BackedChunk::Sent>;

Answers All(absl::StatusOr<Answers> sent) {
  EXPECT_THAT(sent, IsOk());
  return sent.ok() ? *std::move(sent) : Answers();
}

TEST(BackupAggregator, TakesTheFirstPushesAndALateOneInTheNextRound) {
  BackedChunk chunk(3, 1);
  EXPECT_EQ(All(chunk.Push(2, 0, 1)), Answers());
  EXPECT_EQ(All(chunk.Push(0, 0, 2)), (Answers{BackedChunk::Answered(0, 0, 3),
                                               BackedChunk::Answered(2, 0, 3)}))
      << "the order of workers, whatever that of pushes was";
  EXPECT_EQ(All(chunk.Push(1, 0, 4)),
            Answers{BackedChunk::Answered(1, 0, 3, 1)})
      << "at once, with the newest weights, in which it is not yet";
  EXPECT_TRUE(chunk.aggregator().sum()->has_held());
  EXPECT_EQ(All(chunk.Push(1, 1, 8)), Answers());
  EXPECT_EQ(All(chunk.Push(0, 1, 16)),
            (Answers{BackedChunk::Answered(0, 1, 31),
                     BackedChunk::Answered(1, 1, 31)}));
  EXPECT_FALSE(chunk.aggregator().sum()->has_held());
  EXPECT_EQ(chunk.aggregator().num_rounds(), 2u);
  EXPECT_EQ(chunk.num_completed(), 5u);
}

TEST(BackupAggregator, TellsOneThatMissedRoundsWhereTheOthersAre) {
  BackedChunk chunk(2, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(All(chunk.Push(0, step, 1)).size(), 1u);
  }
  EXPECT_EQ(All(chunk.Push(1, 0, 8)),
            Answers{BackedChunk::Answered(1, 0, 3, 3)});
  EXPECT_EQ(All(chunk.Push(1, 1, 8)),
            Answers{BackedChunk::Answered(1, 1, 3, 2)})
      << "it need not leave any out";
  EXPECT_EQ(All(chunk.Push(1, 3, 8)), Answers{BackedChunk::Answered(1, 3, 27)})
      << "of the open round, with what was late";
}

TEST(BackupAggregator, ARoundThatTakesAllWaitsForAll) {
  BackedChunk chunk(3, 2);
  EXPECT_EQ(All(chunk.Push(0, 0, 1)).size(), 1u);
  EXPECT_EQ(All(chunk.Push(0, 1, 2, true)), Answers());
  EXPECT_EQ(All(chunk.Push(1, 1, 4, true)), Answers());
  EXPECT_EQ(All(chunk.Push(2, 0, 8)),
            Answers{BackedChunk::Answered(2, 0, 1, 1)});
  EXPECT_EQ(
      All(chunk.Push(2, 1, 16, true)),
      (Answers{BackedChunk::Answered(0, 1, 31), BackedChunk::Answered(1, 1, 31),
               BackedChunk::Answered(2, 1, 31)}));
  EXPECT_EQ(All(chunk.Push(1, 2, 1)).size(), 1u) << "the next one does not";
}

TEST(BackupAggregator, RefusesWhatIsNotInOrderAndTakesNothingTwice) {
  BackedChunk chunk(3, 1);
  EXPECT_EQ(All(chunk.Push(0, 0, 1)), Answers());
  EXPECT_EQ(All(chunk.Push(0, 0, 1))[0].worker, -1);
  EXPECT_THAT(chunk.Push(0, 1, 1), StatusIs(kNotTaken, "after 0 rounds"));
  EXPECT_THAT(chunk.Push(1, 1, 1), StatusIs(kNotTaken, "step of that number"));
  EXPECT_EQ(All(chunk.Push(1, 0, 1)).size(), 2u);
  EXPECT_EQ(All(chunk.Push(2, 0, 1)).size(), 1u);
  EXPECT_EQ(All(chunk.Push(2, 0, 1))[0].worker, -1) << "late ones, too";
  EXPECT_THAT(chunk.Push(0, 3, 1), StatusIs(kNotTaken, "after 1 rounds"));
  PushHeader other = BackedChunk::Header(1);
  other.format.codec = static_cast<uint8_t>(CodecId::kTwoBit);
  EXPECT_THAT(chunk.aggregator().Admit(0, other), StatusIs(kNotTaken, "codec"));
  other = BackedChunk::Header(1);
  other.settings.mode = CodecMode::kAlternative;
  EXPECT_THAT(chunk.aggregator().Admit(0, other),
              StatusIs(kNotTaken, "mode 3"));
  other.settings = {.scale = 3};
  EXPECT_THAT(chunk.aggregator().Admit(0, other), StatusIs(kNotTaken, "scale"));
  EXPECT_THAT(chunk.Pull(0, 2), StatusIs(kNotTaken, "after 2 steps"));
  EXPECT_THAT(chunk.Pull(0, 1), IsOk());
  EXPECT_EQ(chunk.Take()[0].weights, std::vector<float>(kBackedElems, 2));
}

TEST(BackupAggregator, NoStateIsSavedWhileSomethingIsInNoRound) {
  BackedChunk chunk(2, 1);
  EXPECT_EQ(All(chunk.Push(0, 0, 1)).size(), 1u);
  EXPECT_THAT(DescribeState(chunk.aggregator(), kCodecState), IsOk());
  EXPECT_EQ(All(chunk.Push(1, 0, 1)).size(), 1u);
  for (const uint64_t index : {uint64_t{0}, kCodecState}) {
    EXPECT_THAT(DescribeState(chunk.aggregator(), index),
                StatusIs(absl::StatusCode::kFailedPrecondition, "takes all"));
  }
}

TEST(BackupAggregator, WaitsForOneThatHasLeftWhereMoreHaveThanAreDropped) {
  BackedChunk chunk(4, 1);
  EXPECT_EQ(chunk.aggregator().WaitsFor(3), "") << "nothing is open";
  EXPECT_EQ(All(chunk.Push(0, 0, 1)), Answers());
  EXPECT_EQ(chunk.aggregator().WaitsFor(3), "");
  chunk.aggregator().OnLeft(3, chunk);
  EXPECT_EQ(chunk.aggregator().WaitsFor(3), "");
  chunk.aggregator().OnLeft(2, chunk);
  EXPECT_EQ(chunk.aggregator().WaitsFor(3), "step 1");
  EXPECT_EQ(chunk.aggregator().WaitsFor(0), "") << "it has pushed";
  BackedChunk whole(3, 1);
  EXPECT_EQ(All(whole.Push(0, 0, 1, true)), Answers());
  EXPECT_EQ(whole.aggregator().WaitsFor(2), "step 1");
}

TEST(BackupAggregator, AValueReplacesWeightsBetweenRounds) {
  BackedChunk chunk(2, 1);
  EXPECT_EQ(All(chunk.Push(0, 0, 1)).size(), 1u);
  EXPECT_THAT(chunk.Pull(1, 1, true), IsOk());
  EXPECT_THAT(chunk.Give(0, 1, 100), IsOk());
  const Answers given = chunk.Take();
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(given[1].weights, std::vector<float>(kBackedElems, 100));
  EXPECT_EQ(All(chunk.Push(1, 0, 8)),
            Answers{BackedChunk::Answered(1, 0, 100, 1)});
  EXPECT_EQ(All(chunk.Push(0, 1, 1)),
            Answers{BackedChunk::Answered(0, 1, 109)});
}

// Codes of 2bit: each element 0, +t or -t, with t = 2^scale.
TEST(BackupAggregator, WhatWasEncodedByOtherScalesCountsByThose) {
  BackedChunk chunk(2, 1, "2bit");
  const auto codec = FindCodec("2bit");
  ASSERT_THAT(codec, IsOk());
  const auto prepared = (*codec)->Prepare(kBackedElems, Device{});
  ASSERT_THAT(prepared, IsOk());
  PushHeader propose;
  propose.wish.scale = 0;
  for (const int worker : {0, 1}) {
    EXPECT_THAT(chunk.Push(worker, 0, 1), StatusIs(kNotTaken, ""));
    EXPECT_THAT(chunk.aggregator().OnPropose(worker, propose, chunk), IsOk());
  }
  EXPECT_EQ(chunk.Take().size(), 2u) << "the first scale, for both";
  // What is beyond t is sent as t.
  const auto push = [&](int worker, uint64_t step, int16_t scale, float value) {
    const std::vector<float> grad(kBackedElems, value);
    Buffer residual(4 * kBackedElems);
    CodecState state{.residual = residual.view()};
    Buffer frame((*prepared)->max_encoded_bytes());
    EncodeResult result;
    EXPECT_THAT(
        (*prepared)->Encode(
            {reinterpret_cast<const std::byte*>(grad.data()), 4 * kBackedElems},
            state, {.threshold = ScaleThreshold(scale)}, frame.view(), &result,
            {}),
        IsOk());
    PushHeader header = BackedChunk::Header(step);
    header.payload_bytes = static_cast<uint32_t>(result.encoded_bytes);
    header.format.codec = static_cast<uint8_t>(CodecId::kTwoBit);
    header.settings.scale = scale;
    return All(chunk.Push(worker, header, frame.data()));
  };
  EXPECT_EQ(push(0, 0, 0, 1.5f), Answers{BackedChunk::Answered(0, 0, 1)});
  EXPECT_EQ(push(1, 0, -2, -1), Answers{BackedChunk::Answered(1, 0, 1, 1)});
  EXPECT_EQ(push(1, 1, 3, 9), Answers{BackedChunk::Answered(1, 1, 8.75f)})
      << "in time, but of a scale that it has from an older round";
  EXPECT_EQ(push(0, 2, 0, -1), Answers{BackedChunk::Answered(0, 2, 7.75f)});
}

}  // namespace
}  // namespace telegrad

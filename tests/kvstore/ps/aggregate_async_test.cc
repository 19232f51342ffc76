#include "kvstore/ps/server/aggregate_async.h"

#include <algorithm>
#include <cstring>
#include <queue>

#include "base/random.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/kvstore/ps/growing_chunk.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::GrowingChunk;
using testing::IsOk;
using testing::StatusIs;

constexpr size_t kAsyncElems = GrowingChunk::kElems;
constexpr int32_t kAsyncPriority = -3;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class AsyncChunk : public GrowingChunk {
 public:
  AsyncChunk(int workers, int64_t max_staleness,
             const std::string& type = "none")
      : GrowingChunk(1, type) {
    auto made = AsyncAggregator::Make(layout(), layout().chunks[0], config(),
                                      workers, max_staleness);
    EXPECT_THAT(made, IsOk());
    chunk_ = made->get();
    Own(*std::move(made));
  }

  static PushHeader Header(uint64_t step) {
    PushHeader push = GrowingChunk::Header(step);
    push.priority = kAsyncPriority;
    return push;
  }
  // Whether it was a duplicate.
  absl::StatusOr<bool> Push(int worker, uint64_t step, float value) {
    ASSIGN_OR_RETURN(const Aggregator::Admission admission,
                     chunk_->Admit(worker, Header(step)));
    if (admission.is_duplicate) return true;
    std::fill_n(reinterpret_cast<float*>(admission.target.data), kAsyncElems,
                value);
    ASSIGN_OR_RETURN(const bool is_due, chunk_->OnPushed(worker, false));
    EXPECT_TRUE(is_due) << "nobody else is at it";
    EXPECT_EQ(chunk_->Complete(*this), 1u);
    return false;
  }

  AsyncAggregator& aggregator() { return *chunk_; }

 private:
  AsyncAggregator* chunk_;
};

TEST(AsyncAggregator, AnswersEachPushAtOnceWithWhatAllHaveMade) {
  AsyncChunk chunk(3, kAnyStaleness);
  chunk.Start(3);
  EXPECT_THAT(chunk.Push(0, 0, 1), IsOk());
  EXPECT_THAT(chunk.Push(0, 1, 1), IsOk());
  EXPECT_THAT(chunk.Push(2, 0, 8), IsOk());
  const auto sent = chunk.Take();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].worker, 0);
  EXPECT_EQ(sent[0].type, FrameType::kReply);
  EXPECT_EQ(sent[0].priority, kAsyncPriority);
  EXPECT_EQ(sent[0].weights, std::vector<float>(kAsyncElems, 1));
  EXPECT_EQ(sent[1].weights, std::vector<float>(kAsyncElems, 2));
  EXPECT_EQ(sent[1].step, 1u);
  EXPECT_EQ(sent[1].contributors, 2u)
      << "of worker 1, which has pushed nothing";
  EXPECT_EQ(sent[2].worker, 2);
  EXPECT_EQ(sent[2].weights, std::vector<float>(kAsyncElems, 10));
  EXPECT_EQ(chunk.aggregator().num_rounds(), 0u);
}

TEST(AsyncAggregator, DuplicatesDoNoHarm) {
  AsyncChunk chunk(2, kAnyStaleness);
  chunk.Start(2);
  EXPECT_EQ(*chunk.Push(0, 0, 1), false);
  EXPECT_EQ(*chunk.Push(0, 0, 1), true);
  EXPECT_EQ(*chunk.Push(0, 1, 1), false);
  EXPECT_EQ(*chunk.Push(0, 0, 1), true);
  EXPECT_EQ(*chunk.Push(1, 0, 1), false);
  EXPECT_EQ(chunk.Take().back().weights, std::vector<float>(kAsyncElems, 3));
}

TEST(AsyncAggregator, APullIsNeverOlderThanTheWorkersLastPush) {
  AsyncChunk chunk(2, kAnyStaleness);
  chunk.Start(2);
  ASSERT_THAT(chunk.Push(0, 0, 1), IsOk());
  ASSERT_THAT(chunk.Push(1, 0, 1), IsOk());
  EXPECT_THAT(chunk.Pull(0, 1), IsOk());
  EXPECT_EQ(chunk.Take().back().weights, std::vector<float>(kAsyncElems, 2));
  EXPECT_THAT(chunk.Pull(0, 0), StatusIs(kInvalid, "after 0 steps"));
  EXPECT_THAT(chunk.Pull(0, 2), StatusIs(kInvalid, "after 2 steps"));
}

TEST(AsyncAggregator, HoldsTheAnswersOfThoseTooFarAhead) {
  AsyncChunk chunk(2, 1);
  chunk.Start(2);
  ASSERT_THAT(chunk.Push(0, 0, 1), IsOk());
  EXPECT_EQ(chunk.Take().size(), 1u);
  ASSERT_THAT(chunk.Push(0, 1, 1), IsOk());
  EXPECT_TRUE(chunk.Take().empty()) << "two ahead";
  // Applied, but not answered: nothing else of this worker is in order.
  EXPECT_EQ(*chunk.Push(0, 1, 1), true);
  EXPECT_THAT(chunk.Push(0, 2, 1), StatusIs(kInvalid, "before the last one"));
  EXPECT_THAT(chunk.Pull(0, 2), StatusIs(kInvalid, ""));
  ASSERT_THAT(chunk.Push(1, 0, 8), IsOk());
  const auto sent = chunk.Take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].worker, 0);
  EXPECT_EQ(sent[0].contributors, 1u);
  EXPECT_EQ(sent[0].weights, std::vector<float>(kAsyncElems, 10))
      << "as of now";
  EXPECT_EQ(sent[1].worker, 1);
}

TEST(AsyncAggregator, WaitsForNobodyWhoHasLeft) {
  AsyncChunk chunk(3, 0);
  chunk.Start(3);
  ASSERT_THAT(chunk.Push(0, 0, 1), IsOk());
  ASSERT_THAT(chunk.Push(2, 0, 2), IsOk());
  EXPECT_TRUE(chunk.Take().empty()) << "one ahead of worker 1";
  chunk.aggregator().OnLeft(1, chunk);
  const auto sent = chunk.Take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].contributors, 0u);
  EXPECT_EQ(sent[1].weights, std::vector<float>(kAsyncElems, 3));
  ASSERT_THAT(chunk.Push(0, 1, 1), IsOk());
  chunk.aggregator().OnLeft(0, chunk);
  EXPECT_TRUE(chunk.Take().empty()) << "it has gone before its answer";
  ASSERT_THAT(chunk.Push(2, 1, 1), IsOk());
  EXPECT_EQ(chunk.Take().size(), 1u);
  chunk.aggregator().OnLeft(2, chunk);
  EXPECT_EQ(chunk.aggregator().num_rounds(), 2u);
}

// Workers that take from 1 to 100 units of time for a step, some of them ten
// times that: 10,000 steps, and nobody is further ahead than is allowed. At the
// end all pushes are in the weights.
void Race(int64_t bound) {
  constexpr int kWorkers = 4;
  constexpr uint64_t kSteps = 2500;
  Random random(static_cast<uint64_t>(bound + 1), 7);
  AsyncChunk chunk(kWorkers, bound);
  chunk.Start(kWorkers);
  using Event = std::pair<uint64_t, int>;  // when who pushes
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::vector<uint64_t> begun(kWorkers);
  const auto begin = [&](int worker, uint64_t now) {
    const uint64_t slow = random.NextBelow(20) == 0 ? 10 : 1;
    events.emplace(now + slow * (1 + random.NextBelow(100)), worker);
    const uint64_t slowest = *std::min_element(begun.begin(), begun.end());
    const uint64_t ahead = begun[static_cast<size_t>(worker)] - slowest;
    if (bound != kAnyStaleness) {
      ASSERT_LE(ahead, static_cast<uint64_t>(bound));
    }
  };
  for (int worker = 0; worker < kWorkers; ++worker) begin(worker, 0);
  uint64_t largest = 0;
  uint64_t num_pushes = 0;
  while (!events.empty()) {
    const auto [now, worker] = events.top();
    events.pop();
    ASSERT_THAT(chunk.Push(worker, begun[static_cast<size_t>(worker)], 1),
                IsOk());
    ++num_pushes;
    // In order of the answers, which are those of the steps that begin.
    const auto sent = chunk.Take();
    for (const AsyncChunk::Sent& answer : sent) {
      begun[static_cast<size_t>(answer.worker)] = answer.step + 1;
    }
    for (const AsyncChunk::Sent& answer : sent) {
      largest = std::max<uint64_t>(largest, answer.contributors);
      ASSERT_EQ(answer.weights[0], static_cast<float>(num_pushes));
      if (answer.step + 1 < kSteps) begin(answer.worker, now);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(num_pushes, kWorkers * kSteps);
  EXPECT_EQ(chunk.aggregator().num_rounds(), kSteps);
  if (bound >= 0 && bound < 5) {
    EXPECT_EQ(largest, static_cast<uint64_t>(bound)) << "reached";
  }
}

TEST(AsyncAggregator, StalenessNeverExceedsItsBound) {
  for (const int64_t bound :
       {int64_t{0}, int64_t{1}, int64_t{4}, int64_t{50}, kAnyStaleness}) {
    SCOPED_TRACE(::testing::Message() << "bound " << bound);
    Race(bound);
    if (HasFatalFailure()) return;
  }
}

TEST(AsyncAggregator, EachWorkerHasItsOwnScale) {
  AsyncChunk chunk(2, kAnyStaleness, "2bit");
  chunk.Start(2);
  const auto propose = [&](int worker, int16_t scale) {
    PushHeader wish = chunk.Header(0);
    wish.wish.scale = scale;
    return chunk.aggregator().OnPropose(worker, wish, chunk);
  };
  EXPECT_THAT(propose(1, -3), IsOk());
  auto sent = chunk.Take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].type, FrameType::kAgree);
  EXPECT_EQ(sent[0].worker, 1);
  EXPECT_EQ(sent[0].scale, -3);
  EXPECT_THAT(propose(0, 5), IsOk());
  sent = chunk.Take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].scale, 5);
  EXPECT_THAT(propose(0, 5), StatusIs(kInvalid, "not expected"));
}

// Who was fast may give the next value before all others have asked for the one
// before.
TEST(AsyncAggregator, KeepsAValueUntilAllHaveIt) {
  AsyncChunk chunk(3, kAnyStaleness);
  chunk.Start(3);
  ASSERT_THAT(chunk.Give(1, 1, 7), IsOk());
  auto sent = chunk.Take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].worker, 1);
  EXPECT_EQ(sent[0].type, FrameType::kAck);
  EXPECT_EQ(sent[0].step, 1u);
  EXPECT_THAT(chunk.Pull(1, 1, true), StatusIs(kInvalid, "1 broadcasts"));
  // Meanwhile others step it.
  ASSERT_THAT(chunk.Push(0, 0, 1), IsOk());
  EXPECT_EQ(chunk.Take().back().weights, std::vector<float>(kAsyncElems, 8));
  ASSERT_THAT(chunk.Pull(2, 1, true), IsOk());
  EXPECT_EQ(chunk.Take().back().weights, std::vector<float>(kAsyncElems, 7));
  ASSERT_THAT(chunk.Give(2, 2, 9), IsOk());
  EXPECT_THAT(chunk.Give(1, 2, 9), StatusIs(kInvalid, "not expected"));
  ASSERT_THAT(chunk.Pull(1, 2, true), IsOk());
  EXPECT_TRUE(chunk.Take().empty()) << "worker 0 lacks the one before";
  ASSERT_THAT(chunk.Pull(0, 1, true), IsOk());
  sent = chunk.Take();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].worker, 0);
  EXPECT_EQ(sent[0].weights, std::vector<float>(kAsyncElems, 7));
  EXPECT_EQ(sent[1].worker, 2);
  EXPECT_EQ(sent[1].type, FrameType::kAck);
  EXPECT_EQ(sent[1].step, 2u);
  EXPECT_EQ(sent[2].worker, 1);
  EXPECT_EQ(sent[2].weights, std::vector<float>(kAsyncElems, 9));
  ASSERT_THAT(chunk.Push(1, 0, 1), IsOk());
  EXPECT_EQ(chunk.Take().back().weights, std::vector<float>(kAsyncElems, 10));
  ASSERT_THAT(chunk.Pull(2, 3, true), IsOk());
  EXPECT_THAT(chunk.Give(2, 3, 9), StatusIs(kInvalid, "waits for it"));
}

TEST(AsyncAggregator, TakesNoValueOfAWorkerThatLacksTheLast) {
  AsyncChunk chunk(3, kAnyStaleness);
  chunk.Start(3);
  ASSERT_THAT(chunk.Give(1, 1, 7), IsOk());
  EXPECT_THAT(chunk.Give(2, 2, 9), StatusIs(kInvalid, "the one before"));
}

TEST(AsyncAggregator, RefusesAPushBeforeThereAreWeights) {
  AsyncChunk chunk(2, kAnyStaleness);
  EXPECT_THAT(chunk.Push(0, 0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, "weights"));
}

}  // namespace
}  // namespace telegrad

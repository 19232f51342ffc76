#include "kvstore/operations/negotiation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/operations/fusion.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::operations {
namespace {

using telegrad::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Request Want(const std::string& name, std::vector<int64_t> shape = {4},
             Kind kind = Kind::kAllreduce) {
  Request request;
  request.kind = kind;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

// Ranks whose messages go by hand.
class Ranks {
 public:
  explicit Ranks(int num, int capacity = 64) {
    for (int i = 0; i < num; ++i) {
      ranks_.push_back(std::make_unique<Negotiation>(i, num, capacity));
    }
  }

  Negotiation& operator[](int rank) { return *ranks_[rank]; }
  void Tell(int rank, const Request& request) {
    ranks_[rank]->Tell(++last_handle_, request);
  }
  void TellAll(const Request& request) {
    for (size_t i = 0; i < ranks_.size(); ++i)
      Tell(static_cast<int>(i), request);
  }

  // What each rank decides; its messages' bytes are in `request_bytes`.
  std::vector<Decision> Cycle(TimePoint now = Clock::now()) {
    std::vector<uint64_t> notices;
    std::vector<std::string> requests;
    request_bytes = 0;
    for (auto& rank : ranks_) {
      const std::vector<uint64_t>& mine = rank->notice();
      notices.insert(notices.end(), mine.begin(), mine.end());
      requests.push_back(rank->requests());
      request_bytes += requests.back().size();
      EXPECT_EQ(Negotiation::RequestBytes(mine[0]), requests.back().size());
    }
    if (request_bytes == 0) requests.clear();
    std::vector<Decision> decisions;
    for (auto& rank : ranks_) {
      auto decided = rank->Advance(notices, requests, now);
      EXPECT_THAT(decided, IsOk());
      decisions.push_back(*std::move(decided));
    }
    return decisions;
  }

  size_t request_bytes = 0;

 private:
  std::vector<std::unique_ptr<Negotiation>> ranks_;
  int64_t last_handle_ = 0;
};

std::vector<std::string> Names(const std::vector<Response>& due) {
  std::vector<std::string> names;
  for (const Response& response : due) {
    names.push_back(response.agreed->any().name);
  }
  return names;
}

absl::Status ErrorOf(Ranks& ranks) {
  absl::Status error;
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_EQ(decision.due.size(), 1u);
    if (decision.due.size() != 1) continue;
    if (error.ok()) error = decision.due[0].error;
    EXPECT_EQ(error, decision.due[0].error);
    EXPECT_NE(decision.due[0].handle, 0);
  }
  return error;
}

TEST(Negotiation, RunsWhatAllRanksHaveToldInOneOrder) {
  Ranks ranks(2);
  ranks.Tell(0, Want("a"));
  ranks.Tell(0, Want("b"));
  ranks.Tell(1, Want("b"));
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_THAT(Names(decision.due), ElementsAre("b"));
  }
  EXPECT_TRUE(ranks[0].waits_for_others());
  EXPECT_FALSE(ranks[1].waits_for_others());
  ranks.Tell(1, Want("a"));
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_THAT(Names(decision.due), ElementsAre("a"));
    EXPECT_NE(decision.due[0].handle, 0);
  }
  EXPECT_TRUE(ranks[0].is_idle() && ranks[1].is_idle());
}

TEST(Negotiation, TellsTheSameRequestAgainByABit) {
  Ranks ranks(3);
  ranks.TellAll(Want("a"));
  ranks.Cycle();
  EXPECT_GT(ranks.request_bytes, 0u);
  ranks.TellAll(Want("a"));
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_THAT(Names(decision.due), ElementsAre("a"));
  }
  EXPECT_EQ(ranks.request_bytes, 0u);
  ranks.TellAll(Want("a", {5}));  // another shape is no mismatch
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_THAT(decision.due[0].error, IsOk());
    EXPECT_THAT(decision.due[0].agreed->any().shape, ElementsAre(5));
  }
  EXPECT_GT(ranks.request_bytes, 0u);
}

// Each rank submits 161 tensors in an order of its own, in pieces of its own
// sizes; a small cache loses some. All must do all, in the same order.
TEST(Negotiation, DecidesAlikeInRandomOrders) {
  constexpr int kTensors = 161;
  std::mt19937 random(46);
  for (const int capacity : {0, 40, 1024}) {
    Ranks ranks(4, capacity);
    size_t bytes_of_last_step = 0;
    for (int step = 0; step < 6; ++step) {
      std::vector<std::vector<int>> orders(4);
      for (std::vector<int>& order : orders) {
        for (int i = 0; i < kTensors; ++i) order.push_back(i);
        std::shuffle(order.begin(), order.end(), random);
      }
      std::vector<std::vector<std::string>> done(4);
      bytes_of_last_step = 0;
      while (done[0].size() < kTensors) {
        for (int rank = 0; rank < 4; ++rank) {
          std::vector<int>& order = orders[static_cast<size_t>(rank)];
          size_t num = random() % 50;
          for (; num > 0 && !order.empty(); --num, order.pop_back()) {
            ranks.Tell(rank, Want(absl::StrCat("t", order.back()),
                                  {order.back() + 1}));
          }
        }
        const std::vector<Decision> decisions = ranks.Cycle();
        bytes_of_last_step += ranks.request_bytes;
        for (size_t rank = 0; rank < 4; ++rank) {
          for (const auto& batch : Fuse(decisions[rank].due, 1000)) {
            for (const std::string& name : Names(batch)) {
              done[rank].push_back(name);
            }
          }
        }
      }
      for (size_t rank = 1; rank < 4; ++rank) EXPECT_EQ(done[rank], done[0]);
      std::sort(done[0].begin(), done[0].end());
      EXPECT_EQ(std::unique(done[0].begin(), done[0].end()), done[0].end());
    }
    EXPECT_EQ(bytes_of_last_step == 0, capacity == 1024) << capacity;
  }
}

TEST(Negotiation, NamesBothValuesOfWhatDiffers) {
  const auto differ = [](const Request& a, const Request& b) {
    Ranks ranks(3);
    ranks.Tell(0, a);
    ranks.Tell(1, a);
    ranks.Tell(2, b);
    const absl::Status error = ErrorOf(ranks);
    EXPECT_EQ(ExitCodeOf(error), ExitCode::kMismatch) << error;
    ranks.TellAll(a);  // the name is free again
    EXPECT_THAT(ErrorOf(ranks), IsOk());
    return std::string(error.message());
  };
  const Request a = Want("x", {2, 3});
  Request b = a;
  b.shape = {3, 2};
  EXPECT_THAT(differ(a, b), HasSubstr("\"x\": rank 0 has shape [2, 3], rank 2 "
                                      "has shape [3, 2]"));
  b = a;
  b.dtype = Dtype::kFloat16;
  EXPECT_THAT(differ(a, b), HasSubstr("rank 2 has type float16"));
  b = a;
  b.op = Op::kMax;
  EXPECT_THAT(differ(a, b), HasSubstr("op sum, rank 2 has op max"));
  b = a;
  b.kind = Kind::kAllgather;
  EXPECT_THAT(differ(a, b), HasSubstr("rank 2 has operation allgather"));
  b = a;
  b.postscale = .5;
  EXPECT_THAT(differ(a, b), HasSubstr("factors 1 and 1, rank 2"));
  Request root = Want("x", {4}, Kind::kBroadcast);
  b = root;
  b.root = 1;
  EXPECT_THAT(differ(root, b), HasSubstr("root 0, rank 2 has root 1"));
  EXPECT_THAT(differ(Want("x", {2, 3}, Kind::kAllgather),
                     Want("x", {9, 4}, Kind::kAllgather)),
              HasSubstr("shape [any, 3], rank 2 has shape [any, 4]"));
}

TEST(Negotiation, GathersUnequalFirstDimensions) {
  Ranks ranks(2);
  ranks.Tell(0, Want("x", {2, 3}, Kind::kAllgather));
  ranks.Tell(1, Want("x", {0, 3}, Kind::kAllgather));
  for (const Decision& decision : ranks.Cycle()) {
    ASSERT_THAT(decision.due[0].error, IsOk());
    EXPECT_EQ(decision.due[0].agreed->requests[0]->shape[0], 2);
    EXPECT_EQ(decision.due[0].agreed->requests[1]->shape[0], 0);
  }
}

TEST(Negotiation, KeepsGroupsTogether) {
  Ranks ranks(2);
  Request a = Want("a"), b = Want("b");
  a.group = b.group = 7;
  a.group_size = b.group_size = 2;
  ranks.TellAll(a);
  ranks.TellAll(Want("c"));
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_THAT(Names(decision.due), ElementsAre("c"));
  }
  // Nobody waits for a message: no rank has told the other half.
  EXPECT_FALSE(ranks[0].waits_for_others() || ranks[1].waits_for_others());
  ranks.TellAll(b);
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_THAT(Names(decision.due), ElementsAre("a", "b"));
    EXPECT_EQ(Fuse(decision.due, 1).size(), 1u);  // however small
  }
}

TEST(Negotiation, EndsAWholeGroupWithItsError) {
  Ranks ranks(2);
  Request a = Want("a"), b = Want("b");
  a.group = b.group = 7;
  a.group_size = b.group_size = 2;
  ranks.TellAll(a);
  ranks.Tell(0, b);
  b.shape = {9};
  ranks.Tell(1, b);
  for (const Decision& decision : ranks.Cycle()) {
    ASSERT_EQ(decision.due.size(), 2u);
    for (const Response& response : decision.due) {
      EXPECT_THAT(response.error.message(), HasSubstr("\"b\""));
    }
  }
}

TEST(Negotiation, CountsZerosOfRanksThatHaveJoined) {
  Ranks ranks(3);
  ranks.Tell(0, Want("a"));
  ranks.Tell(1, Want("a"));
  EXPECT_THAT(ranks.Cycle()[0].due, IsEmpty());
  ranks.Tell(2, Want("join", {}, Kind::kJoin));
  std::vector<Decision> decisions = ranks.Cycle();
  EXPECT_THAT(Names(decisions[2].due), ElementsAre("a"));
  EXPECT_EQ(decisions[2].due[0].handle, 0);
  EXPECT_THAT(decisions[2].due[0].error, IsOk());
  // Others than sums cannot go on.
  ranks.Tell(0, Want("g", {4}, Kind::kAllgather));
  ranks.Tell(1, Want("g", {4}, Kind::kAllgather));
  decisions = ranks.Cycle();
  EXPECT_THAT(decisions[0].due[0].error.message(),
              HasSubstr("rank 2 has joined"));
  ranks.Tell(1, Want("join", {}, Kind::kJoin));
  ranks.Cycle();
  ranks.Tell(0, Want("join", {}, Kind::kJoin));
  for (const Decision& decision : ranks.Cycle()) {
    ASSERT_EQ(decision.due.size(), 1u);
    EXPECT_EQ(decision.due[0].value, 0);  // the last one
    EXPECT_NE(decision.due[0].handle, 0);
  }
  ranks.TellAll(Want("a"));  // as if nothing had been
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_EQ(std::count(decision.due[0].agreed->requests.begin(),
                         decision.due[0].agreed->requests.end(), nullptr),
              0);
  }
}

TEST(Negotiation, HasProcessSets) {
  Ranks ranks(3);
  Request add = Want("new", {}, Kind::kAddSet);
  add.splits = {0, 2};
  ranks.TellAll(add);
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_EQ(decision.due[0].value, 1);
  }
  Request in_set = Want("a");
  in_set.set = 1;
  ranks.Tell(0, in_set);
  ranks.Tell(1, Want("a"));  // the same name in another process set
  ranks.Cycle();
  ranks.Tell(2, in_set);
  const std::vector<Decision> decisions = ranks.Cycle();
  EXPECT_THAT(Names(decisions[0].due), ElementsAre("a"));
  EXPECT_THAT(decisions[1].due, IsEmpty());
  ranks.Tell(0, in_set);
  Request remove = Want("gone", {}, Kind::kRemoveSet);
  remove.root = 1;
  ranks.TellAll(remove);
  const std::vector<Decision> removed = ranks.Cycle();
  ASSERT_EQ(removed[0].due.size(), 2u);
  EXPECT_THAT(removed[0].due[1].error.message(), HasSubstr("removed"));
  EXPECT_EQ(removed[1].due.size(), 1u);
  EXPECT_EQ(ranks[1].RanksOf(1), nullptr);
}

TEST(Negotiation, SaysWhoIsMissingAndGivesUp) {
  Ranks ranks(3);
  const TimePoint start = Clock::now();
  ranks.Tell(0, Want("x"));
  ranks.Tell(2, Want("x"));
  ranks.Cycle(start);
  EXPECT_THAT(ranks[0].Stalls(start, std::chrono::seconds(60)), IsEmpty());
  const auto stalls = ranks[0].Stalls(start + std::chrono::seconds(61),
                                      std::chrono::seconds(60));
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_THAT(stalls[0].told, ElementsAre(0, 2));
  EXPECT_THAT(stalls[0].missing, ElementsAre(1));
  ranks[0].End(stalls[0].set, stalls[0].name, stalls[0].waited_s);
  const std::vector<Decision> decisions = ranks.Cycle();
  for (const int rank : {0, 2}) {
    const Response& response = decisions[static_cast<size_t>(rank)].due[0];
    EXPECT_NE(response.handle, 0);
    EXPECT_THAT(response.error.message(),
                HasSubstr("\"x\" was given up after 61 s: ranks 0, 2 submitted "
                          "it, rank 1 did not"));
  }
  EXPECT_THAT(decisions[1].due, IsEmpty());
  EXPECT_TRUE(ranks[1].is_idle());
}

TEST(Negotiation, SaysWhoStops) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.Cycle()[0].stopped_by, -1);
  ranks[1].Stop();
  for (const Decision& decision : ranks.Cycle()) {
    EXPECT_EQ(decision.stopped_by, 1);
  }
}

}  // namespace
}  // namespace telegrad::operations

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/collective/collective.h"
#include "tests/kvstore/collective/collective_ranks.h"

// Collectives over a network that loses, repeats, reorders and harms messages,
// and a transport that sends them again.
namespace telegrad::testing {
namespace {

constexpr int kRanks = 3;

// On a grid, so that sums are exact in every order.
float ValueAt(int rank, size_t round, size_t i) {
  return static_cast<float>((i * 7 + round * 5 + rank * 3u) % 113);
}

class CollectiveOverResend : public ::testing::TestWithParam<const char*> {};

TEST_P(CollectiveOverResend, SumsAreExactUnderFaults) {
  GroupOptions options;
  options.transport.name = GetParam();
  options.transport.tls = "tcp";
  options.transport.resend = true;
  options.transport.fault =
      "drop=0.02,duplicate=0.02,reorder=0.02,flip=0.02,seed=3";
  options.world_size = kRanks;
  options.chunk_bytes = 4096;
  options.timeout = std::chrono::seconds(60);
  RunRanks(options, [](Group& group) {
    constexpr size_t kCounts[] = {1, 1000, 100003};
    for (size_t round = 0; round < 12; ++round) {
      const size_t count = kCounts[round % 3];
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) {
        values[i] = ValueAt(group.rank(), round, i);
      }
      const auto algorithm = round % 2 == 0
                                 ? CollectiveAlgorithm::kRing
                                 : CollectiveAlgorithm::kRecursiveDoubling;
      ASSERT_THAT(group.Allreduce(values.data(), count, Dtype::kFloat32,
                                  ReduceOp::kSum, {.algorithm = algorithm}),
                  IsOk());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], ValueAt(0, round, i) + ValueAt(1, round, i) +
                                 ValueAt(2, round, i))
            << "round " << round << ", element " << i;
      }
    }
    // There were some.
    EXPECT_EQ(group.info().details.find("resend: 0 sent again"),
              std::string::npos)
        << group.info().details;
  });
}

// Counts ranks that have returned from a collective.
class Returns {
 public:
  // Waits for `count`, at most for a minute; calls `meanwhile` every few
  // milliseconds.
  bool AddAndAwait(int count, const std::function<void()>& meanwhile) {
    const TimePoint deadline = Clock::now() + std::chrono::minutes(1);
    MutexLock lock(&mutex_);
    ++count_;
    changed_.NotifyAll();
    while (count_ < count && Clock::now() < deadline) {
      changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::milliseconds(3));
      mutex_.Unlock();
      meanwhile();
      mutex_.Lock();
    }
    return count_ >= count;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The answer to what a rank was sent last may be lost while its caller does
// something else, as waiting for the very rank that waits for the answer.
void ExpectAnswers(const std::string& transport,
                   const std::function<void(Group&)>& meanwhile) {
  GroupOptions options;
  options.transport.name = transport;
  options.transport.tls = "tcp";
  options.transport.resend = true;
  options.transport.fault = "drop=0.2,seed=1";
  options.world_size = kRanks;
  options.timeout = std::chrono::seconds(60);
  Returns returns;
  RunRanks(options, [&](Group& group) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(100, 1);
      EXPECT_THAT(group.Allreduce(values.data(), values.size(), Dtype::kFloat32,
                                  ReduceOp::kSum),
                  IsOk());
      EXPECT_EQ(values[99], kRanks) << "round " << round;
      ASSERT_TRUE(
          returns.AddAndAwait(kRanks * (round + 1), [&] { meanwhile(group); }));
    }
  });
}

TEST_P(CollectiveOverResend, RanksAnswerWhileTheirCallersAreAway) {
  ExpectAnswers(GetParam(), [](Group&) {});
}

TEST_P(CollectiveOverResend, RanksAnswerWhileTheirCallersReadFigures) {
  ExpectAnswers(GetParam(), [](Group& group) {
    EXPECT_GT(group.traffic().num_messages, 0);
    EXPECT_FALSE(group.info().name.empty());
  });
}

INSTANTIATE_TEST_SUITE_P(Networks, CollectiveOverResend,
                         ::testing::Values("inproc", "tcp"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace telegrad::testing

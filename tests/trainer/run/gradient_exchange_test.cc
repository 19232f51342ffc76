#include "trainer/run/gradient_exchange.h"

#include <future>

#include "tests/kvstore/cluster.h"
#include "tests/trainer/run/two_tensors.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::kCount;
using testing::OneReplica;
using testing::TwoTensors;

constexpr Duration kTimeout = testing::kPatience;

ClusterConfig TwoWorkers() {
  ClusterConfig config = testing::Job(2);
  config.has_values = false;
  config.tensors = {{"first", kCount}, {"last", kCount}};
  return config;
}

TEST(GradientExchange, StepsATensorBeforeTheSumOfAnotherIsThere) {
  std::promise<void> last_is_stepped;
  Cluster(TwoWorkers()).Run([&](KVStore& store) {
    std::vector<Replica> replicas = OneReplica();
    const auto& network = static_cast<TwoTensors&>(*replicas[0].network);
    GradientExchange exchange(store, replicas, kTimeout);
    exchange.set_optimizer({.sgd = {.learning_rate = 0.5f}});
    if (store.group().rank() == 1) {
      exchange.Push(1, -1);
      // The sum of "first" cannot be there before this.
      ASSERT_EQ(last_is_stepped.get_future().wait_for(kTimeout),
                std::future_status::ready);
      exchange.Push(0, 0);
    } else {
      exchange.Push(1, -1);
      exchange.Push(0, 0);
      ASSERT_THAT(exchange.Finish(1), IsOk());
      EXPECT_EQ(network.weight(1), 9);
      EXPECT_EQ(network.weight(0), 10);
      last_is_stepped.set_value();
    }
    ASSERT_THAT(exchange.FinishAll(), IsOk());
    EXPECT_EQ(network.weight(0), 9);
    EXPECT_EQ(network.weight(1), 9);
    EXPECT_GT(exchange.exchange_seconds(), 0);
    ASSERT_THAT(exchange.FinishAll(), IsOk());
    EXPECT_EQ(network.weight(0), 9) << "stepped once";
    store.Close();
  });
}

TEST(GradientExchange, NamesWhatIsMissingAndKeepsTheWeights) {
  Cluster(TwoWorkers()).Run([&](KVStore& store) {
    if (store.group().rank() == 1) {
      // Never pushes; gone when the other is.
      (void)store.group().Gather("end", "");
      return;
    }
    std::vector<Replica> replicas = OneReplica();
    const auto& network = static_cast<TwoTensors&>(*replicas[0].network);
    {
      GradientExchange exchange(store, replicas,
                                std::chrono::milliseconds(100));
      exchange.set_optimizer({.sgd = {.learning_rate = 0.5f}});
      exchange.Push(1, 0);
      exchange.Push(0, 1);
      const absl::Status status = exchange.Finish(1);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(status.message(), ::testing::HasSubstr("last"));
    }
    EXPECT_EQ(network.weight(0), 10);
    EXPECT_EQ(network.weight(1), 10);
    (void)store.group().Gather("end", "");
  });
}

}  // namespace
}  // namespace telegrad

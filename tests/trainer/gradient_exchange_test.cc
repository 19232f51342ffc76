#include "trainer/gradient_exchange.h"

#include <future>

#include "tests/kvstore/cluster.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;

constexpr size_t kCount = 33;
constexpr Duration kTimeout = testing::kPatience;

// Weights of 10 and gradients of 1.
class TwoTensors : public Network {
 public:
  TwoTensors() {
    for (size_t i = 0; i < 2; ++i) {
      std::fill_n(weights_[i].as<float>(), kCount, 10.0f);
      std::fill_n(grads_[i].as<float>(), kCount, 1.0f);
      parameters_.push_back({.name = i == 0 ? "first" : "last",
                             .shape = {kCount},
                             .num_elements = kCount,
                             .weight = weights_[i].as<float>(),
                             .grad = grads_[i].as<float>()});
    }
  }
  const std::vector<Parameter>& parameters() const override {
    return parameters_;
  }
  const std::vector<Parameter>& buffers() const override { return buffers_; }
  BatchResult ForwardBackward(const float*, const int64_t*, int64_t,
                              const Hooks&) override {
    return {};
  }
  bool ScaleGradients(float) override { return true; }
  BatchResult Evaluate(const float*, const int64_t*, int64_t) override {
    return {};
  }
  float weight(size_t index) const { return parameters_[index].weight[0]; }

 private:
  Buffer weights_[2] = {Buffer(4 * kCount), Buffer(4 * kCount)};
  Buffer grads_[2] = {Buffer(4 * kCount), Buffer(4 * kCount)};
  std::vector<Parameter> parameters_;
  std::vector<Parameter> buffers_;  // none
};

std::vector<Replica> OneReplica() {
  std::vector<Replica> replicas(1);
  replicas[0].network = std::make_unique<TwoTensors>();
  replicas[0].states.resize(2);
  return replicas;
}

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

#include <gtest/gtest.h>

#include <memory>

#include "kvstore/ticket_state.h"
#include "tests/kvstore/tuning/scripted_store.h"
#include "tests/trainer/run/two_tensors.h"
#include "trainer/run/local_steps.h"
#include "trainer/run/synthetic_gradients.h"

// What ends before its operations do leaves no memory with the store.
namespace telegrad {
namespace {

using testing::OneReplica;

// Its operations never end.
class EndlessStore : public testing::ScriptedStore {
 public:
  EndlessStore() : ScriptedStore({}) {}
  Ticket PushPull(Key, TensorViews, TensorViews, int) override {
    auto state = std::make_shared<Ticket::State>();
    state->release = [this] { --num_lent_; };
    ++num_lent_;
    return Ticket(std::move(state));
  }
  // Operations that may touch the caller's memory.
  int num_lent() const { return num_lent_; }

 private:
  int num_lent_ = 0;
};

TEST(EndedExchange, OfGradients) {
  EndlessStore store;
  std::vector<Replica> replicas = OneReplica();
  {
    GradientExchange exchange(store, replicas, Duration::zero());
    exchange.Push(0, 0);
    exchange.Push(1, 0);
    EXPECT_EQ(store.num_lent(), 2);
  }
  EXPECT_EQ(store.num_lent(), 0);
}

TEST(EndedExchange, OfLocalSteps) {
  EndlessStore store;
  std::vector<Replica> replicas = OneReplica();
  {
    LocalSteps steps(store, replicas, {.num_steps = 2, .num_fragments = 2},
                     Duration::zero());
    ASSERT_TRUE(steps.Init().ok());
    ASSERT_TRUE(steps.AfterStep(2).ok());
    EXPECT_EQ(store.num_lent(), 1);  // the other fragment has its turn later
  }
  EXPECT_EQ(store.num_lent(), 0);
}

// Of four fragments the first tensor is one and the other three, two steps
// each.
TEST(Turns, OfALargeTensorAreAsManyAsItsFragments) {
  EndlessStore store;
  std::vector<Replica> replicas = OneReplica(3 * testing::kCount);
  LocalSteps steps(store, replicas, {.num_steps = 8, .num_fragments = 4},
                   Duration::zero());
  ASSERT_TRUE(steps.Init().ok());
  ASSERT_TRUE(steps.AfterStep(1).ok());
  EXPECT_EQ(store.num_lent(), 0);
  for (const int64_t step : {2, 4, 6}) {  // nobody waits for it
    ASSERT_TRUE(steps.AfterStep(step).ok());
    EXPECT_EQ(store.num_lent(), 1);
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(steps.AfterStep(8)));
}

TEST(EndedExchange, OfAProfile) {
  EndlessStore store;
  const std::vector<TensorSpec> tensors = {{"a", 5}, {"b", 7}, {"c", 9}};
  auto gradients =
      SyntheticGradients::Make(tensors, 1, 0, std::vector<Device>(2));
  ASSERT_TRUE(gradients.ok());
  const absl::Status status =
      gradients
          ->Exchange(
              store, [](size_t) { return 0; }, TimePoint())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(store.num_lent(), 0);
}

}  // namespace
}  // namespace telegrad

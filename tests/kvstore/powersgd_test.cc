#include <cmath>
#include <vector>

#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// PowerSGD over a whole cluster: its bases come from what workers are answered.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;

constexpr int kSteps = 8;
constexpr size_t kElems = 768;  // chunks of 256 elements, 16 x 16

// Results of all steps: [worker][step * kElems + element].
using Results = std::vector<std::vector<float>>;

Results RunRounds(const std::string& codec, ReplyMode reply,
                  bool separate_pull) {
  ClusterConfig config;
  config.workers = 3;
  config.servers = 2;
  config.tensors = {{"matrix", kElems}};
  config.chunk_elems = 256;
  config.compression.type = codec;
  config.compression.reply = reply;
  Cluster cluster(config);
  Results results(3);
  cluster.Run([&](KVStore& store) {
    std::vector<float>& mine =
        results[static_cast<size_t>(store.group().rank())];
    Buffer view(4 * kElems);
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < kElems; ++i) {
        view.as<float>()[i] = GradOf(store.group().rank(), step, i);
      }
      const Ticket push = separate_pull
                              ? store.Push(0, view.view(), 0)
                              : store.PushPull(0, view.view(), view.view(), 0);
      EXPECT_THAT(push.Wait(Soon()), IsOk()) << step;
      if (separate_pull) {
        EXPECT_THAT(store.Pull(0, view.view(), 0).Wait(Soon()), IsOk()) << step;
      }
      mine.insert(mine.end(), view.as<float>(), view.as<float>() + kElems);
    }
  });
  return results;
}

TEST(PowerSgdRounds, AllWorkersGetTheSameBits) {
  for (const ReplyMode reply :
       {ReplyMode::kSum, ReplyMode::kReencode, ReplyMode::kDense}) {
    for (const bool separate_pull : {false, true}) {
      SCOPED_TRACE(ToString(reply));
      const Results results = RunRounds("powersgd:2", reply, separate_pull);
      ASSERT_EQ(results[0].size(), kSteps * kElems);
      EXPECT_EQ(results[1], results[0]);
      EXPECT_EQ(results[2], results[0]);
    }
  }
}

TEST(PowerSgdRounds, WithAllRanksSumsAreThoseOfTheGradients) {
  const Results results = RunRounds("powersgd:16", ReplyMode::kSum, false);
  ASSERT_EQ(results[0].size(), kSteps * kElems);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kElems; ++i) {
      float sum = 0;
      for (int w = 0; w < 3; ++w) sum += GradOf(w, step, i);
      ASSERT_NEAR(results[0][static_cast<size_t>(step) * kElems + i], sum,
                  1e-5 * (1 + std::abs(sum)))
          << "step " << step << " element " << i;
    }
  }
}

}  // namespace
}  // namespace telegrad

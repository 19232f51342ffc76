#include <thread>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/random.h"
#include "tests/kvstore/cluster.h"

// Stores of workers that sum for each other.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr int kSteps = 4;

struct Case {
  std::string name;
  std::string codec;
  ReplyMode reply = ReplyMode::kAuto;
};

// What every worker has got, and the bytes that worker 0 has sent.
struct Outcome {
  std::vector<std::vector<float>> results;  // by worker
  int64_t pushed = 0;
};

// Irregular, and large enough for a part on each.
const std::vector<TensorSpec>& Tensors() {
  static const std::vector<TensorSpec> tensors = {
      {"one", 1}, {"odd", 4099}, {"large", 300007}};
  return tensors;
}

void FillGradient(int rank, int step, size_t key, Buffer& grad) {
  Random random(static_cast<uint64_t>(rank) * 1000 +
                    static_cast<uint64_t>(step) * 10 + key,
                5);
  float* const values = grad.as<float>();
  for (size_t i = 0; i < grad.size() / 4; ++i) {
    values[i] = static_cast<float>(random.NextUniform()) - 0.5f;
  }
}

void RunSteps(KVStore& store, std::vector<float>& results) {
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Buffer> grads;
    std::vector<Ticket> tickets;
    for (size_t key = 0; key < Tensors().size(); ++key) {
      grads.emplace_back(4 * Tensors()[key].num_elems);
      FillGradient(store.group().rank(), step, key, grads.back());
    }
    for (size_t key = 0; key < grads.size(); ++key) {
      tickets.push_back(store.PushPull(static_cast<Key>(key), grads[key].view(),
                                       grads[key].view(), 0));
    }
    for (size_t key = 0; key < grads.size(); ++key) {
      EXPECT_THAT(tickets[key].Wait(Soon()), IsOk());
      const float* const sums = grads[key].as<float>();
      results.insert(results.end(), sums, sums + grads[key].size() / 4);
    }
  }
}

Outcome RunType(const std::string& type, int workers, const Case& one) {
  ClusterConfig config;
  config.workers = workers;
  config.servers = workers;
  Cluster cluster(config);
  const bool hosts_parts = FindStoreType(type)->hosts_parts;
  if (!hosts_parts) cluster.StartServers();
  Outcome outcome;
  outcome.results.resize(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.chunk_elems = 65536;
      if (hosts_parts) options.part = HostPart(1);
      const auto group = JoinWorkers(options);
      ASSERT_THAT(group.status(), IsOk());
      const auto store = MakeKVStore(type, options, group->get());
      ASSERT_THAT(store.status(), IsOk());
      CompressionConfig compression{.type = one.codec};
      compression.reply = one.reply;
      ASSERT_THAT((*store)->SetCompression(compression), IsOk());
      ASSERT_THAT((*store)->Init(Tensors(), {}).status(), IsOk());
      RunSteps(**store, outcome.results[static_cast<size_t>(rank)]);
      if (rank == 0) outcome.pushed = (*store)->stats().push_wire_bytes;
      (*store)->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

class Allreduce : public ::testing::TestWithParam<std::tuple<int, Case>> {};

TEST_P(Allreduce, GivesTheBitsOfAsManyServersAsWorkers) {
  const auto& [workers, one] = GetParam();
  const Outcome mine = RunType("allreduce", workers, one);
  const Outcome theirs = RunType("dist_sync", workers, one);
  for (const std::vector<float>& each : mine.results) {
    EXPECT_EQ(each, theirs.results[0]);
  }
  EXPECT_EQ(mine.pushed, theirs.pushed);
}

const Case kCases[] = {{"dense", "none"},
                       {"summed_codes", "2bit", ReplyMode::kSum},
                       {"codes_encoded_again", "2bit", ReplyMode::kReencode},
                       {"signs", "1bit"},
                       {"sparse", "topk:0.01"},
                       {"bytes", "int8"}};

INSTANTIATE_TEST_SUITE_P(WorkersAndCodecs, Allreduce,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           return absl::StrCat(std::get<0>(test.param),
                                               "_workers_",
                                               std::get<1>(test.param).name);
                         });

TEST(AllreduceJob, EndsForAllWhenOneFails) {
  ClusterConfig config;
  config.servers = 2;
  Cluster cluster(config);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.part = HostPart(1);
      const auto group = JoinWorkers(options);
      ASSERT_THAT(group.status(), IsOk());
      const auto store = MakeKVStore("allreduce", options, group->get());
      ASSERT_THAT(store.status(), IsOk());
      ASSERT_THAT((*store)->Init(config.tensors, {}).status(), IsOk());
      if (rank == 1) return (*group)->Fail(absl::InternalError("it is over"));
      Buffer memory(4 * 33);
      EXPECT_THAT(
          (*store)->PushPull(0, memory.view(), memory.view(), 0).Wait(Soon()),
          StatusIs(absl::StatusCode::kUnavailable, "it is over"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(AllreduceJob, TakesNoServersProcesses) {
  ClusterConfig config;
  config.workers = 1;
  config.servers = 2;
  Cluster cluster(config);
  cluster.StartServers();
  DistOptions options = cluster.Options();
  const auto group = JoinWorkers(options);
  ASSERT_THAT(group.status(), IsOk());
  EXPECT_THAT(
      MakeKVStore("allreduce", options, group->get()).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "part of the sums"));
  (*group)->Leave();
}

}  // namespace
}  // namespace telegrad

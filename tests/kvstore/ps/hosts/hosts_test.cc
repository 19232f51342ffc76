#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/job/path/data_path.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// Workers of which those of a host sum first, so that one of them pushes.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::FatalLog;
using testing::GradOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;
using testing::Worker;

constexpr size_t kElems = 40000;
constexpr int kSteps = 3;
constexpr int kProcesses = 4;  // of a host

// "a", "a", ..., "b": so many of each.
std::vector<std::string> Hosts(const std::vector<int>& counts) {
  std::vector<std::string> hosts;
  for (size_t host = 0; host < counts.size(); ++host) {
    for (int i = 0; i < counts[host]; ++i) {
      hosts.push_back(std::string(1, static_cast<char>('a' + host)));
    }
  }
  return hosts;
}

ClusterConfig JobOf(const std::vector<int>& counts, int servers = 2) {
  ClusterConfig config;
  config.hosts = Hosts(counts);
  config.workers = static_cast<int>(config.hosts.size());
  config.servers = servers;
  config.tensors = {{"a", kElems}, {"b", 7}};
  config.chunk_elems = 8192;
  config.has_values = false;
  return config;
}

// What a worker of several processes of a host, or of one, pushes: the same
// sum of the host either way, exact in any order.
std::vector<float> Gradient(int host, int process, int processes, int step) {
  std::vector<float> grad(kElems);
  for (size_t i = 0; i < kElems; ++i) {
    grad[i] = process == 0 ? GradOf(host, step, i) : GradOf(process, step, i);
    if (process > 0) continue;
    for (int other = 1; other < processes; ++other) {
      grad[i] -= GradOf(other, step, i);
    }
  }
  return grad;
}

// By step: what all workers get of tensor a, and the wire's bytes of all.
struct Outcome {
  std::vector<std::vector<float>> sums;
  StoreStats stats;
};

// Two hosts with so many processes each.
Outcome TwoHosts(int processes, const CompressionConfig& compression,
                 const std::string& store = "dist_sync") {
  ClusterConfig config = JobOf({processes, processes});
  config.compression = compression;
  config.store = store;
  config.hosts_parts = store == "allreduce";
  if (config.hosts_parts) config.servers = config.workers;
  Cluster cluster(config);
  Mutex mutex;
  Outcome outcome;
  outcome.sums.resize(kSteps);
  cluster.Run([&](KVStore& one) {
    const int rank = one.group().rank();
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> grad =
          Gradient(rank / processes, rank % processes, processes, step);
      const Bytes view(reinterpret_cast<std::byte*>(grad.data()), 4 * kElems);
      ASSERT_THAT(one.PushPull(0, view, view, 0).Wait(Soon()), IsOk());
      MutexLock lock(&mutex);
      std::vector<float>& sum = outcome.sums[static_cast<size_t>(step)];
      if (sum.empty()) sum = grad;
      EXPECT_EQ(sum, grad) << "worker " << rank << ", step " << step;
    }
    const StoreStats stats = one.stats();
    MutexLock lock(&mutex);
    outcome.stats.push_raw_bytes += stats.push_raw_bytes;
    outcome.stats.push_wire_bytes += stats.push_wire_bytes;
    outcome.stats.pull_wire_bytes += stats.pull_wire_bytes;
    outcome.stats.num_frames += stats.num_frames;
    if (rank % processes > 0) {
      EXPECT_EQ(stats.push_wire_bytes, 0) << "worker " << rank << " pushes";
    }
  });
  return outcome;
}

TEST(Hosts, SumsAreExact) {
  const Outcome outcome = TwoHosts(kProcesses, {});
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kElems; ++i) {
      ASSERT_EQ(outcome.sums[static_cast<size_t>(step)][i],
                GradOf(0, step, i) + GradOf(1, step, i));
    }
  }
}

TEST(Hosts, HaveTheBitsAndTheBytesOfOneWorkerEach) {
  for (const char* type : {"none", "2bit", "int8", "topk:0.01"}) {
    const Outcome one = TwoHosts(1, {.type = type});
    const Outcome four = TwoHosts(kProcesses, {.type = type});
    EXPECT_EQ(four.sums, one.sums) << type;
    EXPECT_GT(one.stats.push_wire_bytes, 0);
    EXPECT_EQ(four.stats.push_raw_bytes, one.stats.push_raw_bytes) << type;
    EXPECT_EQ(four.stats.push_wire_bytes, one.stats.push_wire_bytes) << type;
    EXPECT_EQ(four.stats.pull_wire_bytes, one.stats.pull_wire_bytes) << type;
    EXPECT_EQ(four.stats.num_frames, one.stats.num_frames) << type;
  }
}

// Without servers each process has a part: more and smaller frames, of which
// those to a part on the same host do not leave it.
TEST(Hosts, HaveTheBitsOfOneWorkerEachWithoutServers) {
  const CompressionConfig compression = {.type = "2bit"};
  const Outcome one = TwoHosts(1, compression, "allreduce");
  const Outcome four = TwoHosts(kProcesses, compression, "allreduce");
  EXPECT_EQ(four.sums, one.sums);
  EXPECT_LE(four.stats.push_wire_bytes,
            1.01 * static_cast<double>(one.stats.push_wire_bytes));
}

TEST(Hosts, MayHaveDifferentNumbersOfWorkers) {
  ClusterConfig config = JobOf({3, 1, 2}, 1);
  config.has_values = true;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    Buffer memory(28);
    for (int step = 0; step < kSteps; ++step) {
      std::fill_n(memory.as<float>(), 7, 1.0f);
      ASSERT_THAT(store.Push(1, memory.view(), 0).Wait(Soon()), IsOk());
      ASSERT_THAT(store.Pull(1, memory.view(), 0).Wait(Soon()), IsOk());
      EXPECT_EQ(memory.as<float>()[6], 6);
    }
    // A value that is broadcast passes pulls that have not been answered.
    ASSERT_THAT(store.group().Gather("pulled", ""), IsOk());
    // From a worker that does not push, to all.
    for (const int root : {2, 3, 5, 0}) {
      const float value = 40 + static_cast<float>(root);
      std::fill_n(memory.as<float>(), 7,
                  store.group().rank() == root ? value : 0.0f);
      const TensorView view = FloatTensor(memory.view());
      ASSERT_THAT(
          store.Broadcast(1, root, TensorViews(&view, 1), 0).Wait(Soon()),
          IsOk());
      EXPECT_EQ(memory.as<float>()[6], value);
    }
  });
}

TEST(Hosts, StartTensorsInAnyOrder) {
  ClusterConfig config = JobOf({2, 2}, 1);
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    Buffer large(4 * kElems);
    Buffer small(28);
    std::fill_n(large.as<float>(), kElems, 1.0f);
    std::fill_n(small.as<float>(), 7, 2.0f);
    const bool is_odd = store.group().rank() % 2 > 0;
    const Buffer& first = is_odd ? small : large;
    const Buffer& second = is_odd ? large : small;
    const Ticket one =
        store.PushPull(is_odd ? 1 : 0, first.view(), first.view(), 0);
    const Ticket two =
        store.PushPull(is_odd ? 0 : 1, second.view(), second.view(), 0);
    ASSERT_THAT(one.Wait(Soon()), IsOk());
    ASSERT_THAT(two.Wait(Soon()), IsOk());
    EXPECT_EQ(large.as<float>()[kElems - 1], 4);
    EXPECT_EQ(small.as<float>()[0], 8);
  });
}

TEST(Hosts, OfOneHostStayApartUnlessTold) {
  ClusterConfig config = JobOf({3}, 1);
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    EXPECT_EQ(store.group().num_pushers(), 3);
    const Plan& plan = store.group().data_path().plan;
    const Decision* why = FindDecision(plan, Decision::Kind::kTierOne);
    ASSERT_NE(why, nullptr);
    EXPECT_EQ(ToText(*why),
              "tier1 off: 3 workers on 1 host, which gradients do not leave");
  });
}

TEST(Hosts, TuneTheStoreOfTheOneThatPushes) {
  ClusterConfig config = JobOf({2, 2}, 1);
  config.compression = {.type = "2bit", .packing = PackingMode::kAuto};
  config.link_bytes_per_s = 100e6;
  config.compression.rules = "^b$=none";
  Cluster cluster(config);
  std::atomic<int> num_reports{0};
  cluster.Run([&](KVStore& store) {
    EXPECT_EQ(store.group().num_pushers(), 2);
    const std::vector<TensorReport> reports = store.codecs().Report();
    ASSERT_EQ(reports.size(), 2u);
    EXPECT_EQ(reports[0].setting, "2bit");
    EXPECT_EQ(reports[0].num_elems, kElems);
    EXPECT_EQ(reports[1].reason, "rule ^b$=none");
    num_reports += 2;
    EXPECT_LT(reports[0].push_bytes, kElems / 4);  // radix
    const auto all =
        store.group().Gather("transports", store.transport_details());
    ASSERT_THAT(all.status(), IsOk());
    for (const std::string& each : *all) {
      EXPECT_THAT(each, ::testing::StartsWith("inproc"));
    }
  });
  EXPECT_EQ(num_reports, 8);
}

TEST(Hosts, KeepTheOptimizersStatesTogether) {
  ClusterConfig config = JobOf({2, 2}, 1);
  config.has_values = true;
  config.optimizer = {.update_on = UpdateOn::kServer,
                      .sgd = {.learning_rate = 1, .momentum_rate = 0.5f}};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    Buffer memory(28);
    const auto step = [&] {
      std::fill_n(memory.as<float>(), 7, 1.0f);
      ASSERT_THAT(
          store.PushPull(1, memory.view(), memory.view(), 0).Wait(Soon()),
          IsOk());
    };
    step();
    EXPECT_EQ(memory.as<float>()[0], 1 - 4);  // momentum 4
    const auto saved = store.states()->Save();
    ASSERT_THAT(saved.status(), IsOk());
    EXPECT_EQ(saved->empty(), store.group().rank() > 0);
    step();
    EXPECT_EQ(memory.as<float>()[0], -3 - 6);  // 4 * 0.5 + 4
    ASSERT_THAT(store.states()->Load(*saved), IsOk());
    step();
    EXPECT_EQ(memory.as<float>()[0], -9 - 6);
    OptimizerConfig slower = config.optimizer;
    slower.sgd.learning_rate = 0.5f;
    ASSERT_THAT(store.SetOptimizer(slower), IsOk());
    step();
    EXPECT_EQ(memory.as<float>()[0], -15 - 5);  // 6 * 0.5 + 4 / 2
    slower.kind = OptimizerKind::kAdam;
    EXPECT_THAT(store.SetOptimizer(slower),
                StatusIs(absl::StatusCode::kFailedPrecondition, "only rates"));
  });
}

TEST(Hosts, NameTheWorkerOfABadGradient) {
  Cluster cluster(JobOf({2, 2}, 1));
  cluster.Run([&](KVStore& store) {
    Buffer memory(28);
    std::fill_n(memory.as<float>(), 7, 1.0f);
    if (store.group().rank() == 3) {
      memory.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
    }
    const absl::Status status =
        store.PushPull(1, memory.view(), memory.view(), 0).Wait(Soon());
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("worker/3: gradient of b holds 1 NaN"));
  });
}

TEST(Hosts, NameTwoWorkersOfDifferentSettings) {
  ClusterConfig config = JobOf({2, 2}, 1);
  Cluster cluster(config);
  cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      Worker worker = cluster.MakeWorker(rank);
      if (rank == 3) worker.set_compression({.type = "2bit"});
      const absl::Status status = cluster.Init(worker, {});
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("codec: worker/0 has none, worker/3 has 2bit"));
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hosts, AreNotOfAsynchronousStores) {
  ClusterConfig config = JobOf({2, 2}, 1);
  config.store = "dist_async";
  Cluster cluster(config);
  cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_THAT(cluster.MakeWorker(rank).Join(),
                  StatusIs(absl::StatusCode::kInvalidArgument, "tier1 off"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Without a word, as a killed process: on its own host and elsewhere all
// operations end, with its name, also where it is the one that pushes.
class LostWorker : public ::testing::TestWithParam<int> {};

TEST_P(LostWorker, IsNamedAndNobodyHangs) {
  const int lost = GetParam();
  Cluster cluster(JobOf({2, 2}, 1));
  cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      Worker worker = cluster.MakeWorker(rank);
      ASSERT_THAT(cluster.Init(worker, {}), IsOk());
      Buffer memory(28);
      const Bytes view = memory.view();
      ASSERT_THAT(worker->PushPull(1, view, view, 0).Wait(Soon()), IsOk());
      ASSERT_THAT(worker->group().Gather("round", "").status(), IsOk());
      if (rank == lost) {
        // Its process would end here: it says that it fails.
        worker->group().Fail(WithExitCode(
            ExitCode::kPeerDied,
            absl::UnavailableError(absl::StrCat("worker/", rank, " died"))));
        return;
      }
      const absl::Status status =
          worker->PushPull(1, view, view, 0).Wait(Soon());
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("worker/", lost)));
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(OfTwoHosts, LostWorker, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace telegrad

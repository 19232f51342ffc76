#include <algorithm>

#include "tests/kvstore/cluster.h"
#include "tests/kvstore/row_buffers.h"

// Rows of tensors whose workers sum on their host before one of them pushes:
// what conformance/row_checks.cc does not see of it.
namespace telegrad {
namespace {

using testing::AllRows;
using testing::Cluster;
using testing::ClusterConfig;
using testing::ExpectRows;
using testing::IsOk;
using testing::kRowElems;
using testing::kRows;
using testing::kSharing;
using testing::PullRows;
using testing::PushRows;
using testing::RowBuffer;
using testing::RowGradient;
using testing::SharingJob;
using testing::Soon;
using testing::StatusIs;
using testing::Table;
using testing::Worker;

constexpr int kRounds = 3;

std::vector<float> Values(const RowBuffer& rows) {
  const float* const values = rows.memory.as<float>();
  return {values, values + kRowElems * rows.rows.size()};
}

// Of a step, by worker: rows that meet, one worker without any, rows of its own
// for each.
RowBuffer PushedRows(int worker, int step) {
  if (step == 1 && worker == 1) return RowBuffer({});
  if (step == 2)
    return RowBuffer({worker, 40 + worker}, 0.5f + static_cast<float>(worker));
  return RowGradient(worker, step);
}

std::vector<float> SumsOf(int step) {
  std::vector<float> sums(kRows * kRowElems);
  for (int worker = 0; worker < kSharing; ++worker) {
    AddTo(PushedRows(worker, step), sums);
  }
  return sums;
}

// All rows after each step, and what all workers sent of it.
struct RowOutcome {
  std::vector<std::vector<float>> rows;
  int64_t push_raw_bytes = 0;
};

// The same two hosts: with a process for each worker, or for both as devices.
RowOutcome RunRows(const std::string& codec, bool is_devices) {
  ClusterConfig config = SharingJob();
  if (is_devices) {
    config.workers = 2;
    config.hosts.clear();
  }
  Cluster cluster(config);
  cluster.StartServers();
  Mutex mutex;
  RowOutcome outcome;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < config.workers; ++rank) {
    threads.emplace_back([&, rank] {
      const int devices = is_devices ? 2 : 1;
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.num_devices = devices;
      if (!is_devices) {
        options.path.tier_one = std::nullopt;
        options.path.host = config.hosts[static_cast<size_t>(rank)];
      }
      Worker worker(options, {.type = codec});
      const std::vector<TensorSpec> tensors = {Table()};
      ASSERT_THAT(worker.Init(tensors, {}), IsOk());
      for (int step = 0; step < kRounds; ++step) {
        std::vector<RowBuffer> grads;
        std::vector<RowBuffer> outs;
        for (int i = 0; i < devices; ++i) {
          grads.push_back(PushedRows(devices * rank + i, step));
          outs.push_back(RowBuffer(AllRows()));
        }
        std::vector<TensorView> in;
        std::vector<TensorView> out;
        for (const RowBuffer& each : grads) in.push_back(each.view());
        for (const RowBuffer& each : outs) out.push_back(each.view());
        ASSERT_THAT(worker->Push(0, in, 0).Wait(Soon()), IsOk());
        ASSERT_THAT(worker->Pull(0, out, 0).Wait(Soon()), IsOk());
        MutexLock lock(&mutex);
        if (rank == 0) outcome.rows.push_back(Values(outs[0]));
      }
      MutexLock lock(&mutex);
      outcome.push_raw_bytes += worker->stats().push_raw_bytes;
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

TEST(HostRows, HaveTheBitsAndThePushesOfDevices) {
  for (const char* codec :
       {"none", "fp16:0", "int8:residual=0", "qsgd", "2bit"}) {
    const RowOutcome devices = RunRows(codec, true);
    const RowOutcome workers = RunRows(codec, false);
    EXPECT_EQ(workers.rows, devices.rows) << codec;
    EXPECT_EQ(workers.push_raw_bytes, devices.push_raw_bytes) << codec;
  }
}

// Nobody waits for another one's pull; a worker of another host neither.
TEST(HostRows, ArePulledByAnyWorkerAlone) {
  Cluster cluster(SharingJob());
  cluster.Run([](KVStore& store) {
    const int rank = store.group().rank();
    const RowBuffer before({0}, -1);  // worker 0's initial value
    ASSERT_THAT(PullRows(store, 1, before), IsOk());
    EXPECT_EQ(before.memory.as<float>()[1], 1.125f);
    ASSERT_THAT(store.group().Gather("read", "").status(), IsOk());
    for (int step = 0; step < kRounds; ++step) {
      ASSERT_THAT(PushRows(store, 1, PushedRows(rank, step)), IsOk());
      if (rank != step) continue;
      const RowBuffer got(AllRows());
      ASSERT_THAT(PullRows(store, 1, got), IsOk());
      ExpectRows(got, SumsOf(step));
      EXPECT_THAT(PullRows(store, 1, RowBuffer({})), IsOk());
    }
  });
}

TEST(HostRows, MeetWholePushesOfOthers) {
  Cluster cluster(SharingJob());
  cluster.Run([](KVStore& store) {
    for (const int whole : {0, 3}) {
      Buffer all(4 * kRows * kRowElems);
      std::fill_n(all.as<float>(), kRows * kRowElems, 2.0f);
      if (store.group().rank() == whole) {
        ASSERT_THAT(store.PushPull(1, all.view(), all.view(), 0).Wait(Soon()),
                    IsOk());
      } else {
        ASSERT_THAT(PushRows(store, 1, RowBuffer({4, 9}, 1)), IsOk());
        ASSERT_THAT(store.Pull(1, all.view(), 0).Wait(Soon()), IsOk());
      }
      EXPECT_EQ(all.as<float>()[3 * kRowElems], 2);
      EXPECT_EQ(all.as<float>()[4 * kRowElems], 5);
    }
    ASSERT_THAT(PushRows(store, 1, RowBuffer({4}, 1)), IsOk());
    const RowBuffer got({3, 4}, -1);
    ASSERT_THAT(PullRows(store, 1, got), IsOk());
    EXPECT_EQ(got.memory.as<float>()[0], 0);
    EXPECT_EQ(got.memory.as<float>()[kRowElems], 4);
  });
}

// As if whole tensors with zeros had been pushed; one host has one worker.
TEST(HostRows, StepTheWeightsOfServers) {
  std::vector<std::vector<float>> weights(2);
  for (const bool is_dense : {false, true}) {
    ClusterConfig config = SharingJob();
    config.hosts = {"a", "a", "a", "b"};
    config.optimizer = {.update_on = UpdateOn::kServer,
                        .kind = OptimizerKind::kAdam,
                        .sgd = {.learning_rate = 0.1f, .rescale = 0.5f}};
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      for (int step = 0; step < kRounds; ++step) {
        const RowBuffer grad = PushedRows(store.group().rank(), step);
        if (!is_dense) {
          ASSERT_THAT(PushRows(store, 1, grad), IsOk());
          continue;
        }
        std::vector<float> all(kRows * kRowElems);
        AddTo(grad, all);
        const Bytes view(reinterpret_cast<std::byte*>(all.data()),
                         4 * all.size());
        ASSERT_THAT(store.Push(1, view, 0).Wait(Soon()), IsOk());
      }
      if (store.group().rank() != 2) return;  // does not push itself
      const RowBuffer got(AllRows());
      ASSERT_THAT(PullRows(store, 1, got), IsOk());
      weights[is_dense ? 1 : 0] = Values(got);
    });
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(HostRows, AreOfTensorsThatComeLater) {
  ClusterConfig config = SharingJob();
  config.tensors = {{"first", 33}};
  config.has_values = false;
  Cluster cluster(config);
  cluster.Run([](KVStore& store) {
    TensorSpec other = Table();
    other.name = "other";
    const std::vector<TensorSpec> more = {Table(), {"dense", 5}, other};
    ASSERT_THAT(store.Init(more, {}).status(), IsOk());
    const std::vector<TensorSpec> last = {{"last", 5}};
    ASSERT_THAT(store.Init(last, {}).status(), IsOk());
    EXPECT_THAT(PullRows(store, 3, RowBuffer({1})),
                StatusIs(absl::StatusCode::kFailedPrecondition, "other"));
    for (const Key key : {0, 2, 4}) {
      Buffer memory(key == 0 ? 4 * 33 : 20);
      std::fill_n(memory.as<float>(), 5, 1.0f + static_cast<float>(key));
      ASSERT_THAT(
          store.PushPull(key, memory.view(), memory.view(), 0).Wait(Soon()),
          IsOk());
      EXPECT_EQ(memory.as<float>()[4], 4 * (1.0f + static_cast<float>(key)));
    }
    for (const Key key : {1, 3}) {
      const float value = static_cast<float>(key);
      ASSERT_THAT(PushRows(store, key, RowBuffer({7}, value)), IsOk());
      const RowBuffer got({7}, -1);
      ASSERT_THAT(PullRows(store, key, got), IsOk());
      EXPECT_EQ(got.memory.as<float>()[0], 4 * value);
    }
  });
}

// Rounds that were loaded are those of the ones that push alone.
TEST(HostRows, ArePulledAfterAnOldStateWasLoaded) {
  Cluster cluster(SharingJob());
  cluster.Run([](KVStore& store) {
    CodecStates* const states = store.states()->codec_states();
    ASSERT_THAT(PushRows(store, 1, RowBuffer({1}, 1)), IsOk());
    std::string text;
    if (states != nullptr) text = *states->SaveCodec(1);
    ASSERT_THAT(store.group().Gather("saved", "").status(), IsOk());
    ASSERT_THAT(PushRows(store, 1, RowBuffer({1}, 1)), IsOk());
    ASSERT_THAT(store.group().Gather("again", "").status(), IsOk());
    if (states != nullptr) {
      ASSERT_THAT(states->LoadCodec(1, text), IsOk());
    }
    ASSERT_THAT(store.group().Gather("loaded", "").status(), IsOk());
    ASSERT_THAT(PushRows(store, 1, RowBuffer({1}, 3)), IsOk());
    const RowBuffer got({1}, -1);
    ASSERT_THAT(PullRows(store, 1, got), IsOk());
    EXPECT_EQ(got.memory.as<float>()[0], 12);
  });
}

}  // namespace
}  // namespace telegrad

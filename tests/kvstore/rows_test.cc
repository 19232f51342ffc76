#include "kvstore/engine/rows.h"

#include <algorithm>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/row_buffers.h"

// Views of some rows of a tensor: MXNet's row_sparse push and pull.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::ExpectRows;
using testing::IsOk;
using testing::kRowElems;
using testing::kRows;
using testing::PullRows;
using testing::PushRows;
using testing::RowBuffer;
using testing::RowGradient;
using testing::Soon;
using testing::StatusIs;
using testing::Table;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

const std::vector<int64_t> kPulled = {49, 3, 3, 0, 17, 21, 22, 49};

ClusterConfig JobOf(int workers, int servers) {
  ClusterConfig config = testing::Job(workers, servers);
  config.tensors = {{"dense", 33}, Table()};
  config.has_values = true;
  return config;
}

// By workers and servers.
class Rows : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Rows, AreSummedAndTheOthersAreZero) {
  const auto [workers, servers] = GetParam();
  ClusterConfig config = JobOf(workers, servers);
  config.compression.type = "2bit";  // not of tensors with rows
  Cluster cluster(config);
  cluster.Run([workers = workers](KVStore& store) {
    EXPECT_EQ(store.codecs().Report()[1].reason,
              "has rows; 2bit keeps or agrees something");
    for (int step = 0; step < 4; ++step) {
      std::vector<float> sums(kRows * kRowElems);
      for (int each = 0; each < workers; ++each) {
        AddTo(RowGradient(each, step), sums);
      }
      ASSERT_THAT(PushRows(store, 1, RowGradient(store.group().rank(), step)),
                  IsOk());
      const RowBuffer got(kPulled, -1);
      ASSERT_THAT(PullRows(store, 1, got), IsOk());
      ExpectRows(got, sums);
      Buffer all(4 * sums.size());
      ASSERT_THAT(store.Pull(1, all.view(), 0).Wait(Soon()), IsOk());
      EXPECT_EQ(std::memcmp(all.data(), sums.data(), all.size()), 0);
    }
  });
}

// As if whole tensors with zeros had been pushed, bit by bit.
TEST_P(Rows, StepTheWeightsOfServers) {
  const auto [workers, servers] = GetParam();
  std::map<bool, std::vector<float>> weights;
  for (const bool is_dense : {false, true}) {
    ClusterConfig config = JobOf(workers, servers);
    config.optimizer = {.update_on = UpdateOn::kServer,
                        .kind = OptimizerKind::kAdam,
                        .sgd = {.learning_rate = 0.1f, .rescale = 0.5f}};
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      for (int step = 0; step < 3; ++step) {
        const RowBuffer grad = RowGradient(store.group().rank(), step);
        if (is_dense) {
          std::vector<float> all(kRows * kRowElems);
          AddTo(grad, all);
          const Bytes view(reinterpret_cast<std::byte*>(all.data()),
                           4 * all.size());
          ASSERT_THAT(store.Push(1, view, 0).Wait(Soon()), IsOk());
        } else {
          ASSERT_THAT(PushRows(store, 1, grad), IsOk());
        }
      }
      if (store.group().rank() > 0) return;
      std::vector<int64_t> every(kRows);
      for (size_t i = 0; i < kRows; ++i) every[i] = static_cast<int64_t>(i);
      const RowBuffer got(every);
      ASSERT_THAT(PullRows(store, 1, got), IsOk());
      const float* const values = got.memory.as<float>();
      weights[is_dense].assign(values, values + kRows * kRowElems);
    });
  }
  EXPECT_EQ(weights[false], weights[true]);
}

INSTANTIATE_TEST_SUITE_P(Jobs, Rows,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& test) {
                           return absl::StrCat(
                               "Of", std::get<0>(test.param), "WorkersAnd",
                               std::get<1>(test.param), "Servers");
                         });

TEST(Rows, NoneIsAPushAndAPull) {
  Cluster cluster(JobOf(2, 2));
  cluster.Run([](KVStore& store) {
    const bool is_first = store.group().rank() == 0;
    const RowBuffer grad(
        is_first ? std::vector<int64_t>{5} : std::vector<int64_t>{}, 1.5f);
    ASSERT_THAT(PushRows(store, 1, grad), IsOk());
    const RowBuffer got({5, 6}, -1);
    ASSERT_THAT(PullRows(store, 1, got), IsOk());
    EXPECT_EQ(got.memory.as<float>()[0], 1.5f);
    EXPECT_EQ(got.memory.as<float>()[kRowElems], 0);
    EXPECT_THAT(PullRows(store, 1, RowBuffer({})), IsOk());
  });
}

TEST(Rows, CostNoOtherBytes) {
  ClusterConfig config = JobOf(1, 1);
  config.tensors = {{.name = "t", .num_elems = 100'000 * 64, .row_elems = 64}};
  config.has_values = false;
  config.chunk_elems = 1 << 20;
  Cluster cluster(config);
  cluster.Run([](KVStore& store) {
    const std::vector<int64_t> rows = {0, 99'999, 50'000};
    Buffer memory(4 * 64 * rows.size());
    const TensorView view = {
        .bytes = memory.view(), .num_elems = 64 * 3, .rows = rows};
    ASSERT_THAT(store.Push(0, TensorViews(&view, 1), 0).Wait(Soon()), IsOk());
    ASSERT_THAT(store.Pull(0, TensorViews(&view, 1), 0).Wait(Soon()), IsOk());
    const StoreStats stats = store.stats();
    EXPECT_GT(stats.push_wire_bytes, 3 * 256);
    EXPECT_LT(stats.push_wire_bytes, 2500);  // 7 chunks, 3 of them asked
    EXPECT_LT(stats.pull_wire_bytes, 2000);
  });
}

TEST(Rows, AreOfOtherTypesAsWell) {
  for (const char* type : {"dist_async", "allreduce"}) {
    ClusterConfig config = JobOf(2, 2);
    config.store = type;
    config.hosts_parts = config.store == "allreduce";
    if (!config.hosts_parts) {
      config.optimizer = {.update_on = UpdateOn::kServer,
                          .sgd = {.learning_rate = 1, .rescale = -1}};
    }
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      RowBuffer grad({4, 9}, 1);
      ASSERT_THAT(PushRows(store, 1, grad), IsOk()) << type;
      ASSERT_THAT(store.group().Gather("pushed", "").status(), IsOk());
      ASSERT_THAT(PullRows(store, 1, grad), IsOk()) << type;
      // Of allreduce the sum, of dist_async worker 0's values and both pushes.
      const float start = config.hosts_parts ? 0 : 1 + 0.125f * (28 % 64);
      EXPECT_EQ(grad.memory.as<float>()[0], start + 2) << type;
    });
  }
}

TEST(Rows, OfDevicesAreAdded) {
  for (const char* type : {"local", "device"}) {
    StoreOptions options;
    options.num_devices = 2;
    auto store = MakeKVStore(type, options, nullptr);
    ASSERT_THAT(store.status(), IsOk());
    const std::vector<TensorSpec> tensors = {Table()};
    ASSERT_THAT((*store)->Init(tensors, {}).status(), IsOk());
    const RowBuffer one({1, 2}, 1);
    const RowBuffer two({2, 3, 3}, 4);
    const std::vector<TensorView> grads = {one.view(), two.view()};
    ASSERT_THAT((*store)->Push(0, grads, 0).Wait(Soon()), IsOk());
    const RowBuffer first({3, 2}, -1);
    const RowBuffer second({0}, -1);
    const std::vector<TensorView> outs = {first.view(), second.view()};
    ASSERT_THAT((*store)->Pull(0, outs, 0).Wait(Soon()), IsOk());
    EXPECT_EQ(first.memory.as<float>()[0], 8);
    EXPECT_EQ(first.memory.as<float>()[kRowElems], 5);
    EXPECT_EQ(second.memory.as<float>()[0], 0);
    (*store)->Close();
  }
}

TEST(Rows, AreRefusedByName) {
  Cluster cluster(JobOf(1, 1));
  cluster.Run([](KVStore& store) {
    EXPECT_THAT(
        PushRows(store, 1, RowBuffer({3, 50})),
        StatusIs(kInvalid, "table has rows 0 to 49; a view has row 50"));
    EXPECT_THAT(PullRows(store, 1, RowBuffer({-1})),
                StatusIs(kInvalid, "a view has row -1"));
    EXPECT_THAT(PushRows(store, 0, RowBuffer({0})),
                StatusIs(kInvalid, "tensor dense has no rows"));
    RowBuffer few({1, 2});
    few.rows.push_back(3);
    EXPECT_THAT(PushRows(store, 1, few), StatusIs(kInvalid, "84 bytes"));
    const RowBuffer rows({1});
    const TensorView view = rows.view();
    EXPECT_THAT(
        store.PushPull(1, TensorViews(&view, 1), TensorViews(&view, 1), 0)
            .Wait(Soon()),
        StatusIs(kInvalid, "one after the other"));
    EXPECT_THAT(store.Broadcast(1, 0, TensorViews(&view, 1), 0).Wait(Soon()),
                StatusIs(kInvalid, "some rows"));
    const std::vector<TensorSpec> odd = {
        {.name = "odd", .num_elems = 10, .row_elems = 3}};
    EXPECT_THAT(store.Init(odd, {}),
                StatusIs(kInvalid, "odd of 10 elements in rows of 3"));
  });
}

// The devices' rows are one push of their worker; each device asks for others.
TEST(Rows, OfSeveralDevicesOfAWorkerAreAdded) {
  constexpr int kWorkers = 2;
  constexpr int kDevices = 2;
  Cluster cluster(JobOf(kWorkers, 2));
  cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.num_devices = kDevices;
      testing::Worker worker(options);
      const std::vector<TensorSpec> tensors = {Table()};
      ASSERT_THAT(worker.Init(tensors, {}), IsOk());
      for (int step = 0; step < 3; ++step) {
        std::vector<float> sums(kRows * kRowElems);
        for (int each = 0; each < kWorkers * kDevices; ++each) {
          AddTo(RowGradient(each, step), sums);
        }
        const RowBuffer one = RowGradient(kDevices * rank, step);
        const RowBuffer two = RowGradient(kDevices * rank + 1, step);
        const std::vector<TensorView> grads = {one.view(), two.view()};
        ASSERT_THAT(worker->Push(0, grads, 0).Wait(Soon()), IsOk());
        const RowBuffer first(kPulled, -1);
        const RowBuffer second({8, 3}, -1);
        const std::vector<TensorView> outs = {first.view(), second.view()};
        ASSERT_THAT(worker->Pull(0, outs, 0).Wait(Soon()), IsOk());
        ExpectRows(first, sums);
        ExpectRows(second, sums);
      }
      const RowBuffer none({});
      const std::vector<TensorView> nothing = {none.view(), none.view()};
      EXPECT_THAT(worker->Push(0, nothing, 0).Wait(Soon()), IsOk());
      const Buffer whole(4 * kRows * kRowElems);
      const std::vector<TensorView> mixed = {none.view(),
                                             FloatTensor(whole.view())};
      EXPECT_THAT(worker->Push(0, mixed, 0).Wait(Soon()),
                  StatusIs(kInvalid, "views with row ids and without"));
      const RowBuffer far({50});
      const std::vector<TensorView> beyond = {none.view(), far.view()};
      EXPECT_THAT(worker->Pull(0, beyond, 0).Wait(Soon()),
                  StatusIs(kInvalid, "a view has row 50"));
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Any bytes are rows of the chunk or an error, and rows come back.
TEST(RowFrames, OfAnyBytesAreCheckedAndComeBack) {
  const Chunk chunk = {.begin = 32, .num_elems = 32};  // rows 4 to 9
  Random random(1, 2);
  std::vector<float> dense(32);
  const std::vector<uint64_t> sorted = {4, 6, 9};
  const std::vector<float> values(3 * kRowElems, 2);
  const Buffer good = PackRows(chunk, kRowElems, sorted, values.data());
  EXPECT_EQ(good.size(), 8 + 24 + 4 * (3 + 7 + 1));
  ASSERT_THAT(SpreadRows(chunk, kRowElems, good.view(), dense.data()), IsOk());
  EXPECT_EQ(std::count(dense.begin(), dense.end(), 2.0f), 11);
  EXPECT_LE(good.size(), MaxRowBytes(chunk, kRowElems, true));
  for (int i = 0; i < 20000; ++i) {
    Buffer bad(static_cast<size_t>(random.NextUniform(0, 200)));
    std::copy_n(good.data(), std::min(bad.size(), good.size()), bad.data());
    for (int flips = 0; bad.size() > 0 && flips < 3; ++flips) {
      const auto at = static_cast<size_t>(random.NextUniform(
                          0, static_cast<float>(bad.size()))) %
                      bad.size();
      bad.data()[at] ^= static_cast<std::byte>(1 << (i % 8));
    }
    const absl::Status status =
        SpreadRows(chunk, kRowElems, bad.view(), dense.data());
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
    ReadRows(chunk, kRowElems, bad.view()).status().IgnoreError();
  }
}

}  // namespace
}  // namespace telegrad

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/gpu.h"
#include "tests/kvstore/operations/device_rank.h"
#include "tests/kvstore/operations/operations_ranks.h"

// Allreduces with a codec, by a store of the same workers.
namespace telegrad::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kSteps = 4;

struct Named {
  const char* name;
  size_t num_elems;
};
constexpr Named kTensors[] = {{"one", 1}, {"odd one", 4099}, {"large", 150007}};

std::vector<float> GradientOf(int rank, int step, size_t tensor) {
  Random random(static_cast<uint64_t>(rank) * 1000 +
                    static_cast<uint64_t>(step) * 10 + tensor,
                5);
  std::vector<float> values(kTensors[tensor].num_elems);
  for (float& value : values) {
    value = static_cast<float>(random.NextUniform()) - .5F;
  }
  return values;
}

using Sums = std::vector<std::vector<float>>;  // by step and tensor
using OnStore = std::function<void(std::shared_ptr<KVStore>)>;

// Runs `body` on each worker's thread.
void RunStores(int workers, const OnStore& body) {
  Cluster cluster(Job(workers, workers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.chunk_elems = 65536;
      options.part = HostPart(1);
      const auto group = JoinWorkers(options);
      ASSERT_THAT(group, IsOk());
      auto made = MakeKVStore("allreduce", options, group->get());
      ASSERT_THAT(made, IsOk());
      const std::shared_ptr<KVStore> store = *std::move(made);
      body(store);
      store->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

using OnBoth =
    std::function<void(Operations& operations, const KVStore& store)>;

void RunCoded(int workers, const OnBoth& body) {
  Meeting meeting(workers);
  RunStores(workers, [&](const std::shared_ptr<KVStore>& store) {
    GroupOptions mine = InprocOptions(workers);
    mine.rank = store->group().rank();
    auto group = Group::Make(mine, meeting.ExchangeOf(mine.rank));
    ASSERT_THAT(group, IsOk());
    auto operations = Operations::Make(*std::move(group), {});
    ASSERT_THAT(operations, IsOk());
    ASSERT_THAT((*operations)->UseStore(store), IsOk());
    body(**operations, *store);
  });
}

// What the store gives by itself, where ranks from `first_idle` on have zeros.
Sums SumsOfStore(int workers, const std::string& codec, int first_idle) {
  Sums sums(kSteps * std::size(kTensors));
  RunStores(workers, [&](const std::shared_ptr<KVStore>& store) {
    const int rank = store->group().rank();
    std::vector<TensorSpec> specs;
    for (const auto& [name, num_elems] : kTensors) {
      specs.push_back({.name = absl::StrCat("t", num_elems),
                       .num_elems = num_elems,
                       .codec = codec});
    }
    const auto keys = store->Init(specs, {});
    ASSERT_THAT(keys, IsOk());
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < specs.size(); ++i) {
        std::vector<float> values = GradientOf(rank, step, i);
        if (rank >= first_idle) std::fill(values.begin(), values.end(), 0.F);
        const Bytes bytes(reinterpret_cast<std::byte*>(values.data()),
                          4 * values.size());
        ASSERT_THAT(store->PushPull((*keys)[i], bytes, bytes, 0).Wait(Soon()),
                    IsOk());
        if (rank == 0) {
          sums[static_cast<size_t>(step) * specs.size() + i] = values;
        }
      }
    }
  });
  return sums;
}

std::shared_ptr<Submission> WantCoded(const std::string& name,
                                      const std::vector<float>& values,
                                      const std::string& codec) {
  auto wanted = Want(Kind::kAllreduce, name, values);
  wanted->request.codec = codec;
  return wanted;
}

// Tensors are submitted in another order on each rank and in each step; every
// other one in place.
Sums SumsOfOperations(Operations& operations, const std::string& codec) {
  std::mt19937 random(static_cast<uint32_t>(operations.rank()));
  Sums sums;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<size_t> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random);
    Sums values;
    for (size_t i = 0; i < order.size(); ++i) {
      values.push_back(GradientOf(operations.rank(), step, i));
    }
    std::vector<int64_t> handles(order.size());
    for (const size_t i : order) {
      const auto wanted = WantCoded(kTensors[i].name, values[i], codec);
      if (i % 2 == 0) {
        wanted->out = values[i].data();
        wanted->out_elems = values[i].size();
      }
      const auto handle = operations.Submit(wanted);
      EXPECT_THAT(handle, IsOk());
      handles[i] = *handle;
    }
    for (const int64_t handle : handles) {
      sums.push_back(ResultOf<float>(operations, handle));
    }
  }
  return sums;
}

class CodedAllreduce
    : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

INSTANTIATE_TEST_SUITE_P(
    WorkersAndCodecs, CodedAllreduce,
    ::testing::Combine(::testing::Values(1, 2, 3),
                       ::testing::Values("2bit", "int2", "int8", "topk:0.01")),
    [](const auto& test) {
      const std::string codec = std::get<1>(test.param);
      return absl::StrCat(std::get<0>(test.param), "_workers_",
                          codec.substr(0, codec.find(':')));
    });

TEST_P(CodedAllreduce, HasTheBitsOfTheStore) {
  const auto& [workers, codec] = GetParam();
  const Sums expected = SumsOfStore(workers, codec, workers);
  RunCoded(workers, [&, codec = std::string(codec)](Operations& operations,
                                                    const KVStore& store) {
    EXPECT_EQ(SumsOfOperations(operations, codec), expected);
    const StoreStats stats = store.stats();
    EXPECT_LT(stats.push_wire_bytes, stats.push_raw_bytes / 3);
  });
}

TEST(CodedAllreduceOf2Ranks, IsScaled) {
  const Sums expected = SumsOfStore(2, "2bit", 2);
  RunCoded(2, [&](Operations& operations, const KVStore&) {
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> values = GradientOf(operations.rank(), step, 1);
      const auto wanted = WantCoded("x", values, "2bit");
      // Powers of two, which codes of a threshold by the gradient go along.
      wanted->request.prescale = 4;
      wanted->request.postscale = .5;
      wanted->request.op = Op::kAverage;
      EXPECT_EQ(Do<float>(operations, wanted),
                expected[static_cast<size_t>(step) * 3 + 1]);
      EXPECT_EQ(values, GradientOf(operations.rank(), step, 1));
    }
  });
}

TEST(CodedAllreduceOf2Ranks, GetsZerosOfARankThatHasJoined) {
  const Sums expected = SumsOfStore(2, "int2", 1);
  RunCoded(2, [&](Operations& operations, const KVStore&) {
    Sums sums;
    if (operations.rank() == 0) sums = SumsOfOperations(operations, "int2");
    auto join = std::make_shared<Submission>();
    join->request.kind = Kind::kJoin;
    join->request.name = "join";
    EXPECT_EQ(Do<int64_t>(operations, join), std::vector<int64_t>{0});
    if (operations.rank() == 0) {
      EXPECT_EQ(sums, expected);
    }
  });
}

TEST(CodedAllreduceOf2Ranks, TakesTheStoresOwnSetting) {
  Meeting meeting(2);
  RunStores(2, [&meeting](const std::shared_ptr<KVStore>& store) {
    ASSERT_THAT(store->SetCompression({.type = "2bit", .rules = "bias=none"}),
                IsOk());
    GroupOptions mine = InprocOptions(2);
    mine.rank = store->group().rank();
    auto group = Group::Make(mine, meeting.ExchangeOf(mine.rank));
    ASSERT_THAT(group, IsOk());
    auto operations = *Operations::Make(*std::move(group), {});
    ASSERT_THAT(operations->UseStore(store), IsOk());
    const std::vector<float> values(4099, 3);
    for (const char* name : {"weight", "bias", "own"}) {
      const auto sums =
          Do<float>(*operations,
                    WantCoded(name, values, name[0] == 'o' ? "int8" : "store"));
      EXPECT_EQ(sums[0] == 6, name[0] != 'w') << name << " " << sums[0];
    }
    std::vector<std::string> codecs;
    for (const TensorReport& each : store->codecs().Report()) {
      codecs.push_back(each.codec);
    }
    EXPECT_THAT(codecs, ::testing::ElementsAre("2bit", "none", "int8"));
  });
}

TEST(CodedAllreduceOf2Ranks, NamesWhatIsWrong) {
  RunCoded(2, [](Operations& operations, const KVStore&) {
    const std::vector<float> values(300, 1);
    const std::vector<float> fewer(299, 1);
    const bool is_first = operations.rank() == 0;
    EXPECT_THAT(
        ErrorOf(operations, WantCoded("x", values, is_first ? "2bit" : "int8")),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 "rank 0 has codec 2bit, rank 1 has codec int8"));
    EXPECT_EQ(Do<float>(operations, WantCoded("y", values, "int8"))[0], 2);
    EXPECT_THAT(ErrorOf(operations, WantCoded("y", fewer, "int8")),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "residuals are of 300 elements"));
    EXPECT_EQ(Do<float>(operations, WantCoded("y", values, "int8"))[0], 2);
    EXPECT_THAT(ErrorOf(operations, WantCoded("x", values, "3bit")),
                StatusIs(absl::StatusCode::kNotFound, "3bit"));
    auto largest = WantCoded("x", values, "int8");
    largest->request.op = Op::kMax;
    EXPECT_THAT(ErrorOf(operations, largest),
                StatusIs(absl::StatusCode::kInvalidArgument, "op max"));
    const std::vector<double> wide = {1};
    auto others = Want(Kind::kAllreduce, "x", wide);
    others->request.codec = "int8";
    EXPECT_THAT(ErrorOf(operations, others),
                StatusIs(absl::StatusCode::kInvalidArgument, "float64"));
    const auto set = operations.AddProcessSet({0, 1});
    ASSERT_FALSE(set.ok());  // there is one of all
  });
  RunOperations(1, [](Operations& operations) {
    EXPECT_THAT(ErrorOf(operations, WantCoded("x", {1}, "int8")),
                StatusIs(absl::StatusCode::kFailedPrecondition, "a store"));
  });
}

TEST(CodedAllreduceOf2Ranks, EndsBeforeTheOperationsDo) {
  const std::vector<float> values(100003, 1);
  std::vector<std::shared_ptr<Submission>> submitted(2);
  RunCoded(2, [&](Operations& operations, const KVStore&) {
    auto& mine = submitted[static_cast<size_t>(operations.rank())];
    mine = WantCoded("x", values, "int8");
    EXPECT_THAT(operations.Submit(mine), IsOk());
    const auto behind = std::make_shared<Submission>();
    behind->request.kind = Kind::kBarrier;
    behind->request.name = "behind";
    Do<int64_t>(operations, behind);
  });
  // The barrier was decided with it or behind it.
  for (const auto& mine : submitted) {
    ASSERT_TRUE(mine->is_done);
    EXPECT_THAT(mine->status, IsOk());
    EXPECT_EQ(*static_cast<const float*>(mine->result), 2);
  }
}

// Means of three steps, with factors; in place in the last one.
std::vector<std::vector<float>> MeansOf(Operations& operations, int device) {
  std::vector<std::vector<float>> means;
  DeviceRank rank(device);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> values = GradientOf(operations.rank(), step, 1);
    auto wanted = WantCoded("x", values, "2bit:0.25");
    wanted->request.op = Op::kAverage;
    wanted->request.prescale = step == 1 ? 1 : 2;
    wanted->request.postscale = .75;
    wanted = rank.Move(wanted, values);
    if (step == 2) {
      wanted->out = const_cast<void*>(wanted->in);
      wanted->out_elems = values.size();
    }
    const auto handle = operations.Submit(wanted);
    EXPECT_THAT(handle, IsOk());
    if (!handle.ok()) return means;
    means.push_back(rank.ResultOf<float>(operations, *handle));
  }
  return means;
}

class CodedMemory : public ::testing::TestWithParam<int> {};

TEST_P(CodedMemory, HasTheBitsOfHostMemory) {
  if (GetParam() >= 0) HasGpu();
  if (IsSkipped()) return;
  std::vector<std::vector<float>> expected;
  for (const int device : {operations::kHostMemory, GetParam()}) {
    RunCoded(2, [&](Operations& operations, const KVStore&) {
      const auto means = MeansOf(operations, device);
      if (operations.rank() > 0) return;
      if (device == operations::kHostMemory) expected = means;
      EXPECT_EQ(means, expected);
    });
    EXPECT_EQ(expected.size(), 3u);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CodedMemory,
                         ::testing::Values(operations::kEmulatedMemory, 0),
                         [](const auto& setting) {
                           return setting.param < 0 ? "Emulated" : "OnAGpu";
                         });

}  // namespace
}  // namespace telegrad::testing

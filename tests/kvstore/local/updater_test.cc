#include <exception>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "kvstore/engine/codec/floats.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/device_tensors.h"

// StoreOptions::updater: a function steps the weights of a store of one
// process.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::kElems;
using testing::Rounded;
using testing::Soon;
using testing::StatusIs;
using testing::ViewOf;

constexpr int kUpdaterSteps = 4;

// weight -= gradient / 4, which is exact here.
absl::Status SubtractAQuarter(Key, std::span<const float> gradient,
                              std::span<float> weight) {
  for (size_t i = 0; i < weight.size(); ++i) weight[i] -= gradient[i] / 4;
  return absl::OkStatus();
}

float WeightOf(size_t i) { return static_cast<float>(i % 8) / 2; }

// Of two devices after so many steps.
std::vector<float> WeightsAfter(int steps) {
  std::vector<float> weights(kElems);
  for (size_t i = 0; i < kElems; ++i) {
    weights[i] = WeightOf(i);
    for (int step = 0; step < steps; ++step) {
      weights[i] -= (GradOf(0, step, i) + GradOf(1, step, i)) / 4;
    }
  }
  return weights;
}

std::vector<float> GradsOf(int device, int step) {
  std::vector<float> grads(kElems);
  for (size_t i = 0; i < kElems; ++i) grads[i] = GradOf(device, step, i);
  return grads;
}

void Put(const Buffer& buffer, const std::vector<float>& values, Dtype dtype) {
  const std::vector<std::byte> bytes = Rounded(values, dtype);
  std::copy(bytes.begin(), bytes.end(), Reach(buffer.view()).data);
}

std::vector<std::byte> BytesIn(const Buffer& buffer) {
  const Bytes reached = Reach(buffer.view());
  return {reached.data, reached.data + reached.size};
}

// A tensor on two devices, of which the first lies at `place`.
struct Pair {
  Pair(Dtype dtype, Device place) : type(dtype) {
    const size_t bytes = SizeOf(dtype) * kElems;
    memory.push_back(place == Device{} ? Buffer(bytes)
                                       : MakeEmulatedBuffer(bytes));
    memory.emplace_back(bytes);
    spec = {.name = "w",
            .num_elems = kElems,
            .dtype = dtype,
            .devices = {place, Device{}}};
  }
  std::vector<TensorView> views() const {
    return {ViewOf(memory[0], type), ViewOf(memory[1], type)};
  }
  void PutWeights() const {
    for (const Buffer& each : memory) Put(each, WeightsAfter(0), type);
  }
  void PutGrads(int step) const {
    for (int i = 0; i < 2; ++i) {
      Put(memory[static_cast<size_t>(i)], GradsOf(i, step), type);
    }
  }

  Dtype type;
  std::vector<Buffer> memory;
  TensorSpec spec;
};

std::unique_ptr<KVStore> StoreWith(const char* type, Updater updater) {
  return *MakeKVStore(
      type,
      {.chunk_elems = 32, .num_devices = 2, .updater = std::move(updater)},
      nullptr);
}

using UpdaterCase = std::tuple<const char*, Dtype, Device, bool>;

class UpdaterOf : public ::testing::TestWithParam<UpdaterCase> {};

std::string NameOfUpdaterCase(
    const ::testing::TestParamInfo<UpdaterCase>& info) {
  const auto& [type, dtype, place, in_halves] = info.param;
  return absl::StrCat(type, "_", ToString(dtype),
                      place == Device{} ? "" : "_OnDevice",
                      in_halves ? "_InHalves" : "");
}

INSTANTIATE_TEST_SUITE_P(
    , UpdaterOf,
    ::testing::Combine(::testing::Values("local", "device"),
                       ::testing::Values(Dtype::kFloat32, Dtype::kFloat16),
                       ::testing::Values(Device{}, kEmulatedDevice),
                       ::testing::Bool()),
    NameOfUpdaterCase);

// The sum of both devices, once a round and in order; all get the weights.
TEST_P(UpdaterOf, StepsTheWeightsOncePerRound) {
  const auto [type, dtype, place, in_halves] = GetParam();
  int calls = 0;
  const auto store = StoreWith(type, [&](Key key, auto gradient, auto weight) {
    EXPECT_EQ(key, 0u);
    EXPECT_EQ(gradient.size(), kElems);
    EXPECT_EQ(weight.size(), kElems);
    const std::vector<float> sums = GradsOf(0, calls);
    const std::vector<float> more = GradsOf(1, calls);
    const std::vector<float> before = WeightsAfter(calls);
    for (size_t i = 0; i < kElems; ++i) {
      EXPECT_EQ(gradient[i], sums[i] + more[i]) << "call " << calls;
      EXPECT_EQ(weight[i], before[i]) << "call " << calls;
    }
    ++calls;
    return SubtractAQuarter(key, gradient, weight);
  });
  const Pair pair(dtype, place);
  pair.PutWeights();
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  for (int step = 0; step < kUpdaterSteps; ++step) {
    pair.PutGrads(step);
    const std::vector<TensorView> views = pair.views();
    if (in_halves) {
      ASSERT_THAT(store->Push(0, views, 0).Wait(Soon()), IsOk());
      EXPECT_EQ(calls, step + 1);
      ASSERT_THAT(store->Pull(0, views, 0).Wait(Soon()), IsOk());
    } else {
      ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    }
    // Weights are kept in float32, and rounded where they are given.
    const std::vector<std::byte> expected =
        Rounded(WeightsAfter(step + 1), dtype);
    EXPECT_EQ(BytesIn(pair.memory[0]), expected) << step;
    EXPECT_EQ(BytesIn(pair.memory[1]), expected) << step;
  }
  EXPECT_EQ(calls, kUpdaterSteps);
}

// With 2bit at 1: gradients of 0.75 are sent as 0, then as 1.
TEST(UpdaterInAStore, GetsWhatTheCodesStandFor) {
  const auto store = StoreWith("local", SubtractAQuarter);
  CompressionConfig compression;
  compression.type = "2bit:1";
  compression.reply = ReplyMode::kSum;
  ASSERT_THAT(store->SetCompression(compression), IsOk());
  const Pair pair(Dtype::kFloat32, Device{});
  Put(pair.memory[0], std::vector<float>(kElems, 8), Dtype::kFloat32);
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  for (const float expected : {8.0f, 7.5f, 7.0f, 6.5f}) {
    const std::vector<float> grad(kElems, 0.75f);
    for (const Buffer& each : pair.memory) Put(each, grad, Dtype::kFloat32);
    const std::vector<TensorView> views = pair.views();
    ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    EXPECT_EQ(pair.memory[1].as<float>()[99], expected);
  }
  compression.reply = ReplyMode::kReencode;
  EXPECT_THAT(StoreWith("local", SubtractAQuarter)->SetCompression(compression),
              StatusIs(absl::StatusCode::kInvalidArgument, "reencode"));
}

TEST(UpdaterInAStore, GetsMeansWhereTheStoreScales) {
  const auto store = StoreWith("device", SubtractAQuarter);
  ASSERT_THAT(store->SetOptimizer({.result_scale = 0.5f}), IsOk());
  const Pair pair(Dtype::kFloat32, Device{});
  pair.PutWeights();
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  for (const Buffer& each : pair.memory) {
    Put(each, std::vector<float>(kElems, 4), Dtype::kFloat32);
  }
  const std::vector<TensorView> views = pair.views();
  ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
  EXPECT_EQ(pair.memory[0].as<float>()[3], WeightOf(3) - 1);
}

TEST(UpdaterInAStore, GoesOnFromWhatWasBroadcast) {
  const auto store = StoreWith("local", SubtractAQuarter);
  const Pair pair(Dtype::kFloat32, Device{});
  pair.PutWeights();
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  Put(pair.memory[0], std::vector<float>(kElems, 40), Dtype::kFloat32);
  const std::vector<TensorView> views = pair.views();
  ASSERT_THAT(store->Broadcast(0, 0, views, 0).Wait(Soon()), IsOk());
  EXPECT_EQ(pair.memory[1].as<float>()[5], 40);
  ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
  EXPECT_EQ(pair.memory[1].as<float>()[5], 20);
}

TEST(UpdaterInAStore, GetsRowsAsAWholeGradient) {
  int calls = 0;
  const auto store =
      StoreWith("local", [&](Key key, auto gradient, auto weight) {
        EXPECT_EQ(gradient[10 * 7], 3.0f);  // row 7, of both
        EXPECT_EQ(gradient[10 * 6], 0.0f);
        ++calls;
        return SubtractAQuarter(key, gradient, weight);
      });
  Pair pair(Dtype::kFloat32, Device{});
  pair.spec.row_elems = 10;
  pair.PutWeights();
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  const std::vector<int64_t> rows = {7};
  const Buffer one(40);
  const Buffer two(40);
  std::fill_n(one.as<float>(), 10, 1.0f);
  std::fill_n(two.as<float>(), 10, 2.0f);
  const TensorView views[] = {
      {.bytes = one.view(), .num_elems = 10, .rows = rows},
      {.bytes = two.view(), .num_elems = 10, .rows = rows}};
  ASSERT_THAT(store->Push(0, views, 0).Wait(Soon()), IsOk());
  ASSERT_THAT(store->Pull(0, views, 0).Wait(Soon()), IsOk());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(two.as<float>()[0], WeightOf(70) - 0.75f);
}

// As a caller's function may.
template <typename T>
void Raise(const T& what) {
  std::rethrow_exception(std::make_exception_ptr(what));
}

class FailingUpdater : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(, FailingUpdater,
                         ::testing::Values(Device{}, kEmulatedDevice),
                         [](const auto& test) {
                           return test.param == Device{} ? "Host" : "Device";
                         });

// The operation has its error, the weights are those before, and the next round
// is as if there had been no such gradient.
TEST_P(FailingUpdater, EndsItsOperationAndChangesNothing) {
  int calls = 0;
  const auto store =
      StoreWith("local", [&](Key key, auto gradient, auto weight) {
        const int call = calls++;
        weight[0] = -1;  // half done
        if (call == 0) return absl::AbortedError("no more");
        if (call == 1) Raise(std::runtime_error("out of luck"));
        if (call == 2) Raise(7);
        weight[0] = WeightOf(0);
        return SubtractAQuarter(key, gradient, weight);
      });
  const Pair pair(Dtype::kFloat32, GetParam());
  pair.PutWeights();
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  const std::vector<TensorView> views = pair.views();
  const auto push = [&] {
    pair.PutGrads(0);
    return store->PushPull(0, views, views, 0).Wait(Soon());
  };
  EXPECT_THAT(push(), StatusIs(absl::StatusCode::kAborted,
                               "updater of tensor w: no more"));
  EXPECT_THAT(push(),
              StatusIs(absl::StatusCode::kInternal, "threw: out of luck"));
  EXPECT_THAT(push(), StatusIs(absl::StatusCode::kInternal, "threw"));
  ASSERT_THAT(store->Pull(0, views, 0).Wait(Soon()), IsOk());
  EXPECT_EQ(BytesIn(pair.memory[0]), Rounded(WeightsAfter(0), Dtype::kFloat32));
  ASSERT_THAT(push(), IsOk());
  EXPECT_EQ(BytesIn(pair.memory[1]), Rounded(WeightsAfter(1), Dtype::kFloat32));
  EXPECT_EQ(calls, 4);
}

TEST(UpdaterInAStore, IsInsteadOfAnOptimizerAndNeedsWeights) {
  const auto store = StoreWith("local", SubtractAQuarter);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(store->SetOptimizer({.update_on = UpdateOn::kServer}),
              StatusIs(invalid, "one of them"));
  const Pair pair(Dtype::kFloat32, Device{});
  EXPECT_THAT(store->Init({&pair.spec, 1}, {}).status(),
              StatusIs(invalid, "an updater (StoreOptions::updater) needs"));
  pair.PutWeights();
  ASSERT_THAT(store->Init({&pair.spec, 1}, pair.views()), IsOk());
  EXPECT_THAT(
      store->states()->Save(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "an updater keeps"));
}

// Before a store is made, so that nobody waits for a worker that has none.
TEST(UpdaterInAStore, IsRefusedByTypesThatCannotCallIt) {
  const StoreOptions options = {.updater = SubtractAQuarter};
  for (const char* type : {"dist_sync", "dist_async", "allreduce", "p3"}) {
    EXPECT_THAT(MakeKVStore(type, options, nullptr).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("kvstore type '", type,
                                      "' takes no updater: servers run")));
  }
  EXPECT_THAT(MakeKVStore("nccl", options, nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'local' and 'device' take one"));
}

}  // namespace
}  // namespace telegrad

#include "kvstore/nccl/group_store.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// The store of NCCL, by the group for host memory instead.
namespace telegrad {
namespace {

using testing::GradOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kTooSoon = absl::StatusCode::kFailedPrecondition;
constexpr size_t kElems = 5000;

StoreTraits Traits() { return *FindStoreType("nccl"); }

std::unique_ptr<GroupStore> OnHost(int devices) {
  StoreOptions options;
  options.num_devices = devices;
  return std::make_unique<GroupStore>(options, Traits(), nullptr, "host");
}

std::vector<Buffer> Filled(int devices, size_t n, float value) {
  std::vector<Buffer> all;
  for (int i = 0; i < devices; ++i) {
    std::fill_n(all.emplace_back(4 * n).as<float>(), n, value);
  }
  return all;
}

std::vector<Buffer> Gradients(int devices, int step) {
  std::vector<Buffer> all = Filled(devices, kElems, 0);
  for (int device = 0; device < devices; ++device) {
    for (size_t i = 0; i < kElems; ++i) {
      all[static_cast<size_t>(device)].as<float>()[i] = GradOf(device, step, i);
    }
  }
  return all;
}

std::vector<TensorView> ViewsOf(const std::vector<Buffer>& buffers) {
  std::vector<TensorView> views;
  for (const Buffer& each : buffers) views.push_back(FloatTensor(each.view()));
  return views;
}

class Devices : public ::testing::TestWithParam<int> {};

TEST_P(Devices, GetTheSumOfAllInEachRound) {
  const int devices = GetParam();
  const auto store = OnHost(devices);
  const std::vector<TensorSpec> tensors = {{"a", kElems}, {"b", kElems}};
  ASSERT_THAT(store->Init(tensors, {}).status(), IsOk());
  for (int step = 0; step < 3; ++step) {
    const std::vector<Buffer> first = Gradients(devices, step);
    const std::vector<Buffer> second = Gradients(devices, step + 5);
    const auto views = ViewsOf(first);
    const auto others = ViewsOf(second);
    const Ticket a = store->PushPull(0, views, views, 0);
    const Ticket b = store->Push(1, others, 0);
    ASSERT_THAT(a.Wait(Soon()), IsOk());
    ASSERT_THAT(b.Wait(Soon()), IsOk());
    ASSERT_THAT(store->Pull(1, others, 0).Wait(Soon()), IsOk());
    for (int device = 0; device < devices; ++device) {
      for (size_t i = 0; i < kElems; i += 7) {
        float sum = 0;  // on a grid: exact in any order
        float other = 0;
        for (int d = 0; d < devices; ++d) {
          sum += GradOf(d, step, i);
          other += GradOf(d, step + 5, i);
        }
        const auto at = static_cast<size_t>(device);
        ASSERT_EQ(first[at].as<float>()[i], sum);
        ASSERT_EQ(second[at].as<float>()[i], other);
      }
    }
  }
  store->Close();
  const auto views = Gradients(devices, 0);
  EXPECT_THAT(store->Push(0, ViewsOf(views), 0).Wait(Soon()),
              StatusIs(kTooSoon, "closed"));
}

TEST_P(Devices, GetHalfOfMeansWhereTheseAreAskedFor) {
  const int devices = GetParam();
  const auto store = OnHost(devices);
  ASSERT_THAT(
      store->SetOptimizer({.result_scale = 0.5f / static_cast<float>(devices)}),
      IsOk());
  const std::vector<Buffer> memory = Filled(devices, kElems, 3);
  const auto views = ViewsOf(memory);
  const std::vector<TensorSpec> tensors = {{"a", kElems}};
  ASSERT_THAT(store->Init(tensors, views).status(), IsOk());
  ASSERT_THAT(store->Pull(0, views, 0).Wait(Soon()), IsOk());
  EXPECT_EQ(memory[0].as<float>()[0], 3);
  ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
  for (const Buffer& each : memory) {
    EXPECT_NEAR(each.as<float>()[kElems - 1], 1.5, 1e-6);
  }
  EXPECT_THAT(store->SetOptimizer({}), StatusIs(kTooSoon, "not by 1"))
      << "after Init";
}

INSTANTIATE_TEST_SUITE_P(Numbers, Devices, ::testing::Values(1, 2, 3, 8));

TEST(GroupStore, GivesAllDevicesTheFirstOnesValues) {
  const auto store = OnHost(3);
  const std::vector<Buffer> values = Filled(3, kElems, 1);
  std::fill_n(values[0].view().data, 4, std::byte{0});
  ASSERT_THAT(
      store->Init(std::vector<TensorSpec>{{"a", kElems}}, ViewsOf(values))
          .status(),
      IsOk());
  for (const Buffer& each : values) {
    EXPECT_EQ(each.as<float>()[0], 0);
    EXPECT_EQ(each.as<float>()[1], 1);
  }
  const std::vector<Buffer> out = Filled(3, kElems, 9);
  ASSERT_THAT(store->Pull(0, ViewsOf(out), 0).Wait(Soon()), IsOk());
  EXPECT_EQ(out[2].as<float>()[0], 0);
}

// As long as the first one takes others wait.
TEST(GroupStore, SumsWhatWaitsTogetherInOneCall) {
  const auto store = OnHost(3);
  std::vector<TensorSpec> tensors = {{"first", size_t{1} << 20}};
  while (tensors.size() < 161) {
    tensors.push_back({absl::StrCat("t", tensors.size()), tensors.size()});
  }
  ASSERT_THAT(store->Init(tensors, {}).status(), IsOk());
  std::vector<std::vector<Buffer>> memory;
  std::vector<Ticket> tickets;
  for (size_t key = 0; key < tensors.size(); ++key) {
    memory.push_back(
        Filled(3, tensors[key].num_elems, static_cast<float>(key)));
    const auto views = ViewsOf(memory.back());
    tickets.push_back(store->PushPull(static_cast<Key>(key), views, views,
                                      -static_cast<int>(key % 4)));
  }
  for (size_t key = 0; key < tensors.size(); ++key) {
    ASSERT_THAT(tickets[key].Wait(Soon()), IsOk());
    const auto* const sum = memory[key][2].as<float>();
    EXPECT_EQ(sum[tensors[key].num_elems - 1], 3 * static_cast<float>(key));
  }
  EXPECT_GE(store->stats().num_frames, 3);  // of 64 tensors at most
  EXPECT_LT(store->stats().num_frames, 161);
}

// The others of its call are summed.
TEST(GroupStore, NamesTheTensorThatIsNotFiniteAmongOthers) {
  const auto store = OnHost(2);
  const std::vector<TensorSpec> tensors = {
      {"first", size_t{1} << 20}, {"a", 9}, {"b", 9}, {"c", 9}};
  ASSERT_THAT(store->Init(tensors, {}).status(), IsOk());
  std::vector<std::vector<Buffer>> memory;
  std::vector<Ticket> tickets;
  for (size_t key = 0; key < tensors.size(); ++key) {
    memory.push_back(Filled(2, tensors[key].num_elems, 1));
    if (key == 2) memory[key][1].as<float>()[7] = std::nanf("");
    const auto views = ViewsOf(memory.back());
    tickets.push_back(store->PushPull(static_cast<Key>(key), views, views, 0));
  }
  for (size_t key = 0; key < tensors.size(); ++key) {
    const absl::Status status = tickets[key].Wait(Soon());
    if (key == 2) {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("device/1: gradient of b holds 1 NaN"));
    } else if (status.ok()) {  // else it came after the end
      EXPECT_EQ(memory[key][0].as<float>()[8], 2);
    }
  }
}

TEST(GroupStore, GivesMemoryBackWhenItIsCancelled) {
  const auto store = OnHost(2);
  ASSERT_THAT(store->Init(std::vector<TensorSpec>{{"a", kElems}}, {}).status(),
              IsOk());
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<Buffer> memory = Filled(2, kElems, 1);
    const auto views = ViewsOf(memory);
    store->PushPull(0, views, views, 0).Cancel();
    for (Buffer& each : memory) std::fill_n(each.as<float>(), kElems, 3.0f);
    // The key takes the next one when what was cancelled is over.
    const std::vector<Buffer> next = Filled(2, kElems, 2);
    const auto next_views = ViewsOf(next);
    absl::Status status;
    do {
      status = store->PushPull(0, next_views, next_views, 0).Wait(Soon());
    } while (absl::IsFailedPrecondition(status));
    ASSERT_THAT(status, IsOk());
    EXPECT_EQ(next[1].as<float>()[kElems - 1], 4);
    for (const Buffer& each : memory) EXPECT_EQ(each.as<float>()[0], 3);
  }
}

TEST(GroupStore, EndsTheJobWithWhatIsNotFinite) {
  for (const NonFinitePolicy policy :
       {NonFinitePolicy::kError, NonFinitePolicy::kPropagate}) {
    const auto store = OnHost(3);
    ASSERT_THAT(store->SetCompression({.nonfinite = policy}), IsOk());
    const std::vector<TensorSpec> tensors = {{"a", kElems}};
    const std::vector<Buffer> memory = Filled(3, kElems, 1);
    const auto views = ViewsOf(memory);
    ASSERT_THAT(store->Init(tensors, views).status(), IsOk());
    ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    memory[1].as<float>()[7] = std::numeric_limits<float>::quiet_NaN();
    memory[1].as<float>()[9] = std::numeric_limits<float>::infinity();
    const absl::Status status = store->Push(0, views, 0).Wait(Soon());
    if (policy == NonFinitePolicy::kPropagate) {
      ASSERT_THAT(status, IsOk());
      ASSERT_THAT(store->Pull(0, views, 0).Wait(Soon()), IsOk());
      EXPECT_TRUE(std::isnan(memory[2].as<float>()[7]));
      EXPECT_EQ(memory[2].as<float>()[8], 9);
      continue;
    }
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("device/1: gradient of a holds 2 NaN or infinite "
                          "elements, the first at index 7, step 1"));
  }
}

TEST(GroupStore, IsOnTheGpusOfItsTensorsEachOnce) {
  StoreOptions options;
  options.num_devices = 2;
  const auto init = [&](const std::string& backend, Device first,
                        Device second) {
    GroupStore store(options, Traits(), nullptr, backend);
    const std::vector<TensorSpec> tensors = {
        {.name = "a", .num_elems = 10, .devices = {first, second}}};
    return store.Init(tensors, {}).status();
  };
  const Device gpu = {DeviceKind::kCuda, 90};
  EXPECT_THAT(init("nccl", gpu, gpu),
              StatusIs(kInvalid, "tensor a twice on GPU 90"));
  EXPECT_THAT(init("nccl", gpu, {}),
              StatusIs(kInvalid, "tensor a on the host: a store of type nccl"));
  EXPECT_THAT(init("host", {}, gpu), StatusIs(kInvalid, "tensor a on GPU 90"));
  const absl::Status missing = init("nccl", gpu, {DeviceKind::kCuda, 91});
  ASSERT_FALSE(missing.ok());  // who has 92
  EXPECT_FALSE(absl::IsInvalidArgument(missing)) << missing;
}

TEST(GroupStore, SaysWhatItDoesNotTake) {
  const auto store = OnHost(2);
  EXPECT_THAT(store->SetCompression({.type = "2bit"}),
              StatusIs(kInvalid, "dense"));
  EXPECT_THAT(store->SetCompression({.nonfinite = NonFinitePolicy::kZero}),
              StatusIs(kInvalid, "policy zero"));
  EXPECT_THAT(store->SetOptimizer({.update_on = UpdateOn::kServer, .sgd = {}}),
              StatusIs(kInvalid, "no optimizer"));
  const std::vector<TensorSpec> tensors = {{"a", 10}};
  EXPECT_THAT(store->Init(std::vector<TensorSpec>{{"h", 10, Dtype::kInt32}}, {})
                  .status(),
              StatusIs(kInvalid, "float16 or bfloat16"));
  ASSERT_THAT(store->Init(tensors, {}).status(), IsOk());
  EXPECT_THAT(store->Init(tensors, {}).status(),
              StatusIs(kInvalid, "which is there"));
  EXPECT_THAT(store->SetCompression({}), StatusIs(kTooSoon, "after Init"));
  const std::vector<Buffer> right = Filled(2, 10, 0);
  const std::vector<Buffer> less = Filled(2, 9, 0);
  const std::vector<Buffer> one = Filled(1, 10, 0);
  EXPECT_THAT(store->Push(7, ViewsOf(right), 0).Wait(Soon()),
              StatusIs(kInvalid, "key 7"));
  EXPECT_THAT(store->Push(0, ViewsOf(less), 0).Wait(Soon()),
              StatusIs(kInvalid, "36 bytes"));
  EXPECT_THAT(store->Push(0, ViewsOf(one), 0).Wait(Soon()),
              StatusIs(kInvalid, "1 views"));
  EXPECT_THAT(store->Pull(0, ViewsOf(right), 0).Wait(Soon()),
              StatusIs(kTooSoon, "no value"));
  std::vector<TensorView> far = ViewsOf(right);
  far[1].bytes.device = {DeviceKind::kCuda, 1};
  EXPECT_THAT(store->Push(0, far, 0).Wait(Soon()),
              StatusIs(kInvalid, "on cuda:1"));
}

TEST(GroupStore, NamesAMissingGpuBeforeAnythingStarts) {
  const absl::Status machine = CheckStoreType("nccl", 64);
  ASSERT_FALSE(machine.ok());  // who has 64
  EXPECT_THAT(std::string(machine.message()), HasSubstr("nccl"));
  EXPECT_THAT(std::string(machine.message()),
              HasSubstr(" of 64, cannot be used: "));
  StoreOptions options;
  options.num_devices = 64;
  EXPECT_EQ(MakeKVStore("nccl", options, nullptr).status(), machine);
  EXPECT_THAT(CheckStoreType("local", 64), IsOk());
}

}  // namespace
}  // namespace telegrad

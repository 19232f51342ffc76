#include "kvstore/engine/rows/row_codec.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/random.h"
#include "compression/codec_spec.h"
#include "kvstore/engine/rows/rows.h"
#include "kvstore/ps/server/served_rows.h"
#include "tests/kvstore/cluster.h"

// Pushes of rows whose values a codec makes small.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr size_t kTableRows = 50;
constexpr size_t kElemsOfRow = 7;  // chunks of 32 begin and end within rows
constexpr size_t kTableElems = kTableRows * kElemsOfRow;
const std::vector<const char*> kCodecs = {
    "fp16:0",   "bf16:0",          "qsgd",
    "terngrad", "int8:residual=0", "int4:block=64:residual=0"};

TensorSpec TableSpec() {
  return {.name = "table", .num_elems = kTableElems, .row_elems = kElemsOfRow};
}

CodecSetting SettingOf(const std::string& text) {
  const CodecSpec spec = *ParseCodecSpec(text);
  return {.codec = spec.codec, .options = spec.options};
}

struct SomeRows {
  std::vector<int64_t> ids;
  Buffer values = {};
  TensorView view() const {
    return {.bytes = values.view(),
            .num_elems = static_cast<int64_t>(kElemsOfRow * ids.size()),
            .rows = ids};
  }
};

// Out of order, one of them twice, and in no type of 16 bits.
SomeRows GradientOf(int contributor, int step) {
  SomeRows rows{.ids = {41, 3, 20 + contributor, 41, 0, step}};
  rows.values = Buffer(4 * kElemsOfRow * rows.ids.size());
  Random random(static_cast<uint64_t>(contributor), 7 + step);
  for (size_t i = 0; i < kElemsOfRow * rows.ids.size(); ++i) {
    rows.values.as<float>()[i] = random.NextNormal();
  }
  return rows;
}

// What contributors' chunks give, as the codec decodes them, in their order.
std::vector<float> SumsOf(const std::string& codec, std::span<const Chunk> plan,
                          int contributors, int step) {
  std::vector<float> sums(kTableElems);
  for (int each = 0; each < contributors; ++each) {
    const SomeRows grad = GradientOf(each, step);
    std::vector<float> dense(kTableElems);
    AddRows(TableSpec(), grad.view(), dense.data());
    const std::vector<uint64_t> sorted = SortedRows(grad.ids);
    for (const Chunk& chunk : plan) {
      std::vector<size_t> places;
      std::vector<float> gathered;
      for (size_t i = chunk.begin; i < chunk.begin + chunk.num_elems; ++i) {
        const bool is_pushed =
            std::binary_search(sorted.begin(), sorted.end(), i / kElemsOfRow);
        if (!is_pushed) continue;
        places.push_back(i);
        gathered.push_back(dense[i]);
      }
      if (places.empty()) continue;
      const CodecSetting setting = SettingOf(codec);
      const auto prepared =
          *setting.codec->Prepare(places.size(), Device{}, setting.options);
      const Buffer residual(
          prepared->traits().needs_residual ? 4 * places.size() : 0);
      CodecState state{.residual = residual.view()};
      const Buffer payload(prepared->max_encoded_bytes());
      EncodeResult result;
      const Bytes floats(reinterpret_cast<std::byte*>(gathered.data()),
                         4 * gathered.size());
      const EncodeParams params = {
          .stream = uint64_t{chunk.key} << 32 | chunk.index,
          .step = static_cast<uint64_t>(step),
          .source = static_cast<uint64_t>(each)};
      EXPECT_THAT(
          prepared->Encode(floats, state, params, payload.view(), &result, {}),
          IsOk());
      EXPECT_THAT(prepared->Decode(payload.view(), 0, floats, {}), IsOk());
      for (size_t i = 0; i < places.size(); ++i) {
        sums[places[i]] += gathered[i];
      }
    }
  }
  return sums;
}

std::vector<Chunk> PlanOf(int servers) {
  return (*MakeShardPlan(std::vector<TensorSpec>{TableSpec()}, servers, 32,
                         {}))[0]
      .chunks;
}

void ExpectSums(KVStore& store, const std::vector<float>& expected,
                size_t views) {
  std::vector<Buffer> outs;
  std::vector<TensorView> to;
  for (size_t i = 0; i < views; ++i) {
    to.push_back(FloatTensor(outs.emplace_back(4 * kTableElems).view()));
  }
  ASSERT_THAT(store.Pull(0, to, 0).Wait(Soon()), IsOk());
  for (const Buffer& out : outs) {
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0);
  }
}

class RowCodecs : public ::testing::TestWithParam<const char*> {};

TEST_P(RowCodecs, MakeGatheredRowsSmallInJobs) {
  for (const char* type : {"dist_sync", "allreduce"}) {
    for (const int servers : {1, 2}) {
      ClusterConfig config = testing::Job(2, servers);
      config.store = type;
      config.hosts_parts = config.store == "allreduce";
      if (config.hosts_parts && servers != config.workers) continue;
      config.tensors = {TableSpec()};
      config.has_values = false;
      config.compression.type = GetParam();
      Cluster cluster(config);
      cluster.Run([&](KVStore& store) {
        EXPECT_EQ(store.codecs().Report()[0].reason,
                  absl::StrCat("has rows, these by ", GetParam()));
        for (int step = 0; step < 3; ++step) {
          const SomeRows grad = GradientOf(store.group().rank(), step);
          const TensorView view = grad.view();
          ASSERT_THAT(store.Push(0, TensorViews(&view, 1), 0).Wait(Soon()),
                      IsOk());
          ExpectSums(store, SumsOf(GetParam(), PlanOf(servers), 2, step), 1);
        }
        EXPECT_LT(store.stats().push_wire_bytes - 64 * store.stats().num_frames,
                  store.stats().push_raw_bytes);
      });
    }
  }
}

// Each push is a step, here w + the values that its codes stand for.
TEST_P(RowCodecs, StepTheWeightsOfAsynchronousServers) {
  ClusterConfig config = testing::Job(1, 2);
  config.store = "dist_async";
  config.tensors = {TableSpec()};
  config.compression.type = GetParam();
  config.optimizer = {.update_on = UpdateOn::kServer,
                      .sgd = {.learning_rate = 1, .rescale = -1}};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    std::vector<float> weights(kTableElems);
    const Bytes all(reinterpret_cast<std::byte*>(weights.data()),
                    4 * weights.size());
    ASSERT_THAT(store.Pull(0, all, 0).Wait(Soon()), IsOk());
    for (int step = 0; step < 3; ++step) {
      const SomeRows grad = GradientOf(0, step);
      const TensorView view = grad.view();
      ASSERT_THAT(store.Push(0, TensorViews(&view, 1), 0).Wait(Soon()), IsOk());
      const std::vector<float> sums = SumsOf(GetParam(), PlanOf(2), 1, step);
      for (size_t i = 0; i < kTableElems; ++i) weights[i] += sums[i];
      ExpectSums(store, weights, 1);
    }
  });
}

TEST_P(RowCodecs, HaveTheSameBitsInOneProcess) {
  for (const char* type : {"local", "device"}) {
    StoreOptions options;
    options.num_devices = 2;
    options.chunk_elems = 32;
    auto store = MakeKVStore(type, options, nullptr);
    ASSERT_THAT(store.status(), IsOk());
    CompressionConfig compression;
    compression.type = GetParam();
    ASSERT_THAT((*store)->SetCompression(compression), IsOk());
    const std::vector<TensorSpec> tensors = {TableSpec()};
    ASSERT_THAT((*store)->Init(tensors, {}).status(), IsOk());
    for (int step = 0; step < 3; ++step) {
      const SomeRows first = GradientOf(0, step);
      const SomeRows second = GradientOf(1, step);
      const std::vector<TensorView> views = {first.view(), second.view()};
      ASSERT_THAT((*store)->Push(0, views, 0).Wait(Soon()), IsOk());
      ExpectSums(**store, SumsOf(GetParam(), PlanOf(1), 2, step), 2);
    }
    (*store)->Close();
  }
}

INSTANTIATE_TEST_SUITE_P(, RowCodecs, ::testing::ValuesIn(kCodecs),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase_if(name, [](char c) {
                             return !absl::ascii_isalnum(
                                 static_cast<unsigned char>(c));
                           });
                           return name;
                         });

TEST(RowCodec, OfResidualsOrOfAChoiceIsNotTaken) {
  const auto reason = [](const CompressionConfig& config) {
    return MakeShardPlan(std::vector<TensorSpec>{TableSpec()}, 1, 32, config)
        ->front()
        .reason;
  };
  for (const char* type : {"fp16", "int8", "2bit", "topk:0.1", "powersgd"}) {
    const std::string name = SettingOf(type).codec->traits().name;
    EXPECT_EQ(reason({.type = type}),
              "has rows; " + name + " keeps or agrees something");
  }
  EXPECT_EQ(reason({.type = "none"}), "has rows");
  const std::string changes = "has rows; codecs change while the job runs";
  EXPECT_EQ(reason({.type = "fp16:0", .warmup_steps = 1}), changes);
  EXPECT_EQ(reason({.type = "fp16:0", .starts_dense = true}), changes);
  EXPECT_EQ(reason({.type = "none", .rules = "table=bf16:0"}),
            "has rows, these by bf16:0");
}

TEST(RowCodec, FindsWhatIsNotFiniteFirst) {
  ClusterConfig config = testing::Job(1, 1);
  config.tensors = {TableSpec()};
  config.has_values = false;
  config.compression.type = "fp16:0";
  SomeRows bad = GradientOf(0, 0);
  bad.values.as<float>()[9] = std::numeric_limits<float>::quiet_NaN();
  const TensorView view = bad.view();
  for (const auto policy : {NonFinitePolicy::kError, NonFinitePolicy::kZero}) {
    StoreOptions options;
    auto store = MakeKVStore("local", options, nullptr);
    ASSERT_THAT(store.status(), IsOk());
    config.compression.nonfinite = policy;
    ASSERT_THAT((*store)->SetCompression(config.compression), IsOk());
    ASSERT_THAT((*store)->Init(config.tensors, {}).status(), IsOk());
    const absl::Status status =
        (*store)->Push(0, TensorViews(&view, 1), 0).Wait(Soon());
    if (policy == NonFinitePolicy::kError) {
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault) << status;
    } else {
      EXPECT_THAT(status, IsOk());
      EXPECT_EQ((*store)->stats().num_nonfinite, 1);
    }
    (*store)->Close();
  }
}

// Any bytes are rows by the codec or an error, and rows come back.
TEST(RowCodec, OfAnyBytesIsCheckedAndComesBack) {
  const Chunk chunk = {.begin = 32, .num_elems = 32};  // rows 4 to 9
  const std::vector<uint64_t> sorted = {4, 6, 9};      // 3 + 7 + 1 elements
  const std::vector<float> values(3 * kElemsOfRow, 2);
  const Buffer plain = PackRows(chunk, kElemsOfRow, sorted, values.data());
  Random random(1, 2);
  for (const char* text : kCodecs) {
    const CodecSetting codec = SettingOf(text);
    const Buffer good =
        *EncodeRows(codec, chunk, kElemsOfRow, plain.view(), {});
    EXPECT_LE(good.size(), *MaxEncodedRowBytes(codec, chunk, kElemsOfRow));
    const Buffer back = *DecodeRows(codec, chunk, kElemsOfRow, good.view());
    ASSERT_EQ(back.size(), plain.size());
    EXPECT_EQ(std::memcmp(back.data(), plain.data(), back.size()), 0) << text;
    for (int i = 0; i < 5000; ++i) {
      Buffer bad(static_cast<size_t>(random.NextUniform(0, 100)));
      std::copy_n(good.data(), std::min(bad.size(), good.size()), bad.data());
      if (bad.size() > 0) {
        bad.data()[static_cast<size_t>(i) % bad.size()] ^=
            static_cast<std::byte>(1 << (i % 8));
      }
      const absl::Status status =
          DecodeRows(codec, chunk, kElemsOfRow, bad.view()).status();
      EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    }
  }
}

TEST(RowCodec, OfAnotherKindIsRefused) {
  const Chunk chunk = {.num_elems = 32};
  const CodecSetting fp16 = SettingOf("fp16:0");
  const ServedRows rows = *ServedRows::Make(chunk, kElemsOfRow, fp16, 1);
  const FrameHeader header = {.payload_bytes = 40};
  PushHeader push;
  push.format = FormatOfRows(SettingOf("none"));
  EXPECT_THAT(rows.Admit(header, push),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "by codec 0 version 1; this chunk takes codec 2"));
  push.format = FormatOfRows(fp16);
  ASSERT_THAT(rows.Admit(header, push), IsOk());
  EXPECT_EQ(push.format.codec, 0);
  EXPECT_EQ(push.payload_bytes, 4 * 32);
}

}  // namespace
}  // namespace telegrad

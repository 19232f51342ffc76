#include "kvstore/engine/codec/shard_plan.h"

#include <sys/mman.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/floats.h"
#include "tests/testing/status_matchers.h"
#include "topology/cost_model.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using testing::StatusIs;

std::vector<size_t> Sizes(size_t num_elems, size_t num_servers) {
  return ShardSizes(num_elems, std::vector<size_t>(num_servers, 0));
}

std::vector<size_t> CodeBytes(size_t num_elems, size_t num_servers) {
  std::vector<size_t> bytes;
  for (const size_t elems : Sizes(num_elems, num_servers)) {
    bytes.push_back((elems + 15) / 16 * 4);
  }
  return bytes;
}

CompressionConfig TwoBit() {
  CompressionConfig config;
  config.type = "2bit";
  return config;
}

std::vector<TensorLayout> Plan(const std::vector<TensorSpec>& tensors,
                               int num_servers, size_t chunk_elems,
                               const CompressionConfig& config = TwoBit()) {
  auto plan = MakeShardPlan(tensors, num_servers, chunk_elems, config);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Known answers: MXNet's EncodeCompressedKey for n = 1,466,521.
TEST(ShardSizes, OfABigTensorAreMxnets) {
  EXPECT_THAT(CodeBytes(1466521, 1), ElementsAre(366632u));
  EXPECT_THAT(CodeBytes(1466521, 2), ElementsAre(183316u, 183316u));
  EXPECT_THAT(CodeBytes(1466521, 3), ElementsAre(122212u, 122208u, 122212u));
  EXPECT_THAT(Sizes(1466521, 2), ElementsAre(2933056u / 4, 2933028u / 4));
  EXPECT_THAT(Sizes(1466521, 3),
              ElementsAre(1955392u / 4, 1955328u / 4, 1955364u / 4));
}

TEST(ShardSizes, PartsAreWorthAMessage) {
  EXPECT_THAT(Sizes(2 * kMinPartElems - 1, 2),
              ElementsAre(2 * kMinPartElems - 1, 0u));
  EXPECT_THAT(Sizes(2 * kMinPartElems, 2),
              ElementsAre(kMinPartElems, kMinPartElems));
  EXPECT_THAT(Sizes(3 * kMinPartElems, 4),
              ElementsAre(kMinPartElems, kMinPartElems, kMinPartElems, 0u));
  EXPECT_THAT(Sizes(1, 3), ElementsAre(1u, 0u, 0u));
}

TEST(ShardSizes, PartsGoToTheServersWithTheLeast) {
  EXPECT_THAT(ShardSizes(10, std::vector<size_t>{7, 5, 5, 9}),
              ElementsAre(0u, 10u, 0u, 0u));
  EXPECT_THAT(ShardSizes(2 * kMinPartElems, std::vector<size_t>{7, 6, 9, 5}),
              ElementsAre(0u, kMinPartElems, 0u, kMinPartElems));
}

// A prediction counts frames and jobs as they will be, but for what is left
// over of each part.
TEST(ShardPlan, HasAsManyChunksAsTheCostModelReckonsWith) {
  constexpr size_t kChunk = 65536;
  for (const size_t servers : {1, 2, 3, 8}) {
    const Pipeline pipeline{.max_parts = static_cast<int>(servers)};
    for (const size_t elems :
         {size_t{48}, kMinPartElems, 2 * kMinPartElems, 8 * kMinPartElems,
          24 * kChunk, size_t{1'000'000}}) {
      const auto layouts =
          Plan({{"t", elems}}, static_cast<int>(servers), kChunk);
      const auto expected = static_cast<size_t>(
          NumChunks(pipeline, static_cast<int64_t>(elems), kChunk));
      const size_t count = layouts[0].chunks.size();
      EXPECT_GE(count, expected) << elems << " elements on " << servers;
      const bool leaves_over = elems % (servers * kChunk) != 0;
      EXPECT_LE(count, expected + (leaves_over ? servers - 1 : 0))
          << elems << " elements on " << servers;
    }
  }
}

TEST(ShardPlan, SpreadsTensorsOfAllSizesEvenly) {
  std::vector<TensorSpec> tensors;
  size_t total = 0;
  for (size_t i = 0; i < 200; ++i) {
    const size_t elems = i % 3 == 0 ? 64 : (i * 7919) % 900000 + 1;
    tensors.push_back({absl::StrCat("t", i), elems});
    total += elems;
  }
  for (const int servers : {2, 3, 8}) {
    std::vector<size_t> loads(static_cast<size_t>(servers), 0);
    for (const TensorLayout& each : Plan(tensors, servers, 100000)) {
      for (const Chunk& chunk : each.chunks) {
        loads[static_cast<size_t>(chunk.server)] += chunk.num_elems;
      }
    }
    const size_t share = total / static_cast<size_t>(servers);
    for (const size_t load : loads) {
      EXPECT_NEAR(static_cast<double>(load) / static_cast<double>(share), 1,
                  0.01);
    }
  }
}

TEST(ShardPlan, CoversEveryTensorOnceWithBordersOnWords) {
  const std::vector<TensorSpec> tensors = {
      {"a", 1},       {"b", 33},      {"c", 999999}, {"d", 1000000},
      {"e", 1000003}, {"f", 1466521}, {"g", 3000017}};
  for (const int servers : {1, 2, 3, 5}) {
    const std::vector<TensorLayout> plan = Plan(tensors, servers, 100000);
    ASSERT_EQ(plan.size(), tensors.size());
    for (size_t key = 0; key < plan.size(); ++key) {
      size_t at = 0;
      int server = 0;
      for (size_t i = 0; i < plan[key].chunks.size(); ++i) {
        const Chunk& chunk = plan[key].chunks[i];
        const bool is_new_shard = i == 0 || chunk.server != server;
        EXPECT_EQ(chunk.key, key);
        EXPECT_EQ(chunk.index, i);
        EXPECT_EQ(chunk.begin, at);
        EXPECT_GT(chunk.num_elems, 0u);
        EXPECT_LE(chunk.num_elems, 100000u);
        EXPECT_GE(chunk.server, server);
        EXPECT_LT(chunk.server, servers);
        EXPECT_EQ(chunk.begin % 16, 0u);
        if (!is_new_shard) {
          EXPECT_EQ(plan[key].chunks[i - 1].num_elems % 32, 0u);
        }
        server = chunk.server;
        at += chunk.num_elems;
      }
      EXPECT_EQ(at, tensors[key].num_elems) << tensors[key].name;
    }
  }
}

// A mapping that repeats one page of zeros but for its last element.
TEST(ShardPlan, ReachesWhatLiesBeyondTwoToThe33Bytes) {
  constexpr size_t kHugeElems = (size_t{1} << 31) + 70000;
  void* const mapped = mmap(nullptr, 4 * kHugeElems, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  madvise(mapped, 4 * kHugeElems, MADV_HUGEPAGE);  // fewer faults
  const Bytes view(mapped, 4 * kHugeElems);
  float& last = reinterpret_cast<float*>(view.data)[kHugeElems - 1];
  last = std::numeric_limits<float>::infinity();
  const TensorSpec tensor = {"large", kHugeElems};
  const std::vector<Chunk> chunks =
      Plan({tensor}, 3, size_t{1} << 20)[0].chunks;
  size_t at = 0;
  for (const Chunk& chunk : chunks) {
    ASSERT_EQ(chunk.begin, at);
    at += chunk.num_elems;
  }
  EXPECT_EQ(at, kHugeElems);
  const Chunk& end = chunks.back();
  EXPECT_EQ(&Floats(PartOf(view, end, Dtype::kFloat32))[end.num_elems - 1],
            &last);
  EXPECT_THAT(
      NonFiniteError("worker/0", 0, tensor, 7, view, nullptr, end, {}),
      StatusIs(absl::StatusCode::kDataLoss,
               absl::StrCat("1 NaN or infinite elements, the first at index ",
                            kHugeElems - 1)));
  munmap(mapped, 4 * kHugeElems);
}

TEST(ShardPlan, RoundsChunksUpToGroups) {
  const std::vector<TensorLayout> plan = Plan({{"a", 100}}, 1, 33);
  ASSERT_EQ(plan[0].chunks.size(), 2u);
  EXPECT_EQ(plan[0].chunks[0].num_elems, 64u);
  EXPECT_EQ(plan[0].chunks[1].num_elems, 36u);
  EXPECT_EQ(Plan({{"a", 100}}, 1, 0)[0].chunks.size(), 4u);
}

TEST(ShardPlan, TensorsMayHaveTheirOwnChunksAndCodecs) {
  CompressionConfig config = TwoBit();
  config.min_bytes = 1000;
  config.rules = "b=none";
  const std::vector<TensorLayout> plan = Plan(
      {{"a", 300},
       {.name = "b", .num_elems = 300, .codec = "2bit"},
       {.name = "c", .num_elems = 300, .codec = "none", .chunk_elems = 33},
       {.name = "d", .num_elems = 30, .codec = "fp16", .chunk_elems = 100}},
      1, 128, config);
  EXPECT_EQ(plan[0].chunks.size(), 3u);
  EXPECT_EQ(plan[1].chunks.size(), 3u);
  EXPECT_EQ(plan[2].chunks.size(), 5u);  // of 64
  EXPECT_EQ(plan[3].chunks.size(), 1u);
  const char* const names[] = {"2bit", "2bit", "none", "fp16"};
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(plan[i].codecs[0].codec->traits().name, names[i]);
    EXPECT_EQ(plan[i].has_rule, i > 0);
  }
  EXPECT_EQ(plan[3].reason, "the plan");
  EXPECT_THAT(MakeShardPlan(
                  std::vector<TensorSpec>{
                      {.name = "a", .num_elems = 1, .codec = "3bit"}},
                  1, 32, config),
              StatusIs(absl::StatusCode::kNotFound, "3bit"));
}

TEST(ShardPlan, IsTheSameEveryTime) {
  const std::vector<TensorSpec> tensors = {{"a", 7}, {"b", 1466521}};
  const std::vector<TensorLayout> one = Plan(tensors, 3, 4096);
  const std::vector<TensorLayout> two = Plan(tensors, 3, 4096);
  for (size_t key = 0; key < one.size(); ++key) {
    EXPECT_EQ(one[key].codecs[0].codec, two[key].codecs[0].codec);
    ASSERT_EQ(one[key].chunks.size(), two[key].chunks.size());
    for (size_t i = 0; i < one[key].chunks.size(); ++i) {
      EXPECT_EQ(one[key].chunks[i].begin, two[key].chunks[i].begin);
      EXPECT_EQ(one[key].chunks[i].server, two[key].chunks[i].server);
    }
  }
}

TEST(ShardPlan, LeavesTensorsBelowMinBytesDense) {
  CompressionConfig config = TwoBit();
  config.min_bytes = 400;
  const std::vector<TensorLayout> plan =
      Plan({{"a", 99}, {"b", 100}}, 1, 64, config);
  EXPECT_EQ(plan[0].codecs[0].codec->traits().name, "none");
  EXPECT_EQ(plan[1].codecs[0].codec->traits().name, "2bit");
}

TEST(ShardPlan, GivesAnEmptyTensorAKeyAndNoChunks) {
  const std::vector<TensorLayout> plan =
      Plan({{"a", 1}, {"nothing", 0}, {"b", 2}}, 2, 32, TwoBit());
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_TRUE(plan[1].chunks.empty());
  EXPECT_EQ(plan[2].chunks[0].key, 2u);
  EXPECT_EQ(plan[2].chunks[0].server, 1);  // where the least is
}

TEST(ShardPlan, RefusesWhatCannotBePlanned) {
  const std::vector<TensorSpec> good = {{"a", 1}};
  EXPECT_THAT(MakeShardPlan(good, 0, 32, TwoBit()),
              StatusIs(absl::StatusCode::kInvalidArgument, "no server"));
  CompressionConfig unknown;
  unknown.type = "3bit";
  EXPECT_THAT(MakeShardPlan(good, 1, 32, unknown),
              StatusIs(absl::StatusCode::kNotFound, "3bit"));
}

}  // namespace
}  // namespace telegrad

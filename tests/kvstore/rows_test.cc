#include "kvstore/engine/rows/rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/row_buffers.h"

// Views of some rows of a tensor: MXNet's row_sparse push and pull. What all
// types of store do with them is in conformance/row_checks.cc.
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
using testing::Table;

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

INSTANTIATE_TEST_SUITE_P(Jobs, Rows,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& test) {
                           return absl::StrCat(
                               "Of", std::get<0>(test.param), "WorkersAnd",
                               std::get<1>(test.param), "Servers");
                         });

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

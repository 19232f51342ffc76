#include "kvstore/operations/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/kvstore/operations/operations_ranks.h"

namespace telegrad::testing {
namespace {

using ::testing::ElementsAre;

class OperationsOfRanks : public ::testing::TestWithParam<int> {
 protected:
  int n() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Inproc, OperationsOfRanks,
                         ::testing::Values(1, 2, 3, 4),
                         [](const auto& setting) {
                           return absl::StrCat(setting.param, "Ranks");
                         });

template <typename T>
void CheckReductions(Operations& operations, int n) {
  const int rank = operations.rank();
  const std::vector<T> values = {static_cast<T>(rank + 1), 2, 1};
  T product = 1, sum = 0;
  for (int i = 0; i < n; ++i) {
    product = static_cast<T>(product * static_cast<T>(i + 1));
    sum = static_cast<T>(sum + static_cast<T>(i + 1));
  }
  const auto twos = static_cast<T>(std::pow(2, n));
  const T many = static_cast<T>(n);
  const std::pair<Op, std::vector<T>> cases[] = {
      {Op::kSum, {sum, static_cast<T>(2 * n), many}},
      {Op::kMin, {1, 2, 1}},
      {Op::kMax, {many, 2, 1}},
      {Op::kProduct, {product, twos, 1}}};
  for (const auto& [op, expected] : cases) {
    const auto wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.op = op;
    EXPECT_EQ(Do<T>(operations, wanted), expected) << ToString(op);
  }
  const auto average = Want(Kind::kAllreduce, "x", values);
  average->request.op = Op::kAverage;
  EXPECT_EQ(Do<T>(operations, average)[1], 2);
}

TEST_P(OperationsOfRanks, Reduce) {
  RunOperations(n(), [&](Operations& operations) {
    CheckReductions<float>(operations, n());
    CheckReductions<double>(operations, n());
    CheckReductions<int32_t>(operations, n());
    CheckReductions<int64_t>(operations, n());
    CheckReductions<uint8_t>(operations, n());
  });
}

TEST_P(OperationsOfRanks, ReduceInPlaceAndScaled) {
  RunOperations(n(), [&](Operations& operations) {
    std::vector<float> values = {1, 2};
    auto wanted = Want(Kind::kAllreduce, "x", values);
    wanted->out = values.data();
    wanted->out_elems = 2;
    wanted->request.prescale = 3;
    wanted->request.postscale = .5;
    Do<float>(operations, wanted);
    const auto sum = 1.5F * static_cast<float>(n());
    EXPECT_THAT(values, ElementsAre(sum, 2 * sum));
    std::vector<float> apart(2);
    wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.op = Op::kMax;
    wanted->out = apart.data();
    wanted->out_elems = 2;
    Do<float>(operations, wanted);
    EXPECT_EQ(apart, values);
  });
}

TEST(Factors, OfWholeNumbersAreCutToTheirType) {
  RunOperations(1, [](Operations& operations) {
    const std::vector<int32_t> values = {7, -7, 1000, -1000};
    auto wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.postscale = .5;
    EXPECT_THAT(Do<int32_t>(operations, wanted), ElementsAre(3, -3, 500, -500));
    wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.postscale = 1e7;
    EXPECT_THAT(Do<int32_t>(operations, wanted),
                ElementsAre(70000000, -70000000, INT32_MAX, INT32_MIN));
  });
}

// 161 tensors a step, each rank in orders of its own, some of them grouped.
TEST_P(OperationsOfRanks, ReduceManyInRandomOrders) {
  RunOperations(n(), [&](Operations& operations) {
    std::mt19937 random(static_cast<unsigned>(operations.rank()));
    for (int step = 0; step < 5; ++step) {
      std::vector<std::vector<float>> tensors;
      std::vector<int> order;
      for (int i = 0; i < 161; ++i) {
        tensors.emplace_back(1 + i * 7 % 300, static_cast<float>(i + step));
        order.push_back(i);
      }
      std::shuffle(order.begin(), order.end(), random);
      std::vector<int64_t> handles(tensors.size());
      for (const int i : order) {
        const auto wanted =
            Want(Kind::kAllreduce, absl::StrCat("t", i), tensors[i]);
        if (i < 10) {
          wanted->request.group = 1;
          wanted->request.group_size = 10;
        }
        const auto handle = operations.Submit(wanted);
        ASSERT_THAT(handle, IsOk());
        handles[i] = *handle;
      }
      for (int i = 0; i < 161; ++i) {
        const auto got = ResultOf<float>(operations, handles[i]);
        ASSERT_EQ(got.size(), tensors[i].size());
        EXPECT_EQ(got.back(), static_cast<float>(n() * (i + step)));
      }
    }
  });
}

TEST_P(OperationsOfRanks, GatherUnequalRows) {
  RunOperations(n(), [&](Operations& operations) {
    const int rank = operations.rank();
    for (const int step : {0, 1, 1}) {  // rows change, and are cached
      const std::vector<int32_t> own(static_cast<size_t>(2 * (rank + step)),
                                     rank);
      const auto wanted = Want(Kind::kAllgather, "x", own);
      wanted->request.shape = {rank + step, 2};
      const auto handle = operations.Submit(wanted);
      ASSERT_THAT(handle, IsOk());
      EXPECT_THAT(WaitFor(operations, *handle), IsOk());
      std::vector<int32_t> expected;
      for (int i = 0; i < n(); ++i) {
        expected.insert(expected.end(), static_cast<size_t>(2 * (i + step)), i);
        EXPECT_EQ((*operations.queue().Result(*handle))->rows[i], i + step);
      }
      EXPECT_EQ(ResultOf<int32_t>(operations, *handle), expected);
    }
  });
}

// As one allgather, whatever their types: a group's requests run together.
TEST_P(OperationsOfRanks, GatherSeveralTensorsAsOne) {
  RunOperations(n(), [&](Operations& operations) {
    const auto rank = static_cast<size_t>(operations.rank());
    const std::vector<float> floats(rank, 0.5f);
    const std::vector<uint8_t> bytes(3, static_cast<uint8_t>(rank));
    const std::vector<int64_t> longs(1 + rank, -static_cast<int64_t>(rank));
    const std::shared_ptr<Submission> all[] = {
        Want(Kind::kAllgather, "floats", floats),
        Want(Kind::kAllgather, "bytes", bytes),
        Want(Kind::kAllgather, "longs", longs)};
    std::vector<int64_t> handles;
    for (const auto& wanted : all) {
      wanted->request.group = 5;
      wanted->request.group_size = 3;
      const auto handle = operations.Submit(wanted);
      ASSERT_THAT(handle, IsOk());
      handles.push_back(*handle);
    }
    std::vector<float> all_floats;
    std::vector<uint8_t> all_bytes;
    std::vector<int64_t> all_longs, rows;
    for (int i = 0; i < n(); ++i) {
      const auto other = static_cast<size_t>(i);
      all_floats.insert(all_floats.end(), other, 0.5f);
      all_bytes.insert(all_bytes.end(), 3, static_cast<uint8_t>(i));
      all_longs.insert(all_longs.end(), 1 + other, -i);
      rows.push_back(1 + i);
    }
    EXPECT_THAT(WaitFor(operations, handles[2]), IsOk());
    EXPECT_EQ((*operations.queue().Result(handles[2]))->rows, rows);
    EXPECT_EQ(ResultOf<float>(operations, handles[0]), all_floats);
    EXPECT_EQ(ResultOf<uint8_t>(operations, handles[1]), all_bytes);
    EXPECT_EQ(ResultOf<int64_t>(operations, handles[2]), all_longs);
  });
}

TEST_P(OperationsOfRanks, Broadcast) {
  RunOperations(n(), [&](Operations& operations) {
    for (int root = 0; root < n(); ++root) {
      const std::vector<double> own(5, operations.rank());
      const auto wanted = Want(Kind::kBroadcast, "x", own);
      wanted->request.root = root;
      EXPECT_EQ(Do<double>(operations, wanted), std::vector<double>(5, root));
    }
  });
}

TEST_P(OperationsOfRanks, ScatterReducedRowsFirstRanksFirst) {
  RunOperations(n(), [&](Operations& operations) {
    const std::vector<float> own = {0, 1, 2, 3, 4, 5, 6};
    const auto wanted = Want(Kind::kReduceScatter, "x", own);
    wanted->request.op = Op::kAverage;
    wanted->request.prescale = 2;
    const auto got = Do<float>(operations, wanted);
    int64_t first = 0;
    for (int i = 0; i < operations.rank(); ++i) {
      first += operations::RowsOf(7, n(), i);
    }
    ASSERT_EQ(got.size(), operations::RowsOf(7, n(), operations.rank()));
    for (const float value : got) {
      EXPECT_EQ(value, 2 * static_cast<float>(first++));
    }
  });
}

TEST_P(OperationsOfRanks, ExchangeUnequalSplits) {
  RunOperations(n(), [&](Operations& operations) {
    const int rank = operations.rank();
    // Rank r sends i rows with 10 r + i to rank i.
    std::vector<int32_t> own;
    std::vector<int64_t> splits;
    std::vector<int32_t> expected;
    for (int i = 0; i < n(); ++i) {
      own.insert(own.end(), static_cast<size_t>(i), 10 * rank + i);
      splits.push_back(i);
      expected.insert(expected.end(), static_cast<size_t>(rank), 10 * i + rank);
    }
    auto wanted = Want(Kind::kAlltoall, "x", own);
    wanted->request.splits = splits;
    EXPECT_EQ(Do<int32_t>(operations, wanted), expected);
    const std::vector<int32_t> equal(static_cast<size_t>(2 * n()), rank);
    EXPECT_EQ(Do<int32_t>(operations, Want(Kind::kAlltoall, "y", equal)).size(),
              equal.size());
  });
}

TEST_P(OperationsOfRanks, TakeNothing) {
  RunOperations(n(), [&](Operations& operations) {
    const std::vector<float> none;
    for (const Kind kind :
         {Kind::kAllreduce, Kind::kAllgather, Kind::kBroadcast,
          Kind::kReduceScatter, Kind::kAlltoall}) {
      EXPECT_TRUE(Do<float>(operations, Want(kind, "x", none)).empty());
    }
    Do<float>(operations, Want(Kind::kBarrier, "barrier", none));
  });
}

// Two vectors that are alike are averaged, orthogonal ones added.
TEST(Adasum, IsBetweenSumAndAverage) {
  RunOperations(2, [&](Operations& operations) {
    const bool is_first = operations.rank() == 0;
    const std::vector<float> alike = {3, 4};
    const std::vector<double> apart = {is_first ? 2. : 0., is_first ? 0. : 5.};
    auto wanted = Want(Kind::kAllreduce, "alike", alike);
    wanted->request.op = Op::kAdasum;
    EXPECT_THAT(Do<float>(operations, wanted), ElementsAre(3, 4));
    wanted = Want(Kind::kAllreduce, "apart", apart);
    wanted->request.op = Op::kAdasum;
    EXPECT_THAT(Do<double>(operations, wanted), ElementsAre(2, 5));
  });
}

// Rank r's values of a vector that no two ranks have alike.
std::vector<float> Slope(int rank) {
  std::vector<float> values;
  for (int i = 0; i < 1001; ++i) {
    values.push_back(static_cast<float>((i * (rank + 3)) % 17 - 8));
  }
  return values;
}

// arXiv:2006.02924, equation 5, of neighbours and then of neighbours of these,
// in float64.
std::vector<double> AdasumOf(int first, int num) {
  const int left =
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(num))) / 2;
  const std::vector<float> own = Slope(first);
  if (num == 1) return {own.begin(), own.end()};
  std::vector<double> a = AdasumOf(first, left);
  const std::vector<double> b = AdasumOf(first + left, num - left);
  const auto dot = [](const std::vector<double>& x,
                      const std::vector<double>& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  const double ab = dot(a, b), aa = dot(a, a), bb = dot(b, b);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = (1 - ab / (2 * aa)) * a[i] + (1 - ab / (2 * bb)) * b[i];
  }
  return a;
}

// Powers of two swap halves, the others gather; all have the same bits. Each
// step rounds once, to 2^-24 of values below 64.
TEST(Adasum, CombinesNeighboursOfAnyNumber) {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    const std::vector<double> expected = AdasumOf(0, ranks);
    RunOperations(ranks, [&](Operations& operations) {
      const std::vector<float> own = Slope(operations.rank());
      const auto wanted = Want(Kind::kAllreduce, "x", own);
      wanted->request.op = Op::kAdasum;
      const std::vector<float> got = Do<float>(operations, wanted);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 4e-5) << ranks << " ranks, at " << i;
      }
      const std::vector<float> all =
          Do<float>(operations, Want(Kind::kAllgather, "all", got));
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], got[i % got.size()]);
      }
    });
  }
}

// Rank r has r + 1 batches; who has no more counts as zeros.
TEST_P(OperationsOfRanks, JoinWhenBatchesAreUneven) {
  RunOperations(n(), [&](Operations& operations) {
    const int rank = operations.rank();
    const std::vector<float> ones(3, 1);
    for (int batch = 0; batch <= rank; ++batch) {
      const auto got = Do<float>(
          operations, Want(Kind::kAllreduce, absl::StrCat("b", batch), ones));
      EXPECT_THAT(got, ::testing::Each(static_cast<float>(n() - batch)));
    }
    EXPECT_THAT(Do<int64_t>(operations, Want<float>(Kind::kJoin, "join", {})),
                ElementsAre(n() - 1));
    EXPECT_EQ(Do<float>(operations, Want(Kind::kAllreduce, "b0", ones))[0],
              static_cast<float>(n()));
  });
}

TEST(ProcessSets, RunBesideTheWorld) {
  RunOperations(4, [&](Operations& operations) {
    const int rank = operations.rank();
    const auto even = operations.AddProcessSet({0, 2});
    const auto last = operations.AddProcessSet({1, 2, 3});
    ASSERT_THAT(even, IsOk());
    ASSERT_THAT(last, IsOk());
    EXPECT_EQ(std::pair(*even, *last), std::pair(1, 2));
    const std::vector<float> own(3, static_cast<float>(rank));
    for (int step = 0; step < 3; ++step) {
      if (rank % 2 == 0) {
        const auto wanted = Want(Kind::kAllreduce, "x", own);
        wanted->request.set = *even;
        EXPECT_EQ(Do<float>(operations, wanted)[0], 2);
      }
      if (rank > 0) {
        auto wanted = Want(Kind::kBroadcast, "x", own);
        wanted->request.set = *last;
        wanted->request.root = 3;
        EXPECT_EQ(Do<float>(operations, wanted)[2], 3);
        wanted = Want(Kind::kAllgather, "y", own);
        wanted->request.set = *last;
        EXPECT_EQ(Do<float>(operations, wanted).size(), 9);
      }
      EXPECT_EQ(Do<float>(operations, Want(Kind::kAllreduce, "x", own))[0], 6);
    }
    EXPECT_THAT(operations.RemoveProcessSet(*even), IsOk());
    EXPECT_FALSE(operations.RemoveProcessSet(*even).ok());
    EXPECT_EQ(*operations.AddProcessSet({0, 2}), 3);
  });
}

}  // namespace
}  // namespace telegrad::testing

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "tests/kvstore/collective/collective_case.h"

// Types and operations.
namespace telegrad::testing {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

// Whole numbers wrap; of bools the sum is "or" and the product "and".
template <typename T>
T Reduced(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if constexpr (std::is_same_v<T, bool>) {
    return op == ReduceOp::kSum ? a || b : a && b;
  } else if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(op == ReduceOp::kSum ? x + y : x * y);
  } else {
    return op == ReduceOp::kSum ? a + b : a * b;
  }
}

// Far from 0, so that whole numbers wrap.
template <typename T>
T Typed(int rank, size_t i) {
  const int value = ValueAt(rank, i);
  if constexpr (std::is_same_v<T, bool>) return value > 0;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  return static_cast<T>(
      static_cast<uint64_t>(value) *
      static_cast<uint64_t>(std::numeric_limits<T>::max() / 3));
}

template <typename T>
void ReduceAsTheyShould(Group& group, Dtype type) {
  constexpr size_t kCount = 3001;
  for (const Algorithm algorithm : AlgorithmsOf(Operation::kAllreduce)) {
    for (const ReduceOp op : kOps) {
      std::vector<T> expected(kCount);
      const auto data = std::make_unique<T[]>(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        data[i] = Typed<T>(group.rank(), i);
        T all = Typed<T>(0, i);
        for (int rank = 1; rank < group.world_size(); ++rank) {
          all = Reduced<T>(op, all, Typed<T>(rank, i));
        }
        expected[i] = all;
      }
      ASSERT_THAT(group.Allreduce(data.get(), kCount, type, op,
                                  {.algorithm = algorithm}),
                  IsOk());
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(data[i], expected[i]) << ToString(type) << " " << ToString(op)
                                        << " " << ToString(algorithm);
      }
    }
  }
}

TEST_P(Collective, TypesAndOperationsReduceAsTheyShould) {
  RunRanks(Options(), [](Group& group) {
    ReduceAsTheyShould<float>(group, Dtype::kFloat32);
    ReduceAsTheyShould<double>(group, Dtype::kFloat64);
    ReduceAsTheyShould<int32_t>(group, Dtype::kInt32);
    ReduceAsTheyShould<int64_t>(group, Dtype::kInt64);
    ReduceAsTheyShould<uint8_t>(group, Dtype::kUint8);
    ReduceAsTheyShould<int8_t>(group, Dtype::kInt8);
    ReduceAsTheyShould<bool>(group, Dtype::kBool);
  });
}

// bfloat16 is the upper half of a float; these and their products fit.
TEST_P(Collective, Bfloat16ReducesAsFloatsDo) {
  const auto half = [](float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  };
  RunRanks(Options(), [half](Group& group) {
    const auto value_at = [](int rank, size_t i) {
      return static_cast<float>(1 << (ValueAt(rank, i) + 4) % 4);
    };
    for (const ReduceOp op : kOps) {
      std::vector<uint16_t> in;
      std::vector<uint16_t> expected;
      for (size_t i = 0; i < 3001; ++i) {
        in.push_back(half(value_at(group.rank(), i)));
        float all = value_at(0, i);
        for (int rank = 1; rank < group.world_size(); ++rank) {
          all = Reduced<float>(op, all, value_at(rank, i));
        }
        expected.push_back(half(all));
      }
      for (const Algorithm algorithm : AlgorithmsOf(Operation::kAllreduce)) {
        std::vector<uint16_t> data = in;
        ASSERT_THAT(group.Allreduce(data.data(), data.size(), Dtype::kBfloat16,
                                    op, {.algorithm = algorithm}),
                    IsOk());
        EXPECT_EQ(data, expected) << ToString(op) << " " << ToString(algorithm);
      }
    }
  });
}

// 1 is 0x3c00, 2 0x4000 and so on: IEEE 754, binary16.
TEST_P(Collective, Float16Sums) {
  constexpr uint16_t kOne = 0x3c00;
  constexpr uint16_t kSums[] = {0,      0x3c00, 0x4000, 0x4200, 0x4400,
                                0x4500, 0x4600, 0x4700, 0x4800, 0x4880};
  RunRanks(Options(), [&](Group& group) {
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kAllreduce)) {
      std::vector<uint16_t> data(5000, kOne);
      ASSERT_THAT(group.Allreduce(data.data(), data.size(), Dtype::kFloat16,
                                  ReduceOp::kSum, {.algorithm = algorithm}),
                  IsOk());
      for (const uint16_t half : data) {
        ASSERT_EQ(half, kSums[group.world_size()]);
      }
    }
  });
}

// Sums whose bits depend on the order, with NaNs of different payloads.
TEST_P(Collective, ResultsAreTheSameBitsOnAllRanks) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    for (const Algorithm algorithm : AlgorithmsOf(Operation::kAllreduce)) {
      constexpr size_t kCount = 2003;
      std::vector<uint32_t> data(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        const float value =
            0.1f * static_cast<float>(ValueAt(group.rank(), i * i) + 1);
        std::memcpy(&data[i], &value, 4);
        if (i % 100 == 0) {
          data[i] = 0x7fc00001u + static_cast<uint32_t>(group.rank());
        }
      }
      ASSERT_THAT(group.Allreduce(data.data(), kCount, Dtype::kFloat32,
                                  ReduceOp::kSum, {.algorithm = algorithm}),
                  IsOk());
      std::vector<uint32_t> all(n * kCount);
      ASSERT_THAT(
          group.Allgather(data.data(), all.data(), kCount, Dtype::kInt32),
          IsOk());
      for (size_t rank = 0; rank < n; ++rank) {
        ASSERT_EQ(
            std::memcmp(all.data() + rank * kCount, data.data(), 4 * kCount), 0)
            << ToString(algorithm) << " rank " << rank;
      }
    }
  });
}

}  // namespace
}  // namespace telegrad::testing

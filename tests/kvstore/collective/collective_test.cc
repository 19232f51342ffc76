#include "kvstore/collective/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <ostream>

#include "tests/kvstore/collective/collective_ranks.h"

namespace telegrad::testing {
namespace {

using Algorithm = CollectiveAlgorithm;

struct Setting {
  const char* test_name;
  const char* transport;
  const char* tls;
  int ranks;
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.test_name;
}

// 0 and 1, fewer than ranks, primes, around a piece (1024 floats) and several.
constexpr size_t kCounts[] = {0, 1, 3, 7, 1021, 1024, 1025, 10007, 40961};

// Small, so that sums are exact in every type and order.
int ValueAt(int rank, size_t i) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 11) - 4;
}

std::vector<float> Floats(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(ValueAt(rank, i));
  }
  return values;
}

int SumAt(int ranks, size_t i) {
  int sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += ValueAt(rank, i);
  return sum;
}

class Collective : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    class Deaf : public TransportHandler {
      void OnAccept(EndpointId) override {}
      absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes, size_t) override {
        return Bytes();
      }
      void OnMessage(EndpointId, ConstBytes, Bytes) override {}
      void OnClosed(EndpointId, const absl::Status&) override {}
    } deaf;
    const auto made = MakeTransport(Options().transport, &deaf);
    if (absl::IsNotFound(made.status())) GTEST_SKIP() << made.status();
  }

  static GroupOptions Options() {
    GroupOptions options;
    options.transport.name = GetParam().transport;
    options.transport.tls = GetParam().tls;
    options.world_size = GetParam().ranks;
    options.chunk_bytes = 4096;
    options.timeout = std::chrono::seconds(30);
    return options;
  }
};

TEST_P(Collective, AllreduceSumsEveryElement) {
  RunRanks(Options(), [](Group& group) {
    for (const Algorithm algorithm :
         {Algorithm::kAuto, Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
      for (const size_t count : kCounts) {
        std::vector<float> data = Floats(group.rank(), count);
        ASSERT_THAT(group.Allreduce(data.data(), count, Dtype::kFloat32,
                                    ReduceOp::kSum, {.algorithm = algorithm}),
                    IsOk());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(data[i], static_cast<float>(SumAt(group.world_size(), i)))
              << ToString(algorithm) << " count " << count << " at " << i;
        }
      }
    }
  });
}

TEST_P(Collective, ReduceScatterGivesEachRankItsBlock) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      for (const size_t count : kCounts) {
        const std::vector<float> in = Floats(group.rank(), n * count);
        std::vector<float> out(count, -99);
        ASSERT_THAT(
            group.ReduceScatter(in.data(), out.data(), count, Dtype::kFloat32,
                                ReduceOp::kSum, {.algorithm = algorithm}),
            IsOk());
        const size_t begin = static_cast<size_t>(group.rank()) * count;
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i],
                    static_cast<float>(SumAt(group.world_size(), begin + i)))
              << ToString(algorithm) << " count " << count << " at " << i;
        }
      }
    }
  });
}

TEST_P(Collective, AllgatherPutsBlocksInTheOrderOfRanks) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      for (const size_t count : kCounts) {
        std::vector<float> expected;
        for (int rank = 0; rank < group.world_size(); ++rank) {
          const std::vector<float> block = Floats(rank, count);
          expected.insert(expected.end(), block.begin(), block.end());
        }
        std::vector<float> out(n * count, -99);
        const std::vector<float> in = Floats(group.rank(), count);
        ASSERT_THAT(group.Allgather(in.data(), out.data(), count,
                                    Dtype::kFloat32, {.algorithm = algorithm}),
                    IsOk());
        ASSERT_TRUE(out == expected)
            << ToString(algorithm) << " count " << count;
      }
    }
  });
}

TEST_P(Collective, AllgathervTakesBlocksOfDifferentSizesAndNone) {
  RunRanks(Options(), [](Group& group) {
    std::vector<size_t> counts;
    std::vector<float> expected;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      counts.push_back(rank == 1 ? 0 : 20000 / static_cast<size_t>(rank + 1));
      const std::vector<float> block = Floats(rank, counts.back());
      expected.insert(expected.end(), block.begin(), block.end());
    }
    const std::vector<float> in =
        Floats(group.rank(), counts[static_cast<size_t>(group.rank())]);
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      std::vector<float> out(expected.size(), -99);
      ASSERT_THAT(group.Allgatherv(in.data(), out.data(), counts,
                                   Dtype::kFloat32, {.algorithm = algorithm}),
                  IsOk());
      EXPECT_TRUE(out == expected) << ToString(algorithm);
    }
  });
}

TEST_P(Collective, BroadcastReachesAllFromEveryRoot) {
  RunRanks(Options(), [](Group& group) {
    for (const Algorithm algorithm :
         {Algorithm::kBinomial, Algorithm::kChain}) {
      for (int root = 0; root < group.world_size(); ++root) {
        for (const size_t count : kCounts) {
          std::vector<float> data = Floats(group.rank(), count);
          ASSERT_THAT(group.Broadcast(data.data(), count, Dtype::kFloat32, root,
                                      {.algorithm = algorithm}),
                      IsOk());
          ASSERT_TRUE(data == Floats(root, count))
              << ToString(algorithm) << " root " << root << " count " << count;
        }
      }
    }
  });
}

TEST_P(Collective, AlltoallTransposesBlocks) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    const auto self = static_cast<size_t>(group.rank());
    for (const Algorithm algorithm :
         {Algorithm::kDirect, Algorithm::kPairwise}) {
      for (const size_t count : kCounts) {
        const std::vector<float> in = Floats(group.rank(), n * count);
        std::vector<float> out(n * count, -99);
        ASSERT_THAT(group.Alltoall(in.data(), out.data(), count,
                                   Dtype::kFloat32, {.algorithm = algorithm}),
                    IsOk());
        for (size_t from = 0; from < n; ++from) {
          const std::vector<float> theirs =
              Floats(static_cast<int>(from), n * count);
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(out[from * count + i], theirs[self * count + i])
                << ToString(algorithm) << " count " << count;
          }
        }
      }
    }
  });
}

// Roots run ahead of the others between these.
TEST_P(Collective, ManySmallOnesInARowStayInOrder) {
  RunRanks(Options(), [](Group& group) {
    for (int round = 0; round < 300; ++round) {
      int32_t value = group.rank() == 0 ? round : -1;
      ASSERT_THAT(group.Broadcast(&value, 1, Dtype::kInt32, 0), IsOk());
      ASSERT_EQ(value, round);
      if (round % 50 != 0) continue;
      ASSERT_THAT(group.Barrier(), IsOk());
    }
  });
}

TEST_P(Collective, BarrierHoldsAllUntilTheLastHasCome) {
  std::atomic<int> num_come{0};
  RunRanks(Options(), [&](Group& group) {
    for (int round = 1; round <= 20; ++round) {
      ++num_come;
      ASSERT_THAT(group.Barrier(), IsOk());
      ASSERT_GE(num_come.load(), round * group.world_size());
    }
  });
}

template <typename T>
std::vector<T> Converted(const std::vector<float>& values);

template <>
std::vector<int32_t> Converted(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// bfloat16 is the upper half of a float; small integers fit.
template <>
std::vector<uint16_t> Converted(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return halves;
}

float Reduced(ReduceOp op, int ranks, size_t i) {
  int result = ValueAt(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int value = ValueAt(rank, i);
    if (op == ReduceOp::kSum) result += value;
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
  }
  return static_cast<float>(result);
}

TEST_P(Collective, TypesAndOperationsReduceAsTheyShould) {
  RunRanks(Options(), [](Group& group) {
    constexpr size_t kCount = 3001;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> expected;
      for (size_t i = 0; i < kCount; ++i) {
        expected.push_back(Reduced(op, group.world_size(), i));
      }
      const std::vector<float> floats = Floats(group.rank(), kCount);
      auto ints = Converted<int32_t>(floats);
      auto halves = Converted<uint16_t>(floats);
      auto plain = floats;
      ASSERT_THAT(group.Allreduce(ints.data(), kCount, Dtype::kInt32, op),
                  IsOk());
      ASSERT_THAT(group.Allreduce(halves.data(), kCount, Dtype::kBfloat16, op,
                                  {.algorithm = Algorithm::kRing}),
                  IsOk());
      ASSERT_THAT(group.Allreduce(plain.data(), kCount, Dtype::kFloat32, op,
                                  {.algorithm = Algorithm::kRing}),
                  IsOk());
      EXPECT_TRUE(ints == Converted<int32_t>(expected)) << ToString(op);
      EXPECT_TRUE(plain == expected) << ToString(op);
      // -0 and 0 have the same value.
      for (size_t i = 0; i < kCount; ++i) {
        const uint16_t want = Converted<uint16_t>({expected[i]})[0];
        ASSERT_EQ(halves[i] == 0x8000 ? 0 : halves[i], want)
            << ToString(op) << " at " << i;
      }
    }
  });
}

// 1 is 0x3c00, 2 0x4000 and so on: IEEE 754, binary16.
TEST_P(Collective, Float16Sums) {
  constexpr uint16_t kOne = 0x3c00;
  constexpr uint16_t kSums[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
  RunRanks(Options(), [&](Group& group) {
    std::vector<uint16_t> data(5000, kOne);
    ASSERT_THAT(group.Allreduce(data.data(), data.size(), Dtype::kFloat16,
                                ReduceOp::kSum),
                IsOk());
    for (const uint16_t half : data) {
      ASSERT_EQ(half, kSums[group.world_size()]);
    }
  });
}

// Sums whose bits depend on the order, with NaNs of different payloads.
TEST_P(Collective, ResultsAreTheSameBitsOnAllRanks) {
  RunRanks(Options(), [](Group& group) {
    const auto n = static_cast<size_t>(group.world_size());
    for (const Algorithm algorithm :
         {Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
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

TEST_P(Collective, LargeDataFlowInManyPieces) {
  GroupOptions options = Options();
  options.chunk_bytes = size_t{64} << 10;
  RunRanks(options, [](Group& group) {
    constexpr size_t kCount = 1'000'003;
    std::vector<float> data = Floats(group.rank(), kCount);
    ASSERT_THAT(
        group.Allreduce(data.data(), kCount, Dtype::kFloat32, ReduceOp::kSum),
        IsOk());
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i], static_cast<float>(SumAt(group.world_size(), i)));
    }
    // Ring: each rank sends 2 (n - 1) / n of the bytes.
    const auto n = static_cast<double>(group.world_size());
    EXPECT_NEAR(static_cast<double>(group.traffic().payload_bytes),
                8 * (n - 1) / n * kCount, 16 * n);
  });
}

TEST_P(Collective, WrongArgumentsLeaveTheGroupWhole) {
  RunRanks(Options(), [](Group& group) {
    std::vector<float> data(9, 1);
    EXPECT_THAT(
        group.Broadcast(data.data(), 9, Dtype::kFloat32, group.world_size()),
        StatusIs(absl::StatusCode::kInvalidArgument, "root"));
    EXPECT_THAT(group.Allreduce(data.data(), 9, Dtype::kFloat32, ReduceOp::kSum,
                                {.algorithm = Algorithm::kChain}),
                StatusIs(absl::StatusCode::kInvalidArgument, "chain"));
    EXPECT_THAT(group.Allreduce(reinterpret_cast<char*>(data.data()) + 1, 8,
                                Dtype::kFloat32, ReduceOp::kSum),
                StatusIs(absl::StatusCode::kInvalidArgument, "aligned"));
    EXPECT_THAT(group.Allreduce(data.data(), std::numeric_limits<size_t>::max(),
                                Dtype::kFloat32, ReduceOp::kSum),
                StatusIs(absl::StatusCode::kInvalidArgument, "count"));
    const std::vector<size_t> counts(
        static_cast<size_t>(group.world_size()) + 1, 1);
    EXPECT_THAT(
        group.Allgatherv(data.data(), data.data(), counts, Dtype::kFloat32),
        StatusIs(absl::StatusCode::kInvalidArgument, "counts"));
    EXPECT_THAT(group.Barrier(), IsOk());
  });
}

constexpr Setting kSettings[] = {
    {"Inproc1", "inproc", "", 1}, {"Inproc2", "inproc", "", 2},
    {"Inproc3", "inproc", "", 3}, {"Inproc4", "inproc", "", 4},
    {"Inproc5", "inproc", "", 5}, {"Tcp2", "tcp", "tcp", 2},
    {"Tcp3", "tcp", "tcp", 3},    {"TcpSameHost3", "tcp", "", 3},
    {"UcxTcp2", "ucx", "tcp", 2}, {"UcxTcp3", "ucx", "tcp", 3},
    {"OfiTcp2", "ofi", "tcp", 2}, {"UcxShm2", "ucx", "shm", 2},
    {"UcxShm5", "ucx", "shm", 5}};

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, ::testing::ValuesIn(kSettings),
                         [](const auto& param_info) {
                           return std::string(param_info.param.test_name);
                         });

}  // namespace
}  // namespace telegrad::testing

#include "kvstore/collective/nccl/nccl_group.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <ostream>

#include "tests/kvstore/collective/collective_ranks.h"
#include "tests/kvstore/collective/fake_nccl.h"

// The same collectives over the fake, and over the GPUs of this machine.
namespace telegrad::testing {
namespace {

using Bytes = std::vector<std::byte>;
using collective::Library;
using collective::NcclGroup;

constexpr Dtype kTypes[] = {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16,
                            Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat64,
                            Dtype::kUint8,   Dtype::kInt8,    Dtype::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr size_t kCounts[] = {0, 1, 7, 1021, 40961};

struct Setting {
  const char* test_name;
  int ranks;  // 0: one for each GPU
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.test_name;
}

// Small, so that sums and products are exact in every type and order.
int ValueAt(int rank, size_t i) {
  constexpr int kValues[] = {-2, 1, 2, -1};
  return kValues[(i * 7 + static_cast<size_t>(rank) * 3) % 11 % 4];
}

std::vector<int> Values(int rank, size_t count) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = ValueAt(rank, i);
  return values;
}

// The value as a type without a sign has it.
int Typed(Dtype type, int value) {
  if (type == Dtype::kBool) return value > 0 ? 1 : 0;
  return type == Dtype::kUint8 ? std::abs(value) : value;
}

int Reduced(Dtype type, ReduceOp op, int ranks, size_t i) {
  int result = Typed(type, ValueAt(0, i));
  for (int rank = 1; rank < ranks; ++rank) {
    const int value = Typed(type, ValueAt(rank, i));
    if (op == ReduceOp::kSum) result += value;
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
    if (op == ReduceOp::kProduct) result *= value;
  }
  return result;
}

// IEEE 754 binary16 of a small integer.
uint32_t HalfOf(int value) {
  if (value == 0) return 0;
  const auto size = static_cast<uint32_t>(std::abs(value));
  const auto exponent = static_cast<uint32_t>(std::bit_width(size)) - 1;
  return (value < 0 ? 0x8000u : 0u) | (exponent + 15) << 10 |
         ((size << (10 - exponent)) & 0x3ff);
}

uint64_t BitsOf(Dtype type, int value) {
  const uint32_t single = std::bit_cast<uint32_t>(static_cast<float>(value));
  switch (type) {
    case Dtype::kFloat32:
      return single;
    case Dtype::kFloat16:
      return HalfOf(value);
    case Dtype::kBfloat16:
      return single >> 16;
    case Dtype::kFloat64:
      return std::bit_cast<uint64_t>(static_cast<double>(value));
    default:
      return static_cast<uint64_t>(Typed(type, value));
  }
}

Bytes Encoded(Dtype type, const std::vector<int>& values) {
  const size_t size = SizeOf(type);
  Bytes bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = BitsOf(type, values[i]);
    std::memcpy(bytes.data() + i * size, &bits, size);  // little-endian
  }
  return bytes;
}

// Memory that a group can use, of the fake or of the thread's current GPU.
class Memory {
 public:
  Memory(bool is_device, const Bytes& contents)
      : is_device_(is_device), host_(contents) {
    if (!is_device_ || host_.empty()) return;
    EXPECT_EQ(cudaMalloc(&device_, host_.size()), cudaSuccess);
    EXPECT_EQ(
        cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice),
        cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~Memory() {
    if (device_ != nullptr) (void)cudaFree(device_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() { return is_device_ ? device_ : host_.data(); }
  const Bytes& Read() {
    if (device_ != nullptr) {
      EXPECT_EQ(cudaMemcpy(host_.data(), device_, host_.size(),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
    return host_;
  }

 private:
  const bool is_device_;
  Bytes host_;
  void* device_ = nullptr;
};

class Nccl : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    ResetFaults();
    ranks_ = GetParam().ranks;
    if (ranks_ > 0) {
      library_ = FakeNccl();
      return;
    }
    is_device_ = true;
    const cudaError_t error = cudaGetDeviceCount(&ranks_);
    if (error != cudaSuccess || ranks_ == 0) {
      GTEST_SKIP() << "no GPU: " << cudaGetErrorString(error);
    }
    const auto loaded = collective::LoadNccl(GroupOptions().nccl_library);
    if (!loaded.ok()) GTEST_SKIP() << loaded.status();
    library_ = *loaded;
  }

  Bytes Garbage(size_t count, Dtype type) const {
    return Bytes(count * SizeOf(type), std::byte{0x5a});
  }

  // `body` with each type and count, on all ranks.
  using Body = std::function<void(Group&, Dtype, size_t)>;
  void Run(const Body& body) {
    GroupOptions options;
    options.backend = "nccl";
    options.transport.name = "inproc";
    options.world_size = ranks_;
    options.timeout = std::chrono::seconds(60);
    RunRanks(
        options,
        [&body](Group& group) {
          for (const Dtype type : kTypes) {
            for (const size_t count : kCounts) body(group, type, count);
          }
          ASSERT_THAT(group.Barrier(), IsOk());
        },
        [this](GroupOptions mine, const AddressExchange& exchange) {
          if (is_device_) {
            mine.device = mine.rank;
            EXPECT_EQ(cudaSetDevice(mine.device), cudaSuccess);
          }
          return NcclGroup::Make(mine, exchange, library_);
        });
  }

  Library library_;
  int ranks_ = 0;
  bool is_device_ = false;
};

TEST_P(Nccl, AllreduceReducesEveryTypeAndOperation) {
  Run([this](Group& group, Dtype type, size_t count) {
    for (const ReduceOp op : kOps) {
      Memory data(is_device_, Encoded(type, Values(group.rank(), count)));
      ASSERT_THAT(group.Allreduce(data.data(), count, type, op), IsOk());
      std::vector<int> expected(count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = Reduced(type, op, ranks_, i);
      }
      ASSERT_TRUE(data.Read() == Encoded(type, expected))
          << ToString(type) << " " << ToString(op) << " count " << count;
    }
  });
}

TEST_P(Nccl, AllreduceAllReducesSeveral) {
  Run([this](Group& group, Dtype type, size_t count) {
    const Bytes given = Encoded(type, Values(group.rank(), count));
    Memory first(is_device_, given);
    Memory second(is_device_, given);
    const Group::Part parts[] = {
        {first.data(), count}, {nullptr, 0}, {second.data(), count}};
    ASSERT_THAT(group.AllreduceAll(parts, type, ReduceOp::kSum), IsOk());
    std::vector<int> expected(count);
    for (size_t i = 0; i < count; ++i) {
      expected[i] = Reduced(type, ReduceOp::kSum, ranks_, i);
    }
    EXPECT_TRUE(first.Read() == Encoded(type, expected)) << count;
    EXPECT_TRUE(second.Read() == Encoded(type, expected)) << count;
  });
}

TEST_P(Nccl, ReduceScatterGivesEachRankItsBlock) {
  Run([this](Group& group, Dtype type, size_t count) {
    const size_t all = count * static_cast<size_t>(ranks_);
    const size_t begin = count * static_cast<size_t>(group.rank());
    for (const ReduceOp op : kOps) {
      Memory in(is_device_, Encoded(type, Values(group.rank(), all)));
      Memory out(is_device_, Garbage(count, type));
      ASSERT_THAT(group.ReduceScatter(in.data(), out.data(), count, type, op),
                  IsOk());
      std::vector<int> expected(count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = Reduced(type, op, ranks_, begin + i);
      }
      ASSERT_TRUE(out.Read() == Encoded(type, expected))
          << ToString(type) << " " << ToString(op) << " count " << count;
    }
  });
}

TEST_P(Nccl, AllgatherPutsBlocksInTheOrderOfRanks) {
  Run([this](Group& group, Dtype type, size_t count) {
    std::vector<int> expected;
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<int> block = Values(rank, count);
      expected.insert(expected.end(), block.begin(), block.end());
    }
    Memory in(is_device_, Encoded(type, Values(group.rank(), count)));
    Memory out(is_device_, Garbage(expected.size(), type));
    ASSERT_THAT(group.Allgather(in.data(), out.data(), count, type), IsOk());
    ASSERT_TRUE(out.Read() == Encoded(type, expected))
        << ToString(type) << " count " << count;
  });
}

TEST_P(Nccl, AllgathervTakesBlocksOfDifferentSizesAndNone) {
  Run([this](Group& group, Dtype type, size_t count) {
    std::vector<size_t> counts;
    std::vector<int> expected;
    for (int rank = 0; rank < ranks_; ++rank) {
      counts.push_back(rank == 1 ? 0 : count / static_cast<size_t>(rank + 1));
      const std::vector<int> block = Values(rank, counts.back());
      expected.insert(expected.end(), block.begin(), block.end());
    }
    const size_t own = counts[static_cast<size_t>(group.rank())];
    Memory in(is_device_, Encoded(type, Values(group.rank(), own)));
    Memory out(is_device_, Garbage(expected.size(), type));
    ASSERT_THAT(group.Allgatherv(in.data(), out.data(), counts, type), IsOk());
    ASSERT_TRUE(out.Read() == Encoded(type, expected))
        << ToString(type) << " count " << count;
  });
}

// Some blocks are empty; each rank has one for itself.
TEST_P(Nccl, AlltoallvTransposesBlocksOfDifferentSizes) {
  Run([this](Group& group, Dtype type, size_t count) {
    const auto count_of = [count](int from, int to) {
      return from == to ? 3 : static_cast<size_t>((from + 2 * to) % 3) * count;
    };
    std::vector<size_t> sends, receives;
    std::vector<int> out, expected;
    for (int rank = 0; rank < ranks_; ++rank) {
      sends.push_back(count_of(group.rank(), rank));
      receives.push_back(count_of(rank, group.rank()));
      const auto to = Values(group.rank() + 10 * rank, sends.back());
      out.insert(out.end(), to.begin(), to.end());
      const auto from = Values(rank + 10 * group.rank(), receives.back());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    Memory in(is_device_, Encoded(type, out));
    Memory got(is_device_, Garbage(expected.size(), type));
    ASSERT_THAT(group.Alltoallv(in.data(), sends, got.data(), receives, type),
                IsOk());
    ASSERT_TRUE(got.Read() == Encoded(type, expected))
        << ToString(type) << " count " << count;
  });
}

TEST_P(Nccl, ReduceScattervTakesBlocksOfDifferentSizesAndNone) {
  Run([this](Group& group, Dtype type, size_t count) {
    std::vector<size_t> counts;
    for (int rank = 0; rank < ranks_; ++rank) {
      counts.push_back(rank == 1 ? 0 : count / static_cast<size_t>(rank + 1));
    }
    const auto self = counts.begin() + group.rank();
    const size_t begin = std::accumulate(counts.begin(), self, size_t{0});
    const size_t all = std::accumulate(self, counts.end(), begin);
    for (const ReduceOp op : kOps) {
      Memory in(is_device_, Encoded(type, Values(group.rank(), all)));
      Memory out(is_device_, Garbage(*self, type));
      ASSERT_THAT(group.ReduceScatterv(in.data(), out.data(), counts, type, op),
                  IsOk());
      std::vector<int> expected;
      for (size_t i = begin; i < begin + *self; ++i) {
        expected.push_back(Reduced(type, op, ranks_, i));
      }
      ASSERT_TRUE(out.Read() == Encoded(type, expected))
          << ToString(type) << " " << ToString(op) << " count " << count;
    }
  });
}

TEST_P(Nccl, BroadcastReachesAllFromEveryRoot) {
  Run([this](Group& group, Dtype type, size_t count) {
    for (int root = 0; root < ranks_; ++root) {
      Memory data(is_device_, Encoded(type, Values(group.rank(), count)));
      ASSERT_THAT(group.Broadcast(data.data(), count, type, root), IsOk());
      ASSERT_TRUE(data.Read() == Encoded(type, Values(root, count)))
          << ToString(type) << " root " << root << " count " << count;
    }
  });
}

TEST_P(Nccl, AlltoallTransposesBlocks) {
  Run([this](Group& group, Dtype type, size_t count) {
    const size_t all = count * static_cast<size_t>(ranks_);
    const size_t begin = count * static_cast<size_t>(group.rank());
    std::vector<int> expected;
    for (int from = 0; from < ranks_; ++from) {
      for (size_t i = 0; i < count; ++i) {
        expected.push_back(ValueAt(from, begin + i));
      }
    }
    Memory in(is_device_, Encoded(type, Values(group.rank(), all)));
    Memory out(is_device_, Garbage(all, type));
    ASSERT_THAT(group.Alltoall(in.data(), out.data(), count, type), IsOk());
    ASSERT_TRUE(out.Read() == Encoded(type, expected))
        << ToString(type) << " count " << count;
  });
}

// A rank that does nothing more has sent all that the others wait for.
TEST_P(Nccl, BarrierLeavesNothingToBeSent) {
  if (is_device_) GTEST_SKIP() << "of messages between hosts";
  GroupOptions options;
  options.backend = "nccl";
  options.transport.name = "tcp";
  options.transport.tls = "tcp";
  options.world_size = ranks_;
  options.timeout = std::chrono::seconds(5);
  std::barrier all(ranks_);
  RunRanks(
      options,
      [&all](Group& group) {
        for (int i = 0; i < 100; ++i) {
          EXPECT_THAT(group.Barrier(), IsOk());
          all.arrive_and_wait();
        }
      },
      [this](const GroupOptions& mine, const AddressExchange& exchange) {
        return NcclGroup::Make(mine, exchange, library_);
      });
}

INSTANTIATE_TEST_SUITE_P(On, Nccl,
                         ::testing::Values(Setting{"Fake1", 1},
                                           Setting{"Fake2", 2},
                                           Setting{"Fake3", 3},
                                           Setting{"Fake5", 5},
                                           Setting{"Device", 0}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.test_name);
                         });

}  // namespace
}  // namespace telegrad::testing

#include "kvstore/operations/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "tests/kvstore/gpu.h"
#include "tests/kvstore/operations/device_rank.h"
#include "tests/kvstore/operations/operations_ranks.h"

// Arrays in the memory of devices: results are those of host memory, bit by
// bit, there.
namespace telegrad::testing {
namespace {

using operations::kEmulatedMemory;
using ::testing::ElementsAre;

// Where arrays are, and by what groups of these are made.
struct Setting {
  const char* name;
  int device;
  // "host": by the group for host memory, which emulated memory, open to it,
  // has instead of NCCL. "nccl": not there, so that all goes through the host,
  // to which emulated memory is closed.
  const char* backend;
};

constexpr int kRanks = 3;

void RunOn(const Setting& setting,
           const std::function<void(Operations&, DeviceRank&)>& body) {
  std::optional<DeviceAccess> access;
  if (std::string(setting.backend) == "host") {
    access.emplace(operations::DeviceOf(setting.device));
  }
  operations::Options options;
  options.device_group = InprocOptions(kRanks);
  options.device_backend = setting.backend;
  RunOperations(
      kRanks,
      [&](Operations& operations) {
        DeviceRank rank(setting.device);
        body(operations, rank);
      },
      options);
}

class DevicesOfRanks : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (GetParam().device >= 0) HasGpu();
  }

  // What `make` wants, of values [rank + 1 ...], in host memory and there.
  template <typename T>
  void Compare(const std::function<std::shared_ptr<Submission>(
                   const std::vector<T>&, int rank)>& make,
               bool in_place = false) {
    RunOn(GetParam(), [&](Operations& operations, DeviceRank& rank) {
      std::vector<T> values;
      for (int i = 0; i < 12; ++i) {
        values.push_back(static_cast<T>(i * 7 % 5 + operations.rank() + 1));
      }
      const auto expected = Do<T>(operations, make(values, operations.rank()));
      const auto wanted = rank.Move(make(values, operations.rank()), values);
      if (in_place) {
        wanted->out = const_cast<void*>(wanted->in);
        wanted->out_elems = values.size();
      }
      const auto handle = operations.Submit(wanted);
      ASSERT_THAT(handle, IsOk());
      EXPECT_EQ(rank.ResultOf<T>(operations, *handle), expected);
    });
  }

  template <typename T>
  void CompareReductions() {
    for (const Op op : {Op::kSum, Op::kAverage, Op::kMax, Op::kProduct}) {
      SCOPED_TRACE(ToString(op));
      for (const bool in_place : {false, true}) {
        Compare<T>(
            [op](const std::vector<T>& values, int) {
              auto wanted = Want(Kind::kAllreduce, "x", values);
              wanted->request.op = op;
              wanted->request.prescale = 2;
              wanted->request.postscale = .5;
              return wanted;
            },
            in_place);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Memory, DevicesOfRanks,
    ::testing::Values(Setting{"ByAGroup", kEmulatedMemory, "host"},
                      Setting{"ThroughTheHost", kEmulatedMemory, "nccl"},
                      Setting{"OnAGpu", 0, "nccl"}),
    [](const auto& setting) { return setting.param.name; });

TEST_P(DevicesOfRanks, Reduce) {
  CompareReductions<float>();
  CompareReductions<int32_t>();  // whose averages no kernel makes
  CompareReductions<double>();
}

// Halves, of which Want knows nothing.
TEST_P(DevicesOfRanks, ReduceHalves) {
  RunOn(GetParam(), [&](Operations& operations, DeviceRank& rank) {
    for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
      // 1, 1.5, 2 of both.
      const std::vector<uint16_t> values =
          dtype == Dtype::kFloat16
              ? std::vector<uint16_t>{0x3C00, 0x3E00, 0x4000}
              : std::vector<uint16_t>{0x3F80, 0x3FC0, 0x4000};
      const auto make = [&] {
        auto wanted = std::make_shared<Submission>();
        wanted->request.name = "half";
        wanted->request.dtype = dtype;
        wanted->request.shape = {3};
        wanted->request.op = Op::kAverage;
        wanted->request.prescale = 3;
        wanted->in = values.data();
        return wanted;
      };
      const auto expected = Do<uint16_t>(operations, make());
      const auto handle = operations.Submit(rank.Move(make(), values));
      ASSERT_THAT(handle, IsOk());
      EXPECT_EQ(rank.ResultOf<uint16_t>(operations, *handle), expected);
    }
  });
}

TEST_P(DevicesOfRanks, DoAllElse) {
  using Values = std::vector<int32_t>;
  Compare<int32_t>([](const Values& values, int rank) {
    auto wanted = Want(Kind::kAllgather, "x", values);
    wanted->request.shape = {rank, 3};  // some of the values
    return wanted;
  });
  Compare<int32_t>([](const Values& values, int) {
    auto wanted = Want(Kind::kBroadcast, "x", values);
    wanted->request.root = 1;
    return wanted;
  });
  Compare<int32_t>([](const Values& values, int) {
    auto wanted = Want(Kind::kReduceScatter, "x", values);
    wanted->request.shape = {4, 3};
    wanted->request.op = Op::kMax;
    return wanted;
  });
  Compare<int32_t>([](const Values& values, int rank) {
    auto wanted = Want(Kind::kAlltoall, "x", values);
    wanted->request.shape = {6, 2};
    wanted->request.splits = {rank, 3, 3 - rank};
    return wanted;
  });
  Compare<float>([](const std::vector<float>& values, int) {
    auto wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.op = Op::kAdasum;
    return wanted;
  });
  Compare<float>([](const std::vector<float>& values, int) {
    auto wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.shape = {0};
    return wanted;
  });
}

// Of one group, whose requests run together, and of two kinds.
TEST_P(DevicesOfRanks, FuseWhatComesTogether) {
  RunOn(GetParam(), [&](Operations& operations, DeviceRank& rank) {
    std::vector<int64_t> handles;
    for (int i = 0; i < 8; ++i) {
      const std::vector<float> values(static_cast<size_t>(5 + i),
                                      static_cast<float>(operations.rank()));
      auto wanted = rank.Move(Want(i < 4 ? Kind::kAllreduce : Kind::kAllgather,
                                   absl::StrCat("t", i), values),
                              values);
      wanted->request.group = 1;
      wanted->request.group_size = 8;
      const auto handle = operations.Submit(wanted);
      ASSERT_THAT(handle, IsOk());
      handles.push_back(*handle);
    }
    for (size_t i = 0; i < 8; ++i) {
      const auto got = rank.ResultOf<float>(operations, handles[i]);
      ASSERT_EQ(got.size(), (5 + i) * (i < 4 ? 1 : kRanks));
      EXPECT_EQ(got.front(), i < 4 ? 3 : 0);
      EXPECT_EQ(got.back(), i < 4 ? 3 : 2);
    }
  });
}

TEST_P(DevicesOfRanks, HaveZerosOfWhoHasJoined) {
  RunOn(GetParam(), [&](Operations& operations, DeviceRank& rank) {
    const std::vector<float> values = {1, 2};
    const auto sum = [&] {
      const auto handle = operations.Submit(
          rank.Move(Want(Kind::kAllreduce, "x", values), values));
      EXPECT_THAT(handle, IsOk());
      return rank.ResultOf<float>(operations, *handle);
    };
    EXPECT_THAT(sum(), ElementsAre(3, 6));
    if (operations.rank() != 1) {
      EXPECT_THAT(sum(), ElementsAre(2, 4));
    }
    const auto join = std::make_shared<Submission>();
    join->request.kind = Kind::kJoin;
    join->request.name = "join";
    EXPECT_THAT(ErrorOf(operations, join), IsOk());
    EXPECT_THAT(sum(), ElementsAre(3, 6));
  });
}

TEST_P(DevicesOfRanks, SayWhoHasAnArrayElsewhere) {
  RunOn(GetParam(), [&](Operations& operations, DeviceRank& rank) {
    const std::vector<float> values = {1, 2};
    auto wanted = Want(Kind::kAllreduce, "x", values);
    if (operations.rank() == 2) wanted = rank.Move(wanted, values);
    EXPECT_THAT(ErrorOf(operations, wanted),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "rank 0 has memory of the host, rank 2 has memory of "
                         "a GPU"));
  });
}

TEST(Devices, SayWhatIsNone) {
  if (kernels::CudaKernels(nullptr) != nullptr) GTEST_SKIP() << "there is one";
  RunOperations(1, [](Operations& operations) {
    const std::vector<float> values = {1, 2};
    auto wanted = Want(Kind::kAllreduce, "x", values);
    wanted->request.device = 0;
    EXPECT_THAT(
        ErrorOf(operations, wanted),
        StatusIs(absl::StatusCode::kUnimplemented, "tensors on cuda:0"));
  });
}

}  // namespace
}  // namespace telegrad::testing

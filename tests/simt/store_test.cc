#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kernels/device_scope.h"
#include "tests/simt/steps.h"

// What a store asks of a device in each step, once it has what it needs.
namespace telegrad {
namespace {

using testing::IsOk;
using testing::Steps;

std::vector<TensorSpec> TensorsOf(const std::vector<size_t>& sizes,
                                  Dtype dtype = Dtype::kFloat32) {
  std::vector<TensorSpec> tensors;
  for (const size_t size : sizes) {
    tensors.push_back({.name = absl::StrCat("t", tensors.size()),
                       .num_elems = size,
                       .dtype = dtype,
                       .devices = {testing::kGpu}});
  }
  return tensors;
}

TEST(SimtStore, WaitsForNothingInSteps3To100) {
  Steps steps("2bit");
  for (int step = 0; step < 3; ++step) ASSERT_THAT(steps.Run(), IsOk());
  const simt::Counters before = simt::Counted();
  for (int step = 3; step <= 100; ++step) ASSERT_THAT(steps.Run(), IsOk());
  EXPECT_EQ((simt::Counted() - before).waits, 0u);
}

// Every chunk's sample was taken once before.
TEST(SimtStore, WaitsForNothingAndAllocatesNothing) {
  for (const char* type :
       {"none", "2bit", "int8", "int8shared", "threshold", "topk:0.1"}) {
    Steps steps(type);
    for (int step = 0; step < 20; ++step) {
      ASSERT_THAT(steps.Run(), IsOk());
    }
    const simt::Counters before = simt::Counted();
    for (int step = 0; step < 20; ++step) {
      ASSERT_THAT(steps.Run(), IsOk());
    }
    const simt::Counters used = simt::Counted() - before;
    EXPECT_EQ(used.waits, 0u) << type;
    EXPECT_EQ(used.allocations, 0u) << type;
    EXPECT_EQ(used.pool_allocations, 0u) << type;
  }
}

// A driver loads a kernel when it is launched first, which may wait for all of
// the device. Sizes are such that chunks are aligned and not.
TEST(SimtStore, LoadsNoKernelAfterInit) {
  const std::vector<size_t> sizes = {1000, 3, 64, 2001};
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const char* type : {"none", "2bit", "2bit:packing=1", "int4", "int2",
                             "int8shared", "int2shared", "fp16", "bf16", "1bit",
                             "onebit", "threshold", "topk:0.1", "dgc:0.1",
                             "randomk:0.1", "sparseloco", "qsgd", "powersgd"}) {
      SCOPED_TRACE(type);
      Steps steps(type, TensorsOf(sizes, dtype), 500);
      const simt::Counters before = simt::Counted();
      for (int step = 0; step < 4; ++step) ASSERT_THAT(steps.Run(), IsOk());
      EXPECT_EQ((simt::Counted() - before).loads, 0u);
    }
  }
}

const std::vector<size_t> kLeNet = {500, 20, 25000, 50, 400000, 500, 5000, 10};

// Steps 3 to 7: no tensor is sampled. One launch takes all mean squares and one
// encodes; codes, results and mean squares are one copy.
TEST(SimtStore, EncodesWhatIsReadyTogetherInOneLaunch) {
  Steps steps("2bit", TensorsOf(kLeNet), size_t{1} << 19);
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(steps.PushTogether(), IsOk());
  }
  uint64_t codes = 0;
  for (const size_t size : kLeNet) codes += (size + 15) / 16 * 4;
  for (int step = 3; step < 8; ++step) {
    const simt::Counters before = simt::Counted();
    ASSERT_THAT(steps.PushTogether(), IsOk());
    const simt::Counters used = simt::Counted() - before;
    EXPECT_EQ(used.launches, 2u) << step;
    EXPECT_EQ(used.copies_to_host, 1u) << step;
    // And what lies between neighbours.
    EXPECT_GE(used.bytes_to_host, codes + 8 * (32 + 8)) << step;
    EXPECT_LE(used.bytes_to_host, codes + 8 * (32 + 8 + 23)) << step;
    EXPECT_EQ(used.waits + used.allocations + used.pool_allocations, 0u);
  }
}

// They are sampled where they lie, and not made float32 first, for the health
// check neither, which looks at some of these chunks.
TEST(SimtStore, SamplesSixteenBitGradientsInOneLaunch) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    Steps steps("2bit", TensorsOf({33 * 1024, 64}, dtype), 1024);
    for (int step = 0; step < 3; ++step) {
      ASSERT_THAT(steps.PushTogether(), IsOk());
    }
    for (int step = 3; step < 6; ++step) {
      const simt::Counters before = simt::Counted();
      ASSERT_THAT(steps.PushTogether(), IsOk());
      EXPECT_EQ((simt::Counted() - before).launches, 2u) << step;
    }
  }
}

// Gradients in backward's order; tensors, chunks and groups have so many times
// less elements than real ones, and are as many.
constexpr size_t kLess = 1024;

void Add(size_t weights, size_t outputs, int others,
         std::vector<size_t>& sizes) {
  sizes.insert(sizes.begin(), weights / kLess + 1);
  for (int i = 0; i < others; ++i) {
    sizes.insert(sizes.begin(), outputs / kLess + 1);
  }
}

std::vector<size_t> Vgg16() {
  std::vector<size_t> sizes;
  size_t in = 3;
  for (const size_t out :
       {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}) {
    Add(9 * in * out, out, 1, sizes);
    in = out;
  }
  Add(size_t{25088} * 4096 - kLess, 4096, 1, sizes);
  Add(size_t{4096} * 4096 - kLess, 4096, 1, sizes);
  Add(size_t{4096} * 1000, 1000, 1, sizes);
  return sizes;
}

std::vector<size_t> ResNet50() {
  std::vector<size_t> sizes;
  Add(49 * 3 * 64, 64, 2, sizes);
  size_t in = 64;
  size_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int b = 0; b < blocks; ++b) {
      Add(in * width, width, 2, sizes);
      Add(9 * width * width, width, 2, sizes);
      Add(4 * width * width, 4 * width, 2, sizes);
      if (b == 0) Add(4 * in * width, 4 * width, 2, sizes);
      in = 4 * width;
    }
    width *= 2;
  }
  Add(size_t{2048} * 1000, 1000, 1, sizes);
  return sizes;
}

// Gradients are ready together, answers come by and by. One launch takes mean
// squares, one encodes a group; samples of the health check, of a chunk in 16,
// are taken by that.
TEST(SimtStore, HasFewLaunchesInAStepOfANetwork) {
  struct Network {
    std::vector<size_t> sizes;
    size_t num_tensors;
    uint64_t num_groups;  // of encodings
    uint64_t most_decodes;
  };
  for (const Network& network :
       {Network{Vgg16(), 32, 3, 3}, Network{ResNet50(), 161, 2, 1}}) {
    ASSERT_EQ(network.sizes.size(), network.num_tensors);
    SCOPED_TRACE(network.num_tensors);
    for (const char* type : {"2bit", "2bit:packing=1", "int2shared"}) {
      SCOPED_TRACE(type);
      Steps steps(type, TensorsOf(network.sizes), (size_t{1} << 19) / kLess,
                  "host", (size_t{1} << 24) / kLess);
      for (int step = 0; step < 3; ++step) {
        ASSERT_THAT(steps.RunTogether(), IsOk());
      }
      const simt::Counters before = simt::Counted();
      ASSERT_THAT(steps.PushTogether(), IsOk());
      const simt::Counters encoded = simt::Counted() - before;
      EXPECT_EQ(encoded.launches, 1 + network.num_groups);
      ASSERT_THAT(steps.RunTogether(), IsOk());
      const simt::Counters all = simt::Counted() - before;
      EXPECT_GT(all.launches, 2 * encoded.launches);
      EXPECT_LE(all.launches, 2 * encoded.launches + network.most_decodes);
      EXPECT_EQ(all.waits, 0u);
    }
  }
}

struct Launches {
  uint64_t pushed = 0;  // of pushes of 40 chunks
  uint64_t all = 0;     // of these and of a step
};

void CountLaunches(const char* type, Launches* counted) {
  Steps steps(type, TensorsOf({30 * 1024, 64, 9 * 1024}), 1024);
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(steps.RunTogether(), IsOk());
  }
  const simt::Counters before = simt::Counted();
  ASSERT_THAT(steps.PushTogether(), IsOk());
  counted->pushed = (simt::Counted() - before).launches;
  ASSERT_THAT(steps.RunTogether(), IsOk());
  counted->all = (simt::Counted() - before).launches;
}

// Of 40 chunks, of which some are sampled.
TEST(SimtStore, DecodesListsOfAllChunksInTwoLaunches) {
  for (const auto& [type, launches] :
       {std::pair("threshold", uint64_t{1 + 4}), {"topk:0.1", uint64_t{10}}}) {
    SCOPED_TRACE(type);
    Launches counted;
    ASSERT_NO_FATAL_FAILURE(CountLaunches(type, &counted));
    EXPECT_EQ(counted.pushed, launches);
    EXPECT_EQ(counted.all, 2 * launches + 2);
  }
}

// These encode chunk by chunk. Of powersgd each of 40 chunks learns the sum.
TEST(SimtStore, DecodesAnyNumberOfChunksInOneLaunch) {
  for (const auto& [type, launches] : {std::pair("randomk:0.1", uint64_t{1}),
                                       {"sparseloco", uint64_t{1}},
                                       {"powersgd", uint64_t{1 + 40}}}) {
    SCOPED_TRACE(type);
    Launches counted;
    ASSERT_NO_FATAL_FAILURE(CountLaunches(type, &counted));
    EXPECT_EQ(counted.all, 2 * counted.pushed + launches);
  }
}

// Of 161 tensors and of 280 chunks, of which some are sampled.
TEST(SimtStore, EncodesAnyNumberOfChunksInOneLaunch) {
  std::vector<size_t> many(161);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 64 + 37 * (i % 40);
  for (const auto& [sizes, chunk] :
       {std::pair(many, size_t{2048}),
        std::pair(std::vector<size_t>{200 * 1024, 64, 79 * 1024},
                  size_t{1024})}) {
    Steps steps("2bit", TensorsOf(sizes), chunk);
    for (int step = 0; step < 3; ++step) {
      ASSERT_THAT(steps.PushTogether(), IsOk());
    }
    for (int step = 3; step < 6; ++step) {
      uint64_t num_sampled = 0;
      for (size_t key = 0; key < sizes.size(); ++key) {
        for (size_t c = 0; c < (sizes[key] + chunk - 1) / chunk; ++c) {
          num_sampled += (static_cast<size_t>(step) + key + c) % 16 == 0;
        }
      }
      ASSERT_GT(num_sampled, 0u);
      const simt::Counters before = simt::Counted();
      ASSERT_THAT(steps.PushTogether(), IsOk());
      const simt::Counters used = simt::Counted() - before;
      EXPECT_EQ(used.launches, 2u) << step;
      EXPECT_EQ(used.copies_to_host, 1 + num_sampled) << step;
    }
  }
}

// The same of 8 chunks as of 12, none of them sampled: one launch takes the
// mean squares that thresholds are made of, and so many encode.
TEST(SimtStore, EncodesAnyNumberOfChunksInAsManyLaunches) {
  const std::vector<size_t> sizes = {500, 20, 2500, 50, 40000, 500, 5000, 10};
  const std::pair<const char*, uint64_t> all[] = {
      {"2bit", 1 + 1},       {"int8shared", 1 + 1}, {"int4shared", 1 + 1},
      {"int3shared", 1 + 1}, {"threshold", 1 + 4},  {"topk:0.1", 10}};
  for (const auto& [type, launches] : all) {
    for (const size_t chunk : {size_t{1} << 16, size_t{1} << 13}) {
      SCOPED_TRACE(absl::StrCat(type, ", chunks of ", chunk));
      Steps steps(type, TensorsOf(sizes), chunk);
      for (int step = 0; step < 3; ++step) {
        ASSERT_THAT(steps.PushTogether(), IsOk());
      }
      for (int step = 3; step < 6; ++step) {
        const simt::Counters before = simt::Counted();
        ASSERT_THAT(steps.PushTogether(), IsOk());
        const simt::Counters used = simt::Counted() - before;
        EXPECT_EQ(used.launches, launches) << step;
        EXPECT_EQ(used.waits + used.allocations + used.pool_allocations, 0u);
      }
    }
  }
}

// Small ones are gathered by a kernel, large ones copied from where they lie.
TEST(SimtStore, SendsSmallDenseTensorsAsOneCopy) {
  Steps steps("none", TensorsOf(kLeNet), size_t{1} << 19);
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(steps.PushTogether(), IsOk());
    const simt::Counters before = simt::Counted();
    ASSERT_THAT(steps.PushTogether(), IsOk());
    const simt::Counters used = simt::Counted() - before;
    EXPECT_EQ(used.launches, 1u) << step;
    // 25000 and 400000 elements are more than 64 KiB each.
    EXPECT_EQ(used.copies_to_host, 3u) << step;
  }
}

// Answers that the network puts there are flushed before they are decoded, of
// all that have come together once. The device gives such writes no order.
TEST(SimtStore, SeesWhatTheNetworkHasWritten) {
  for (const bool has_cards : {true, false}) {
    Steps steps("2bit", testing::kTensors, testing::kChunk,
                has_cards ? "staged" : "host");
    for (int step = 0; step < 2; ++step) ASSERT_THAT(steps.Run(), IsOk());
    const simt::Counters before = simt::Counted();
    ASSERT_THAT(steps.Run(), IsOk());
    const uint64_t flushes = (simt::Counted() - before).flushes;
    EXPECT_GE(flushes, has_cards ? 1u : 0u);
    EXPECT_LE(flushes, has_cards ? 4u : 0u);  // as many as chunks at most
  }
}

// Where the system gives none it is slower, and no fault of the device.
TEST(SimtStore, GoesOnWithoutPinnedMemory) {
  for (const char* type : {"none", "2bit", "topk:0.1"}) {
    simt::FailPinned(true);
    Steps steps(type);
    for (int step = 0; step < 4; ++step) EXPECT_THAT(steps.Run(), IsOk());
    simt::FailPinned(false);
  }
}

// A capture of the user's, in the mode that is usual, while a step goes on.
TEST(SimtStore, LeavesCapturesOfOthersWhole) {
  cudaStream_t captured = nullptr;
  cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking);
  for (const char* type : {"none", "2bit", "topk:0.1"}) {
    Steps steps(type);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal),
              cudaSuccess);
    for (int step = 0; step < 3; ++step) EXPECT_THAT(steps.Run(), IsOk());
    EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess) << type;
  }
  cudaStreamDestroy(captured);
}

// What a graph records is not there until it is replayed.
TEST(SimtStore, RefusesOperationsOfAStreamThatIsCaptured) {
  Steps steps("2bit");
  ASSERT_THAT(steps.Run(), IsOk());
  auto* const stream = static_cast<cudaStream_t>(steps.stream().handle);
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  const absl::Status status = steps.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("tensor a: its stream on cuda:0 is being "
                                   "captured into a CUDA graph"));
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_THAT(steps.Run(), IsOk());  // as before
}

// Of a device that is lost no event says when a gradient is there.
TEST(SimtStore, EncodesNoGradientThatIsNeverReady) {
  Steps steps("2bit");
  ASSERT_THAT(steps.Run(), IsOk());
  ASSERT_THAT(steps.Run(), IsOk());
  simt::BreakDevice(cudaErrorIllegalAddress);
  const simt::Counters before = simt::Counted();
  const absl::Status status = steps.Run();
  EXPECT_EQ((simt::Counted() - before).launches, 0u);
  simt::FailNoMore();
  kernels::TakeLaunchError(testing::kGpu);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDeviceFault) << status;
}

// A launch that fails ends the operation and names the device.
TEST(SimtStore, EndsWithTheDevicesError) {
  Steps steps("2bit");
  ASSERT_THAT(steps.Run(), IsOk());
  ASSERT_THAT(steps.Run(), IsOk());
  simt::FailLaunch(1, cudaErrorIllegalAddress, true);
  absl::Status status;
  for (int step = 0; step < 3 && status.ok(); ++step) status = steps.Run();
  simt::FailNoMore();
  kernels::TakeLaunchError(testing::kGpu);  // this thread's
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDeviceFault) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("cuda:0: an illegal memory access"));
}

}  // namespace
}  // namespace telegrad

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "tests/kvstore/cluster.h"

// How often memory is allocated by a store and its server, in one process.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {

std::atomic<int64_t> num_allocations{0};

void* Count(size_t size, size_t alignment) {
  ++num_allocations;
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Count(size, 16); }
void* operator new[](size_t size) { return Count(size, 16); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Count(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return Count(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Soon;

constexpr int kRounds = 100;
constexpr int kFew = 4;  // chunks
constexpr int kMany = 36;
// Of a chunk and round; what is systematic is 1 or more. Queues grow when more
// waits at a time than ever before.
constexpr double kSeldom = 0.25;

struct Case {
  std::string name;
  std::string transport;
  std::string codec;
  size_t chunk_elems;
};

class Steady : public ::testing::TestWithParam<Case> {};

// Beyond the codecs' 16 KiB the pool works on chunks, below the io threads.
INSTANTIATE_TEST_SUITE_P(
    , Steady,
    ::testing::Values(Case{"InprocDense", "inproc", "none", 8192},
                      Case{"InprocTwoBit", "inproc", "2bit", 8192},
                      Case{"InprocTwoBitSmall", "inproc", "2bit", 1024},
                      Case{"TcpDense", "tcp", "none", 8192},
                      Case{"TcpTwoBit", "tcp", "2bit", 8192},
                      Case{"TcpTwoBitSmall", "tcp", "2bit", 1024}),
    [](const auto& one) { return one.param.name; });

// Allocations in kRounds rounds of one tensor, by all of the process, the least
// of some times: pools and queues grow when a thread has to wait for a core.
int64_t CountRounds(KVStore& store, Key key, Buffer& grad) {
  const auto run = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const Bytes view = grad.view();
      ASSERT_THAT(store.PushPull(key, view, view, 0).Wait(Soon()), IsOk());
    }
  };
  run(20);  // until queues and pools have their sizes
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int time = 0; time < 5; ++time) {
    const int64_t before = num_allocations;
    run(kRounds);
    least = std::min(least, num_allocations - before);
  }
  return least;
}

// A tensor of many chunks allocates what one of few does, which is what an
// operation and its ticket are made of.
TEST_P(Steady, RoundsAllocateNothingForAChunk) {
  ClusterConfig config = testing::Job(1);
  config.transport = GetParam().transport;
  config.compression.type = GetParam().codec;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f};
  config.compression.has_guard = false;
  config.chunk_elems = GetParam().chunk_elems;
  config.has_values = false;
  config.tensors = {{"few", kFew * config.chunk_elems},
                    {"many", kMany * config.chunk_elems}};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    Buffer few(4 * config.tensors[0].num_elems);
    Buffer many(4 * config.tensors[1].num_elems);
    const int64_t of_few = CountRounds(store, 0, few);
    const int64_t of_many = CountRounds(store, 1, many);
    const double more = static_cast<double>(of_many - of_few);
    EXPECT_LT(more / (kRounds * (kMany - kFew)), kSeldom)
        << of_few << " allocations with " << kFew << " chunks, " << of_many
        << " with " << kMany;
    EXPECT_LT(of_few / kRounds, 60);
  });
}

}  // namespace
}  // namespace telegrad

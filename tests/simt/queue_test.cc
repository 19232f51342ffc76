#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "kernels/device_copy.h"
#include "kernels/device_queue.h"
#include "kernels/device_scope.h"
#include "kernels/dispatch.h"
#include "tests/simt/observe.h"

// What DeviceQueue says of devices where things go wrong, and what it costs.
namespace telegrad::kernels {
namespace {

using simt::Counted;
using simt::Counters;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Device kSecond = {DeviceKind::kCuda, 1};

class SimtQueue : public ::testing::Test {
 protected:
  ~SimtQueue() override { simt::FailNoMore(); }

  void Add(const Buffer& memory) {
    const DeviceScope scope(kSecond);
    table_.add_f32(memory.as<float>(), 4, memory.as<float>() + 4, stream_);
  }

  const std::unique_ptr<DeviceQueue> queue_ = MakeDeviceQueue(kSecond, nullptr);
  const KernelTable& table_ = *CudaKernels(1, nullptr);
  const Stream stream_ = queue_->MakeStream(0);
};

TEST_F(SimtQueue, NamesTheDeviceAndWhatCudaSays) {
  const Buffer memory = queue_->MakeMemory(32, stream_);
  EXPECT_EQ(queue_->TakeError(), "");
  simt::FailLaunch(0, cudaErrorIllegalAddress, false);
  Add(memory);
  EXPECT_EQ(queue_->TakeError(),
            "cuda:1: an illegal memory access was encountered");
  EXPECT_EQ(queue_->TakeError(), "");
}

TEST_F(SimtQueue, PollingKeepsTheErrorOfALaunch) {
  const Buffer memory = queue_->MakeMemory(32, stream_);
  const Event event = queue_->MakeEvent();
  simt::SetOrder(3);
  simt::FailLaunch(0, cudaErrorLaunchFailure, false);
  Add(memory);
  for (int i = 0; i < 8; ++i) Add(memory);
  ASSERT_TRUE(queue_->Record(event, stream_));
  while (queue_->Poll(event) == DeviceQueue::State::kRunning) {
  }
  EXPECT_EQ(queue_->TakeError(), "cuda:1: unspecified launch failure");
  simt::SetOrder(1);
}

TEST_F(SimtQueue, ALostDeviceFailsEveryCall) {
  const Buffer memory = queue_->MakeMemory(32, stream_);
  const Event event = queue_->MakeEvent();
  simt::FailLaunch(0, cudaErrorIllegalAddress, true);
  Add(memory);
  EXPECT_FALSE(queue_->Record(event, stream_));
  EXPECT_EQ(queue_->Poll(event), DeviceQueue::State::kFailed);
  EXPECT_EQ(queue_->MakeStream(0).handle, nullptr);
  EXPECT_THAT(queue_->TakeError(), HasSubstr("illegal memory access"));
}

TEST_F(SimtQueue, SaysHowMuchMemoryIsThere) {
  EXPECT_EQ(queue_->MakeMemory(size_t{1} << 60, stream_).size(), 0u);
  const std::string error = queue_->TakeError();
  EXPECT_THAT(error, StartsWith("cuda:1: out of memory"));
  EXPECT_THAT(error, HasSubstr("1152921504606846976 bytes wanted"));
}

// Whoever copies then takes ordinary memory.
TEST_F(SimtQueue, HasNoErrorWherePinnedMemoryIsNotThere) {
  EXPECT_EQ(queue_->MakePinned(size_t{1} << 60).size(), 0u);
  simt::FailPinned(true);
  EXPECT_EQ(queue_->MakePinned(64).size(), 0u);
  EXPECT_EQ(HostMemory(*queue_, 64).size(), 64u);
  simt::FailPinned(false);
  EXPECT_EQ(queue_->TakeError(), "");
}

// Those who ask for the errors of launches on the same thread would get it.
TEST_F(SimtQueue, ACopyThatRunsIsNoErrorOfTheThread) {
  const std::unique_ptr<DeviceCopier> copier = MakeCudaCopier(nullptr);
  std::byte* const host = copier->AllocateHost(64);
  const Buffer memory = queue_->MakeMemory(64, stream_);
  simt::SetOrder(3);
  DeviceCopier::Ticket last = 0;
  for (int i = 0; i < 16; ++i) last = copier->Start(memory.view(), {host, 64});
  EXPECT_EQ(copier->Poll(last), DeviceCopier::State::kRunning);
  EXPECT_EQ(TakeLaunchError(kSecond), "");
  while (copier->Poll(last) == DeviceCopier::State::kRunning) {
  }
  simt::SetOrder(1);
}

TEST_F(SimtQueue, WaitsForNothing) {
  const Buffer pinned = queue_->MakePinned(64);
  const Event event = queue_->MakeEvent();
  const Counters before = Counted();
  for (int i = 0; i < 10; ++i) {
    const Buffer memory = queue_->MakeMemory(64, stream_);
    Add(memory);
    ASSERT_TRUE(queue_->Copy(pinned.view(), memory.view(), stream_));
    ASSERT_TRUE(queue_->Record(event, stream_));
    ASSERT_TRUE(queue_->WaitOn(stream_, event));
    queue_->Poll(event);
  }
  const Counters used = Counted() - before;
  EXPECT_EQ(used.waits, 0u);
  EXPECT_EQ(used.allocations, 0u);
  EXPECT_EQ(used.bytes_to_host, 640u);
  EXPECT_EQ(queue_->TakeError(), "");
}

TEST_F(SimtQueue, LeavesTheCurrentDeviceOfEachThread) {
  std::thread([&] {
    int device = -1;
    const Buffer memory = queue_->MakeMemory(32, stream_);
    Add(memory);
    EXPECT_EQ(queue_->TakeError(), "");
    cudaGetDevice(&device);
    EXPECT_EQ(device, 0);
    {
      const DeviceScope scope(kSecond);
      cudaGetDevice(&device);
      EXPECT_EQ(device, 1);
      const DeviceScope again(kSecond);
      const DeviceScope cpu({DeviceKind::kCpu, 0});
    }
    cudaGetDevice(&device);
    EXPECT_EQ(device, 0);
  }).join();
}

// A context takes some hundred megabytes, and a process has one device of many.
TEST(SimtProbeDeathTest, UsesTheDeviceThatIsMeantAndNoOther) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const bool is_there = CudaKernels(0, nullptr) != nullptr;
        std::_Exit(is_there && !simt::HasContext(1) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// Nor does a thread that has chosen none, whatever it asks of the other one.
TEST(SimtQueueDeathTest, LeavesTheFirstDeviceToOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::thread([] {
          const bool is_known =
              BusIdOf({DeviceKind::kCuda, 0}) == "FFFE:00:00.0" &&
              BusIdOf({DeviceKind::kCuda, 91}).empty();
          if (!is_known) std::_Exit(2);
          const auto queue = MakeDeviceQueue(kSecond, nullptr);
          const Stream stream = queue->MakeStream(0);
          const Event event = queue->MakeEvent();
          const auto copier = MakeCudaCopier(nullptr);
          {
            const Buffer memory = queue->MakeMemory(64, stream);
            const Buffer pinned = queue->MakePinned(64);
            queue->Copy(pinned.view(), memory.view(), stream);
            queue->Record(event, stream);
            while (queue->Poll(event) == DeviceQueue::State::kRunning) {
            }
            std::byte* const host = copier->AllocateHost(64);
            const auto ticket = copier->Start(memory.view(), {host, 64});
            while (copier->Poll(ticket) == DeviceCopier::State::kRunning) {
            }
            copier->FreeHost(host);
          }
          queue->TakeError();
        }).join();
        std::_Exit(simt::HasContext(1) && !simt::HasContext(0) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// Whether a fork leaves it out.
bool IsKeptFromForks(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(memory);
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      is_it = begin <= wanted && wanted < end;
    } else if (is_it && line.rfind("VmFlags:", 0) == 0) {
      return line.find(" dc") != std::string::npos;
    }
  }
  return false;
}

// Where a machine has one node it can be bound to that. Skips in a sandbox.
TEST_F(SimtQueue, PinnedMemoryIsOnTheNodeThatItIsToldOf) {
  const Buffer probe(1 << 20);
  unsigned long nodes = 1;
  auto* const page = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(probe.data()) + 4095) / 4096 * 4096);
  if (syscall(SYS_mbind, page, 4096, MPOL_PREFERRED, &nodes, 64, 0) != 0) {
    GTEST_SKIP() << "mbind: " << std::strerror(errno);
  }
  const auto policy_of = [](const Buffer& memory) {
    int policy = -1;
    EXPECT_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0, memory.data(),
                      MPOL_F_ADDR),
              0);
    return policy;
  };
  EXPECT_EQ(queue_->bus_id(), "FFFE:01:00.0");
  EXPECT_EQ(policy_of(queue_->MakePinned(64)), MPOL_DEFAULT);
  queue_->PlacePinned(0);
  EXPECT_EQ(policy_of(queue_->MakePinned(64)), MPOL_PREFERRED);
  queue_->PlacePinned(1 << 20);  // no node
  EXPECT_EQ(queue_->MakePinned(64).size(), 64u);
  queue_->PlacePinned(-1);
  EXPECT_EQ(policy_of(queue_->MakePinned(64)), MPOL_DEFAULT);
}

// Where the parent's next write gets a page of its own, the device goes on with
// the one before.
TEST_F(SimtQueue, PinnedMemoryIsKeptFromForks) {
  const Buffer pinned = queue_->MakePinned(64);
  const auto copier = MakeCudaCopier(nullptr);
  EXPECT_TRUE(IsKeptFromForks(pinned.data()));
  EXPECT_TRUE(IsKeptFromForks(copier->AllocateHost(64)));
  const Buffer ordinary(1 << 20);
  EXPECT_FALSE(IsKeptFromForks(ordinary.data()));
}

TEST_F(SimtQueue, WithoutAScopeALaunchIsRefused) {
  const Buffer memory = queue_->MakeMemory(32, stream_);
  table_.add_f32(memory.as<float>(), 4, memory.as<float>() + 4, stream_);
  EXPECT_EQ(TakeLaunchError(kSecond), "cuda:1: invalid resource handle");
}

}  // namespace
}  // namespace telegrad::kernels

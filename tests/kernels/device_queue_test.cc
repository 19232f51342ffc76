#include "kernels/device_queue.h"

#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/device_access.h"
#include "kernels/device_scope.h"
#include "kernels/dispatch.h"
#include "tests/kernels/kernel_test.h"

// Every kind of device's queue does the same.
namespace telegrad::kernels {
namespace {

constexpr size_t kBytes = 100003;
constexpr auto kPatience = std::chrono::seconds(30);

std::vector<uint8_t> Pattern(unsigned seed) {
  return testing::RandomBytes(kBytes, seed);
}

class DeviceQueueTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    std::string why_not;
    queue_ = MakeDeviceQueue(GetParam(), &why_not);
    if (queue_ != nullptr) return;
    const char* const required = std::getenv("TELEGRAD_TEST_REQUIRE");
    // The second of two devices is not demanded.
    if (required != nullptr && std::strstr(required, "cuda") != nullptr &&
        GetParam().ordinal == 0) {
      FAIL() << why_not;
    }
    GTEST_SKIP() << why_not;
  }
  void TearDown() override {
    if (queue_ == nullptr) return;
    EXPECT_EQ(queue_->TakeError(), "");
  }

  DeviceQueue& queue() { return *queue_; }

  // Pinned memory with the pattern, or of the same size.
  Buffer Pinned(unsigned seed) {
    Buffer buffer = queue().MakePinned(kBytes);
    const std::vector<uint8_t> bytes = Pattern(seed);
    if (seed != 0) std::memcpy(buffer.data(), bytes.data(), kBytes);
    return buffer;
  }

  bool WaitFor(Event event) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      const DeviceQueue::State state = queue().Poll(event);
      if (state != DeviceQueue::State::kRunning) {
        return state == DeviceQueue::State::kPassed;
      }
      if (std::chrono::steady_clock::now() > end) return false;
    }
  }

  // All that the stream was given.
  bool Finish(Stream stream) {
    const Event event = queue().MakeEvent();
    return queue().Record(event, stream) && WaitFor(event);
  }

  static std::vector<uint8_t> BytesOf(const Buffer& buffer) {
    const auto* const first = buffer.as<uint8_t>();
    return {first, first + buffer.size()};
  }

  std::unique_ptr<DeviceQueue> queue_;
};

TEST_P(DeviceQueueTest, CopiesThereAndBack) {
  const Stream stream = queue().MakeStream(0);
  const Buffer there = Pinned(1);
  const Buffer back = Pinned(0);
  const Buffer memory = queue().MakeMemory(kBytes, stream);
  ASSERT_EQ(memory.view().device, GetParam());
  ASSERT_TRUE(queue().Copy(memory.view(), there.view(), stream));
  ASSERT_TRUE(queue().Copy(back.view(), memory.view(), stream));
  ASSERT_TRUE(Finish(stream));
  EXPECT_EQ(BytesOf(back), Pattern(1));
}

TEST_P(DeviceQueueTest, AStreamWaitsForAnother) {
  const Stream first = queue().MakeStream(0);
  const Stream second = queue().MakeStream(1);
  const Event event = queue().MakeEvent();
  const Buffer memory = queue().MakeMemory(kBytes, first);
  const Buffer back = Pinned(0);
  for (unsigned seed = 2; seed < 5; ++seed) {
    const Buffer there = Pinned(seed);
    ASSERT_TRUE(queue().Copy(memory.view(), there.view(), first));
    ASSERT_TRUE(queue().Record(event, first));
    ASSERT_TRUE(queue().WaitOn(second, event));
    ASSERT_TRUE(queue().Copy(back.view(), memory.view(), second));
    ASSERT_TRUE(Finish(second));
    EXPECT_EQ(BytesOf(back), Pattern(seed));
  }
}

TEST_P(DeviceQueueTest, EventsWithoutWorkHavePassed) {
  EXPECT_EQ(queue().Poll({}), DeviceQueue::State::kPassed);
  EXPECT_EQ(queue().Poll(queue().MakeEvent()), DeviceQueue::State::kPassed);
  EXPECT_TRUE(queue().WaitOn(queue().MakeStream(0), {}));
}

TEST_P(DeviceQueueTest, CallsWhenTheStreamGetsThere) {
  struct Called {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_called = false;
  } called;
  const Stream stream = queue().MakeStream(0);
  const Buffer there = Pinned(1);
  const Buffer back = Pinned(0);
  const Buffer memory = queue().MakeMemory(kBytes, stream);
  ASSERT_TRUE(queue().Copy(memory.view(), there.view(), stream));
  ASSERT_TRUE(queue().Copy(back.view(), memory.view(), stream));
  ASSERT_TRUE(queue().Notify(
      stream,
      [](void* argument) {
        auto* const to = static_cast<Called*>(argument);
        const std::lock_guard<std::mutex> lock(to->mutex);
        to->is_called = true;
        to->changed.notify_all();
      },
      &called));
  std::unique_lock<std::mutex> lock(called.mutex);
  ASSERT_TRUE(called.changed.wait_for(lock, kPatience,
                                      [&] { return called.is_called; }));
  EXPECT_EQ(BytesOf(back), Pattern(1));
}

TEST_P(DeviceQueueTest, KernelsUseItsMemory) {
  constexpr size_t kElems = 1000;
  const KernelTable* const table =
      GetParam().kind == DeviceKind::kCpu
          ? &CpuKernels()
          : CudaKernels(GetParam().ordinal, nullptr);
  const Stream stream = queue().MakeStream(0);
  const Buffer there = queue().MakePinned(4 * kElems);
  std::iota(there.as<float>(), there.as<float>() + kElems, 0.0f);
  const Buffer x = queue().MakeMemory(4 * kElems, stream);
  const Buffer sum = queue().MakeMemory(4 * kElems, stream);
  const Buffer back = queue().MakePinned(4 * kElems);
  ASSERT_TRUE(queue().Copy(x.view(), there.view(), stream));
  {
    const DeviceScope scope(GetParam());
    const DeviceAccess access(GetParam());
    table->add_f32(x.as<float>(), kElems, sum.as<float>(), stream);
    table->add_f32(x.as<float>(), kElems, sum.as<float>(), stream);
  }
  EXPECT_EQ(TakeLaunchError(GetParam()), "");
  ASSERT_TRUE(queue().Copy(back.view(), sum.view(), stream));
  ASSERT_TRUE(Finish(stream));
  for (size_t i = 0; i < kElems; ++i) {
    ASSERT_EQ(back.as<float>()[i], 2.0f * static_cast<float>(i));
  }
}

TEST_P(DeviceQueueTest, MemoryIsZerosAgainAndAgain) {
  const Stream stream = queue().MakeStream(0);
  const Buffer there = Pinned(1);
  for (int i = 0; i < 3; ++i) {
    const Buffer memory = queue().MakeMemory(kBytes, stream);
    const Buffer back = Pinned(2);
    ASSERT_TRUE(queue().Copy(back.view(), memory.view(), stream));
    ASSERT_TRUE(queue().Copy(memory.view(), there.view(), stream));
    ASSERT_TRUE(Finish(stream));
    EXPECT_EQ(BytesOf(back), std::vector<uint8_t>(kBytes));
  }
}

TEST_P(DeviceQueueTest, MemoryOutlivesTheStreamsOfTheQueue) {
  Buffer memory = queue().MakeMemory(kBytes, queue().MakeStream(0));
  EXPECT_EQ(queue().TakeError(), "");
  queue_.reset();
  memory = Buffer();
}

// As a neighbour that the transport gives a payload to reads it.
TEST_P(DeviceQueueTest, PinnedMemoryIsOrdinaryPages) {
  const Buffer pinned = queue().MakePinned(kBytes);
  ASSERT_EQ(pinned.size(), kBytes);
  EXPECT_EQ(BytesOf(pinned), std::vector<uint8_t>(kBytes));
  EXPECT_EQ(pinned.view().device, Device{});
  const Buffer filled = Pinned(3);
  std::vector<uint8_t> got(kBytes);
  const iovec to = {got.data(), kBytes};
  const iovec from = {filled.data(), kBytes};
  const ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  if (read < 0 && (errno == EPERM || errno == ENOSYS)) {
    GTEST_SKIP() << "this machine lets nobody read others' memory";
  }
  ASSERT_EQ(read, static_cast<ssize_t>(kBytes));
  EXPECT_EQ(got, Pattern(3));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceQueueTest,
                         ::testing::Values(Device{}, kEmulatedDevice,
                                           Device{DeviceKind::kCuda, 0},
                                           Device{DeviceKind::kCuda, 1}),
                         [](const auto& tested) -> std::string {
                           if (tested.param == kEmulatedDevice) {
                             return "emulated";
                           }
                           if (tested.param.kind == DeviceKind::kCpu) {
                             return "cpu";
                           }
                           return "cuda" + std::to_string(tested.param.ordinal);
                         });

TEST(MakeDeviceQueue, SaysWhyThereIsNone) {
  std::string why_not;
  EXPECT_EQ(MakeDeviceQueue({DeviceKind::kCuda, 99}, &why_not), nullptr);
  EXPECT_THAT(why_not, ::testing::ContainsRegex("cuda|CUDA"));
  EXPECT_EQ(CudaKernels(99, &why_not), nullptr);
  EXPECT_EQ(CudaKernels(-1, nullptr), nullptr);
}

}  // namespace
}  // namespace telegrad::kernels

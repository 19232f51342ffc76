#include "base/device_access.h"

#include <cstring>

#include "tests/kvstore/engine/devices.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::GradOf;
using testing::IsOk;
using testing::StatusIs;

constexpr size_t kElems = 229;

// One contributor on the emulated device. `touch` runs before each round with
// the gradient's memory.
std::vector<float> RunRounds(const CompressionConfig& compression,
                             bool is_emulated, int rounds,
                             void (*touch)(const float*) = nullptr) {
  const Device device = is_emulated ? kEmulatedDevice : Device{};
  BufferPool buffers;
  const EngineConfig config{
      .compression = compression, .device = device, .buffers = &buffers};
  const TensorSpec spec{.name = "t", .num_elems = kElems};
  const auto plan = MakeShardPlan(std::span(&spec, 1), 1, kElems, compression);
  auto tensor = *TensorCodec::Make(spec, (*plan)[0], config);
  ChunkSum sum = *ChunkSum::Make((*plan)[0], (*plan)[0].chunks[0], config);
  ChunkCodec& codec = tensor->chunks()[0];
  const Buffer grad = MakeDeviceBuffer(4 * kElems, device);
  const Buffer out = MakeDeviceBuffer(4 * kElems, device);
  std::vector<float> all;
  for (uint64_t step = 0; step < static_cast<uint64_t>(rounds); ++step) {
    {
      const DeviceAccess access(device);
      for (size_t i = 0; i < kElems; ++i) {
        grad.as<float>()[i] = GradOf(0, static_cast<int>(step), i);
      }
    }
    if (touch != nullptr) touch(grad.as<float>());
    const ChunkWish wish = tensor->Wish(grad.view(), {});
    if (codec.NeedsScale(step)) {
      EXPECT_THAT(sum.Propose(0, wish.scale), IsOk());
      codec.AgreeFirst(sum.scale());
    }
    const auto encoded = codec.Encode(step, 0, grad.view(), {});
    EXPECT_THAT(encoded, IsOk());
    sum.Note(codec.Wish(wish));
    const ConstBytes payload = encoded->payload;
    const auto result = sum.Sum(std::span(&payload, 1), nullptr, {});
    EXPECT_THAT(result, IsOk());
    sum.Finish(result->record);
    EXPECT_THAT(codec.Decode(result->record, result->payload, out.view(), {}),
                IsOk());
    codec.Agree(result->record.agreed);
    const DeviceAccess access(device);
    all.insert(all.end(), out.as<float>(), out.as<float>() + kElems);
  }
  return all;
}

CompressionConfig Of(const std::string& type) {
  CompressionConfig compression;
  compression.type = type;
  compression.warmup_steps = type == "none" ? 0 : 2;
  return compression;
}

// All codecs, with their health checks and dense rounds, never touch a gradient
// outside kernels and copies: the process would die.
TEST(EmulatedDevice, GivesTheSameBitsAsHostMemory) {
  for (const Codec* codec : AllCodecs()) {
    const CompressionConfig compression = Of(codec->traits().name);
    EXPECT_EQ(RunRounds(compression, true, 20),
              RunRounds(compression, false, 20))
        << codec->traits().name;
  }
}

using EmulatedDeviceDeathTest = ::testing::Test;

// A planted read is found.
TEST(EmulatedDeviceDeathTest, EndsWhoReadsAGradientOnTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  static float sink = 0;
  EXPECT_DEATH(RunRounds(Of("2bit"), true, 1,
                         [](const float* grad) { sink += grad[3]; }),
               "");
  RunRounds(Of("2bit"), false, 1, [](const float* grad) { sink += grad[3]; });
  EXPECT_NE(sink, 0);
}

}  // namespace
}  // namespace telegrad

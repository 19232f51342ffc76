#include "base/device_access.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "tests/kvstore/engine/contributor.h"
#include "tests/kvstore/gpu.h"
#include "tests/kvstore/oracle.h"

// Gradients on a device: frames, answers and what is kept between steps are
// those of host memory, bit by bit, and the host never looks at them: the
// memory of the emulated device is closed to it.
namespace telegrad {
namespace {

using testing::Contributor;
using testing::GradOf;
using testing::HasGpu;
using testing::IsOk;
using testing::kGpu;

constexpr size_t kAccessElems = 229;  // chunks of 64: the last is not whole
constexpr int kSteps = 50;

struct Case {
  CompressionConfig compression = {};
  Dtype dtype = Dtype::kFloat32;
  bool has_nonfinite = false;
};

// What a round shows: all payloads, the answer, all outputs.
struct Shown {
  std::vector<std::vector<std::vector<std::byte>>> payloads;
  std::vector<std::vector<std::byte>> answers;
  std::vector<std::vector<std::byte>> outputs;
  std::vector<int16_t> scales;
  bool operator==(const Shown&) const = default;
};

// Two contributors and a sum. The first one is on `lane`'s device, if there is
// one; the other in host memory.
class Job {
 public:
  Job(const Case& test, DeviceLane* lane, CardAccess cards = {}) : test_(test) {
    host_ = {.compression = test.compression,
             .num_contributors = 2,
             .buffers = &buffers_};
    device_ = host_;
    if (lane != nullptr) {
      device_.lane = lane;
      device_.cards = cards;
      device_.buffers = &lane->host_buffers();
    }
    const TensorSpec spec{
        .name = "t", .num_elems = kAccessElems, .dtype = test.dtype};
    const auto plan =
        *MakeShardPlan(std::span(&spec, 1), 1, 64, test.compression);
    contributors_.push_back(
        std::make_unique<Contributor>(spec, plan[0], device_));
    contributors_.push_back(
        std::make_unique<Contributor>(spec, plan[0], host_));
    for (const Chunk& chunk : plan[0].chunks) {
      sums_.push_back(*ChunkSum::Make(plan[0], chunk, host_));
    }
  }

  Contributor& contributor(size_t i) { return *contributors_[i]; }

  // Gradients grow half-way; codecs change twice.
  void Round(int step, Shown* shown) {
    for (size_t d = 0; d < 2; ++d) {
      std::vector<float> grad(kAccessElems);
      for (size_t i = 0; i < kAccessElems; ++i) {
        grad[i] = GradOf(static_cast<int>(d), step, i) *
                  (step < kSteps / 2 ? 1.0f : 16.0f);
      }
      if (test_.has_nonfinite && step % 3 == 0) {
        grad[step % kAccessElems] = std::numeric_limits<float>::quiet_NaN();
        grad[70] = std::numeric_limits<float>::infinity();
      }
      contributors_[d]->Fill(grad);
      const int last =
          static_cast<int>(contributors_[d]->codec().num_codecs()) - 1;
      if (step == 14 || step == 34) {
        ASSERT_THAT(contributors_[d]->codec().SetCodec(step == 14 ? last : 0),
                    IsOk());
      }
    }
    Sum(static_cast<uint64_t>(step), shown);
  }

 private:
  void Sum(uint64_t step, Shown* shown) {
    std::vector<ChunkWish> wishes;
    for (const auto& each : contributors_) wishes.push_back(each->Wish());
    for (size_t c = 0; c < sums_.size(); ++c) {
      for (size_t d = 0; d < 2; ++d) {
        if (!contributors_[d]->codec().chunks()[c].NeedsScale(step)) continue;
        ASSERT_THAT(sums_[c].Propose(static_cast<int>(d), wishes[d].scale),
                    IsOk());
      }
      for (const auto& each : contributors_) {
        ChunkCodec& chunk = each->codec().chunks()[c];
        if (chunk.NeedsScale(step)) chunk.AgreeFirst(sums_[c].scale());
      }
    }
    for (size_t d = 0; d < 2; ++d) {
      auto payloads = contributors_[d]->Encode(step, d);
      ASSERT_THAT(payloads, IsOk());
      shown->payloads.push_back(*std::move(payloads));
    }
    for (size_t c = 0; c < sums_.size(); ++c) SumChunk(c, step, wishes, shown);
    for (const auto& each : contributors_) {
      ASSERT_THAT(each->DecodeArrived(), IsOk());
      shown->outputs.push_back(each->Output());
    }
  }

  void SumChunk(size_t c, uint64_t step, const std::vector<ChunkWish>& wishes,
                Shown* shown) {
    ChunkSum& sum = sums_[c];
    shown->scales.push_back(sum.scale());
    std::vector<ConstBytes> payloads;
    for (size_t d = 0; d < 2; ++d) {
      ChunkCodec& chunk = contributors_[d]->codec().chunks()[c];
      const std::vector<std::byte>& payload = shown->payloads[d][c];
      PushRecord push = chunk.Push(step, wishes[d]);
      push.payload_bytes = payload.size();
      ASSERT_THAT(sum.CheckFormat(push), IsOk());
      ASSERT_THAT(sum.CheckSettings(push), IsOk());
      ASSERT_THAT(sum.codec().Validate({payload.data(), payload.size()}),
                  IsOk());
      sum.Note(push.wish);
      payloads.emplace_back(payload.data(), payload.size());
    }
    const auto result = sum.Sum(payloads, nullptr, {});
    ASSERT_THAT(result, IsOk());
    sum.Finish(result->record);
    const ConstBytes answer = result->payload;
    shown->answers.emplace_back(answer.data, answer.data + answer.size);
    for (const auto& each : contributors_) {
      ChunkCodec& chunk = each->codec().chunks()[c];
      ASSERT_THAT(chunk.CheckReply(result->record, answer.size, false), IsOk());
      ASSERT_THAT(each->Decode(c, result->record, answer), IsOk());
      chunk.Agree(result->record.agreed);
    }
  }

  const Case test_;
  BufferPool buffers_;
  EngineConfig host_;
  EngineConfig device_;
  std::vector<std::unique_ptr<Contributor>> contributors_;
  std::vector<ChunkSum> sums_;
};

void ExpectSameBits(const Case& test, int steps = kSteps,
                    Device device = kEmulatedDevice) {
  const auto lane = *DeviceLane::Make(device);
  const auto with_cards = *DeviceLane::Make(device);
  Job on_device(test, lane.get());
  Job by_cards(test, with_cards.get(), {.sends = true, .receives = true});
  Job on_host(test, nullptr);
  for (int step = 0; step < steps; ++step) {
    Shown here;
    ASSERT_NO_FATAL_FAILURE(on_host.Round(step, &here));
    for (Job* const job : {&on_device, &by_cards}) {
      Shown there;
      ASSERT_NO_FATAL_FAILURE(job->Round(step, &there));
      ASSERT_EQ(there.payloads, here.payloads) << step;
      ASSERT_EQ(there.answers, here.answers) << step;
      ASSERT_EQ(there.scales, here.scales) << step;
      ASSERT_EQ(there.outputs, here.outputs) << step;
    }
  }
  const TensorReport a = on_device.contributor(0).codec().Report(50);
  const TensorReport b = on_host.contributor(0).codec().Report(50);
  EXPECT_EQ(a.num_nonfinite, b.num_nonfinite);
  EXPECT_EQ(a.gave_up, b.gave_up);
  EXPECT_EQ(a.has_sample, b.has_sample);
  if (!std::isnan(b.residual_ratio)) {
    EXPECT_EQ(a.residual_ratio, b.residual_ratio);
  }
  EXPECT_EQ(a.cosine, b.cosine);
}

CompressionConfig Of(const std::string& type, ReplyMode reply) {
  CompressionConfig compression;
  compression.type = type;
  compression.reply = reply;
  compression.alternatives = {type == "2bit" ? "int8" : "2bit"};
  compression.warmup_steps = type == "none" ? 0 : 2;
  if (reply != ReplyMode::kReencode) return compression;
  compression.momentum = PushMomentum::kNesterov;
  compression.momentum_rate = 0.9f;
  return compression;
}

class EveryCodecOnDevice : public ::testing::TestWithParam<const Codec*> {};

INSTANTIATE_TEST_SUITE_P(, EveryCodecOnDevice, ::testing::ValuesIn(AllCodecs()),
                         [](const auto& codec) {
                           return "Of" + codec.param->traits().name;
                         });

TEST_P(EveryCodecOnDevice, GivesTheBitsOfHostMemory) {
  const CodecTraits& traits = GetParam()->traits();
  for (const ReplyMode reply :
       {ReplyMode::kDense, ReplyMode::kSum, ReplyMode::kReencode}) {
    for (const Dtype dtype :
         {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
      SCOPED_TRACE(absl::StrCat(ToString(reply), " ", ToString(dtype)));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
          {.compression = Of(traits.name, reply), .dtype = dtype}));
    }
  }
}

TEST_P(EveryCodecOnDevice, GivesTheBitsOfHostMemoryOnAGpu) {
  if (!HasGpu()) return;
  Case test = {.compression = Of(GetParam()->traits().name, ReplyMode::kAuto)};
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(test, 38, kGpu));
  test.compression = Of(GetParam()->traits().name, ReplyMode::kReencode);
  test.dtype = Dtype::kBfloat16;
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(test, 4, kGpu));
}

TEST_P(EveryCodecOnDevice, TreatsWhatIsNotFiniteAsHostMemoryDoes) {
  const CodecTraits& traits = GetParam()->traits();
  for (const NonFinitePolicy policy :
       {NonFinitePolicy::kZero, NonFinitePolicy::kPropagate}) {
    // What such codecs send is theirs to say; outputs of NaN are compared.
    if (policy == NonFinitePolicy::kPropagate && !traits.keeps_nonfinite) {
      continue;
    }
    Case test = {.compression = Of(traits.name, ReplyMode::kAuto),
                 .has_nonfinite = true};
    test.compression.nonfinite = policy;
    test.compression.alternatives = {};
    SCOPED_TRACE(ToString(policy));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(test, 20));
  }
}

TEST(OnDevice, GivesTheBitsOfHostMemoryInBothPackings) {
  for (const char* type : {"2bit:packing=0", "2bit:packing=1"}) {
    for (const ReplyMode reply :
         {ReplyMode::kDense, ReplyMode::kSum, ReplyMode::kReencode}) {
      SCOPED_TRACE(absl::StrCat(type, " ", ToString(reply)));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits({.compression = Of(type, reply)}));
    }
  }
}

TEST(OnDevice, RefusesWhatIsNotFinite) {
  const auto lane = *DeviceLane::Make(kEmulatedDevice);
  for (const char* type : {"2bit", "none"}) {
    CompressionConfig compression = Of(type, ReplyMode::kAuto);
    compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f};
    compression.warmup_steps = 0;
    Job job({.compression = compression}, lane.get());
    std::vector<float> grad(kAccessElems);
    grad[200] = -std::numeric_limits<float>::infinity();
    job.contributor(0).Fill(grad);
    EXPECT_FALSE(job.contributor(0).Encode(0, 0).ok()) << type;
  }
}

// A codec that does not pay is given up by the same samples.
TEST(OnDevice, GivesUpACodecThatHarms) {
  Case test = {.compression = Of("2bit", ReplyMode::kSum)};
  test.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0x1p-30f};
  test.compression.alternatives = {};
  ExpectSameBits(test, static_cast<int>(kGuardPeriod * (kGuardPatience + 1)));
}

// Codes leave the device as they are, with 32 bytes for each chunk, and with 8
// for each tensor where the scale follows the gradient; samples come on top in
// one step of sixteen.
TEST(OnDevice, CopiesNoMoreThanCodes) {
  const auto lane = *DeviceLane::Make(kEmulatedDevice);
  Case test = {.compression = Of("2bit", ReplyMode::kSum)};
  test.compression.warmup_steps = 0;
  test.compression.alternatives = {};
  Job job(test, lane.get());
  int num_plain = 0;
  for (int step = 0; step < 16; ++step) {
    const int64_t bytes = lane->down_bytes();
    const int64_t copies = lane->num_downs();
    Shown shown;
    ASSERT_NO_FATAL_FAILURE(job.Round(step, &shown));
    int64_t codes = 0;
    for (const auto& payload : shown.payloads[0]) {
      codes += static_cast<int64_t>(payload.size());
    }
    const int64_t overhead = lane->down_bytes() - bytes - codes;
    if (overhead != 4 * 32 + 8) continue;
    ++num_plain;
    // One more: the test waits for the wish first.
    EXPECT_LE(lane->num_downs() - copies, 2);
  }
  EXPECT_EQ(num_plain, 16 - 4);  // four chunks look in four other steps
}

// With cards that read and write the device's memory no code crosses the bus by
// way of the host, but what must be checked there.
TEST(OnDevice, CopiesNoCodesWhereCardsTakeThem) {
  for (const char* type : {"2bit", "int8", "topk:0.1", "powersgd"}) {
    const auto lane = *DeviceLane::Make(kEmulatedDevice);
    Case test = {.compression = Of(type, ReplyMode::kAuto)};
    test.compression.warmup_steps = 0;
    test.compression.alternatives = {};
    test.compression.has_guard = false;
    Job job(test, lane.get(), {.sends = true, .receives = true});
    Shown shown;
    ASSERT_NO_FATAL_FAILURE(job.Round(0, &shown));
    const int64_t down = lane->down_bytes();
    const int64_t up = lane->up_bytes();
    ASSERT_NO_FATAL_FAILURE(job.Round(1, &shown));
    const bool has_scale = type == std::string("2bit");
    EXPECT_EQ(lane->down_bytes() - down, 4 * 32 + (has_scale ? 8 : 0)) << type;
    const bool is_checked =
        type == std::string("topk:0.1") || type == std::string("powersgd");
    EXPECT_EQ(lane->up_bytes() > up, is_checked) << type;
  }
}

TEST(OnDevice, CopiesAnswersThatCameTogetherAsOne) {
  for (const ReplyMode reply : {ReplyMode::kAuto, ReplyMode::kReencode}) {
    for (const char* type : {"2bit", "int8", "topk:0.1"}) {
      const auto lane = *DeviceLane::Make(kEmulatedDevice);
      Case test = {.compression = Of(type, reply)};
      test.compression.warmup_steps = 0;
      test.compression.alternatives = {};
      Job job(test, lane.get());
      for (int step = 0; step < 3; ++step) {
        const int64_t copies = lane->num_ups();
        Shown shown;
        ASSERT_NO_FATAL_FAILURE(job.Round(step, &shown));
        ASSERT_EQ(shown.answers.size(), 4u);
        EXPECT_EQ(lane->num_ups() - copies, 1) << type;
      }
    }
  }
}

// As one only what is of one block and has no more between it than is allowed.
TEST(OnDevice, CopiesNothingAlongThatIsNotOfTheBlock) {
  const auto lane = *DeviceLane::Make(kEmulatedDevice);
  const kernels::DeviceScope scope(lane->device());
  const Buffer there = *lane->MakeMemory(144);
  const Buffer here = lane->MakeHostMemory(144);
  for (size_t i = 0; i < 144; ++i) here.data()[i] = std::byte(i);
  const int blocks[2] = {};
  const auto copies_of = [&](const void* second_block, size_t gap) {
    const int64_t copies = lane->num_ups();
    const auto part = [](const Buffer& buffer, size_t at) {
      return Bytes(buffer.data() + at, 64, buffer.view().device);
    };
    lane->Up(part(there, 80), part(here, 80), second_block, gap);
    lane->Up(part(there, 0), part(here, 0), &blocks[0], gap);
    lane->EndUp();
    return lane->num_ups() - copies;
  };
  EXPECT_EQ(copies_of(&blocks[0], 15), 2);
  EXPECT_EQ(copies_of(&blocks[1], 16), 2);
  EXPECT_EQ(copies_of(nullptr, 16), 2);
  EXPECT_EQ(copies_of(&blocks[0], 16), 1);
  Buffer back(144);
  ASSERT_THAT(lane->CopyNow(back.view(), there.view(), {}), IsOk());
  EXPECT_EQ(std::memcmp(back.data(), here.data(), 144), 0);
}

// The host's part of a step: nothing is to be found by looking elsewhere.
using OnDeviceDeathTest = ::testing::Test;

TEST(OnDeviceDeathTest, EndsWhoReadsAGradientOnTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Buffer memory = MakeEmulatedBuffer(4 * kAccessElems);
  Reach(memory.view()).data[12] = std::byte{1};
  EXPECT_DEATH(
      {
        volatile float sink = memory.as<float>()[3];
        static_cast<void>(sink);
      },
      "");
  EXPECT_DEATH(memory.as<float>()[3] = 1, "");
  const DeviceAccess access(kEmulatedDevice);
  EXPECT_NE(memory.as<float>()[3], 0);
}

}  // namespace
}  // namespace telegrad

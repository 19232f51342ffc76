#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/random.h"
#include "compression/codec_spec.h"
#include "compression/encode_many.h"
#include "kernels/device_queue.h"
#include "kernels/device_scope.h"
#include "tests/simt/observe.h"
#include "tests/testing/status_matchers.h"

// What codecs on a second GPU do and cost.
namespace telegrad {
namespace {

using kernels::DeviceQueue;
using simt::Counted;
using simt::Counters;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr Device kSecond = {DeviceKind::kCuda, 1};
constexpr size_t kElems = 5000;

class SimtCodec : public ::testing::Test {
 protected:
  SimtCodec() {
    Random random(1, 2);
    for (size_t i = 0; i < kElems; ++i) {
      pinned_.as<float>()[i] = random.NextNormal();
    }
    queue_->Copy(grad_.view(), pinned_.view(), stream_);
  }
  ~SimtCodec() override { simt::FailNoMore(); }

  static std::unique_ptr<PreparedCodec> Prepare(const char* text,
                                                size_t n = kElems) {
    const CodecSpec spec = *ParseCodecSpec(text);
    return *spec.codec->Prepare(n, kSecond, spec.options);
  }

  absl::Status Encode(const PreparedCodec& codec) {
    const kernels::DeviceScope scope(kSecond);
    state_.residual = residual_.view();
    return codec.Encode(grad_.view(), state_, {.threshold = 1.0f},
                        payload_.view(), result_.as<EncodeResult>(), stream_);
  }

  // As one item of a group.
  absl::Status EncodeAsGroup(const PreparedCodec& codec, BatchTable& table) {
    state_.residual = residual_.view();
    const EncodeItem item = {.codec = &codec,
                             .grad = grad_.view(),
                             .state = &state_,
                             .params = {.threshold = 1.0f},
                             .out = payload_.view(),
                             .result = result_.as<EncodeResult>()};
    return EncodeMany({&item, 1}, table);
  }

  // The payload, after all work.
  std::vector<std::byte> Payload(size_t size) {
    const Buffer back = queue_->MakePinned(size);
    queue_->Copy(back.view(), {payload_.data(), size, kSecond}, stream_);
    const Event event = queue_->MakeEvent();
    queue_->Record(event, stream_);
    while (queue_->Poll(event) == DeviceQueue::State::kRunning) {
    }
    return {back.data(), back.data() + size};
  }

  const std::unique_ptr<DeviceQueue> queue_ =
      kernels::MakeDeviceQueue(kSecond, nullptr);
  const Stream stream_ = queue_->MakeStream(0);
  const Buffer pinned_ = queue_->MakePinned(4 * kElems);
  const Buffer grad_ = queue_->MakeMemory(4 * kElems, stream_);
  const Buffer residual_ = queue_->MakeMemory(4 * kElems, stream_);
  const Buffer payload_ = queue_->MakeMemory(16 * kElems, stream_);
  const Buffer result_ = queue_->MakeMemory(sizeof(EncodeResult), stream_);
  CodecState state_;
};

TEST_F(SimtCodec, RunsOnTheDeviceOfItsScopeOnEveryThread) {
  const auto codec = Prepare("2bit");
  std::thread([&] { EXPECT_THAT(Encode(*codec), IsOk()); }).join();
  const auto cpu = *(*FindCodec("2bit"))->Prepare(kElems, Device{});
  std::vector<float> residual(kElems);
  CodecState state{.residual = {residual.data(), 4 * kElems}};
  Buffer payload(cpu->max_encoded_bytes());
  EncodeResult result;
  ASSERT_THAT(cpu->Encode(pinned_.view(), state, {.threshold = 1.0f},
                          payload.view(), &result, {}),
              IsOk());
  const std::vector<std::byte> got = Payload(payload.size());
  EXPECT_EQ(std::memcmp(got.data(), payload.data(), payload.size()), 0);
  EXPECT_EQ(queue_->TakeError(), "");
}

// With a launch that it shares, and with those of its own.
TEST_F(SimtCodec, AGroupReturnsWhatTheDeviceSaysOfItsLaunches) {
  for (const char* text : {"2bit", "randomk:0.1"}) {
    SCOPED_TRACE(text);
    const auto codec = Prepare(text);
    BatchTable table(queue_.get(), stream_);
    state_ = {};
    simt::FailLaunch(0, cudaErrorLaunchFailure, false);
    const absl::Status status = EncodeAsGroup(*codec, table);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(), "cuda:1: unspecified launch failure");
    EXPECT_THAT(EncodeAsGroup(*codec, table), IsOk());
  }
}

TEST_F(SimtCodec, PrepareRunsTheKernelsOnce) {
  Prepare("int8:128");
  const Counters before = Counted();
  Prepare("int8:128");
  EXPECT_EQ((Counted() - before).launches, 0u);
  Prepare("int8:192");
  EXPECT_GT((Counted() - before).launches, 0u);
}

TEST_F(SimtCodec, PrepareSaysThatADeviceIsBroken) {
  const CodecSpec spec = *ParseCodecSpec("int8:256");
  simt::FailLaunch(0, cudaErrorLaunchFailure, false);
  const auto prepared = spec.codec->Prepare(kElems, kSecond, spec.options);
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(prepared.status().message(),
              HasSubstr("cuda:1: unspecified launch failure"));
}

TEST_F(SimtCodec, SwitchingCodecsWaitsForNothing) {
  const auto first = Prepare("topk:0.1");
  const auto second = Prepare("dgc:0.1");
  const auto third = Prepare("powersgd");
  const Counters before = Counted();
  for (const auto* codec : {&first, &second, &third, &first}) {
    ASSERT_THAT(Encode(**codec), IsOk());
    state_ = {};
  }
  const Counters used = Counted() - before;
  EXPECT_EQ(used.waits, 0u);
  EXPECT_EQ(used.allocations, 0u);
  EXPECT_GT(used.pool_allocations, 0u);
  Payload(1);
  EXPECT_EQ(queue_->TakeError(), "");
}

// LeNet's gradients: one launch, one small copy, and from the third group on no
// memory.
TEST_F(SimtCodec, AGroupIsOneLaunch) {
  const std::vector<size_t> sizes = {500, 20, 2500, 50, 4000, 500, 5000, 10};
  std::vector<std::unique_ptr<PreparedCodec>> codecs;
  std::vector<CodecState> states(sizes.size());
  std::vector<EncodeItem> items;
  std::vector<PowerItem> powers;
  constexpr size_t kMost = 5000;
  const Buffer residuals = queue_->MakeMemory(32 * kMost, stream_);
  const Buffer results = queue_->MakeMemory(8 * sizeof(EncodeResult), stream_);
  const Buffer means = queue_->MakeMemory(8 * sizeof(double), stream_);
  for (size_t i = 0; i < sizes.size(); ++i) {
    codecs.push_back(Prepare("2bit", sizes[i]));
    states[i].residual = {residuals.data() + 4 * kMost * i, 4 * sizes[i],
                          kSecond};
    items.push_back(
        {.codec = codecs[i].get(),
         .grad = {grad_.data(), 4 * sizes[i], kSecond},
         .state = &states[i],
         .params = {.threshold = 1.0f},
         .out = {payload_.data() + 2 * kMost * i, 2 * kMost, kSecond},
         .result = results.as<EncodeResult>() + i});
    powers.push_back({items[i].grad, {}, means.as<double>() + i});
  }
  BatchTable table(queue_.get(), stream_);
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(SampledPowerMany(powers, table), IsOk());
    ASSERT_THAT(EncodeMany(items, table), IsOk());
    Payload(1);
  }
  const Counters before = Counted();
  for (int step = 0; step < 5; ++step) {
    ASSERT_THAT(SampledPowerMany(powers, table), IsOk());
    ASSERT_THAT(EncodeMany(items, table), IsOk());
    const Event event = queue_->MakeEvent();
    queue_->Record(event, stream_);
    while (queue_->Poll(event) == DeviceQueue::State::kRunning) {
    }
  }
  const Counters used = Counted() - before;
  EXPECT_EQ(used.launches, 10u);
  EXPECT_EQ(used.waits, 0u);
  EXPECT_EQ(used.allocations + used.pool_allocations, 0u);
  EXPECT_EQ(used.bytes_to_host, 0u);
  EXPECT_LT(used.bytes_to_device, 5u * 1200);
}

// 200 chunks and one that lies off its alignment: a launch more, so that the
// others are read and written 16 bytes at a time.
TEST_F(SimtCodec, AnOddArrayHasALaunchOfItsOwn) {
  constexpr size_t kCount = 200;
  constexpr size_t kSize = 64;
  const auto codec = Prepare("2bit", kSize);
  const Buffer outs = queue_->MakeMemory(4 * kSize * (kCount + 1), stream_);
  const Buffer results =
      queue_->MakeMemory(kCount * sizeof(EncodeResult), stream_);
  for (const bool is_odd : {false, true}) {
    BatchTable table(queue_.get(), stream_);
    std::vector<CodecState> states(kCount);
    std::vector<EncodeItem> items;
    std::vector<DecodeItem> answers;
    for (size_t i = 0; i < kCount; ++i) {
      const size_t at = 4 * kSize * i + (is_odd && i == kCount / 2 ? 4 : 0);
      states[i].residual = {residual_.data() + at % (2 * kElems), 4 * kSize,
                            kSecond};
      items.push_back({.codec = codec.get(),
                       .grad = {grad_.data(), 4 * kSize, kSecond},
                       .state = &states[i],
                       .params = {.threshold = 1.0f},
                       .out = {payload_.data() + 16 * i, 16, kSecond},
                       .result = results.as<EncodeResult>() + i});
      answers.push_back({.codec = codec.get(),
                         .payload = items[i].out,
                         .threshold = 1.0f,
                         .out = {outs.data() + at, 4 * kSize, kSecond}});
    }
    const Counters before = Counted();
    ASSERT_THAT(EncodeMany(items, table), IsOk());
    EXPECT_EQ((Counted() - before).launches, is_odd ? 2u : 1u);
    ASSERT_THAT(DecodeMany(answers, table), IsOk());
    EXPECT_EQ((Counted() - before).launches, is_odd ? 4u : 2u);
    Payload(1);
  }
}

}  // namespace
}  // namespace telegrad
